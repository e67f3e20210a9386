"""Random programs do what a plain eager loop does. How to read a failure: docs/contributing.md."""

import pytest

from tests.differential.cases import run_cases

NUM_CASES = 10


@pytest.mark.slow
@pytest.mark.timeout(900)  # For a busy machine: alone they take 20 seconds.
@pytest.mark.parametrize("seed", [0, *(pytest.param(i, marks=pytest.mark.full) for i in (1, 2, 3))])
def test_random_programs_do_what_an_eager_loop_does(seed):
    run_cases(NUM_CASES, seed, shrinks=False)
