"""One start of a model of BERT-base's size, in this process: by the library, or by hand.

By hand is what a script of TensorFlow 1 does: it builds the same ops, an Adam optimizer and a
Saver, opens a session, initializes the variables and runs a step. The library writes no checkpoint
here, because the script does not.
"""

import importlib
import logging
import tempfile
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from benchmarks.processes import answer

_WIDTH, _NUM_HEADS, _NUM_WORDS, _NUM_TOKENS, _BATCH_SIZE = 768, 12, 30_522, 16, 2
v1 = tf.compat.v1


class _StartedError(Exception):
    """Ends a training after its first step.

    Attributes:
      time: the time of its end.
    """

    def __init__(self) -> None:
        """The first step is over."""
        super().__init__()
        self.time = time.perf_counter()


def make_input() -> tf.data.Dataset:
    """A few short sentences of random words, and their classes: `[B, T], [B]`."""
    rng = np.random.default_rng(0)
    words = rng.integers(0, _NUM_WORDS, size=(64, _NUM_TOKENS), dtype=np.int32)
    classes = rng.integers(0, 2, size=64, dtype=np.int32)
    dataset = tf.data.Dataset.from_tensor_slices((words, classes))
    return dataset.repeat().batch(_BATCH_SIZE, drop_remainder=True)


def build_loss(words: tf.Tensor, classes: tf.Tensor, num_layers: int) -> tf.Tensor:
    """A Transformer encoder that classifies a sentence by its first word, as BERT does."""
    table = v1.get_variable("words", [_NUM_WORDS, _WIDTH], initializer=_small())
    values = tf.nn.embedding_lookup(table, words)
    for index in range(num_layers):
        with v1.variable_scope(f"layer_{index}"):
            values = _build_layer(values)
    logits = _dense(values[:, :1], 2, "classes")[:, 0]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=classes, logits=logits)
    return tf.reduce_mean(losses)


def _build_layer(values: tf.Tensor) -> tf.Tensor:
    shape = [-1, _NUM_TOKENS, _NUM_HEADS, _WIDTH // _NUM_HEADS]
    queries, keys, contents = (
        tf.reshape(_dense(values, _WIDTH, name), shape) for name in ("query", "key", "value")
    )
    scores = tf.einsum("bqhd,bkhd->bhqk", queries, keys) / (_WIDTH // _NUM_HEADS) ** 0.5
    weights = tf.nn.dropout(tf.nn.softmax(scores), rate=0.1)
    attended = tf.reshape(tf.einsum("bhqk,bkhd->bqhd", weights, contents), tf.shape(values))
    attended = _dense(tf.ensure_shape(attended, values.shape), _WIDTH, "output")
    values = _normalize(values + tf.nn.dropout(attended, rate=0.1), "attention")
    hidden = tf.nn.gelu(_dense(values, 4 * _WIDTH, "hidden"))
    return _normalize(values + tf.nn.dropout(_dense(hidden, _WIDTH, "back"), rate=0.1), "end")


def _dense(values: tf.Tensor, width: int, name: str) -> tf.Tensor:
    with v1.variable_scope(name):
        kernel = v1.get_variable("kernel", [values.shape[-1], width], initializer=_small())
        bias = v1.get_variable("bias", [width], initializer=v1.zeros_initializer())
    return tf.einsum("bsi,io->bso", values, kernel) + bias


def _normalize(values: tf.Tensor, name: str) -> tf.Tensor:
    with v1.variable_scope(name):
        scale = v1.get_variable("scale", [_WIDTH], initializer=v1.ones_initializer())
        shift = v1.get_variable("shift", [_WIDTH], initializer=v1.zeros_initializer())
    mean, variance = tf.nn.moments(values, [-1], keepdims=True)
    return (values - mean) * tf.math.rsqrt(variance + 1e-6) * scale + shift


def _small() -> v1.initializers.truncated_normal:
    return v1.initializers.truncated_normal(stddev=0.02)


def _start_by_hand(num_layers: int) -> None:
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        iterator = v1.data.make_initializable_iterator(make_input())
        loss = build_loss(*iterator.get_next(), num_layers)
        train_op = v1.train.AdamOptimizer(1e-4).minimize(loss, step)
        v1.train.Saver()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(iterator.initializer)
            session.run([loss, train_op])
            raise _StartedError


def _start_ours(num_layers: int) -> None:
    import estimator as est

    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> est.EstimatorSpec:
        loss = build_loss(features, labels, num_layers)
        optimizer = v1.train.AdamOptimizer(1e-4)
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    class Stop(v1.train.SessionRunHook):
        def after_run(self, run_context: object, run_values: object) -> None:
            raise _StartedError

    config = est.RunConfig(
        save_checkpoints_secs=None,
        save_checkpoints_steps=None,
        save_summary_steps=None,
        log_step_count_steps=None,
        checkpoint_save_graph_def=False,
    )
    with tempfile.TemporaryDirectory() as directory:
        est.Estimator(model_fn, directory, config).train(make_input, hooks=[Stop()], max_steps=1)


def measure(contender: str, num_layers: int) -> dict:
    """Seconds to the end of the first step; the library has been imported before."""
    logging.disable(logging.CRITICAL)
    if contender == "ours":
        importlib.import_module("estimator.estimators.estimator")
    starts: dict[str, Callable[[int], None]] = {"ours": _start_ours, "by hand": _start_by_hand}
    start = time.perf_counter()
    try:
        starts[contender](num_layers)
    except _StartedError as started:
        return {"seconds": started.time - start}
    raise RuntimeError("The training ended before its first step.")


if __name__ == "__main__":
    answer(measure)
