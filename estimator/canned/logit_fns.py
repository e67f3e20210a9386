"""Functions from features to logits, for a `model_fn` of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator.canned.parts import Form, dnn_part, linear_part
from estimator.canned.summaries import build_summaries
from estimator.config.checks import check_int
from estimator.spec import ModeKeys

V1 = tf.compat.v1


def dnn_logit_fn_builder(
    units: int,
    hidden_units: Sequence[int],
    feature_columns: Sequence[Any],
    activation_fn: Any,
    dropout: float | None,
    input_layer_partitioner: Any,
    batch_norm: bool,
) -> Callable[..., tf.Tensor]:
    """Returns a `logit_fn` of a deep model.

    Args:
      units: the number of logits.
      hidden_units: see `DNNEstimator`, as for the other arguments.
      feature_columns: dense columns of `tf.feature_column`.
      activation_fn: the activation of the hidden layers.
      dropout: the probability that a hidden unit is dropped in training.
      input_layer_partitioner: partitions the variables of columns; None for the partitioner of the
        current variable scope.
      batch_norm: whether each hidden layer's output is normalized. The updates of its statistics
        are in the collection UPDATE_OPS.

    Returns:
      A function that takes `features` and `mode`, makes variables in the current variable scope,
      and returns logits [batch size, units].
    """
    check_int("units", units)
    layers = activation_fn, dropout, batch_norm
    form = Form(keeps_slashes=False)
    part = dnn_part(feature_columns, "Adagrad", hidden_units, layers, form)

    def logit_fn(features: Any, mode: str) -> tf.Tensor:
        is_training = mode == ModeKeys.TRAIN
        logits, updates, summaries = part.build_logits(
            features, units, is_training, input_layer_partitioner
        )
        build_summaries(summaries, keeps_scope=True)
        for update in updates:
            V1.add_to_collection(V1.GraphKeys.UPDATE_OPS, update)
        return logits

    return logit_fn


def linear_logit_fn_builder(
    units: int, feature_columns: Sequence[Any], sparse_combiner: str = "sum"
) -> Callable[..., tf.Tensor]:
    """Returns a `logit_fn` of a linear model.

    Args:
      units: the number of logits.
      feature_columns: see `LinearEstimator`.
      sparse_combiner: see `LinearEstimator`.

    Returns:
      A function that takes `features`, makes variables in the current variable scope, and returns
      logits [batch size, units].
    """
    check_int("units", units)
    part = linear_part(feature_columns, "Ftrl", sparse_combiner, Form())

    def logit_fn(features: Any) -> tf.Tensor:
        logits, _, summaries = part.build_logits(features, units, False, None)
        build_summaries(summaries, keeps_scope=True)
        return logits

    return logit_fn
