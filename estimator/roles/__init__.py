"""`train_and_evaluate`: what each task of a cluster does, and when checkpoints are evaluated."""
