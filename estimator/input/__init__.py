"""Calling `input_fn`, and what becomes of what it returns."""
