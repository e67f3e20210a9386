"""Time per training step, from the same input: ours, by hand, and Keras `fit`."""

import functools
import tempfile

from benchmarks.hand_written import train_hand_written
from benchmarks.keras_fit import train_keras
from benchmarks.ours import Setup, train_ours
from benchmarks.processes import answer
from benchmarks.report import Row, as_dicts
from benchmarks.timing import ROUND_STEPS, Rounds, divide, measure_trainers
from benchmarks.workloads import WORKLOADS

_LOOPS = (1, 10, 100)

# (numerator, denominator, target, those of single workloads)
_RATIOS = (
    ("ours 100", "by hand 100", 1.0, {}),
    ("ours 100", "keras 100", 0.97, {"logistic": 0.95}),
    ("ours 1", "keras 1", 1.0, {}),
    ("ours 10", "by hand 100", None, {"logistic": 1.1}),
    ("ours 1", "by hand 100", None, {}),
    ("keras 100", "by hand 100", None, {}),
)


def measure(workload: str, num_rounds: int, until: float, is_quick: bool) -> dict:
    """All contenders on one workload."""
    work = WORKLOADS[workload]
    trainers = {
        "by hand 100": functools.partial(train_hand_written, work, 100),
        "keras 1": functools.partial(train_keras, work, 1),
        "keras 100": functools.partial(train_keras, work, 100),
    }
    with tempfile.TemporaryDirectory() as directory:
        for loop_steps in _LOOPS:
            trainers[f"ours {loop_steps}"] = functools.partial(
                train_ours, work, f"{directory}/{loop_steps}", Setup(loop_steps)
            )
        round_steps = 100 if is_quick else ROUND_STEPS[workload]
        rounds = measure_trainers(trainers, round_steps, num_rounds, until)
    return {"rounds": rounds, "rows": as_dicts(make_rows(workload, rounds))}


def make_rows(workload: str, rounds: Rounds) -> list[Row]:
    """The ratios, and the limit itself in microseconds."""
    rows = [
        Row(
            "loop",
            workload,
            f"{a} / {b}",
            divide(rounds[a], rounds[b]),
            target=special.get(workload, target),
        )
        for a, b, target, special in _RATIOS
    ]
    by_hand = [seconds * 1e6 for seconds in rounds["by hand 100"]]
    return [*rows, Row("loop", workload, "a step by hand", by_hand, unit="us")]


if __name__ == "__main__":
    answer(measure)
