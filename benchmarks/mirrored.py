"""Two logical CPUs at half the batch each, against one replica at the whole batch."""

import functools
import tempfile

from benchmarks.ours import Setup, train_ours
from benchmarks.processes import answer
from benchmarks.report import Row, as_dicts
from benchmarks.timing import ROUND_STEPS, divide, measure_trainers
from benchmarks.workloads import WORKLOADS


def measure(workload: str, num_rounds: int, until: float, is_quick: bool) -> dict:
    """Both contenders on one workload, in loops of 100."""
    work = WORKLOADS[workload]
    with tempfile.TemporaryDirectory() as directory:
        trainers = {
            f"replicas {num_replicas}": functools.partial(
                train_ours, work, f"{directory}/{num_replicas}", Setup(100, num_replicas)
            )
            for num_replicas in (1, 2)
        }
        round_steps = 100 if is_quick else ROUND_STEPS[workload]
        rounds = measure_trainers(trainers, round_steps, num_rounds, until)
    ratios = divide(rounds["replicas 2"], rounds["replicas 1"])
    row = Row("mirrored", workload, "2 replicas / 1 replica", ratios, target=1.15)
    return {"rounds": rounds, "rows": as_dicts([row])}


if __name__ == "__main__":
    answer(measure)
