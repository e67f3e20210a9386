"""Ready-made models: an Estimator whose `model_fn` is made of feature columns and a head."""
