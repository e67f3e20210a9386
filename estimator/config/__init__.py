"""Configuration: the user's settings, and the cluster that TF_CONFIG describes."""
