"""Time to the first step of two workers, in fresh processes: by the launcher, and by hand.

From the start of the launcher, or of the first of the processes, until both workers have done a
step. What the launcher adds is its own start, and that it hands on what the tasks print.
"""

import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.processes import answer
from benchmarks.report import Row, as_dicts
from benchmarks.timing import divide, measure_rounds
from estimator_launch.tasks import make_tasks, make_tf_configs

_REPOSITORY = Path(__file__).parents[1]
_NUM_WORKERS = 2


def measure(workload: str, num_rounds: int, until: float, is_quick: bool) -> dict:
    """Both ways alternate."""
    del is_quick
    arguments = {
        "contender": "ours, mirrored",
        "workload": workload,
        "loop_steps": 1,
        "num_workers": _NUM_WORKERS,
    }
    program = ["-m", "benchmarks.cluster_task", json.dumps(arguments)]
    contenders = {
        "launcher": functools.partial(_time_launcher, program),
        "by hand": functools.partial(_time_by_hand, program),
    }
    rounds = measure_rounds(contenders, num_rounds, until, has_warm_up=False)
    ratios = divide(rounds["launcher"], rounds["by hand"])
    millis = [seconds * 1000 for seconds in rounds["by hand"]]
    rows = [
        Row("launch", workload, "2 workers to the first step, launcher / by hand", ratios),
        Row("launch", workload, "by hand", millis, unit="ms"),
    ]
    return {"rounds": rounds, "rows": as_dicts(rows)}


def _time_launcher(program: list[str]) -> float:
    start = time.perf_counter()
    launcher = [sys.executable, "-m", "estimator_launch", f"--workers={_NUM_WORKERS}", "--"]
    process = _start([*launcher, *program])
    # The tasks of the launcher have no stdin, so a worker ends after its first step, with 0.
    for _ in range(_NUM_WORKERS):
        _read_answer(process)
    seconds = time.perf_counter() - start
    process.communicate()
    return seconds


def _time_by_hand(program: list[str]) -> float:
    tasks = make_tasks(_NUM_WORKERS, num_ps=0, has_chief=False, has_evaluator=False)
    configs = make_tf_configs(tasks)
    start = time.perf_counter()
    processes = [_start([sys.executable, *program], configs[task]) for task in tasks]
    for process in processes:
        _read_answer(process)
    seconds = time.perf_counter() - start
    for process in processes:
        process.communicate()
    return seconds


def _start(command: list[str], tf_config: str = "") -> subprocess.Popen:
    return subprocess.Popen(
        command,
        cwd=_REPOSITORY,
        env={**os.environ, "TF_CONFIG": tf_config},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _read_answer(process: subprocess.Popen) -> None:
    """Reads on until a worker says that it has done a step."""
    for line in process.stdout:
        if line.rstrip().rpartition(" ")[2].replace(".", "", 1).isdigit():
            return
    raise RuntimeError("a worker ended before its first step")


if __name__ == "__main__":
    answer(measure)
