"""Runs drawn programs until one of them fails."""

from __future__ import annotations

import hypothesis

from tests.differential.compare import check
from tests.differential.draw import programs


def run_cases(num_cases, seed, *, shrinks, tell=lambda program: None):
    """Checks `num_cases` programs; the same ones for the same seed.

    Args:
      num_cases: how many.
      seed: which.
      shrinks: whether the first that fails is made as small as it can be before it is raised.
      tell: called with each program before it is run.

    Raises:
      AssertionError: a program and its truth differ; the error has a note with the program.
    """
    phases = [hypothesis.Phase.generate] + [hypothesis.Phase.shrink] * shrinks

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=num_cases,
        database=None,
        deadline=None,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(programs())
    def agree(program):
        tell(program)
        check(program)

    agree()
