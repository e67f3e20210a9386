"""`python -m estimator.launch`: the launcher under its old name."""

from estimator_launch.command import run

if __name__ == "__main__":
    run()
