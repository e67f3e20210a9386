"""Programs that were drawn once and went wrong, as small as they could be made."""

import pytest

from tests.differential.compare import check
from tests.differential.program import Counter, CrossShard, Input, Optimizer, Part, Program

KERAS_SGD = Optimizer(api="keras", name="SGD")

# Each failed before its fix, in the way its comment says.
FOUND = {
    # FailedPreconditionError: to initialize the averages, a step was to be run.
    "averages_after_a_keras_optimizer": Program(average_decay=0.5, optimizer=KERAS_SGD),
    "averages_of_accumulated_steps": Program(
        average_decay=0.5, cross=CrossShard(accumulate_steps=2)
    ),
    # They counted the step that has no batch, with which training ends.
    **{
        f"a_counter_in_a_{where}_when_the_input_ends": Program(
            counters=(Counter(wired=where),), parts=(Part(),)
        )
        for where in ("cond", "while", "function")
    },
    # RuntimeError: it makes a variable that the second replica took for one to train.
    "nadam_on_two_replicas": Program(
        optimizer=Optimizer(api="keras", name="Nadam", options=(("epsilon", 0.01),)),
        parts=(Part(strategy="mirrored_x2", steps=2),),
    ),
    # The step that the input's last batches made had a loss in the event file and no summaries.
    "summaries_of_a_step_that_the_input_cuts_short": Program(
        cross=CrossShard(accumulate_steps=3),
        input=Input(num_examples=4, batch_size=1),
        parts=(Part(strategy="mirrored_x2", summary_every=1),),
    ),
}


@pytest.mark.parametrize("claim", FOUND)
def test_programs_that_once_went_wrong_agree(claim):
    check(FOUND[claim])
