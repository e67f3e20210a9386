"""Strategies and devices: what differs between one device, several, workers, ps tasks and a TPU."""
