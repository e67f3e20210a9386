"""One task of one contender, in this process; TF_CONFIG says which task."""

import functools
import tempfile
import threading
from collections.abc import Callable
from typing import Any

from benchmarks.processes import answer
from benchmarks.turns import Turns
from benchmarks.workloads import WORKLOADS, Workload


def measure(contender: str, workload: str, loop_steps: int, num_workers: int) -> dict:
    """Trains until there are no more turns; a ps serves until it is ended."""
    _TRAINERS[contender](WORKLOADS[workload], loop_steps, num_workers, Turns())
    return {}


Report = Callable[[int], bool]


def _train_hand_written(*arguments: Any, has_distributed_input: bool = False) -> None:
    from benchmarks.hand_written_workers import train_hand_written_workers

    train_hand_written_workers(*arguments, has_distributed_input=has_distributed_input)


def _train_classic(work: Workload, loop_steps: int, num_workers: int, report: Report) -> None:
    from benchmarks.classic import serve_if_ps, train_classic

    serve_if_ps()
    del loop_steps, num_workers  # A step is a session call.
    train_classic(work, report)


def _train_mirrored(work: Workload, loop_steps: int, num_workers: int, report: Report) -> None:
    from benchmarks.ours import Setup, train_ours

    setup = Setup(loop_steps, num_replicas=num_workers, strategy="multi_worker_mirrored")
    with tempfile.TemporaryDirectory() as directory:
        train_ours(work, directory, setup, report)


def _train_alone(work: Workload, loop_steps: int, num_replicas: int, report: Report) -> None:
    from benchmarks.ours import Setup, train_ours

    with tempfile.TemporaryDirectory() as directory:
        train_ours(work, directory, Setup(loop_steps, num_replicas), report)


def _call(verb: str, work: Workload, loop_steps: int, num_workers: int, report: Report) -> None:
    from benchmarks.warm import make_our_calls

    del loop_steps, num_workers  # A step is a call.
    with tempfile.TemporaryDirectory() as directory:
        call = make_our_calls(work, directory)[verb]
        call()
        while report(1):
            call()


def _train_with_ps(work: Workload, loop_steps: int, num_workers: int, report: Report) -> None:
    from benchmarks.classic import make_optimizer
    from benchmarks.ours import Setup, make_config, train_ours
    from estimator.roles.ps_task import serve_parameters

    del num_workers  # Each has batches of its own, of the whole size.
    setup = Setup(loop_steps, strategy="parameter_server", make_optimizer=make_optimizer)
    with tempfile.TemporaryDirectory() as directory:
        config = make_config(setup).replace(model_dir=directory)
        if config.cluster.task_type == "ps":
            serve_parameters(config)
            threading.Event().wait()  # A ps that ends before its workers counts as a failure.
        train_ours(work, directory, setup, report)


_TRAINERS = {
    "hand-written": _train_hand_written,
    "hand-written, distributed": functools.partial(_train_hand_written, has_distributed_input=True),
    "classic": _train_classic,
    "ours, one process": _train_alone,
    "ours, predict": functools.partial(_call, "predict"),
    "ours, evaluate": functools.partial(_call, "evaluate"),
    "ours, mirrored": _train_mirrored,
    "ours, with ps": _train_with_ps,
}


if __name__ == "__main__":
    answer(measure)
