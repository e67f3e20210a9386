"""Peak resident memory of a whole training process, in fresh processes that alternate."""

import functools

from benchmarks.processes import answer, run_in_process
from benchmarks.report import Row, as_dicts
from benchmarks.timing import divide, measure_rounds

_TARGET = 1.1


def measure(workload: str, num_rounds: int, until: float, is_quick: bool) -> dict:
    """One process a contender and round."""
    num_steps = 100 if is_quick else 300
    contenders = {
        name: functools.partial(_read_peak, workload, name, num_steps)
        for name in ("ours", "by hand")
    }
    rounds = measure_rounds(contenders, num_rounds, until, has_warm_up=False)
    ratios = divide(rounds["ours"], rounds["by hand"])
    rows = [
        Row("memory", workload, "ours / by hand", ratios, target=_TARGET),
        Row("memory", workload, "by hand", rounds["by hand"], unit="MiB"),
    ]
    return {"rounds": rounds, "rows": as_dicts(rows)}


def _read_peak(workload: str, contender: str, num_steps: int) -> float:
    arguments = {"workload": workload, "contender": contender, "num_steps": num_steps}
    return run_in_process("benchmarks.memory_once", **arguments)["peak_mib"]


if __name__ == "__main__":
    answer(measure)
