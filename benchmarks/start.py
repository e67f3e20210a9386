"""Time to the end of the first step, in fresh processes that alternate; no imports in it.

Ours: from the call of `train()`, which builds the model too, with checkpoints as by default.
Keras: from `compile`, the model being there already. With loops, ours is timed to the end of one
step against Keras without loops, and to the end of a loop of 100 steps against Keras' first
execution of as many.
"""

import functools

from benchmarks.processes import answer, run_in_process
from benchmarks.report import Row, as_dicts
from benchmarks.timing import Rounds, divide, measure_rounds

_TARGET = 1.0
_CONTENDERS = ("ours", "ours, loop 100", "ours, first loop", "keras", "keras, first loop")


def measure(workload: str, num_rounds: int, until: float, is_quick: bool) -> dict:
    """One process a contender and round, after one that fills the caches of the disk."""
    del is_quick
    contenders = {name: functools.partial(_time_first_step, workload, name) for name in _CONTENDERS}
    contenders["ours"]()
    rounds = measure_rounds(contenders, num_rounds, until, has_warm_up=False)
    return {"rounds": rounds, "rows": as_dicts(make_rows(workload, rounds))}


def _time_first_step(workload: str, contender: str) -> float:
    arguments = {"workload": workload, "contender": contender}
    return run_in_process("benchmarks.start_once", **arguments)["seconds"]


def make_rows(workload: str, rounds: Rounds) -> list[Row]:
    """Ratios to Keras, and what Keras takes."""
    pairs = (
        ("ours", "keras"),
        ("ours, loop 100", "keras"),
        ("ours, first loop", "keras, first loop"),
    )
    rows = [
        Row("start", workload, f"{a} / {b}", divide(rounds[a], rounds[b]), target=_TARGET)
        for a, b in pairs
    ]
    keras = [seconds * 1000 for seconds in rounds["keras"]]
    return [*rows, Row("start", workload, "keras, first step", keras, unit="ms")]


if __name__ == "__main__":
    answer(measure)
