"""Small classes and constants of `tensorflow_estimator`'s modules, and functions like theirs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator.canned.v1_models import OPTIMIZERS
from estimator.compat.contrib.contrib_estimator import (
    binary_classification_head,
    multi_class_head,
    regression_head,
)
from estimator.config.checks import WrongTypeError, check_choice, parameters_of
from estimator.estimators.arguments import check_overrides

LOSS_METRIC_KEY = "loss"
AVERAGE_LOSS_METRIC_KEY = "average_loss"
DEFAULT_SERVING_KEY = tf.compat.v1.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY


class TaskType:
    """The names of tasks in TF_CONFIG."""

    MASTER = "master"
    PS = "ps"
    WORKER = "worker"
    CHIEF = "chief"
    EVALUATOR = "evaluator"


class MetricKeys:
    """The names of the results that heads give."""

    LOSS = LOSS_METRIC_KEY
    LOSS_MEAN = AVERAGE_LOSS_METRIC_KEY
    LOSS_REGULARIZATION = "regularization_loss"
    ACCURACY = "accuracy"
    PRECISION = "precision"
    RECALL = "recall"
    ACCURACY_BASELINE = "accuracy_baseline"
    AUC = "auc"
    AUC_PR = "auc_precision_recall"
    LABEL_MEAN = "label/mean"
    PREDICTION_MEAN = "prediction/mean"
    ACCURACY_AT_THRESHOLD = "accuracy/positive_threshold_%g"
    PRECISION_AT_THRESHOLD = "precision/positive_threshold_%g"
    RECALL_AT_THRESHOLD = "recall/positive_threshold_%g"
    PROBABILITY_MEAN_AT_CLASS = "probability_mean/class%d"
    AUC_AT_CLASS = "auc/class%d"
    AUC_PR_AT_CLASS = "auc_precision_recall/class%d"
    PROBABILITY_MEAN_AT_NAME = "probability_mean/%s"
    AUC_AT_NAME = "auc/%s"
    AUC_PR_AT_NAME = "auc_precision_recall/%s"


class PredictionKeys:
    """The names of the predictions that heads give."""

    CLASSES = "classes"
    CLASS_IDS = "class_ids"
    ALL_CLASSES = "all_classes"
    ALL_CLASS_IDS = "all_class_ids"
    LOGISTIC = "logistic"
    LOGITS = "logits"
    PREDICTIONS = "predictions"
    PROBABILITIES = "probabilities"


# The heads of tf.compat.v1's ready-made models; their losses are sums over the batch.
_SUM = tf.compat.v1.losses.Reduction.SUM
_binary_logistic_head_with_sigmoid_cross_entropy_loss = functools.partial(
    binary_classification_head, loss_reduction=_SUM
)
_multi_class_head_with_softmax_cross_entropy_loss = functools.partial(
    multi_class_head, loss_reduction=_SUM
)
_regression_head = functools.partial(regression_head, loss_reduction=_SUM)
_regression_head_with_mean_squared_error_loss = _regression_head


def get_optimizer_instance(opt: Any, learning_rate: float | None = None) -> Any:
    """Returns an optimizer of tf.compat.v1.train, given one, its name, or a function that makes it.

    Args:
      opt: "Adagrad", "Adam", "Ftrl", "RMSProp" or "SGD"; an optimizer; or a function of nothing.
      learning_rate: for a name; otherwise it has no effect.

    Raises:
      ValueError: the name is unknown, or there is no learning rate for it.
      TypeError: it is not an optimizer, or the function returns none.
    """
    if isinstance(opt, str):
        check_choice("opt", opt, OPTIMIZERS)
        if learning_rate is None:
            raise ValueError(f"`learning_rate` must be given if `opt` ({opt!r}) is a name.")
        return OPTIMIZERS[opt](learning_rate)
    made = opt() if callable(opt) else opt
    if not hasattr(made, "apply_gradients"):
        raise WrongTypeError(
            f"`opt` ({opt!r}) must be an optimizer, a function that makes one, or its name: "
            f"{', '.join(OPTIMIZERS)}."
        )
    return made


def fn_args(fn: Callable) -> tuple[str, ...]:
    """Returns the names of a function's positional arguments that no partial has bound."""
    if isinstance(fn, functools.partial):
        return tuple(n for n in fn_args(fn.func)[len(fn.args) :] if n not in fn.keywords)
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return tuple(n for n, one in parameters_of("fn", fn).items() if one.kind in kinds)


def _assert_members_are_not_overridden(base: type, subject: Any) -> None:
    """Raises a ValueError if the class of `subject` overrides a member of `base`."""
    check_overrides(type(subject), base)
