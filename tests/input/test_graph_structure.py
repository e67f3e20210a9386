"""Graphs are told apart by what they compute, not by the names and the order of their ops."""

import random

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from estimator.input.graph_structure import GraphStructure

V1 = tf.compat.v1
DATA = tf.data.Dataset
WORDS = ["a", "b"]


def digest_of(make):
    with tf.Graph().as_default() as graph:
        V1.data.make_initializable_iterator(make())
        return GraphStructure(graph.as_graph_def()).digest()


def features_in_order(names):
    """A program that iterates a set, whose order differs between processes."""

    def parse(x):
        return {name: tf.cast(x, tf.float32) + len(name) for name in names}

    return DATA.range(9).map(parse)


def with_loop(amount):
    return DATA.range(3).map(lambda x: tf.map_fn(lambda y: y + amount, tf.stack([x, x])))


def with_condition(bound):
    return DATA.range(3).map(lambda x: tf.cond(x > bound, lambda: x, lambda: -x))


def with_layer(scale, library=tf.keras):
    return DATA.range(3).map(library.layers.Rescaling(scale))


def table(values):
    keys = tf.constant(WORDS)
    initializer = tf.lookup.KeyValueTensorInitializer(keys, tf.constant(values, tf.int64))
    return tf.lookup.StaticHashTable(initializer, -1)


def of_first_table(first, second):
    """Both tables are in the graph, and one is looked up."""
    looked_up, _ = table(first), table(second)
    return DATA.from_tensor_slices(WORDS).map(looked_up.lookup)


def of_first_variable(first, second):
    values = [V1.Variable(value, use_resource=True) for value in (first, second)]
    return DATA.from_tensors(values[0].read_value())


def of_first_function(first, second):
    """Both functions of Python are in the graph, as two arrays that stay out of it would be."""
    data = [
        DATA.range(2).map(lambda x, n=n: tf.numpy_function(lambda y: y + n, [x], tf.int64))
        for n in (0, 1)
    ]
    return data[first].concatenate(data[second])


def interleaved(cycle_length):
    return DATA.range(4).interleave(DATA.range, cycle_length=cycle_length)


# Two calls of the first make equal graphs, under other names; the second makes another one.
PAIRS = {
    "order": (lambda: features_in_order({*"xyz"}), lambda: features_in_order({*"xy", "zz"})),
    "loop": (lambda: with_loop(1), lambda: with_loop(2)),
    "condition": (lambda: with_condition(1), lambda: with_condition(2)),
    "Keras layer": (lambda: with_layer(2.0), lambda: with_layer(3.0)),
    "tf-keras layer": (lambda: with_layer(2.0, tf_keras), lambda: with_layer(3.0, tf_keras)),
    "table": (lambda: of_first_table([0, 1], [1, 0]), lambda: of_first_table([1, 0], [0, 1])),
    "variable": (lambda: of_first_variable(1.0, 2.0), lambda: of_first_variable(2.0, 1.0)),
    "Python": (lambda: of_first_function(0, 1), lambda: of_first_function(1, 0)),
    "nested": (lambda: interleaved(1), lambda: interleaved(2)),
    "operands": (
        lambda: DATA.range(3).map(lambda x: x - 2 * x),
        lambda: DATA.range(3).map(lambda x: 2 * x - x),
    ),
    "outputs": (
        lambda: DATA.range(3).map(lambda x: {"a": x, "b": -x}),
        lambda: DATA.range(3).map(lambda x: {"a": -x, "b": x}),
    ),
    "output of an op": (
        lambda: DATA.range(3).map(lambda x: tf.split(tf.stack([x, -x]), 2)[0]),
        lambda: DATA.range(3).map(lambda x: tf.split(tf.stack([x, -x]), 2)[1]),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_equal_graphs_have_equal_digests_and_others_do_not(name):
    one, other = PAIRS[name]
    assert digest_of(one) == digest_of(one)
    assert digest_of(one) != digest_of(other)


def test_the_order_of_building_does_not_count():
    ab, ba = (digest_of(lambda order=order: features_in_order(order)) for order in ("ab", "ba"))
    assert ab == ba


def test_loops_of_v1_are_told_apart():
    def digest(body):
        V1.disable_control_flow_v2()
        try:
            with tf.Graph().as_default() as graph:
                V1.while_loop(lambda i, a, b: i < 3, body, [tf.constant(n) for n in (0, 5, 7)])
                return GraphStructure(graph.as_graph_def()).digest()
        finally:
            V1.enable_control_flow_v2()

    def body(i, a, b):
        return i + 1, a - b, b

    assert digest(body) == digest(body) != digest(lambda i, a, b: (i + 1, b - a, b))


def test_ops_may_form_long_chains_and_cycles():
    def build(count):
        x = tf.constant(0)
        for _ in range(count):
            x = -x
        V1.disable_control_flow_v2()
        try:
            V1.while_loop(lambda i: i < 3, lambda i: i + 1, [x])
        finally:
            V1.enable_control_flow_v2()

    def digest(count):
        with tf.Graph().as_default() as graph:
            build(count)
            assert "NextIteration" in {op.type for op in graph.get_operations()}
            return GraphStructure(graph.as_graph_def()).digest()

    assert digest(3000) == digest(3000) != digest(3001)


STEPS = {
    "add": lambda data, n: data.map(lambda x: x + n),
    "multiply": lambda data, n: data.map(lambda x: x * n),
    "filter": lambda data, n: data.filter(lambda x: x > n),
    "take": lambda data, n: data.take(n),
    "skip": lambda data, n: data.skip(n),
    "repeat": lambda data, n: data.repeat(n),
    "shuffle": lambda data, n: data.shuffle(n, seed=1),
    "flat_map": lambda data, n: data.flat_map(lambda x: DATA.range(x, x + n)),
    "zip": lambda data, n: DATA.zip((data, DATA.range(n))).map(lambda x, y: x + y),
    "concatenate": lambda data, n: data.concatenate(DATA.range(n)),
    "loop": lambda data, n: data.map(lambda x: tf.map_fn(lambda y: y + n, x[None])[0]),
}


@pytest.mark.parametrize("seed", range(2))
def test_random_programs_are_told_apart(seed):
    rng = random.Random(seed)
    digests = {}
    for _ in range(60):
        names = rng.choices([*STEPS], k=rng.randint(1, 4))
        program = tuple((name, rng.randint(2, 4)) for name in names)

        def make(program=program):
            data = DATA.range(9)
            for name, n in program:
                data = STEPS[name](data, n)
            return data.batch(2)

        found = {digest_of(make) for _ in range(2)}
        assert len(found) == 1, program
        digests[program] = found.pop()
    assert len(set(digests.values())) == len(digests) > 40


def test_large_constants_count_to_the_last_byte():
    array = np.zeros(10_000, np.int64)
    other = array.copy()
    other[-1] = 1
    digests = [digest_of(lambda a=a: DATA.from_tensor_slices(a)) for a in (array, other, array)]
    assert digests[0] == digests[2] != digests[1]
