"""Runs the launcher as `python -m estimator_launch`."""

from estimator_launch.command import run

if __name__ == "__main__":
    run()
