"""One start of one contender, in this process. Each imports only what it needs."""

import tempfile
import time

from benchmarks.processes import answer
from benchmarks.workloads import WORKLOADS, make_training_input

_LOOP_STEPS = 100


class Stopwatch:
    """A `report` that notes the end of the first call and ends the training."""

    def __init__(self) -> None:
        """Starts."""
        self._start = time.perf_counter()
        self.seconds = 0.0

    def __call__(self, num_steps: int) -> bool:
        """The first step, or loop, is over."""
        del num_steps
        self.seconds = time.perf_counter() - self._start
        return False


def measure(workload: str, contender: str) -> dict:
    """Seconds to the end of the first step, or to that of the first loop."""
    loop_steps = _LOOP_STEPS if "loop" in contender else 1
    if contender.startswith("keras"):
        return {"seconds": _start_keras(workload, loop_steps)}
    max_steps = loop_steps if "first loop" in contender else 1
    return {"seconds": _start_ours(workload, loop_steps, max_steps)}


def _start_ours(workload: str, loop_steps: int, max_steps: int) -> float:
    from benchmarks.ours import ReportHook, Setup, make_estimator

    work = WORKLOADS[workload]
    setup = Setup(loop_steps, writes_checkpoints=True)
    with tempfile.TemporaryDirectory() as directory:
        trained = make_estimator(work, directory, setup)
        stopwatch = Stopwatch()
        hooks = [ReportHook(stopwatch, loop_steps=max_steps)]
        trained.train(lambda: make_training_input(work), hooks=hooks, max_steps=max_steps)
    return stopwatch.seconds


def _start_keras(workload: str, loop_steps: int) -> float:
    from benchmarks.keras_fit import compile_keras_model, fit_keras, make_keras_model

    work = WORKLOADS[workload]
    model = make_keras_model(work)
    stopwatch = Stopwatch()
    compile_keras_model(model, loop_steps)
    fit_keras(model, work, loop_steps, stopwatch)
    return stopwatch.seconds


if __name__ == "__main__":
    answer(measure)
