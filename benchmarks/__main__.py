"""`python -m benchmarks`: runs the benchmarks, prints and writes each row as it is known.

A whole run writes the measured part of `docs/speed.md`, and what README.md quotes of it.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.processes import end_on_signals, run_in_process
from benchmarks.report import Row, count_targets, format_rows
from benchmarks.speed_page import describe_commit, describe_machine, write_speed_page

_WORKLOADS = {
    "loop": ("logistic", "mlp", "cnn"),
    "mirrored": ("mlp", "cnn"),
    "warm": ("mlp", "cnn"),
    "start": ("mlp", "cnn"),
    "large_start": ("small_bert", "bert"),
    "memory": ("cnn",),
    "saves": ("cnn", "dense", "embedding"),
    "multi_worker": ("mlp",),
    "parameter_server": ("mlp",),
    "launch": ("mlp",),
    "wide_deep": ("columns",),
    "examples": ("resnet", "transformer"),
    "ps_scaling": ("mlp", "cnn"),
    "gpu": ("resnet_50", "bert_base"),
}
# Not part of a whole run: the figures of the first depend on the number of CPUs more than on the
# code, and a step of the second takes many seconds without a GPU.
_ON_REQUEST = ("ps_scaling", "gpu")
_USUAL = [name for name in _WORKLOADS if name not in _ON_REQUEST]
_MODELS = tuple(dict.fromkeys(model for models in _WORKLOADS.values() for model in models))
# The scheduler places the threads of a process once and for long, well or badly: on two cores a
# small model's step takes 50 us or 90 us. So the rounds of these come from several processes.
_NUM_PROCESSES = {"loop": 3, "loop cnn": 2, "mirrored": 3, "multi_worker": 2, "parameter_server": 2}
# Many short ones where the machine's speed drifts within seconds; fewer where a round starts
# processes, or where steps are long and hardly differ between rounds.
_NUM_ROUNDS = {
    **{"loop": 36, "loop cnn": 6, "mirrored": 36, "mirrored cnn": 6, "warm": 8},
    **{"start": 5, "large_start": 3, "launch": 3, "memory": 2},
    **{"saves": 4, "saves dense": 3, "saves embedding": 3},
    **{"multi_worker": 12, "parameter_server": 12, "ps_scaling": 12},
    **{"wide_deep": 12, "examples": 4, "gpu": 8},
}
# The shares of the 20 minutes of a whole run. However long it takes, each has one round; what one
# takes beyond its share, or leaves of it, changes those of the ones after it.
_SECONDS = {
    **{"loop": 60, "loop cnn": 95, "mirrored": 30, "mirrored cnn": 60, "warm": 30},
    **{"start": 95, "large_start": 45, "large_start bert": 75, "launch": 40, "memory": 50},
    **{"saves": 65, "saves dense": 110, "saves embedding": 50},
    **{"multi_worker": 45, "parameter_server": 40, "ps_scaling": 300},
    **{"wide_deep": 30, "examples": 45, "gpu": 120},
}
_NUM_QUICK_ROUNDS = 3
_DEFAULT_PATH = Path(__file__).parent / "results" / "latest.json"


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    usual = f"all but {','.join(_ON_REQUEST)}"
    text = f"benchmarks to run, of {','.join(_WORKLOADS)} (default: {usual})"
    add("--only", default=",".join(_USUAL), metavar="NAME,NAME", help=text)
    text = "models to run them on, where they have them (default: all)"
    add("--models", default=",".join(_MODELS), metavar="NAME,NAME", help=text)
    text = "rounds after warm-up (default: as many as fit into 20 minutes for all, up to 36)"
    add("--rounds", type=int, metavar="N", help=text)
    text = f"{_NUM_QUICK_ROUNDS} short rounds: does it run at all?"
    add("--quick", action="store_true", help=text)
    text = "JSON file to write (default: benchmarks/results/latest.json)"
    add("--output", type=Path, default=_DEFAULT_PATH, metavar="PATH", help=text)
    text = (
        "use N CPUs only (default: all). With 1, steps take turns with their input: no overlap, "
        "hardly any noise, the sum of all work"
    )
    add("--cpus", type=int, metavar="N", help=text)
    return parser


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Reads the command line; an unknown name ends the program with a message."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    options.only, options.models = options.only.split(","), options.models.split(",")
    if unknown := set(options.only) - set(_WORKLOADS):
        parser.error(f"--only: {sorted(unknown)} unknown; choose from {list(_WORKLOADS)}")
    if unknown := set(options.models) - set(_MODELS):
        parser.error(f"--models: {sorted(unknown)} unknown; choose from {list(_MODELS)}")
    measured = {model for name in options.only for model in _WORKLOADS[name]}
    if not measured & set(options.models):
        choice = f"choose from {sorted(measured)}"
        parser.error(f"--models: {options.only} measure none of {options.models}; {choice}")
    # Of a part, or of short rounds, docs/speed.md says nothing.
    options.is_whole = {*arguments} <= {f"--output={options.output}"}
    if options.quick:
        options.rounds = options.rounds or _NUM_QUICK_ROUNDS
    return options


def run_benchmarks(options: argparse.Namespace) -> Iterator[dict]:
    """Each benchmark on each model; a failure is noted and the rest goes on."""
    planned = [
        (name, workload)
        for name in options.only
        for workload in _WORKLOADS[name]
        if workload in options.models
    ]
    shares = [_find_entry(_SECONDS, name, workload) for name, workload in planned]
    end = time.monotonic() + sum(shares)
    for index, (name, workload) in enumerate(planned):
        start = time.monotonic()
        seconds = (end - start) * shares[index] / sum(shares[index:])
        result = {"benchmark": name, "workload": workload, "load_before": os.getloadavg()}
        try:
            result |= _run_benchmark(name, workload, options, seconds)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            result |= {"error": str(error).splitlines()[-1]}
        yield {**result, "seconds": time.monotonic() - start}


def _find_entry(table: dict[str, int], name: str, workload: str) -> int:
    return table.get(f"{name} {workload}") or table.get(name, 1)


def _run_benchmark(name: str, workload: str, options: argparse.Namespace, seconds: float) -> dict:
    """The rounds and the rows, from one process or, put together, from several."""
    num_processes = 1 if options.quick else _find_entry(_NUM_PROCESSES, name, workload)
    num_rounds = options.rounds or _find_entry(_NUM_ROUNDS, name, workload)
    seconds = math.inf if options.rounds else seconds
    start = time.monotonic()
    results: list[dict] = []
    for index in range(num_processes):
        elapsed = time.monotonic() - start
        if index > 0 and elapsed + elapsed / index > seconds:
            break  # Another process would not fit.
        arguments = {
            "workload": workload,
            "num_rounds": math.ceil(num_rounds / num_processes),
            "until": start + seconds * (index + 1) / num_processes,
            "is_quick": options.quick,
        }
        results.append(run_in_process(f"benchmarks.{name}", ends_all=True, **arguments))
    result, *others = results
    for other in others:
        for contender, values in other["rounds"].items():
            result["rounds"][contender] += values
        for row, other_row in zip(result["rows"], other["rows"], strict=True):
            row["values"] += other_row["values"]
    return {"rounds": result["rounds"], "rows": [Row(**row) for row in result["rows"]]}


def main() -> int:
    """Prints and writes rows as they are known.

    Returns 1 if a benchmark could not be run. A target that is not met is no error.
    """
    options = parse_arguments(sys.argv[1:])
    end_on_signals()
    if options.cpus:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options.cpus :])
    document = {
        "commit": describe_commit(),
        "machine": describe_machine(),
        "is_quick": options.quick,
        "results": [],
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    start = time.perf_counter()
    for result in run_benchmarks(options):
        known = result.get("rows", [])
        if known:
            print(format_rows(known, has_header=not rows), flush=True)
        rows += known
        document["results"].append(result)
        options.output.write_text(json.dumps(document, indent=1, default=Row.as_dict) + "\n")
    minutes = (time.perf_counter() - start) / 60
    print(f"\n{count_targets(rows)} {minutes:.1f} minutes.")
    has_failed = any("error" in result for result in document["results"])
    if options.is_whole and not has_failed:
        write_speed_page(rows, minutes, load=document["results"][0]["load_before"][0])
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
