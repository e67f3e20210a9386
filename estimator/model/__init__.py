"""Calling `model_fn` on each replica, and one result from those of all replicas."""
