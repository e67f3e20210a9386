"""One ps and two asynchronous workers, against the classic script: global steps a second."""

import functools

from benchmarks.processes import answer
from benchmarks.report import Row, as_dicts
from benchmarks.timing import ROUND_STEPS, divide, measure_rounds
from benchmarks.turns import started_groups
from estimator_launch.tasks import make_tasks

_NUM_WORKERS = 2
LOOP_STEPS = 100
_TARGET = 2.0


def measure(workload: str, num_rounds: int, until: float, is_quick: bool) -> dict:
    """Both contenders on one workload; each worker runs as many steps as the other."""
    tasks = make_tasks(_NUM_WORKERS, num_ps=1, has_chief=False, has_evaluator=False)
    shared = {"workload": workload, "loop_steps": LOOP_STEPS, "num_workers": _NUM_WORKERS}
    contenders = {
        "ours": {"contender": "ours, with ps", **shared},
        "classic": {"contender": "classic", **shared},
    }
    steps = LOOP_STEPS if is_quick else ROUND_STEPS[workload]
    with started_groups(tasks, contenders) as groups:
        turns = {name: functools.partial(group.measure, steps) for name, group in groups.items()}
        rounds = measure_rounds(turns, num_rounds, until)
    num_steps = steps * _NUM_WORKERS
    rounds = {name: [secs / num_steps for secs in values] for name, values in rounds.items()}
    # Seconds a step: the ratio of steps a second is the other way round.
    ratios = divide(rounds["classic"], rounds["ours"])
    micros = [seconds * 1e6 for seconds in rounds["classic"]]
    rows = [
        Row(
            "parameter_server",
            workload,
            "global steps a second, ours / classic",
            ratios,
            target=_TARGET,
            at_least=True,
        ),
        Row("parameter_server", workload, "classic, a global step", micros, unit="us"),
    ]
    return {"rounds": rounds, "rows": as_dicts(rows)}


if __name__ == "__main__":
    answer(measure)
