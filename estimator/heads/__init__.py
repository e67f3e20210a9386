"""Heads: what is on top of a model, from its logits to an EstimatorSpec."""
