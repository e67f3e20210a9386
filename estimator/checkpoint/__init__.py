"""Checkpoints: a checkpoint is whole or absent."""
