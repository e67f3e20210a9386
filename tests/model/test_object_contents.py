"""Changes in what objects hold, which `OutsideValues` notices if a `model_fn` may read them."""

import array
import collections
import contextvars
import enum
import functools
import threading

import numpy as np
import pytest
import tensorflow as tf

from estimator.model.object_contents import Identity, key_of
from estimator.model.outside_values import OutsideValues

RATES = {"rate": 1.0}
CONTEXT = contextvars.ContextVar("of_a_model", default=1)


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2


class Named:
    def __init__(self, rate):
        self.rate = rate


class Settings(dict):
    """A dict with code of its own."""

    def scaled(self):
        return self["base"] * RATES["rate"] * self.factor


class Net:
    @functools.cached_property
    def of_cached_property(self):
        return RATES["rate"]

    @functools.singledispatchmethod
    def of_dispatch(self, x):
        return x

    @of_dispatch.register
    def _(self, x: int):
        return RATES["rate"]

    @tf.function
    def of_tf_function(self):
        return tf.constant(RATES["rate"])


def rate_of(x):
    return x * RATES["rate"]


@functools.wraps(tf.add)
def named_as_of_tensorflow(x):
    return rate_of(x)


CALLS = {
    "tf.function": tf.function(rate_of),
    "tf.function on an object": Net().of_tf_function,
    "tf.custom_gradient": tf.custom_gradient(lambda x: (rate_of(x), lambda dy: dy)),
    "tf.autograph": tf.autograph.experimental.do_not_convert(rate_of),
    "Lambda": tf.keras.layers.Lambda(rate_of),
    "Lambda of a tf.function": tf.keras.layers.Lambda(tf.function(rate_of)),
    "activation of a layer": tf.keras.layers.Dense(1, activation=rate_of),
    "method of an object in a layer": tf.keras.layers.Lambda(Settings(base=1).scaled),
    "partial": functools.partial(rate_of, 1),
    "name of a library": named_as_of_tensorflow,
}


def values(model_fn):
    return OutsideValues((model_fn, None), set()).find()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_function_in_a_wrapper_of_a_library_is_looked_into(monkeypatch, call):
    def model_fn(features, labels, mode):
        return call(features)

    before = values(model_fn)
    assert values(model_fn) == before
    monkeypatch.setitem(RATES, "rate", 2.0)
    assert values(model_fn) != before


@pytest.mark.parametrize("name", ["of_cached_property", "of_dispatch"])
def test_a_function_in_a_descriptor_of_a_library_is_looked_into(monkeypatch, name):
    code = compile(f"lambda features: Net().{name}(features)", __file__, "eval")
    model_fn = eval(code, globals())
    before = values(model_fn)
    monkeypatch.setitem(RATES, "rate", 2.0)
    assert values(model_fn) != before


def local(rate):
    value = threading.local()
    value.rate = rate
    return value


def settings(factor):
    value = Settings(base=1)
    value.factor = factor
    return value


def keyed(*names):
    return dict.fromkeys(names, 1)


NAMED = Named(1)
# What makes each, so that nothing but its contents can be equal, and a change.
CONTENTS = {
    "order of a dict": (lambda: keyed("a", "b"), lambda d: d.update(a=d.pop("a"))),
    "order of an OrderedDict": (
        lambda: collections.OrderedDict(keyed("a", "b")),
        lambda d: d.move_to_end("a"),
    ),
    "tuple as a key": (lambda: keyed(("a", 1)), lambda d: d.update({("a", 2): d.popitem()[1]})),
    "enum as a key": (
        lambda: keyed(("a", Size.SMALL)),
        lambda d: d.update({("a", Size.LARGE): d.popitem()[1]}),
    ),
    "frozenset as a key": (
        lambda: keyed(frozenset({1})),
        lambda d: d.update({frozenset({2}): d.popitem()[1]}),
    ),
    "set of tuples": (lambda: {(1, 2)}, lambda s: s.add((2, 1))),
    "set of enums": (lambda: {Size.SMALL}, lambda s: s.add(Size.LARGE)),
    "array of objects": (
        lambda: np.array([1, "a"], dtype=object),
        lambda a: a.__setitem__(1, "b"),
    ),
    "list in an array of objects": (
        lambda: np.array([1, ["a"]], dtype=object),
        lambda a: a[1].append("b"),
    ),
    "bytearray": (lambda: bytearray(b"a"), lambda b: b.__setitem__(0, 2)),
    "array": (lambda: array.array("d", [1.0]), lambda a: a.__setitem__(0, 2.0)),
    "ChainMap": (
        lambda: collections.ChainMap({"a": 1}, {"b": 1}),
        lambda c: c.maps[1].update(b=2),
    ),
}


@pytest.mark.parametrize(("make", "change"), CONTENTS.values(), ids=CONTENTS)
def test_a_change_of_contents_is_noticed_and_equal_contents_are_equal(make, change):
    held = make()

    def model_fn(features, labels, mode):
        return held

    before = values(model_fn)
    held = make()
    assert values(model_fn) == before
    change(held)
    assert values(model_fn) != before


OBJECTS = {
    "object in a set": ({NAMED}, lambda s: setattr(NAMED, "rate", NAMED.rate + 1)),
    "object as a key": ({NAMED: 1}, lambda d: setattr(NAMED, "rate", NAMED.rate + 1)),
    "other object in a set": ({NAMED}, lambda s: s.add(Named(1))),
    "attribute of a thread": (local(1), lambda v: setattr(v, "rate", 2)),
    "attribute of a dict of the program": (settings(1), lambda d: setattr(d, "factor", 2)),
}


@pytest.mark.parametrize(("held", "change"), OBJECTS.values(), ids=OBJECTS)
def test_a_change_of_an_object_is_noticed(held, change):
    def model_fn(features, labels, mode):
        return held, [one.rate for one in held], held.scaled()

    before = values(model_fn)
    assert values(model_fn) == before
    change(held)
    assert values(model_fn) != before


def test_a_contextvar_counts_for_its_value():
    def model_fn(features, labels, mode):
        return CONTEXT.get()

    before = values(model_fn)
    token = CONTEXT.set(2)
    try:
        assert values(model_fn) != before
    finally:
        CONTEXT.reset(token)
    assert values(model_fn) == before


def test_what_wraps_nothing_of_the_program_is_not_looked_into():
    layer = tf.keras.layers.Dense(1, activation="relu")

    def model_fn(features, labels, mode):
        return layer(features)

    assert len(values(model_fn)) < 10


def test_keys_are_compared_by_value_if_they_have_one():
    assert key_of("a") == "a"
    assert key_of((1, (Size.SMALL, np.int64(2)))) == key_of((1, (Size.SMALL, np.int64(2))))
    assert key_of((1, (Size.SMALL, np.int64(2)))) != key_of((1, (Size.SMALL, np.int32(2))))
    assert key_of((NAMED,)) == key_of((NAMED,))
    assert key_of((NAMED,)) != key_of((Named(1),))
    assert type(key_of(NAMED)) is Identity
