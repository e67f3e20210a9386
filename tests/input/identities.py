"""Prints the identities of inputs with functions: python -m tests.input.identities NUM_BEFORE"""

import sys

import numpy as np
import tensorflow as tf

import estimator as est
from estimator.input.graph_identity import input_identity

DATA = tf.data.Dataset


def nested():
    def inner(i):
        return DATA.range(i).map(lambda x: x * 2).filter(lambda x: tf.greater(x, 1))

    return DATA.range(8).flat_map(inner).shuffle(8).batch(2)


def of_python():
    data = DATA.from_generator(lambda: iter([1, 2]), output_signature=tf.TensorSpec([], tf.int64))
    return data.map(lambda x: tf.numpy_function(lambda y: y + 1, [x], tf.int64))


def in_memory():
    rows = {"x": np.arange(30), "y": np.array([str(i) for i in range(30)], object)}
    return est.inputs.numpy_input_fn(rows, shuffle=True, batch_size=3).build_dataset()


def in_any_order():
    """Ops in the order of a set of strings, which differs between processes, as in TFDS."""
    names = {f"name {i}" for i in range(30)}
    return DATA.range(8).map(lambda x: {name: x + len(name) for name in names})


def with_loop():
    """TensorFlow writes the numbers of functions into names of a loop's arguments."""
    return DATA.range(8).batch(2).map(lambda x: tf.map_fn(lambda y: y + 1, x))


def with_layer():
    return DATA.range(8).map(tf.keras.layers.Rescaling(0.5))


INPUTS = (nested, of_python, in_memory, in_any_order, with_loop, with_layer)


def make_identity(make):
    with tf.Graph().as_default() as graph:
        tf.compat.v1.set_random_seed(3)
        tf.compat.v1.data.make_initializable_iterator(make())
        return input_identity(graph, 0)


def all_identities():
    return [make_identity(make) for make in INPUTS]


if __name__ == "__main__":
    for _ in range(int(sys.argv[1])):
        DATA.range(2).map(lambda x: tf.numpy_function(lambda y: y, [x], tf.int64))
        with_layer()
    print(*(identity.decode() for identity in all_identities()))
