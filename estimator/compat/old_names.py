"""Small classes and constants of `tensorflow_estimator`'s modules, and functions like theirs."""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import inspect
import os
import tempfile
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator.canned.v1_models import OPTIMIZERS
from estimator.checkpoint import files
from estimator.compat.contrib.contrib_estimator import (
    binary_classification_head,
    multi_class_head,
    regression_head,
)
from estimator.config.checks import WrongTypeError, check_choice, parameters_of
from estimator.config.run_config import RunConfig
from estimator.estimators.arguments import check_overrides, checked_config, checked_model_dir
from estimator.export.receivers import build_raw_supervised_input_receiver_fn
from estimator.input.input_calls import features_and_labels
from estimator.summary.event_reader import read_evaluations

LOSS_METRIC_KEY = "loss"
AVERAGE_LOSS_METRIC_KEY = "average_loss"
DEFAULT_SERVING_KEY = tf.compat.v1.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
_DEFAULT_SERVING_KEY = DEFAULT_SERVING_KEY
_CLASSIFY_SERVING_KEY = "classification"
_REGRESS_SERVING_KEY = "regression"
_PREDICT_SERVING_KEY = "predict"


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


class ExportSavedModelApiVersion(enum.IntEnum):
    """The values of a TPUEstimator's argument of this name."""

    V1 = 1
    V2 = 2


# What `create_loss` of a head of v1 returns.
LossSpec = collections.namedtuple(
    "LossSpec", "training_loss unreduced_loss weights processed_labels"
)


class _Head:
    """The base class of heads that were written for v1, whose own code calls their methods."""


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
    return _checked_optimizer(opt)


def get_optimizer_instance_v2(opt: Any, learning_rate: float | None = None) -> Any:
    """Returns a Keras optimizer, given one, its name, or a function that makes it.

    Args:
      opt: "Adagrad", "Adam", "Ftrl", "RMSProp" or "SGD"; an optimizer; or a function of nothing.
      learning_rate: for a name; None for the default of its class. Otherwise it has no effect.

    Raises:
      ValueError: the name is unknown.
      TypeError: it is not an optimizer, or the function returns none.
    """
    if not isinstance(opt, str):
        return _checked_optimizer(opt)
    check_choice("opt", opt, OPTIMIZERS)
    optimizers = tf.keras.optimizers
    if optimizers.__name__.startswith("tf_keras"):
        optimizers = optimizers.legacy  # Those of 2.15's models.
    make = getattr(optimizers, opt.replace("RMSProp", "RMSprop"))
    return make() if learning_rate is None else make(learning_rate)


def _checked_optimizer(opt: Any) -> Any:
    made = opt() if callable(opt) else opt
    if not hasattr(made, "apply_gradients"):
        raise WrongTypeError(
            f"`opt` ({opt!r}) must be an optimizer, a function that makes one, or its name: "
            f"{', '.join(OPTIMIZERS)}."
        )
    return made


def maybe_overwrite_model_dir_and_session_config(
    config: RunConfig | None, model_dir: Any
) -> RunConfig:
    """Returns the config, or the default one, with a directory: this, its own or a new one.

    Raises:
      ValueError: the argument and the config name different directories.
      TypeError: `config` is not a RunConfig, or `model_dir` not a path.
    """
    config = checked_config(config)
    path = checked_model_dir(model_dir, config.model_dir)
    return config.replace(model_dir=path or tempfile.mkdtemp())


def get_default_session_config() -> tf.compat.v1.ConfigProto:
    """Returns 2.15's config of a local session: soft placement, and one pass of grappler."""
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    options = config.graph_options.rewrite_options
    options.meta_optimizer_iterations = options.ONE
    return config


def parse_input_fn_result(result: Any) -> tuple[Any, Any, list]:
    """Returns the features, the labels or None, and the hooks of what an `input_fn` returned.

    A dataset gets an iterator in the default graph, and a hook that initializes it.

    Raises:
      ValueError: it is a tuple other than (features, labels).
    """
    hooks = []
    if isinstance(result, tf.data.Dataset):
        iterator = tf.compat.v1.data.make_initializable_iterator(result)
        hooks.append(_DatasetInitializerHook(iterator))
        result = iterator.get_next()
    return *features_and_labels(result), hooks


# What a receiver function of a model without labels returns.
UnsupervisedInputReceiver = collections.namedtuple(
    "UnsupervisedInputReceiver", "features receiver_tensors"
)


def build_supervised_input_receiver_fn_from_input_fn(
    input_fn: Callable, **input_fn_args: Any
) -> Callable[[], Any]:
    """Returns a receiver function of placeholders like the tensors that an `input_fn` returns.

    Args:
      input_fn: called once, in a graph of its own.
      **input_fn_args: its arguments.
    """
    with tf.Graph().as_default():
        features, labels, _ = parse_input_fn_result(input_fn(**input_fn_args))
        return build_raw_supervised_input_receiver_fn(features, labels)


class _DatasetInitializerHook(tf.compat.v1.train.SessionRunHook):
    """Initializes an iterator in each new session."""

    def __init__(self, iterator: tf.compat.v1.data.Iterator) -> None:
        self._iterator = iterator

    def begin(self) -> None:
        """Makes sure that the initializer is in the graph, which is finalized later."""
        self._initializer = self._iterator.initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs the initializer."""
        session.run(self._initializer)


def fn_args(fn: Callable) -> tuple[str, ...]:
    """Returns the names of a function's positional arguments that no partial has bound."""
    if isinstance(fn, functools.partial):
        return tuple(n for n in fn_args(fn.func)[len(fn.args) :] if n not in fn.keywords)
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return tuple(n for n, one in parameters_of("fn", fn).items() if one.kind in kinds)


def read_eval_metrics(eval_dir: str) -> dict[int, dict[str, float]]:
    """Returns the metrics of every evaluation in a directory, by global step in ascending order."""
    return read_evaluations(os.path.join(eval_dir, "*tfevents*"))


def _load_global_step_from_checkpoint_dir(checkpoint_dir: str) -> int:
    """Returns the global step of the newest checkpoint in a directory; 0 if it has none."""
    path = files.latest_checkpoint(checkpoint_dir)
    with contextlib.suppress(tf.errors.OpError):
        return 0 if path is None else int(tf.train.load_variable(path, "global_step"))
    return 0


def _assert_members_are_not_overridden(base: type, subject: Any) -> None:
    """Raises a ValueError if the class of `subject` overrides a member of `base`."""
    check_overrides(type(subject), base)
