"""Two inputs are told apart by their graphs, and by some rows of arrays outside of graphs."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.input.array_datasets import arrays_outside_graph
from estimator.input.graph_identity import MAX_BYTES, input_identity
from tests.input import identities

DATA = tf.data.Dataset


def make_large(first):
    array = np.arange(100_000, dtype=np.int64)
    array[0] = first
    return DATA.from_tensor_slices(array)


def make_in_memory(first, kind=np.float32):
    rows = np.array([first, *range(99)]).astype(kind)
    input_fn = est.inputs.numpy_input_fn({"x": rows}, shuffle=False)
    return input_fn.build_dataset()


PAIRS = {
    "range": (lambda: DATA.range(3), lambda: DATA.range(4)),
    "batch": (lambda: DATA.range(8).batch(2), lambda: DATA.range(8).batch(4)),
    "files": (lambda: DATA.list_files(["a"]), lambda: DATA.list_files(["b"])),
    "constant of a function": (
        lambda: DATA.range(8).map(lambda x: x + 1),
        lambda: DATA.range(8).map(lambda x: x + 2),
    ),
    "seed": (lambda: DATA.range(8).shuffle(8, 1), lambda: DATA.range(8).shuffle(8, 2)),
    "large array": (lambda: make_large(1), lambda: make_large(2)),
    "array in memory": (lambda: make_in_memory(1), lambda: make_in_memory(2)),
    "objects in memory": (lambda: make_in_memory(1, str), lambda: make_in_memory(2, str)),
}


def identity_of(make, num_before=1):
    with tf.Graph().as_default() as graph, arrays_outside_graph(2**16):
        for _ in range(num_before):
            tf.constant(7)
        tf.compat.v1.data.make_initializable_iterator(make())
        return input_identity(graph, num_before)


@pytest.mark.parametrize("name", PAIRS)
def test_an_equal_input_has_an_equal_identity_and_no_other(name):
    one, other = PAIRS[name]
    assert identity_of(one) == identity_of(one)
    assert identity_of(one) != identity_of(other)


def test_what_was_in_the_graph_before_does_not_count():
    assert identity_of(lambda: DATA.range(3), 0) == identity_of(lambda: DATA.range(3), 0)

    def in_graph(value):
        with tf.Graph().as_default() as graph:
            tf.constant(value)
            tf.compat.v1.data.make_initializable_iterator(DATA.range(3))
            return input_identity(graph, 1)

    assert in_graph(1) == in_graph(2)


def test_the_input_of_another_process_has_an_equal_identity():
    mine = identities.all_identities()
    # Its functions have other numbers: it has made many before.
    run = [sys.executable, "-m", "tests.input.identities", "100"]
    theirs = subprocess.run(run, capture_output=True, text=True, check=True, timeout=120).stdout
    assert theirs.split() == [identity.decode() for identity in mine]
    assert len(set(mine)) == len(mine)


def test_a_graph_with_many_constants_has_no_identity():
    array = np.zeros(MAX_BYTES + 1, np.uint8)
    with tf.Graph().as_default() as graph:
        DATA.from_tensors(array)
        assert input_identity(graph, 0) is None
