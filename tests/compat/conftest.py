"""Fixtures of the tests of `compat`."""

import pytest
import tensorflow as tf


@pytest.fixture
def graph():
    """A new default graph with a seed."""
    with tf.Graph().as_default() as graph:
        tf.compat.v1.set_random_seed(1)
        yield graph
