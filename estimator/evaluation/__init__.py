"""Runs evaluation and prediction programs, which stay warm between calls."""
