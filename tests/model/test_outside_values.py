"""`OutsideValues` notices what a `model_fn` reads from outside, and nothing else."""

import argparse
import collections
import enum
import functools
import types

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from absl import flags

from estimator.model.outside_values import OutsideValues

flags.DEFINE_integer("of_outside_values", 1, "For the tests below.")
flags.DEFINE_integer("of_old_scripts", 1, "Read by tf.compat.v1.flags.")
flags.DEFINE_integer("of_items", 1, "Read as an item.")
HOLDER = flags.DEFINE_integer("of_holder", 1, "Read by its holder.")
flags.DEFINE_integer("of_nobody", 1, "Read by no function.")


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2


class Lazy:
    """Finds its values under other names than those of the code."""

    def __init__(self):
        self._values = {"width": 1}

    def __getattr__(self, name):
        return self._values[name]


class Layer:
    width = 1

    def __init__(self, depth):
        self.depth, self.unread = depth, 1

    @property
    def size(self):
        return self._size * self.width

    _size = 1

    @staticmethod
    def scale():
        return SETTINGS["scale"][0]


SETTINGS = {"scale": [1]}
GLOBAL, UNREAD, CACHED = 1, 1, 1
# As notebooks have them: the name is in the code, but of an attribute of TensorFlow's.
metrics = {"loss": 1.0}
FLAGS, OLD_FLAGS = flags.FLAGS, tf.compat.v1.flags.FLAGS
LAZY, NAMESPACE = Lazy(), types.SimpleNamespace(width=1)
ARRAY, LARGE_ARRAY = np.zeros(3), np.zeros(100_000)
SIZES = {1, 2}
SECOND = Layer(1)


def helper(x):
    return x * GLOBAL


helper.factor = 1


@functools.lru_cache
def cached(x):
    return x * CACHED


class Slots:
    __slots__ = ("width",)

    def __init__(self):
        self.width = 1


class Items:
    """Gives its values by an operator alone."""

    def __init__(self):
        self.given = 1

    def __getitem__(self, name):
        return self.given


class Proxy:
    """Raises when it is looked at, as those of web frameworks do outside of a request."""

    def __getattribute__(self, name):
        raise RuntimeError(name)


class Net:
    def __init__(self):
        self.slots, self.items, self.proxy = Slots(), Items(), Proxy()
        self.long, self.metrics = list(range(2000)), 1
        self.layer = Layer(1)
        self.spare = SECOND
        self.arguments = argparse.Namespace(width=1)
        self.kind = Size.SMALL
        self.names = collections.OrderedDict(a=1)

    def model_fn(self, features, labels, mode):
        del labels, mode, self.proxy
        tf.compat.v1.metrics.mean(self.long)
        self.loss = self.build(features)
        return (self.loss, self.kind, self.names, ARRAY, LARGE_ARRAY, SIZES)

    def build(self, x):
        layer = self.spare if self.arguments.width > 1 else self.layer
        sizes = [FLAGS.of_outside_values * size for size in (layer.size, layer.depth)]
        sizes.append(OLD_FLAGS.of_old_scripts)
        sizes += [self.slots.width, self.items["width"], FLAGS["of_items"].value, HOLDER.value]
        sizes += [cached(x), helper.factor, getattr(self, "by_name")]  # noqa: B009
        return helper(x) * sum(sizes) * layer.scale() * LAZY.width * NAMESPACE.width


def values(model_fn, params=None, results=None):
    return OutsideValues((model_fn, params), set() if results is None else results).find()


CHANGES = {
    "attribute of a class": ("Layer.width", 2),
    "attribute of an object": ("net.layer.depth", 2),
    "attribute that a property reads": ("net.layer._size", 2),
    "object": ("net.layer", Layer(1)),
    "object that another one has, too": ("net.layer", SECOND),
    "namespace of argparse": ("net.arguments.width", 2),
    "namespace": ("NAMESPACE.width", 2),
    "enum": ("net.kind", Size.LARGE),
    "item of a dict": ("net.names['a']", 2),
    "new item": ("net.names['b']", 2),
    "item of a list in a dict": ("SETTINGS['scale'][0]", 2),
    "type of a number": ("SETTINGS['scale'][0]", 1.0),
    "flag": ("FLAGS.of_outside_values", 2),
    "flag that is read by TensorFlow's FLAGS": ("FLAGS.of_old_scripts", 2),
    "what __getattr__ finds": ("LAZY._values['width']", 2),
    "item of an array": ("ARRAY[0]", 2),
    "set": ("SIZES", {1, 3}),
    "global": ("GLOBAL", 2),
    "attribute in a slot": ("net.slots.width", 2),
    "attribute that an operator reads": ("net.items.given", 2),
    "attribute that is named in a string": ("net.by_name", 2),
    "long list": ("net.long", list(range(2000))),
    "flag that is read as an item": ("FLAGS.of_items", 2),
    "flag that is read by its holder": ("FLAGS.of_holder", 2),
    "global of a cached function": ("CACHED", 2),
    "attribute of a function": ("helper.factor", 2),
    "function": ("helper", lambda x: x),
    "method": ("Layer.scale", staticmethod(lambda: 3)),
    "method of an object": ("net.build", lambda x: x),
}
NO_CHANGES = {
    "global that no code names": ("UNREAD", 2),
    "flag that no code names": ("FLAGS.of_nobody", 2),
    "attribute that no code reads": ("net.layer.unread", 2),
    "equal value": ("GLOBAL", int("1")),
    "equal list": ("SETTINGS['scale']", [1]),
    "global with the name of an attribute": ("metrics", {"loss": 2.0}),
    "new attribute": ("net.other", 2),
}


def is_noticed(monkeypatch, change, net):
    """Whether the values differ after a change, which is undone after the test."""
    place, value = change
    names = {**globals(), "net": net}
    before = values(net.model_fn)
    assert values(net.model_fn) == before
    if place.endswith("]"):
        owner, key = place[:-1].rsplit("[", 1)
        container, key = eval(owner, names), eval(key)
        if isinstance(container, dict):
            monkeypatch.setitem(container, key, value)
        else:
            old = container[key]
            container[key] = value
            after = values(net.model_fn)
            container[key] = old
            return before != after
    elif "." in place:
        owner, name = place.rsplit(".", 1)
        monkeypatch.setattr(eval(owner, names), name, value, raising=False)
    else:
        monkeypatch.setitem(globals(), place, value)
    return before != values(net.model_fn)


@pytest.fixture(autouse=True, scope="module")
def _flags():
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_can_be_read_and_has_changed_is_noticed(monkeypatch, change):
    assert is_noticed(monkeypatch, change, Net())


@pytest.mark.parametrize("change", NO_CHANGES.values(), ids=NO_CHANGES)
def test_what_cannot_be_read_does_not_matter(monkeypatch, change):
    assert not is_noticed(monkeypatch, change, Net())


def test_closures_defaults_and_arguments_of_a_partial_count():
    rate = 1

    def model_fn(features, labels, mode, sizes=(1, 2), *, name="a"):
        return rate, sizes, name

    seen = {values(model_fn)}
    rate = 2
    seen.add(values(model_fn))
    model_fn.__defaults__ = ((1, 3),)
    seen.add(values(model_fn))
    model_fn.__kwdefaults__["name"] = "b"
    seen.add(values(model_fn))
    arguments = {"rate": 1}
    partial = functools.partial(model_fn, **arguments)
    seen |= {values(partial), values(functools.partial(model_fn, rate=2))}
    assert len(seen) == 6


def test_params_count():
    params = {"rate": 1, "sizes": [1]}
    seen = {values(None, params)}
    params["sizes"].append(2)
    seen.add(values(None, params))
    assert len(seen) == 2


class Counting:
    """Keeps what it made, counts, and remembers the mode, as many models do."""

    num_calls = 0
    width = 1

    def __init__(self):
        self.modes, self.is_training, self.last = [], None, None

    def model_fn(self, features, labels, mode):
        self.is_training = mode == "train"
        self.modes.append(mode)
        Counting.num_calls += 1
        self.last = Layer(self.width)
        return self.last.depth if self.is_training else len(self.modes) + self.num_calls


def test_what_a_model_fn_changes_itself_does_not_count():
    counting, results, rate = Counting(), set(), 1

    def call(mode):
        with OutsideValues((counting.model_fn,), results).noting_results():
            counting.model_fn(None, None, mode)
        return values(counting.model_fn, results=results)

    def with_default(features, labels, mode, cache={}):  # noqa: B006
        cache[len(cache)] = mode * rate

    call("train")
    assert call("eval") == call("train") == call("eval")
    before = values(counting.model_fn, results=results)
    counting.width = 2
    assert values(counting.model_fn, results=results) != before
    for model_fn in (with_default, functools.partial(with_default, cache={})):
        seen = []
        for mode in ("train", "eval"):
            with OutsideValues((model_fn,), results).noting_results():
                model_fn(None, None, mode)
            seen.append(values(model_fn, results=results))
        assert seen[0] == seen[1]
        before = seen[1]
        rate += 1
        assert values(model_fn, results=results) != before


def test_of_a_dict_only_the_items_count_that_a_model_fn_does_not_set():
    settings, results = {"rate": 1}, set()

    def model_fn(features, labels, mode):
        settings["calls"] = settings.get("calls", 0) + 1
        return settings["rate"]

    def call():
        with OutsideValues((model_fn,), results).noting_results():
            model_fn(None, None, "train")
        return values(model_fn, results=results)

    before = call()
    assert call() == before
    settings["rate"] = 2
    assert values(model_fn, results=results) != before


def test_an_object_in_the_place_of_one_that_is_gone_is_noticed():
    def model_fn(features, labels, mode):
        return held

    seen = []
    for number in range(100):
        # Often at the address of the one before: what is seen must not be taken for that.
        held = np.full(100_000, number)
        seen.append(values(model_fn))
    assert len(set(seen)) == 100


def test_modules_and_classes_of_other_packages_are_not_searched():
    def model_fn(features, labels, mode):
        return pd.Series(features), pd.DataFrame(labels).mean()

    assert len(values(model_fn)) < 100


def test_what_is_large_is_looked_at_in_part():
    nested = []
    for _ in range(5000):
        nested = [nested]
    data = [[float(i)] * 300 for i in range(1000)]

    def model_fn(features, labels, mode):
        return nested, data

    assert len(values(model_fn)) < 11_000


def test_objects_that_refer_to_each_other_end():
    net = Net()
    net.layer.spare = net.names["net"] = net
    SETTINGS["self"] = SETTINGS
    try:
        assert values(net.model_fn) == values(net.model_fn)
    finally:
        del SETTINGS["self"]


def test_a_mapping_of_the_program_may_have_any_keys():
    class Config(collections.UserDict):
        def __getattr__(self, name):
            return self.data[name]

    config = Config({"length": 1, ("a", 1): 2, "rate": 3})

    def model_fn(features, labels, mode):
        return config.rate

    seen = {values(model_fn)}
    for key in config:
        config[key] += 1
        seen.add(values(model_fn))
    assert len(seen) == 4
