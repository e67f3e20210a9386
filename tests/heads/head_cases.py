"""What heads are compared on: their arguments, random batches, and what is recorded of each.

`tests/heads/reference/make_reference.py` runs this with tf.estimator 2.15, and
`tests/heads/test_reference.py` with this library.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

V1 = tf.compat.v1
NUM_BATCHES = 3
BATCH_SIZE = 4
WORDS = ["ant", "bee", "cat"]


@dataclasses.dataclass(frozen=True)
class Case:
    """A head and its input.

    Attributes:
      make: takes the module with the heads, and returns a head.
      labels: takes a random state, and returns a batch of labels.
      weights: takes a random state, and returns the feature "w"; None if there is none.
      logits: the shape of the logits, after the batch.
      regularization: the value of a regularization loss; None if there is none.
      num_updates: how many batches the metrics count. Eagerly, a MultiHead of 2.15 makes the
        metrics of its heads anew for each batch.
    """

    make: Callable[[Any], Any]
    labels: Callable[[np.random.RandomState], Any]
    logits: tuple[int, ...]
    weights: Callable[[np.random.RandomState], Any] | None = None
    regularization: float | None = None
    num_updates: int = NUM_BATCHES


def _ids(num_classes: int, *shape: int) -> Callable:
    return lambda random: random.randint(num_classes, size=(BATCH_SIZE, *shape))


def _floats(*shape: int, low: float = -2.0, high: float = 2.0) -> Callable:
    return lambda random: random.uniform(low, high, (BATCH_SIZE, *shape)).astype(np.float32)


def _words(*shape: int, words: Any = WORDS) -> Callable:
    return lambda random: np.array(words)[random.randint(len(words), size=(BATCH_SIZE, *shape))]


def _sparse(values: Any) -> Callable:
    """Sparse labels: each example has the first two, the last or none of `values`."""

    def labels(random: np.random.RandomState) -> Any:
        rows = [values[:2], values[-1:], []]
        chosen = [rows[i] for i in random.randint(3, size=BATCH_SIZE - 1)] + [values[:2]]
        return tf.ragged.constant(chosen, dtype=None if values is WORDS else tf.int64).to_sparse()

    return labels


def _both(a: Callable, b: Callable) -> Callable:
    return lambda random: {"a": a(random), "b": b(random)}


def _weights(*shape: int) -> Callable:
    return _floats(*shape, low=0.0, high=2.0)


def _squared(labels: Any, logits: Any) -> Any:
    return tf.square(tf.cast(labels, tf.float32) - logits) * 0.5


def _by_feature(labels: Any, logits: Any, features: Any) -> Any:
    return tf.abs(tf.cast(labels, tf.float32) - logits) * features["w"]


def _first_logit(labels: Any, logits: Any) -> Any:
    return tf.cast(labels, tf.float32) * logits[..., :1]


def _mean_squared(labels: Any, logits: Any) -> Any:
    return tf.reduce_mean(_squared(labels, logits), axis=-1, keepdims=True)


def _multi(est: Any, **kwargs: Any) -> Any:
    heads = [
        est.BinaryClassHead(name="a", thresholds=[0.5]),
        est.RegressionHead(2, name="b", weight_column="w"),
    ]
    return est.MultiHead(heads, **kwargs)


_multi_labels = _both(_ids(2, 1), _floats(2))
_hot = _ids(2, 3)

CASES = {
    # One label of two classes.
    "binary": Case(lambda est: est.BinaryClassHead(), _ids(2, 1), (1,)),
    "binary_name": Case(
        lambda est: est.BinaryClassHead(name="top"), _ids(2, 1), (1,), regularization=0.25
    ),
    "binary_weights": Case(
        lambda est: est.BinaryClassHead(weight_column="w"), _ids(2, 1), (1,), _weights(1)
    ),
    "binary_weights_of_rank_1": Case(
        lambda est: est.BinaryClassHead(weight_column="w"), _ids(2, 1), (1,), _weights()
    ),
    "binary_weights_of_a_column": Case(
        lambda est: est.BinaryClassHead(
            weight_column=tf.feature_column.numeric_column("w", normalizer_fn=lambda x: 2 * x + 1)
        ),
        _ids(2, 1),
        (1,),
        _weights(1),
    ),
    "binary_thresholds": Case(
        lambda est: est.BinaryClassHead(thresholds=[0.25, 0.8], weight_column="w", name="t"),
        _ids(2, 1),
        (1,),
        _weights(1),
    ),
    "binary_words": Case(
        lambda est: est.BinaryClassHead(label_vocabulary=["no", "yes"]),
        _words(1, words=["no", "yes"]),
        (1,),
    ),
    "binary_sum": Case(
        lambda est: est.BinaryClassHead(loss_reduction="sum", weight_column="w"),
        _ids(2, 1),
        (1,),
        _weights(1),
        0.5,
    ),
    "binary_loss_fn": Case(lambda est: est.BinaryClassHead(loss_fn=_squared), _ids(2, 1), (1,)),
    "binary_loss_fn_of_features": Case(
        lambda est: est.BinaryClassHead(loss_fn=_by_feature), _ids(2, 1), (1,), _weights(1)
    ),
    "binary_soft": Case(lambda est: est.BinaryClassHead(), _floats(1, low=0.0, high=1.0), (1,)),
    "binary_sequence": Case(
        lambda est: est.BinaryClassHead(weight_column="w", thresholds=[0.5]),
        _ids(2, 2, 1),
        (2, 1),
        _weights(2),
    ),
    # One label of several classes.
    "classes": Case(lambda est: est.MultiClassHead(3), _ids(3, 1), (3,)),
    "classes_name_weights": Case(
        lambda est: est.MultiClassHead(3, weight_column="w", name="top"),
        _ids(3, 1),
        (3,),
        _weights(1),
        0.25,
    ),
    "classes_weights_of_rank_1": Case(
        lambda est: est.MultiClassHead(3, weight_column="w"), _ids(3, 1), (3,), _weights()
    ),
    "classes_words": Case(
        lambda est: est.MultiClassHead(3, label_vocabulary=WORDS), _words(1), (3,)
    ),
    "classes_sum": Case(lambda est: est.MultiClassHead(3, loss_reduction="sum"), _ids(3, 1), (3,)),
    "classes_loss_fn": Case(
        lambda est: est.MultiClassHead(3, loss_fn=_first_logit), _ids(3, 1), (3,)
    ),
    "classes_sequence": Case(
        lambda est: est.MultiClassHead(4, weight_column="w"), _ids(4, 2, 1), (2, 4), _weights(2)
    ),
    # Any number of labels.
    "labels": Case(lambda est: est.MultiLabelHead(3), _hot, (3,)),
    "labels_all_arguments": Case(
        lambda est: est.MultiLabelHead(
            3,
            weight_column="w",
            thresholds=[0.3, 0.7],
            classes_for_class_based_metrics=[0, 2],
            name="top",
        ),
        _hot,
        (3,),
        _weights(1),
        0.25,
    ),
    "labels_sparse": Case(lambda est: est.MultiLabelHead(3), _sparse([0, 1, 2]), (3,)),
    "labels_sparse_words": Case(
        lambda est: est.MultiLabelHead(
            3, label_vocabulary=WORDS, classes_for_class_based_metrics=["cat", "ant"]
        ),
        _sparse(WORDS),
        (3,),
    ),
    "labels_sum": Case(
        lambda est: est.MultiLabelHead(3, loss_reduction="sum", weight_column="w"),
        _hot,
        (3,),
        _weights(),
    ),
    "labels_loss_fn": Case(lambda est: est.MultiLabelHead(3, loss_fn=_mean_squared), _hot, (3,)),
    "labels_sequence": Case(
        lambda est: est.MultiLabelHead(3, weight_column="w"), _ids(2, 2, 3), (2, 3), _weights(2)
    ),
    # Numbers.
    "numbers": Case(lambda est: est.RegressionHead(), _floats(1), (1,)),
    "numbers_of_rank_1": Case(lambda est: est.RegressionHead(), _floats(), (1,)),
    "numbers_name_weights": Case(
        lambda est: est.RegressionHead(weight_column="w", name="top"),
        _floats(1),
        (1,),
        _weights(1),
        0.25,
    ),
    "numbers_2": Case(lambda est: est.RegressionHead(2), _floats(2), (2,)),
    "numbers_2_weights": Case(
        lambda est: est.RegressionHead(2, weight_column="w"), _floats(2), (2,), _weights(1)
    ),
    "numbers_2_weights_each": Case(
        lambda est: est.RegressionHead(2, weight_column="w"), _floats(2), (2,), _weights(2)
    ),
    "numbers_2_sum": Case(
        lambda est: est.RegressionHead(2, loss_reduction="sum"), _floats(2), (2,)
    ),
    "numbers_loss_fn": Case(lambda est: est.RegressionHead(2, loss_fn=_squared), _floats(2), (2,)),
    "numbers_inverse_link": Case(
        lambda est: est.RegressionHead(inverse_link_fn=tf.exp), _floats(1), (1,)
    ),
    "numbers_sequence": Case(
        lambda est: est.RegressionHead(2, weight_column="w"),
        _floats(3, 2),
        (3, 2),
        _weights(3),
    ),
    "integers": Case(lambda est: est.RegressionHead(), _ids(9, 1), (1,)),
    "poisson": Case(
        lambda est: est.PoissonRegressionHead(2, weight_column="w", name="top"),
        _ids(5, 2),
        (2,),
        _weights(1),
    ),
    "poisson_without_constant": Case(
        lambda est: est.PoissonRegressionHead(compute_full_loss=False), _ids(5, 1), (1,)
    ),
    "logistic": Case(
        lambda est: est.LogisticRegressionHead(weight_column="w"),
        _floats(1, low=0.0, high=1.0),
        (1,),
        _weights(1),
    ),
    "logistic_sum": Case(
        lambda est: est.LogisticRegressionHead(loss_reduction="sum", name="top"),
        _floats(low=0.0, high=1.0),
        (1,),
    ),
    # Several heads.
    "heads": Case(_multi, _multi_labels, (3,), _weights(1), 0.25, num_updates=1),
    "heads_weights": Case(
        lambda est: _multi(est, head_weights=[2.0, 0.5]),
        _multi_labels,
        (3,),
        _weights(1),
        num_updates=1,
    ),
}


def draw(name: str) -> list[tuple[dict[str, Any], Any, np.ndarray]]:
    """Draws the batches of a case: features, labels and logits."""
    case = CASES[name]
    random = np.random.RandomState(list(CASES).index(name))
    batches = []
    for _ in range(NUM_BATCHES):
        labels = case.labels(random)
        weights = None if case.weights is None else case.weights(random)
        logits = random.randn(BATCH_SIZE, *case.logits).astype(np.float32)
        batches.append(({} if weights is None else {"w": weights}, labels, logits))
    return batches


def record(name: str, est: Any) -> dict[str, Any]:
    """Returns what a case's head makes of its batches, as plain lists, dicts and numbers."""
    case, batches = CASES[name], draw(name)
    head = case.make(est)
    losses = None if case.regularization is None else [tf.constant(case.regularization)]
    values = [
        (tf.nest.map_structure(tf.convert_to_tensor, features), labels, tf.constant(logits))
        for features, labels, logits in batches
    ]
    metrics = head.metrics(regularization_losses=losses)
    for features, labels, logits in values[: case.num_updates]:
        updated = head.update_metrics(metrics, features, logits, labels, losses)
    return {
        "head": [head.name, head.logits_dimension, head.loss_reduction],
        "losses": [
            plain(head.loss(labels, logits, features=features, regularization_losses=losses))
            for features, labels, logits in values
        ],
        "metrics": {key: plain(metric.result()) for key, metric in updated.items()},
        "predictions": _by_key(head.predictions(values[0][2])),
        **{mode: record_spec(name, est, mode) for mode in ("train", "eval", "infer")},
    }


def record_spec(name: str, est: Any, mode: str) -> dict[str, Any]:
    """Returns what the EstimatorSpec of a mode has, for the first batch."""
    case = CASES[name]
    with tf.Graph().as_default() as graph, V1.Session() as session:
        features, labels, logits = tf.nest.map_structure(
            tf.convert_to_tensor, draw(name)[0], expand_composites=True
        )
        step = V1.train.create_global_step()
        loss = None if case.regularization is None else [tf.constant(case.regularization)]
        spec = case.make(est).create_estimator_spec(
            features=features,
            mode=mode,
            logits=logits,
            labels=None if mode == "infer" else labels,
            train_op_fn=(lambda loss: step.assign_add(1)) if mode == "train" else None,
            regularization_losses=None if mode == "infer" else loss,
        )
        session.run([V1.global_variables_initializer(), V1.tables_initializer()])
        exports = spec.export_outputs or {}
        return {
            "loss": None if spec.loss is None else plain(session.run(spec.loss)),
            "predictions": _by_key(session.run(spec.predictions or {})),
            "names": {key: tensor.op.name for key, tensor in _joined(spec.predictions).items()},
            "train_op": spec.train_op is not None,
            "metrics": sorted(spec.eval_metric_ops or {}),
            "exports": {key: _by_key(session.run(_outputs(v))) for key, v in exports.items()},
            "summaries": sorted(
                session.run(op.inputs[0]).decode()
                for op in graph.get_operations()
                if op.type == "ScalarSummary"
            ),
        }


def _outputs(output: Any) -> dict[str, Any]:
    kind = type(output).__name__
    tensors = {
        "ClassificationOutput": lambda: {"scores": output.scores, "classes": output.classes},
        "RegressionOutput": lambda: {"value": output.value},
        "PredictOutput": lambda: output.outputs,
    }[kind]()
    return {f"{kind} {key}": tensor for key, tensor in tensors.items() if tensor is not None}


def _by_key(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {key: plain(value) for key, value in _joined(values).items()}


def _joined(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {"/".join(k) if isinstance(k, tuple) else k: v for k, v in values.items()}


def plain(value: Any) -> Any:
    """Returns a tensor or an array as its dtype and its values."""
    value = np.asarray(value)
    if value.dtype.kind in "OSU":
        words = [word.decode() if isinstance(word, bytes) else word for word in value.ravel()]
        return ["string", list(value.shape), words]
    digits = value.ravel().tolist()
    if value.dtype.kind == "f":
        digits = [float(f"{digit:.8g}") for digit in digits]
    return [value.dtype.name, list(value.shape), digits]
