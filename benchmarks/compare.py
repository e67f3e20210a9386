"""`python -m benchmarks.compare BASE`: the library as it is here, against that of another commit.

Both run the benchmarks of this checkout, in processes that take turns, so that a change of the
machine's load meets both. A ratio is taken within a round: above 1, this checkout is slower.
"""

import argparse
import contextlib
import dataclasses
import functools
import math
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.processes import run_in_process
from benchmarks.timing import ROUND_STEPS, Rounds, compute_quartiles, divide, measure_rounds
from benchmarks.turns import TaskGroup
from benchmarks.workloads import WORKLOADS
from estimator_launch.tasks import Task, make_tasks

_REPOSITORY = Path(__file__).parents[1]
_SLOWER = 1.05
_NUM_ROUNDS = 9
# Rounds of steps and of calls are short: three for each one of starts.
_NUM_TURNS = 3
# The scheduler places the threads of a process for long, well or badly: rounds of several count. A
# cluster has several anyway, and takes long to start.
_NUM_PROCESSES = 4
_NUM_CLUSTERS = 2
_NUM_CALLS = 5

_LABEL_WIDTH = 26


@dataclasses.dataclass(frozen=True)
class Case:
    """Something to compare.

    Attributes:
      contender: its name in `benchmarks.cluster_task`; None to time starts instead.
      loop_steps: the steps of a session call.
      num_replicas: the replicas of one process, or the workers.
      num_ps: the ps tasks; with any, or with `is_cluster`, every worker is a process.
      is_cluster: whether the replicas are workers.
      counts_calls: whether a turn is a few calls of a verb, and not the steps of the workload.
    """

    contender: str | None
    loop_steps: int = 1
    num_replicas: int = 1
    num_ps: int = 0
    is_cluster: bool = False
    counts_calls: bool = False


_CASES = {
    "start": Case(None),
    "start, loop 100": Case(None, 100),
    "step": Case("ours, one process"),
    "step, loop 100": Case("ours, one process", 100),
    "step, mirrored": Case("ours, one process", 100, 2),
    "step, 2 workers": Case("ours, mirrored", 100, 2, is_cluster=True),
    "step, ps and 2 workers": Case("ours, with ps", 1, 2, num_ps=1, is_cluster=True),
    "predict": Case("ours, predict", counts_calls=True),
    "evaluate": Case("ours, evaluate", counts_calls=True),
}


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Reads the command line; an unknown name ends the program with a message."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    add = parser.add_argument
    add("base", metavar="BASE", help="a commit of this repository, such as HEAD~1")
    text = f"a case that is named here, or starts so; may be repeated, of {', '.join(_CASES)}"
    add("--only", action="append", metavar="CASE", help=text)
    add("--models", default="mlp", metavar="NAME,NAME", help="the models (default: mlp)")
    text = f"rounds of starts (default: 9); {_NUM_TURNS} times as many short ones of the rest"
    add("--rounds", type=int, default=_NUM_ROUNDS, metavar="N", help=text)
    options = parser.parse_args(arguments)
    options.models = options.models.split(",")
    if unknown := set(options.models) - set(WORKLOADS):
        parser.error(f"--models: {sorted(unknown)} unknown; choose from {list(WORKLOADS)}")
    wanted = options.only or [""]
    options.cases = [name for name in _CASES if any(name.startswith(start) for start in wanted)]
    if not options.cases:
        parser.error(f"--only: none of {list(_CASES)} starts with {' or '.join(wanted)}")
    return options


@contextlib.contextmanager
def made_checkouts(base: str) -> Iterator[dict[str, Path]]:
    """Folders of packages, with the library of each commit and the benchmarks of this checkout.

    Raises:
      SystemExit: there is no such commit.
    """
    with tempfile.TemporaryDirectory() as directory:
        folders = {name: Path(directory, name) for name in ("here", "base")}
        for folder in folders.values():
            folder.mkdir()
            for package in ("benchmarks", "estimator_launch"):
                (folder / package).symlink_to(_REPOSITORY / package)
        (folders["here"] / "estimator").symlink_to(_REPOSITORY / "estimator")
        command = ["git", "archive", "--output", f"{directory}/base.tar", base, "estimator"]
        archived = subprocess.run(
            command, cwd=_REPOSITORY, capture_output=True, text=True, check=False
        )
        if archived.returncode:
            sys.exit(f"There is no library in the commit {base!r}: {archived.stderr.strip()}")
        with tarfile.open(f"{directory}/base.tar") as archive:
            archive.extractall(folders["base"], filter="data")
        yield folders


def measure(case: Case, model: str, folders: dict[str, Path], num_rounds: int) -> Rounds:
    """Returns the seconds of a start, a step or a call, by checkout."""
    if case.contender is None:
        return _measure_starts(case, model, folders, num_rounds)
    total: Rounds = {name: [] for name in folders}
    num_processes = _NUM_CLUSTERS if case.is_cluster else _NUM_PROCESSES
    for index in range(num_processes):
        num_turns = math.ceil(num_rounds * _NUM_TURNS / num_processes)
        # The first of two equal checkouts is 1 to 4% slower.
        ordered = dict(reversed(folders.items())) if index % 2 else folders
        rounds = _measure_turns(case, model, ordered, num_turns)
        for name, values in rounds.items():
            total[name] += values
    return total


def _measure_starts(case: Case, model: str, folders: dict[str, Path], num_rounds: int) -> Rounds:
    contender = "ours" if case.loop_steps == 1 else f"ours, loop {case.loop_steps}"

    def start(folder: Path) -> float:
        arguments = {"workload": model, "contender": contender}
        return float(run_in_process("benchmarks.start_once", folder, **arguments)["seconds"])

    return measure_rounds({n: functools.partial(start, f) for n, f in folders.items()}, num_rounds)


def _measure_turns(case: Case, model: str, folders: dict[str, Path], num_rounds: int) -> Rounds:
    num = _NUM_CALLS if case.counts_calls else ROUND_STEPS[model]
    arguments = {
        "contender": case.contender,
        "workload": model,
        "loop_steps": case.loop_steps,
        "num_workers": case.num_replicas,
    }
    with contextlib.ExitStack() as stack:
        turns: dict[str, Callable[[], float]] = {}
        for name, folder in folders.items():
            group = TaskGroup(_make_tasks(case), arguments, folder)
            stack.callback(group.kill)
            turns[name] = functools.partial(group.measure, num)
        rounds = measure_rounds(turns, num_rounds)
    return {name: [seconds / num for seconds in values] for name, values in rounds.items()}


def _make_tasks(case: Case) -> Sequence[Task]:
    if not case.is_cluster:
        return []
    return make_tasks(case.num_replicas, num_ps=case.num_ps, has_chief=False, has_evaluator=False)


def format_row(label: str, rounds: Rounds) -> tuple[str, bool]:
    """Returns the line of a case, and whether it got slower by more than its spread and 5%."""
    ratios = divide(rounds["here"], rounds["base"])
    low, median, high = compute_quartiles(ratios)
    here, base = (compute_quartiles(rounds[name])[1] * 1e3 for name in ("here", "base"))
    is_slower, is_faster = median > _SLOWER and low > 1, median < 1 / _SLOWER and high < 1
    verdict = "SLOWER" if is_slower else "faster" if is_faster else ""
    text = f"{here:9.3f} ms {base:9.3f} ms  {median:.3f}x ({low:.3f} to {high:.3f})  {verdict}"
    return f"{label:{_LABEL_WIDTH}}{text}".rstrip(), is_slower


def main() -> int:
    """Prints a row as soon as it is known; returns 1 if anything got slower."""
    options = parse_arguments(sys.argv[1:])
    slower = 0
    with made_checkouts(options.base) as folders:
        heading = f"{'here':>9}    {options.base[:9]:>9}     here / {options.base[:9]} (quartiles)"
        print(f"{'':{_LABEL_WIDTH}}{heading}", flush=True)
        for model in options.models:
            for name in options.cases:
                rounds = measure(_CASES[name], model, folders, options.rounds)
                line, is_slower = format_row(f"{model}: {name}", rounds)
                print(f"{line}  load {os.getloadavg()[0]:.1f}", flush=True)
                slower += is_slower
    return int(slower > 0)


if __name__ == "__main__":
    sys.exit(main())
