"""Ready-made models, their data, and what is recorded of them.

`tests/canned/reference/make_reference.py` runs this with tf.estimator 2.15, and
`tests/canned/test_reference.py` with this library.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

V1 = tf.compat.v1
FC = tf.feature_column
NUM_STEPS = 20
NUM_EXAMPLES, BATCH_SIZE = 40, 8
COLORS = ["red", "green", "blue"]
WORDS = ["ant", "bee", "cat", "dog"]


def _make_data() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    random = np.random.RandomState(5)
    features = {
        "x": random.randn(NUM_EXAMPLES, 2).astype(np.float32),
        "age": random.uniform(0, 80, [NUM_EXAMPLES, 1]).astype(np.float32),
        "color": np.array(COLORS)[random.randint(3, size=[NUM_EXAMPLES, 1])],
        # Empty words are missing values.
        "words": np.array(["", *WORDS])[random.randint(5, size=[NUM_EXAMPLES, 3])],
        "id": random.randint(6, size=[NUM_EXAMPLES, 1]),
        "weight": random.uniform(0.5, 2, [NUM_EXAMPLES, 1]).astype(np.float32),
    }
    score = features["x"][:, :1] - features["x"][:, 1:] + (features["color"] == "red")
    labels = {
        "two": (score > 0.3).astype(np.int64),
        "five": np.digitize(score, [-1.5, -0.5, 0.5, 1.5]),
        "number": (score * 2).astype(np.float32),
    }
    return features, labels


FEATURES, LABELS = _make_data()


def input_fn(label: str) -> Callable:
    """Batches in order, without end."""

    def make() -> tf.data.Dataset:
        data = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS[label]))
        return data.batch(BATCH_SIZE).repeat()

    return make


def eval_input_fn(label: str) -> Callable:
    """All examples once."""

    def make() -> tf.data.Dataset:
        data = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS[label]))
        return data.batch(BATCH_SIZE)

    return make


def sparse_columns() -> list[Any]:
    """Columns for a linear model: numbers, and every kind of category."""
    color = FC.categorical_column_with_vocabulary_list("color", COLORS)
    age = FC.bucketized_column(FC.numeric_column("age"), [20.0, 40.0, 60.0])
    return [
        FC.numeric_column("x", [2]),
        age,
        color,
        FC.categorical_column_with_vocabulary_list("words", WORDS, num_oov_buckets=1),
        FC.categorical_column_with_identity("id", 6),
        FC.crossed_column([age, "color"], 10),
    ]


def dense_columns() -> list[Any]:
    """Columns for a deep model: numbers, indicators and embeddings."""
    color = FC.categorical_column_with_vocabulary_list("color", COLORS)
    words = FC.categorical_column_with_hash_bucket("words", 10)
    ids = FC.categorical_column_with_identity("id", 6)
    return [
        FC.numeric_column("x", [2], normalizer_fn=lambda x: x / 2),
        FC.bucketized_column(FC.numeric_column("age"), [20.0, 40.0, 60.0]),
        FC.indicator_column(color),
        FC.embedding_column(words, 3, combiner="sqrtn"),
        FC.embedding_column(ids, 2),
    ]


@dataclasses.dataclass(frozen=True)
class Case:
    """A model.

    Attributes:
      make: takes `est` and what all models take (model_dir, config); returns the model.
      label: the label's name in LABELS.
      is_random: whether weights after training depend on random numbers.
    """

    make: Callable[..., Any]
    label: str
    is_random: bool = False


def _wide_deep(**kwargs: Any) -> dict[str, Any]:
    return {
        "linear_feature_columns": sparse_columns(),
        "dnn_feature_columns": dense_columns(),
        "dnn_hidden_units": [4, 3],
        **kwargs,
    }


CASES = {
    "linear_2": Case(lambda est, **kw: est.LinearClassifier(sparse_columns(), **kw), "two"),
    "linear_5": Case(
        lambda est, **kw: est.LinearClassifier(
            sparse_columns(), n_classes=5, weight_column="weight", sparse_combiner="mean", **kw
        ),
        "five",
    ),
    "linear_numbers": Case(
        lambda est, **kw: est.LinearRegressor(sparse_columns(), weight_column="weight", **kw),
        "number",
    ),
    "linear_head": Case(
        lambda est, **kw: est.LinearEstimator(
            est.RegressionHead(loss_reduction="sum"), sparse_columns(), optimizer="SGD", **kw
        ),
        "number",
    ),
    "dnn_2": Case(
        lambda est, **kw: est.DNNClassifier([4, 3], dense_columns(), **kw),
        "two",
    ),
    "dnn_5": Case(
        lambda est, **kw: est.DNNClassifier(
            [4], dense_columns(), n_classes=5, weight_column="weight", optimizer="Adam", **kw
        ),
        "five",
    ),
    "dnn_numbers": Case(
        lambda est, **kw: est.DNNRegressor(
            [4, 3], dense_columns(), activation_fn=tf.nn.tanh, batch_norm=True, **kw
        ),
        "number",
    ),
    "dnn_dropout": Case(
        lambda est, **kw: est.DNNRegressor(
            [4, 3], dense_columns(), dropout=0.5, optimizer="RMSProp", **kw
        ),
        "number",
        is_random=True,
    ),
    "dnn_head": Case(
        lambda est, **kw: est.DNNEstimator(
            est.BinaryClassHead(name="top"), [4], dense_columns(), optimizer="Ftrl", **kw
        ),
        "two",
    ),
    "both_2": Case(lambda est, **kw: est.DNNLinearCombinedClassifier(**_wide_deep(**kw)), "two"),
    "both_5": Case(
        lambda est, **kw: est.DNNLinearCombinedClassifier(
            **_wide_deep(n_classes=5, batch_norm=True, dnn_optimizer="Adam", **kw)
        ),
        "five",
    ),
    "both_numbers": Case(
        lambda est, **kw: est.DNNLinearCombinedRegressor(
            **_wide_deep(weight_column="weight", linear_optimizer="SGD", **kw)
        ),
        "number",
    ),
    "both_head": Case(
        lambda est, **kw: est.DNNLinearCombinedEstimator(est.RegressionHead(), **_wide_deep(**kw)),
        "number",
    ),
}

# The form of `compat.v1`.
V1_CASES = {
    "v1_linear": Case(
        lambda v1, **kw: v1.LinearRegressor(sparse_columns(), weight_column="weight", **kw),
        "number",
    ),
    "v1_dnn": Case(lambda v1, **kw: v1.DNNClassifier([4], dense_columns(), **kw), "two"),
    "v1_both": Case(
        lambda v1, **kw: v1.DNNLinearCombinedClassifier(
            **_wide_deep(n_classes=5, batch_norm=True, dnn_optimizer="Adam", **kw)
        ),
        "five",
    ),
    "v1_head": Case(
        lambda v1, **kw: v1.DNNLinearCombinedEstimator(v1.RegressionHead(), **_wide_deep(**kw)),
        "number",
    ),
}


def read_variables(model_dir: str, step: int) -> dict[str, np.ndarray]:
    """Returns all variables of a checkpoint."""
    reader = tf.train.load_checkpoint(f"{model_dir}/model.ckpt-{step}")
    names = reader.get_variable_to_shape_map()
    return {name: reader.get_tensor(name) for name in names if "OBJECT_GRAPH" not in name}
