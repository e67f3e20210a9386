"""Time to the end of the first step of a model of BERT-base's size, against a script's session.

12 layers, 110 million parameters, 10,000 ops; and of a model with a quarter of the layers: what the
library adds to a start must not grow faster than the number of ops.
"""

import functools

from benchmarks.processes import answer, run_in_process
from benchmarks.report import Row, as_dicts
from benchmarks.timing import divide, measure_rounds

_NUM_LAYERS = {"bert": 12, "small_bert": 3}
_TARGET = 1.05


def measure(workload: str, num_rounds: int, until: float, is_quick: bool) -> dict:
    """One process a contender and round."""
    del is_quick
    contenders = {
        name: functools.partial(_time_start, name, _NUM_LAYERS[workload])
        for name in ("ours", "by hand")
    }
    rounds = measure_rounds(contenders, num_rounds, until, has_warm_up=False)
    ratios = divide(rounds["ours"], rounds["by hand"])
    by_hand = [seconds * 1000 for seconds in rounds["by hand"]]
    rows = [
        Row("large_start", workload, "ours / by hand", ratios, target=_TARGET),
        Row("large_start", workload, "by hand", by_hand, unit="ms"),
    ]
    return {"rounds": rounds, "rows": as_dicts(rows)}


def _time_start(contender: str, num_layers: int) -> float:
    arguments = {"contender": contender, "num_layers": num_layers}
    return run_in_process("benchmarks.large_start_once", **arguments)["seconds"]


if __name__ == "__main__":
    answer(measure)
