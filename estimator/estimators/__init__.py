"""`Estimator` and `TPUEstimator`, and what their methods check, build and return."""
