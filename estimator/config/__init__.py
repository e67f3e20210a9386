"""Configuration: the user's settings, the cluster and the strategy."""
