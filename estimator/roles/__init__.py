"""`train_and_evaluate`: the role of each task of a cluster, and the schedule of evaluations."""
