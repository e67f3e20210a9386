"""`python -m estimator.launch`: the launcher under its old name."""

if __name__ == "__main__":
    from estimator_launch.command import run

    run()
