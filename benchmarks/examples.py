"""Time per training step of larger models: a ResNet and a Transformer, for CPUs and for GPUs."""

import functools
import tempfile

from benchmarks.examples_contenders import EXAMPLES, train_by_hand, train_ours
from benchmarks.processes import answer
from benchmarks.report import Row, as_dicts
from benchmarks.timing import ROUND_STEPS, divide, measure_trainers

_TARGET = 1.05


def measure(workload: str, num_rounds: int, until: float, is_quick: bool) -> dict:
    """Both contenders on one workload."""
    example = EXAMPLES[workload]
    steps = example.loop_steps if is_quick else ROUND_STEPS[workload]
    with tempfile.TemporaryDirectory() as directory:
        trainers = {
            "ours": functools.partial(train_ours, example, directory),
            "by hand": functools.partial(train_by_hand, example),
        }
        rounds = measure_trainers(trainers, steps, num_rounds, until)
    what = f"ours {example.loop_steps} / by hand {example.loop_steps}"
    ratios = divide(rounds["ours"], rounds["by hand"])
    by_hand = [seconds * 1e3 for seconds in rounds["by hand"]]
    rows = [
        Row("examples", workload, what, ratios, target=_TARGET),
        Row("examples", workload, "a step by hand", by_hand, unit="ms"),
    ]
    return {"rounds": rounds, "rows": as_dicts(rows)}


if __name__ == "__main__":
    answer(measure)
