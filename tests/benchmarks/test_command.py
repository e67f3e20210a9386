"""`python -m benchmarks`: what it refuses to measure, and what is left when it is stopped."""

import json
import signal
import subprocess
import sys
import time

import psutil
import pytest

from benchmarks import __main__ as command
from benchmarks.__main__ import parse_arguments
from benchmarks.timing import measure_rounds


def test_models_that_no_chosen_benchmark_has_are_refused(capsys):
    with pytest.raises(SystemExit):
        parse_arguments(["--only=loop,memory", "--models=resnet"])
    told = "--models: ['loop', 'memory'] measure none of ['resnet']; choose from ['cnn', 'logistic'"
    assert told in capsys.readouterr().err


def test_a_benchmark_without_any_of_the_models_may_stand_beside_one_that_has_some():
    options = parse_arguments(["--only=loop,memory", "--models=mlp"])
    assert (options.only, options.models) == (["loop", "memory"], ["mlp"])


@pytest.mark.parametrize(
    ("arguments", "is_whole"),
    [
        ([], True),
        (["--output=there.json"], True),
        (["--quick"], False),
        (["--only=loop"], False),
        (["--cpus=1"], False),
    ],
)
def test_only_a_whole_run_is_published(arguments, is_whole):
    assert parse_arguments(arguments).is_whole == is_whole


def test_the_shares_of_a_whole_run_are_20_minutes_at_most():
    shares = [
        command._find_entry(command._SECONDS, name, model)
        for name in command._USUAL
        for model in command._WORKLOADS[name]
    ]
    assert sum(shares) <= 20 * 60


def test_time_that_one_benchmark_takes_or_leaves_is_shared_by_the_ones_after_it(monkeypatch):
    now, told = [0.0], {}
    taken = {"logistic": 30, "mlp": 90, "cnn": 110}  # Of 60, 60 and 110 seconds.

    def run_benchmark(name, workload, options, seconds):
        told[workload] = seconds
        now[0] += taken[workload]
        return {"rows": []}

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(command, "_run_benchmark", run_benchmark)
    monkeypatch.setattr(command, "_SECONDS", {"loop": 60, "loop cnn": 110})
    assert len(list(command.run_benchmarks(parse_arguments(["--only=loop"])))) == 3
    assert told == pytest.approx({"logistic": 60, "mlp": 200 * 60 / 170, "cnn": 110})


# A round takes a second: the first is the warm-up, and the only one of a run without time for more.
@pytest.mark.parametrize(("until", "measured"), [(100, [1, 2, 3]), (3, [1, 2]), (2, [1]), (1, [0])])
def test_no_round_begins_that_would_end_too_late(until, measured, monkeypatch):
    now = [0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def take_a_second():
        now[0] += 1
        return now[0] - 1

    assert measure_rounds({"one": take_a_second}, 3, until) == {"one": measured}
    now = [0]
    assert measure_rounds({"one": take_a_second}, 1, until, has_warm_up=False) == {"one": [0]}


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_run_that_is_stopped_keeps_its_rows_and_ends_its_processes(tmp_path):
    results = tmp_path / "results.json"
    program = [sys.executable, "-m", "benchmarks", "--only=warm,launch", "--models=mlp", "--quick"]
    run = subprocess.Popen([*program, f"--output={results}"], stdout=subprocess.PIPE, text=True)
    try:
        printed = [run.stdout.readline() for _ in range(3)]
        started = []
        while len(started) < 3:  # The benchmark of launches, and what it launches.
            started = psutil.Process(run.pid).children(recursive=True)
            time.sleep(0.05)
        run.terminate()
        assert run.wait() == 128 + signal.SIGTERM
    finally:
        run.kill()
        run.communicate()
    assert printed[1].startswith("warm")
    assert not psutil.wait_procs(started, timeout=60)[1]
    (result,) = json.loads(results.read_text())["results"]
    assert [row["benchmark"] for row in result["rows"]] == ["warm"] * 7
