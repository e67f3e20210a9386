"""Programs that were drawn once and went wrong, as small as they could be made."""

import pytest

from tests.differential.compare import check
from tests.differential.program import CrossShard, Optimizer, Program

KERAS_SGD = Optimizer(api="keras", name="SGD")

# Each failed before its fix, in the way its comment says.
FOUND = {
    # FailedPreconditionError: to initialize the averages, a step was to be run.
    "averages_after_a_keras_optimizer": Program(average_decay=0.5, optimizer=KERAS_SGD),
    "averages_of_accumulated_steps": Program(
        average_decay=0.5, cross=CrossShard(accumulate_steps=2)
    ),
}


@pytest.mark.parametrize("claim", FOUND)
def test_programs_that_once_went_wrong_agree(claim):
    check(FOUND[claim])
