"""Models: each module holds a `model_fn` that a `TPUEstimator` trains as it is."""
