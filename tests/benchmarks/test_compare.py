"""`make bench-compare`: what it compares, and what it calls slower."""

import subprocess
import sys

import pytest

from benchmarks.compare import format_row, made_checkouts, parse_arguments
from benchmarks.processes import run_in_process

_BASE = [1.0, 1.0, 1.0, 1.0]


def test_each_side_has_its_own_library_and_the_same_benchmarks():
    with made_checkouts("HEAD") as folders:
        names = {}
        for side, folder in folders.items():
            assert (folder / "benchmarks" / "start_once.py").exists()
            code = "import estimator_launch, estimator; print(estimator.__file__)"
            command = [sys.executable, "-c", code]
            names[side] = subprocess.check_output(command, cwd=folder, text=True)
    assert names["here"] != names["base"]
    assert not any(folder.exists() for folder in folders.values())


def test_a_commit_that_is_not_there_ends_the_program_with_a_line():
    told = pytest.raises(SystemExit, match="no library in the commit 'nonsense'")
    with told, made_checkouts("nonsense"):
        pass


def test_models_that_its_cases_cannot_run_are_refused(capsys):
    with pytest.raises(SystemExit):
        parse_arguments(["HEAD", "--models=mlp,resnet"])
    told = "--models: ['resnet'] unknown; choose from ['logistic', 'mlp', 'cnn']"
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("here", "verdict"),
    [
        ([1.08, 1.10, 1.12, 1.09], "SLOWER"),
        ([0.90, 0.85, 0.91, 0.88], "faster"),
        ([1.04, 1.03, 1.04, 1.02], ""),
        ([0.80, 1.40, 1.30, 0.70], ""),  # The spread is larger than the difference.
    ],
)
def test_slower_is_what_differs_by_more_than_its_spread_and_5_percent(here, verdict):
    line, is_slower = format_row("mlp: step", {"here": here, "base": _BASE})
    assert line.rpartition(")")[2].strip() == verdict
    assert is_slower == (verdict == "SLOWER")


def test_a_start_that_fails_is_told():
    with pytest.raises(RuntimeError, match="failed"):
        run_in_process("benchmarks.start_once", workload="nonsense", contender="ours")
