"""The graph as text."""

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

import estimator as est
from estimator.checkpoint.graph_text import graph_as_text
from tests.toy import Model, checkpoint_steps, numbers


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


def test_training_goes_on_if_the_graph_cannot_be_written(tmp_path, caplog):
    (tmp_path / "graph.pbtxt").mkdir()
    est.Estimator(Model(), str(tmp_path)).train(numbers(), steps=2)
    assert "graph.pbtxt could not be written" in caplog.text
    assert checkpoint_steps(tmp_path) == [0, 2]
