"""docs/contract.md lists every difference that a test of the contract is marked with."""

import ast
import itertools
import json
import pathlib
import re

import pytest

from tests.contract.names import IS_2_15, est, v1est
from tests.contract.not_yet import NOT_YET

HERE = pathlib.Path(__file__).parent
MARKS = ("only_2_15", "only_here")
PLACES = (est, v1est, est.experimental, est.export, v1est.experimental, v1est.tpu, v1est.inputs)
# Ready-made models and their heads, and tables that are distributed over the cores of a TPU.
READY_MADE = "^(Baseline|DNN|Linear|RNN|KMeans)|Head$|logit_fn_builder$|^EmbeddingConfigSpec$"


def rows():
    """By its name, the other cells of each row of the table."""
    text = (HERE.parents[1] / "docs" / "contract.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first: rest for first, *rest in cells[1:]}


def marks():
    """(mark, row) of each mark in the tests of the contract."""
    for file in HERE.glob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", None) in MARKS:
                yield node.func.attr, node.args[0].value


def test_every_mark_names_a_row():
    assert {row for _, row in marks()} - set(rows()) == set()


def test_every_row_has_a_test_on_each_side():
    there = set(marks())
    missing = [(mark, row) for row in rows() for mark in MARKS if (mark, row) not in there]
    assert missing == []


def test_every_row_says_what_holds_on_each_side_and_why():
    assert [name for name, cells in rows().items() if len(cells) != 3 or not all(cells)] == []


@pytest.mark.skipif(IS_2_15, reason="says what is not done here")
def test_what_is_not_done_yet_names_tests_that_exist():
    functions = {
        file.name: {node.name for node in ast.parse(file.read_text()).body if hasattr(node, "name")}
        for file in HERE.glob("test_*.py")
    }
    unknown = [
        (file, name)
        for file, entries in NOT_YET.items()
        for name in itertools.chain(*entries.values())
        if name.partition("[")[0] not in functions.get(file, ())
    ]
    assert unknown == []


def test_every_name_of_2_15_is_tested_or_not_there():
    listed = (HERE.parent / "public_names" / "tensorflow_2_15.json").read_text()
    names = {name for names in json.loads(listed).values() for name in names}
    text = "".join(file.read_text() for file in HERE.glob("test_*.py"))
    untested = sorted(name for name in names if not re.search(rf"\b{name}\b", text))
    there = [name for name in untested if any(hasattr(place, name) for place in PLACES)]
    assert [name for name in there if not re.search(READY_MADE, name)] == []
