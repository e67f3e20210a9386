"""One ps and 1 to 4 asynchronous workers: global steps a second, and against the classic script.

The workers share this machine's CPUs, so a curve says what a step costs all tasks together: where
the CPUs are busy with one worker already, more workers only take turns.
"""

import functools
import time

from benchmarks.parameter_server import LOOP_STEPS
from benchmarks.processes import answer
from benchmarks.report import Row, as_dicts
from benchmarks.timing import ROUND_STEPS, Rounds, divide, measure_rounds
from benchmarks.turns import started_groups
from estimator_launch.tasks import make_tasks

_MOST_WORKERS = 4
_CONTENDERS = {"ours": "ours, with ps", "classic": "classic"}


def measure(workload: str, num_rounds: int, until: float, is_quick: bool) -> dict:
    """Both contenders with each number of workers, one number after the other."""
    steps = LOOP_STEPS if is_quick else ROUND_STEPS[workload]
    rounds: Rounds = {}
    for num_workers in range(1, _MOST_WORKERS + 1):
        now = time.monotonic()
        share = (until - now) / (_MOST_WORKERS + 1 - num_workers)
        measured = _measure_workers(workload, num_workers, num_rounds, steps, now + share)
        rounds |= {f"{name}, {num_workers}": values for name, values in measured.items()}
    return {"rounds": rounds, "rows": as_dicts(make_rows(workload, rounds))}


def _measure_workers(
    workload: str, num_workers: int, num_rounds: int, steps: int, until: float
) -> Rounds:
    """Seconds a global step, by contender."""
    tasks = make_tasks(num_workers, num_ps=1, has_chief=False, has_evaluator=False)
    shared = {"workload": workload, "loop_steps": LOOP_STEPS, "num_workers": num_workers}
    contenders = {name: {"contender": long, **shared} for name, long in _CONTENDERS.items()}
    with started_groups(tasks, contenders) as groups:
        turns = {name: functools.partial(group.measure, steps) for name, group in groups.items()}
        rounds = measure_rounds(turns, num_rounds, until)
    num_steps = steps * num_workers
    return {name: [seconds / num_steps for seconds in values] for name, values in rounds.items()}


def make_rows(workload: str, rounds: Rounds) -> list[Row]:
    """The curve of each contender, and of one against the other."""
    rows = []
    make = functools.partial(Row, "ps_scaling", workload)
    for n in range(1, _MOST_WORKERS + 1):
        named = f"{n} worker{'s' * (n > 1)}"
        for name in _CONTENDERS:
            speeds = [1 / seconds for seconds in rounds[f"{name}, {n}"]]
            rows.append(make(f"{name}, {named}", speeds, unit="steps/s"))
        ratios = divide(rounds[f"classic, {n}"], rounds[f"ours, {n}"])
        rows.append(make(f"{named}, steps a second, ours / classic", ratios, at_least=True))
    return rows


if __name__ == "__main__":
    answer(measure)
