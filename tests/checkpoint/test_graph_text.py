"""The graph as text."""

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

from estimator.checkpoint.graph_text import graph_as_text


def test_the_text_holds_the_graph_with_all_bytes_of_its_constants():
    every_byte = np.tile(np.arange(256, dtype=np.uint8), 3)
    with tf.Graph().as_default() as graph:
        x = tf.constant(every_byte, name="data")
        for i in range(12):
            tf.constant(np.roll(every_byte, i + 1), name=f"more_{i}")

        @tf.function
        def inside(y):
            return y + tf.constant(every_byte[::-1].copy())

        tf.identity(inside(x), "y")
    expected = graph.as_graph_def(add_shapes=True)
    written = text_format.Parse(
        graph_as_text(graph.as_graph_def(add_shapes=True)), tf.compat.v1.GraphDef()
    )
    assert written == expected
