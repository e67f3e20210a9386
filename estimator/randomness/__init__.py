"""Random ops that depend on the seed and the step alone, so that a resumed run draws the same."""
