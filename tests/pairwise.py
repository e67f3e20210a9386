"""Selects cases from a product of parameters so that every pair of values still occurs.

A bug that needs three particular values at once is rare. Of a test marked `pairwise`, the default
run takes only as many cases as are needed for each value of each argument to meet each value of
every other argument. The other cases get the marker `full`, which `make test-full` runs.
"""

from __future__ import annotations

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


def pairs_of(case: Mapping[str, Any]) -> set[tuple[Hashable, ...]]:
    """Returns all pairs of (argument, value) of a case; a single argument is its own pair."""
    values = [(name, identity(value)) for name, value in sorted(case.items())]
    return set(itertools.combinations(values, 2)) or {(value, value) for value in values}


def identity(value: Any) -> Hashable:
    """Returns a key that equal values share; a value that cannot be hashed has its own."""
    try:
        return type(value), hash(value), value
    except TypeError:
        return type(value), id(value)


def rest(items: Iterable[Any]) -> list[Any]:
    """Returns the pytest items of tests marked `pairwise` that the selection leaves out.

    Cases that are marked `full` by hand neither count nor cover anything.
    """
    tests: dict[str, list[Any]] = {}
    for item in items:
        if item.get_closest_marker("pairwise") and not item.get_closest_marker("full"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = []
    for cases in tests.values():
        selected = set(select([item.callspec.params for item in cases]))
        left_out += [item for place, item in enumerate(cases) if place not in selected]
    return left_out
