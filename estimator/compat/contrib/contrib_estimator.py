"""`tf.contrib.estimator`: heads as functions, hooks, and what extends estimators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator.compat.v1 import (
    BaselineEstimator,
    DNNEstimator,
    DNNLinearCombinedEstimator,
    Estimator,
    LinearEstimator,
    add_metrics,
)
from estimator.experimental import (
    InMemoryEvaluatorHook,
    RNNClassifier,
    RNNEstimator,
    call_logit_fn,
    dnn_logit_fn_builder,
    linear_logit_fn_builder,
    make_early_stopping_hook,
    make_stop_at_checkpoint_step_hook,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from estimator.export import PredictOutput
from estimator.heads import (
    BinaryClassHead,
    Head,
    LogisticRegressionHead,
    MultiClassHead,
    MultiHead,
    MultiLabelHead,
    PoissonRegressionHead,
    RegressionHead,
)
from estimator.optimizer.cross_shard import CrossShardOptimizer
from estimator.spec import ModeKeys

_V1 = tf.compat.v1
_MEAN = _V1.losses.Reduction.SUM_OVER_BATCH_SIZE


def binary_classification_head(
    weight_column: Any = None,
    thresholds: Sequence[float] | None = None,
    label_vocabulary: Sequence[str] | None = None,
    loss_reduction: str = _MEAN,
    loss_fn: Callable | None = None,
    name: str | None = None,
) -> Head:
    """Makes a BinaryClassHead."""
    return BinaryClassHead(
        weight_column, thresholds, label_vocabulary, loss_reduction, loss_fn, name
    )


def logistic_regression_head(
    weight_column: Any = None, loss_reduction: str = _MEAN, name: str | None = None
) -> Head:
    """Makes a LogisticRegressionHead."""
    return LogisticRegressionHead(weight_column, loss_reduction, name)


def multi_class_head(
    n_classes: int,
    weight_column: Any = None,
    label_vocabulary: Sequence[str] | None = None,
    loss_reduction: str = _MEAN,
    loss_fn: Callable | None = None,
    name: str | None = None,
) -> Head:
    """Makes a MultiClassHead."""
    return MultiClassHead(n_classes, weight_column, label_vocabulary, loss_reduction, loss_fn, name)


def multi_head(heads: Sequence[Head], head_weights: Sequence[float] | None = None) -> MultiHead:
    """Makes a MultiHead."""
    return MultiHead(heads, head_weights)


def multi_label_head(
    n_classes: int,
    weight_column: Any = None,
    thresholds: Sequence[float] | None = None,
    label_vocabulary: Sequence[str] | None = None,
    loss_reduction: str = _MEAN,
    loss_fn: Callable | None = None,
    classes_for_class_based_metrics: Any = None,
    name: str | None = None,
) -> Head:
    """Makes a MultiLabelHead."""
    return MultiLabelHead(
        n_classes,
        weight_column,
        thresholds,
        label_vocabulary,
        loss_reduction,
        loss_fn,
        classes_for_class_based_metrics,
        name,
    )


def poisson_regression_head(
    weight_column: Any = None,
    label_dimension: int = 1,
    loss_reduction: str = _MEAN,
    compute_full_loss: bool = True,
    name: str | None = None,
) -> Head:
    """Makes a PoissonRegressionHead."""
    return PoissonRegressionHead(
        label_dimension, weight_column, loss_reduction, compute_full_loss, name
    )


def regression_head(
    weight_column: Any = None,
    label_dimension: int = 1,
    loss_reduction: str = _MEAN,
    loss_fn: Callable | None = None,
    inverse_link_fn: Callable | None = None,
    name: str | None = None,
) -> Head:
    """Makes a RegressionHead."""
    return RegressionHead(
        label_dimension, weight_column, loss_reduction, loss_fn, inverse_link_fn, name
    )


def clip_gradients_by_norm(optimizer: Any, clip_norm: float) -> CrossShardOptimizer:
    """Wraps an optimizer: the norm of all gradients together is at most `clip_norm`."""
    return CrossShardOptimizer(optimizer, clip_norm=clip_norm)


def forward_features(estimator: Estimator, keys: str | Sequence[str] | None = None) -> Estimator:
    """Returns an estimator of the same model that also predicts features, under their names.

    Args:
      estimator: the original one, which is not changed.
      keys: the features to predict; None for all.

    Raises:
      ValueError: in `predict` or an export: there is no such feature, it is sparse, the
        predictions are not a dict, or have that name already.
    """
    original = estimator.model_fn
    names = [keys] if isinstance(keys, str) else keys

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        spec = original(features, labels, mode, config)
        if mode != ModeKeys.PREDICT:
            return spec
        more = _checked_features(features, names, spec.predictions)
        outputs = {
            key: PredictOutput({**output.outputs, **more})
            if isinstance(output, PredictOutput)
            else output
            for key, output in (spec.export_outputs or {}).items()
        }
        predictions = {**spec.predictions, **more}
        return spec._replace(predictions=predictions, export_outputs=outputs or None)

    return estimator.with_model_fn(model_fn)


def _checked_features(
    features: Any, names: Sequence[str] | None, predictions: Any
) -> dict[str, tf.Tensor]:
    """Returns the features to predict."""
    if not isinstance(predictions, Mapping):
        raise ValueError("`forward_features` needs a model whose predictions are a dict.")
    found = {}
    for name in features if names is None else names:
        if name not in features:
            known = ", ".join(sorted(features))
            raise ValueError(f"`keys` has {name!r}, which is not a feature. There are: {known}.")
        if name in predictions:
            raise ValueError(f"`keys` has {name!r}, which is a prediction already. Rename it.")
        if isinstance(features[name], tf.SparseTensor):
            raise ValueError(f"`keys` has {name!r}, which is sparse. Make it dense in `input_fn`.")
        found[name] = tf.identity(features[name])
    return found


__all__ = [
    "BaselineEstimator",
    "DNNEstimator",
    "DNNLinearCombinedEstimator",
    "InMemoryEvaluatorHook",
    "LinearEstimator",
    "RNNClassifier",
    "RNNEstimator",
    "add_metrics",
    "binary_classification_head",
    "call_logit_fn",
    "clip_gradients_by_norm",
    "dnn_logit_fn_builder",
    "forward_features",
    "linear_logit_fn_builder",
    "logistic_regression_head",
    "make_early_stopping_hook",
    "make_stop_at_checkpoint_step_hook",
    "multi_class_head",
    "multi_head",
    "multi_label_head",
    "poisson_regression_head",
    "regression_head",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]
