"""Experimental ready-made models, their data, and what is recorded of them.

As in `model_cases`, tf.estimator 2.15 runs this for the reference, and this library in tests.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tests.canned import model_cases
from tests.canned.model_cases import BATCH_SIZE, NUM_EXAMPLES

V1 = tf.compat.v1
FC = tf.feature_column
NUM_TIMES = 5


def _make_sequences() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    random = np.random.RandomState(3)
    lengths = random.randint(1, NUM_TIMES + 1, [NUM_EXAMPLES, 1])
    lengths[::4] = NUM_TIMES  # All batches are as long.
    is_step = np.arange(NUM_TIMES) < lengths
    words = np.array(model_cases.WORDS)[random.randint(4, size=is_step.shape)]
    shape = [NUM_EXAMPLES, NUM_TIMES]
    features = {
        "words": np.where(is_step, words, ""),
        "values": np.where(is_step, random.randn(*shape), 0).astype(np.float32),
        "x": model_cases.FEATURES["x"],
        "color": model_cases.FEATURES["color"],
        "weight": model_cases.FEATURES["weight"],
        "step_weight": random.uniform(0.5, 2, shape).astype(np.float32),
    }
    known = np.where(is_step, features["values"] + (words == "bee"), 0)
    score = known.sum(1, keepdims=True)
    labels = {
        "two": (score > 1).astype(np.int64),
        "five": np.digitize(score, [-1, 0, 1, 2]),
        "number": (score * 2).astype(np.float32),
        "two_steps": (known.cumsum(1) > 0).astype(np.int64),
        "five_steps": np.digitize(known.cumsum(1), [-1, 0, 1, 2]),
    }
    return features, labels


SEQUENCES, SEQUENCE_LABELS = _make_sequences()


def _with_sparse(features: dict[str, tf.Tensor], labels: tf.Tensor) -> tuple[dict, tf.Tensor]:
    is_step = tf.not_equal(features["words"], "")
    indices, shape = tf.where(is_step), tf.shape(is_step, tf.int64)
    sparse = {
        key: tf.SparseTensor(indices, tf.gather_nd(features[key], indices), shape)
        for key in ("words", "values")
    }
    return {**features, **sparse}, labels


def sequence_input_fn(label: str, *, repeats: bool) -> Callable:
    """Batches in order, without end or once; steps after a sequence's end have no values."""

    def make(batch_size: int = BATCH_SIZE) -> tf.data.Dataset:
        data = tf.data.Dataset.from_tensor_slices((SEQUENCES, SEQUENCE_LABELS[label]))
        data = data.batch(batch_size).map(_with_sparse)
        return data.repeat() if repeats else data

    return make


def _words() -> Any:
    return FC.sequence_categorical_column_with_hash_bucket("words", 6)


def sequence_columns() -> list[Any]:
    """A column of numbers, and one of embeddings."""
    return [FC.sequence_numeric_column("values"), FC.embedding_column(_words(), 3)]


def dense_sequence_columns() -> list[Any]:
    """A column of numbers, and one of indicators: none has variables."""
    words = FC.sequence_categorical_column_with_vocabulary_list("words", model_cases.WORDS)
    numbers = FC.sequence_numeric_column("values", normalizer_fn=lambda x: x * 10)
    return [numbers, FC.indicator_column(words)]


def context_columns() -> list[Any]:
    """A column of numbers, and one of embeddings."""
    color = FC.categorical_column_with_vocabulary_list("color", model_cases.COLORS)
    return [FC.numeric_column("x", [2]), FC.embedding_column(color, 2)]


@dataclasses.dataclass(frozen=True)
class Case:
    """A model.

    Attributes:
      make: takes `est` and what all models take (model_dir, config); returns the model.
      input_fn: makes an `input_fn`; takes `repeats`.
    """

    make: Callable[..., Any]
    input_fn: Callable[..., Callable]


def _rnn(label: str, *args: Any, **settings: Any) -> Case:
    def make(est: Any, **kwargs: Any) -> Any:
        columns = [columns() for columns in args]
        return est.experimental.RNNClassifier(*columns, **settings, **kwargs)

    return Case(make, lambda **kwargs: sequence_input_fn(label, **kwargs))


CASES = {
    "simple": _rnn("two", sequence_columns, units=[4]),
    "simple_context": _rnn(
        "five",
        sequence_columns,
        context_columns,
        units=[4, 3],
        cell_type="simple_rnn",
        n_classes=5,
        weight_column="weight",
    ),
    "lstm": _rnn("two", sequence_columns, units=[4, 3], cell_type="lstm", optimizer="Adam"),
    # Gradients are so large that they are clipped.
    "lstm_clipped": _rnn(
        "two",
        dense_sequence_columns,
        units=4,
        cell_type="lstm",
        optimizer="SGD",
        loss_reduction="sum",
        weight_column=FC.numeric_column("weight", normalizer_fn=lambda x: x * 30),
    ),
    "gru": _rnn("five", sequence_columns, units=[4, 3], cell_type="gru", n_classes=5),
    "gru_fused": _rnn("two", sequence_columns, units=4, cell_type="gru"),
    "steps": _rnn(
        "two_steps",
        sequence_columns,
        units=[4],
        cell_type="lstm",
        return_sequences=True,
        weight_column="step_weight",
    ),
    "steps_context": _rnn(
        "five_steps",
        sequence_columns,
        context_columns,
        units=[4],
        cell_type="gru",
        return_sequences=True,
        n_classes=5,
        sequence_mask="is_step",
        optimizer="Ftrl",
    ),
    "numbers": Case(
        lambda est, **kw: est.experimental.RNNEstimator(
            est.RegressionHead(), sequence_columns(), context_columns(), units=[4], **kw
        ),
        lambda **kwargs: sequence_input_fn("number", **kwargs),
    ),
}


KEYS = np.array([f"example {i}" for i in range(NUM_EXAMPLES)])


def _sdca(model: str, label: str, columns: Callable, settings: dict, **kwargs: Any) -> Case:
    """A case whose batches are all data, with which SDCA converges in a few steps."""

    def make(est: Any, **more: Any) -> Any:
        optimizer = est.experimental.LinearSDCA("key", **settings)
        return getattr(est, model)(columns(), optimizer=optimizer, **kwargs, **more)

    def input_fn(*, repeats: bool) -> Callable:
        def batches() -> tf.data.Dataset:
            features = {**model_cases.FEATURES, "key": KEYS}
            data = (features, model_cases.LABELS[label])
            data = tf.data.Dataset.from_tensor_slices(data).batch(NUM_EXAMPLES)
            return data.repeat() if repeats else data

        return batches

    return Case(make, input_fn)


def weighted_columns() -> list[Any]:
    """Columns for a linear model, one of which weighs its categories."""
    ids = FC.categorical_column_with_identity("id", 6)
    weighted = FC.weighted_categorical_column(ids, "weight")
    return [*model_cases.sparse_columns()[:4], weighted]


SDCA = {
    "sdca_2": _sdca("LinearClassifier", "two", model_cases.sparse_columns, {}),
    "sdca_numbers": _sdca(
        "LinearRegressor",
        "number",
        weighted_columns,
        {
            "num_table_shards": 2,
            "symmetric_l1_regularization": 0.5,
            "symmetric_l2_regularization": 4.0,
            "adaptive": True,
        },
        weight_column="weight",
    ),
}
CASES |= SDCA


def _make_points() -> np.ndarray:
    random = np.random.RandomState(1)
    corners = 3 * random.randint(-1, 2, [NUM_EXAMPLES, 2])
    return (random.randn(NUM_EXAMPLES, 2) + corners).astype(np.float32)


POINTS = _make_points()


def point_input_fn(batch_size: int, *, repeats: bool) -> Callable:
    """Batches of points, in two features."""

    def make(size: int = batch_size) -> tf.data.Dataset:
        features = {"x": POINTS[:, :1], "y": POINTS[:, 1:]}
        data = tf.data.Dataset.from_tensor_slices(features).batch(size)
        return data.repeat() if repeats else data

    return make


def _k_means(batch_size: int = BATCH_SIZE, **settings: Any) -> Case:
    """A case; its first centers are given, as random ones would differ."""

    def make(est: Any, **kwargs: Any) -> Any:
        experimental = est.experimental
        if not hasattr(experimental, "KMeans"):  # In 2.15 it is in the v1 form alone.
            experimental = V1.estimator.experimental
        return experimental.KMeans(3, initial_clusters=POINTS[:3], **settings, **kwargs)

    return Case(make, lambda **kwargs: point_input_fn(batch_size, **kwargs))


K_MEANS = {
    "k_means": _k_means(
        NUM_EXAMPLES,
        use_mini_batch=False,
        feature_columns=[FC.numeric_column("y"), FC.numeric_column("x")],
    ),
    "k_means_cosine": _k_means(NUM_EXAMPLES, use_mini_batch=False, distance_metric="cosine"),
    "k_means_3": _k_means(mini_batch_steps_per_iteration=3),
}
CASES |= K_MEANS
OF_THEIR_OWN = {*K_MEANS, *SDCA}
