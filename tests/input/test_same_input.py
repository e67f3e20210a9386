import functools

import numpy as np
import pandas as pd
import pytest

from estimator.input.same_input import is_same_input


class Source:
    def read(self):
        return 1

    def __call__(self):
        return 2


def reads(files, limit=None):
    def input_fn():
        return files, limit

    return input_fn


def reads_later(is_known=False):
    """An input_fn of a variable that has no value as yet, in which case it reads another."""
    if is_known:
        files = []

    def input_fn():
        return files if is_known else None

    return input_fn


def recursive():
    def input_fn():
        return input_fn

    return input_fn


def module_function(files=None):
    return files


def array_of(*values):
    """An array of objects: lists are arrays in it."""
    found = np.empty(len(values), object)
    for i, value in enumerate(values):
        found[i] = np.array(value) if isinstance(value, list) else value
    return found


SOURCE = Source()
ARRAY = object()

SAME = {
    "a function": lambda: module_function,
    "a lambda made twice": lambda: lambda: 1,
    "a closure over equal strings": lambda: reads(["/data/" + name for name in "ab"]),
    "a closure over equal numbers": lambda: reads([], limit=int("500000")),
    "a closure over equal arrays": lambda: reads(
        np.array([1.0, np.nan]), np.array(["a", b"b"], object)
    ),
    "a closure over a large array": lambda: reads(np.arange(2**21 + 1).reshape(3, -1)),
    "a closure over one object": lambda: reads(ARRAY),
    "a closure over an equal closure": lambda: reads(reads({"x": [1, 2]})),
    "a bound method": lambda: SOURCE.read,
    "a callable object": lambda: SOURCE,
    "a partial": lambda: functools.partial(module_function, files=["a" + "b"]),
    "a default argument": lambda: lambda files=("a", "b"): files,
}
OTHER = {
    "variables without a value": (reads_later(), reads_later()),
    "a variable without a value and one with": (reads_later(), reads_later(is_known=True)),
    "two functions": (module_function, reads([])),
    "two lambdas": (lambda: 1, lambda: 2),
    "equal lambdas on two lines": (
        lambda: 1,
        lambda: 1,
    ),
    "other strings": (reads(["a"]), reads(["b"])),
    "more strings": (reads(["a"]), reads(["a", "b"])),
    "another number": (reads([], 1), reads([], 2)),
    "a number of another type": (reads([], 1), reads([], True)),
    "other arrays": (reads(np.zeros(2)), reads(np.zeros(3))),
    "arrays of another type": (reads(np.zeros(2)), reads(np.zeros(2, np.float32))),
    "other strings in an array": (reads(np.array(["a"], object)), reads(np.array(["b"], object))),
    "strings and bytes": (reads(np.array(["a"], object)), reads(np.array([b"a"], object))),
    "arrays of arrays": (reads(array_of([1, 2], [3])), reads(array_of([1, 2], [3]))),
    "arrays of missing values": (reads(array_of(pd.NA)), reads(array_of(pd.NA))),
    "masks": (reads(np.ma.array([1, 2], mask=[0, 1])), reads(np.ma.array([1, 2], mask=[1, 0]))),
    "the last number of a large array": tuple(
        reads(np.append(np.zeros(2**21), last)) for last in (1, 2)
    ),
    "another object": (reads(object()), reads(object())),
    "another keyword": (functools.partial(reads, files=1), functools.partial(reads, limit=1)),
    "a method of another object": (Source().read, Source().read),
    "another callable object": (Source(), Source()),
    "another default": tuple((lambda files=files: files) for files in ("a", "b")),
    "functions that are bound to themselves": (recursive(), recursive()),
}


@pytest.mark.parametrize("make", SAME.values(), ids=SAME)
def test_the_same_input(make):
    assert is_same_input(make(), make())


@pytest.mark.parametrize(("one", "other"), OTHER.values(), ids=OTHER)
def test_another_input(one, other):
    assert not is_same_input(one, other)
