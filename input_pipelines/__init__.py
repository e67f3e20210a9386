"""Input pipelines: each module makes the `input_fn` that an estimator calls."""
