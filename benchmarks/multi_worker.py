"""Two workers at half the batch each, against a hand-written loop under the same strategy."""

import functools

from benchmarks.processes import answer
from benchmarks.report import Row, as_dicts
from benchmarks.timing import ROUND_STEPS, divide, measure_rounds
from benchmarks.turns import started_groups
from estimator_launch.tasks import make_tasks

_NUM_WORKERS = 2
_LOOP_STEPS = 100
_TARGET = 1.0


def measure(workload: str, num_rounds: int, until: float, is_quick: bool) -> dict:
    """All contenders on one workload, in loops of 100."""
    tasks = make_tasks(_NUM_WORKERS, num_ps=0, has_chief=False, has_evaluator=False)
    shared = {"workload": workload, "loop_steps": _LOOP_STEPS, "num_workers": _NUM_WORKERS}
    contenders = {
        "ours": {"contender": "ours, mirrored", **shared},
        "hand-written": {"contender": "hand-written", **shared},
        "distributed input": {"contender": "hand-written, distributed", **shared},
    }
    steps = _LOOP_STEPS if is_quick else ROUND_STEPS[workload]
    with started_groups(tasks, contenders) as groups:
        turns = {name: functools.partial(group.measure, steps) for name, group in groups.items()}
        rounds = measure_rounds(turns, num_rounds, until)
    rounds = {name: [secs / steps for secs in values] for name, values in rounds.items()}
    ratios = {name: divide(rounds["ours"], rounds[name]) for name in rounds if name != "ours"}
    micros = [seconds * 1e6 for seconds in rounds["hand-written"]]
    start = f"{_NUM_WORKERS} workers, ours / hand-written"
    distributed = ratios["distributed input"]
    rows = [
        Row("multi_worker", workload, start, ratios["hand-written"], target=_TARGET),
        Row("multi_worker", workload, f"{start}, distributed input", distributed, target=_TARGET),
        Row("multi_worker", workload, "hand-written, a step", micros, unit="us"),
    ]
    return {"rounds": rounds, "rows": as_dicts(rows)}


if __name__ == "__main__":
    answer(measure)
