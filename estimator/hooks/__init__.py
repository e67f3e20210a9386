"""Hooks that a user passes: early stopping, evaluation in memory, TensorFlow's own in loops."""
