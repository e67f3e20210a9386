"""A ready-made model, `DNNLinearCombinedClassifier`: by hand, Keras `fit` and tf.estimator 2.15.

tf.estimator is measured where `make contract-peer` has put it, or where PEER_PYTHON names an
interpreter that has it; it takes its turns in a process of its own.
"""

import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.processes import answer
from benchmarks.report import Row, as_dicts
from benchmarks.timing import ROUND_STEPS, Meter, Rounds, divide, measure_rounds
from benchmarks.turns import TaskGroup
from benchmarks.wide_deep_contenders import train_by_hand, train_keras, train_ours

_LOOP_STEPS = 100
_PEER = Path(__file__).parents[1] / ".venv-peer" / "bin" / "python"


def measure(workload: str, num_rounds: int, until: float, is_quick: bool) -> dict:
    """All contenders on one workload."""
    steps = _LOOP_STEPS if is_quick else ROUND_STEPS[workload]
    with tempfile.TemporaryDirectory() as directory, _started_peer() as peer:
        trainers = {
            "ours 100": functools.partial(train_ours, f"{directory}/100", _LOOP_STEPS),
            "ours 1": functools.partial(train_ours, f"{directory}/1", 1),
            "by hand 100": functools.partial(train_by_hand, _LOOP_STEPS),
            "keras 100": functools.partial(train_keras, _LOOP_STEPS),
        }
        meters = {name: Meter(train) for name, train in trainers.items()}
        turns = {name: functools.partial(meter.measure, steps) for name, meter in meters.items()}
        if peer:
            turns["tf.estimator"] = lambda: peer.measure(steps) / steps
        rounds = measure_rounds(turns, num_rounds, until)
        for meter in meters.values():
            meter.stop()
    return {"rounds": rounds, "rows": as_dicts(make_rows(workload, rounds))}


@contextlib.contextmanager
def _started_peer() -> Iterator[TaskGroup | None]:
    """tf.estimator 2.15 in a process; None, and a line that says so, without its environment."""
    python = os.environ.get("PEER_PYTHON", str(_PEER))
    if not os.path.exists(python):
        print(f"tf.estimator is left out: no {python}. Run `make contract-peer`.", file=sys.stderr)
        yield None
        return
    group = TaskGroup((), {}, module="benchmarks.wide_deep_peer", python=python)
    try:
        yield group
        group.stop()
    finally:
        group.kill()


def make_rows(workload: str, rounds: Rounds) -> list[Row]:
    """The ratios, and the limit itself in microseconds."""
    pairs = [
        ("ours 100", "keras 100", 1.0),
        ("ours 100", "by hand 100", 1.0),
        ("ours 1", "by hand 100", None),
        ("ours 100", "tf.estimator", 0.5),
    ]
    rows = [
        Row("wide_deep", workload, f"{a} / {b}", divide(rounds[a], rounds[b]), target=target)
        for a, b, target in pairs
        if b in rounds
    ]
    by_hand = [seconds * 1e6 for seconds in rounds["by hand 100"]]
    return [*rows, Row("wide_deep", workload, "a step by hand", by_hand, unit="us")]


if __name__ == "__main__":
    answer(measure)
