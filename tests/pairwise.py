"""Selects cases from a product of parameters so that every value, or every pair, still occurs.

A bug that needs three particular values at once is rare. Of a test marked `pairwise`, the default
run takes only as many cases as are needed for each value of each argument to meet each value of
every other argument. Of a test marked `each_value` it takes fewer: each value of each argument
occurs, with the values of the others in turn. The other cases get the marker `full`, which
`make test-full` runs.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any


def select(cases: Sequence[Mapping[str, Any]]) -> list[int]:
    """Returns the indices of the cases to run, in order; deterministic.

    Greedy: takes the case with the most uncovered pairs, the first one on a tie.
    """
    left = {place: pairs_of(case) for place, case in enumerate(cases)}
    missing = set().union(*left.values())
    selected = []
    while missing:
        best = max(left, key=lambda place: len(left[place] & missing))
        missing -= left.pop(best)
        selected.append(best)
    return sorted(selected)


def select_each_value(cases: Sequence[Mapping[str, Any]]) -> list[int]:
    """Returns the indices of cases in which each value of each argument occurs; deterministic.

    Greedy, too. On a tie it takes the case whose values, and then whose pairs of values, were taken
    the fewest times, so that the values of a short argument take turns along a long one.
    """
    values = [set(values_of(case)) for case in cases]
    pairs = [pairs_of(case) for case in cases]
    missing = set().union(*values)
    used: collections.Counter[Hashable] = collections.Counter()
    selected: list[int] = []
    while missing:
        best = min(
            (place for place in range(len(cases)) if values[place] & missing),
            key=lambda place: (
                -len(values[place] & missing),
                sum(used[value] for value in values[place]),
                sum(used[pair] for pair in pairs[place]),
            ),
        )
        missing -= values[best]
        used.update(values[best] | pairs[best])
        selected.append(best)
    return sorted(selected)


def values_of(case: Mapping[str, Any]) -> list[tuple[str, Hashable]]:
    """Returns the (argument, value) of a case, by argument."""
    return [(name, identity(value)) for name, value in sorted(case.items())]


def pairs_of(case: Mapping[str, Any]) -> set[tuple[Hashable, ...]]:
    """Returns all pairs of (argument, value) of a case; a single argument is its own pair."""
    values = values_of(case)
    return set(itertools.combinations(values, 2)) or {(value, value) for value in values}


def identity(value: Any) -> Hashable:
    """Returns a key that equal values share; a value that cannot be hashed has its own."""
    try:
        return type(value), hash(value), value
    except TypeError:
        return type(value), id(value)


def is_full(config: Any) -> bool:
    """Returns whether pytest was asked for the cases, too, that the default run leaves out."""
    return "not full" not in config.option.markexpr


SELECTIONS = {"pairwise": select, "each_value": select_each_value}


def rest(items: Iterable[Any]) -> list[Any]:
    """Returns the pytest items of marked tests that the selection leaves out.

    Cases that are marked `full` by hand neither count nor cover anything.
    """
    tests: dict[tuple[str, str], list[Any]] = {}
    for item in items:
        for mark in SELECTIONS:
            if item.get_closest_marker(mark) and not item.get_closest_marker("full"):
                tests.setdefault((mark, item.nodeid.partition("[")[0]), []).append(item)
    left_out = []
    for (mark, _), cases in tests.items():
        selected = set(SELECTIONS[mark]([item.callspec.params for item in cases]))
        left_out += [item for place, item in enumerate(cases) if place not in selected]
    return left_out
