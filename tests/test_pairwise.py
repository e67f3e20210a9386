"""The selection of cases that the default run takes of a product."""

import itertools
import types

import pytest

from tests import pairwise

AXES = {
    "strategy": ["none", "mirrored", "central"],
    "loop": [1, 100],
    "wrapper": [None, {"a": 1}],
    "optimizer": ["sgd", "adam", "lamb", "lion"],
}


def product(**axes):
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def test_each_pair_of_values_occurs_in_a_quarter_of_the_cases():
    cases = product(**AXES)
    selected = [cases[place] for place in pairwise.select(cases)]
    for first, second in itertools.combinations(AXES, 2):
        for values in itertools.product(AXES[first], AXES[second]):
            assert any((case[first], case[second]) == values for case in selected)
    assert (len(cases), len(selected)) == (48, 12)


def test_a_product_of_two_is_taken_whole_and_the_selection_never_changes():
    cases = product(a=[1, 2, 3], b=[True, False])
    assert pairwise.select(cases) == list(range(6))
    assert pairwise.select(product(**AXES)) == pairwise.select(product(**AXES))


def test_what_is_given_together_is_paired_as_it_is_given():
    cases = [{"a": a, "b": b, "c": c} for a, b in ((1, 2), (3, 4)) for c in (5, 6, 7)]
    assert len(pairwise.select(cases)) == 6
    # 1, 1.0 and True are three values.
    assert len(pairwise.select([{"a": value} for value in (1, 1.0, True, [], [])])) == 5


def test_each_value_occurs_and_the_values_of_a_short_argument_take_turns():
    cases = product(optimizer=list("abcdef"), strategy=["none", "mirrored", "central"], loop=[1, 9])
    selected = [cases[place] for place in pairwise.select_each_value(cases)]
    assert [case["optimizer"] for case in selected] == list("abcdef")
    # Each strategy meets both loops.
    pairs = {(case["strategy"], case["loop"]) for case in selected}
    assert pairs == set(itertools.product(["none", "mirrored", "central"], [1, 9]))


class Item:
    """What `rest` looks at in a case of pytest's."""

    def __init__(self, test, params, *marks):
        self.nodeid, self.marks = f"{test}[{'-'.join(map(str, params.values()))}]", marks
        self.callspec = types.SimpleNamespace(params=params)

    def get_closest_marker(self, name):
        return name if name in self.marks else None


def test_each_test_that_is_marked_has_a_selection_of_its_own():
    items = [
        Item(test, case, *marks)
        for case in product(a="xy", b="xy", c="xy")
        for test, *marks in (
            ("file::one", "pairwise"),
            ("file::two", "pairwise"),
            ("file::few", "each_value"),
            ("file::all",),
        )
    ]
    left_out = [item.nodeid for item in pairwise.rest(items)]
    assert [
        sum(name.startswith(f"file::{test}") for name in left_out)
        for test in ("one", "two", "few", "all")
    ] == [4, 4, 6, 0]


@pytest.mark.pairwise
@pytest.mark.parametrize("c", "xy")
@pytest.mark.parametrize("b", "xy")
@pytest.mark.parametrize("a", "xy")
def test_a_case_that_is_left_out_belongs_to_the_full_run(request, a, b, c):
    assert (request.node.get_closest_marker("full") is None) == (f"{a}{b}{c}" in SELECTED)


SELECTED = {"xxx", "xyy", "yxy", "yyx"}
