"""A selection of a product of cases in which each pair of values still occurs.

A test that is parametrized three times and more runs each combination of its values, though a
combination of three that fails where none of two does is rare. Marked `pairwise`, the default run
takes so many of its cases that each value of each argument meets each value of each other one, as
far as any case has both; the rest is `full`, which `make test-full` runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any


def select(cases: Sequence[Mapping[str, Any]]) -> list[int]:
    """Returns the places of the cases to run, in order: the same ones each time.

    Greedy: always the case with the most pairs that no selected one has, the first of several.
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
    """Every two arguments of a case with their values; one that is alone is paired with itself."""
    values = [(name, identity(value)) for name, value in sorted(case.items())]
    return set(itertools.combinations(values, 2)) or {(value, value) for value in values}


def identity(value: Any) -> Hashable:
    """What is equal for equal values, and for one that cannot be hashed for itself alone."""
    try:
        return type(value), hash(value), value
    except TypeError:
        return type(value), id(value)


def rest(items: Iterable[Any]) -> list[Any]:
    """Returns the pytest items of tests marked `pairwise` that the selection leaves out."""
    tests: dict[str, list[Any]] = {}
    for item in items:
        if item.get_closest_marker("pairwise"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = []
    for cases in tests.values():
        selected = set(select([item.callspec.params for item in cases]))
        left_out += [item for place, item in enumerate(cases) if place not in selected]
    return left_out
