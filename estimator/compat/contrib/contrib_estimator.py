"""`tf.contrib.estimator`: heads as functions, hooks, and what extends estimators."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator.estimators.estimator import Estimator
from estimator.export import PredictOutput
from estimator.heads.binary_class import BinaryClassHead
from estimator.heads.head import Head
from estimator.heads.multi import MultiHead
from estimator.heads.multi_class import MultiClassHead
from estimator.heads.multi_label import MultiLabelHead
from estimator.heads.regression import (
    LogisticRegressionHead,
    PoissonRegressionHead,
    RegressionHead,
)
from estimator.optimizer.cross_shard import CrossShardOptimizer
from estimator.spec import ModeKeys


def in_own_scope(make: Callable[..., Head]) -> Callable[..., Head]:
    """Wraps what makes a head: optimizer and loss are in its name scope, as in TensorFlow 1."""

    @functools.wraps(make)
    def make_head(*args: Any, **kwargs: Any) -> Head:
        head = make(*args, **kwargs)
        head.training_scope = head.loss_scope = None
        return head

    return make_head


binary_classification_head = in_own_scope(BinaryClassHead)
logistic_regression_head = in_own_scope(LogisticRegressionHead)
multi_class_head = in_own_scope(MultiClassHead)
multi_head = in_own_scope(MultiHead)
multi_label_head = in_own_scope(MultiLabelHead)


@in_own_scope
def poisson_regression_head(
    weight_column: Any = None,
    label_dimension: int = 1,
    loss_reduction: str = "sum_over_batch_size",
    compute_full_loss: bool = True,
    name: str | None = None,
) -> Head:
    """Makes a PoissonRegressionHead."""
    return PoissonRegressionHead(
        label_dimension, weight_column, loss_reduction, compute_full_loss, name
    )


@in_own_scope
def regression_head(
    weight_column: Any = None,
    label_dimension: int = 1,
    loss_reduction: str = "sum_over_batch_size",
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


def forward_features(
    estimator: Estimator,
    keys: str | Sequence[str] | None = None,
    sparse_default_values: Mapping[str, Any] | None = None,
) -> Estimator:
    """Returns an estimator of the same model that also predicts features, under their names.

    Args:
      estimator: the original one, which is not changed.
      keys: the features to predict; None for all.
      sparse_default_values: by sparse feature, what is predicted where it has no value.

    Raises:
      ValueError: in `predict` or an export: there is no such feature, it is sparse and has no
        default value, the features or the predictions are not a dict, or these have that name
        already.
    """
    original = estimator.model_fn
    names = [keys] if isinstance(keys, str) else keys

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        spec = original(features, labels, mode, config)
        if mode != ModeKeys.PREDICT:
            return spec
        more = _checked_features(features, names, spec.predictions, sparse_default_values or {})
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
    features: Any,
    names: Sequence[str] | None,
    predictions: Any,
    sparse_default_values: Mapping[str, Any],
) -> dict[str, tf.Tensor]:
    """Returns the features to predict."""
    for what, value in (("features", features), ("predictions", predictions)):
        if not isinstance(value, Mapping):
            raise ValueError(
                f"`forward_features` needs a dict of {what}, and the model has {value!r}. "
                "Give them names."
            )
    found = {}
    for name in features if names is None else names:
        if name not in features:
            known = ", ".join(sorted(features))
            raise ValueError(f"`keys` has {name!r}, which is not a feature. There are: {known}.")
        if name in predictions:
            raise ValueError(f"`keys` has {name!r}, which is a prediction already. Rename it.")
        found[name] = tf.identity(features[name])
        if isinstance(features[name], tf.SparseTensor):
            if name not in sparse_default_values:
                raise ValueError(
                    f"`keys` has {name!r}, which is sparse. Give its default value in "
                    "`sparse_default_values`."
                )
            found[name] = tf.sparse.to_dense(features[name], sparse_default_values[name])
    return found
