"""What stands behind the verbs of an estimator: checks at the door, input, programs, results."""
