"""How to run: what the user configures, the cluster and the strategy."""
