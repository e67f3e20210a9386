"""The parts of ready-made models, and the one way from parts and a head to a `model_fn`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.canned.columns import build_dense_input, build_linear_logits, checked_columns
from estimator.canned.layers import Built, make_layers
from estimator.canned.named_optimizers import NAMED, make_named
from estimator.canned.summaries import build_summaries, layer_summaries
from estimator.config.checks import (
    WrongTypeError,
    check_choice,
    check_instance,
    check_int,
    check_takes_nothing,
)
from estimator.heads.binary_class import BinaryClassHead
from estimator.heads.head import Head
from estimator.heads.multi_class import MultiClassHead
from estimator.heads.train_op import build_minimize
from estimator.optimizer.cross_shard import optimizer_maker
from estimator.spec import EstimatorSpec, ModeKeys

V1 = tf.compat.v1
_MIN_SLICE_BYTES = 64 << 20  # Of columns' variables by default, as in 2.15.


@dataclasses.dataclass(frozen=True)
class Form:
    """How the models of `tf.estimator` and of `tf.compat.v1.estimator` differ.

    Attributes:
      make_optimizer: takes an optimizer's name, its learning rate, the head and, as `before`, the
        optimizers of the parts before it.
      dnn_rate: the learning rate of a deep model's optimizer that is given by name.
      sgd_rate: the learning rate of a deep model with optimizer="SGD"; None for `dnn_rate`.
      keeps_slashes: see `build_dense_input`.
      partitions: whether variables are partitioned over ps tasks.
      partitioner: how the variables of columns are partitioned; None for the default.
      scopes_slots: whether the head is in the name scope of its part, and an optimizer's slots in
        its variable scope, from which their names in checkpoints derive.
      trains_in_head: whether the optimizers are in the name scope of the head, whatever the head's
        `training_scope` is.
      scopes_summaries: whether the tags of a part's summaries begin with the part's name scope.
      scopes_loss: whether the loss has a name scope in that of the head.
    """

    make_optimizer: Callable[..., Any] = make_named
    dnn_rate: float = 0.001
    sgd_rate: float | None = None
    keeps_slashes: bool = True
    partitions: bool = False
    partitioner: Any = None
    scopes_slots: bool = False
    trains_in_head: bool = False
    scopes_summaries: bool = False
    scopes_loss: bool = True

    def partitioners(self, config: Any) -> tuple[Any, Any]:
        """Returns the partitioners of layers and of columns; None where nothing is partitioned.

        That is under all strategies but central storage, as in 2.15.
        """
        strategy = tf.distribute.get_strategy()
        is_whole = tf.distribute.has_strategy() and not _tf.allows_partitions(strategy)
        if not self.partitions or is_whole:
            return None, None
        num_partitions = max(1, config.num_ps_replicas)
        make = V1.min_max_variable_partitioner
        of_columns = self.partitioner or make(num_partitions, min_slice_size=_MIN_SLICE_BYTES)
        return make(num_partitions), of_columns


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a model: the logits that it adds, and how it is trained.

    Attributes:
      name: the variable scope.
      build_logits: takes (features, number of logits, whether it trains, partitioner of columns).
      make_optimizer: see `checked_optimizer`.
    """

    name: str
    build_logits: Callable[[Any, int, bool, Any], Built]
    make_optimizer: Callable[..., Any]


def make_model_fn(head: Head, parts: Sequence[Part], form: Form) -> Callable[..., EstimatorSpec]:
    """Returns the `model_fn` of a model whose logits are the sum of those of its parts."""
    check_head(head)
    if not form.scopes_loss:
        head.loss_scope = None

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        is_training = mode == ModeKeys.TRAIN
        all_logits: list[tf.Tensor] = []
        updates: list[tf.Operation] = []
        of_layers, of_columns = form.partitioners(config)
        for part in parts:
            in_part = V1.variable_scope(part.name, reuse=V1.AUTO_REUSE, partitioner=of_layers)
            with in_part as scope:
                logits, more, summaries = part.build_logits(
                    features, head.logits_dimension, is_training, of_columns
                )
                build_summaries(summaries, keeps_scope=form.scopes_summaries)
            all_logits.append(logits)
            updates += more
        of_part = V1.name_scope(scope.original_name_scope)
        with of_part if form.scopes_slots else contextlib.nullcontext():
            return head.create_estimator_spec(
                features=features,
                mode=mode,
                logits=tf.add_n(all_logits),
                labels=labels,
                train_op_fn=lambda loss: _build_steps(loss, parts, head, form),
                update_ops=updates,
            )

    return model_fn


def _build_steps(loss: tf.Tensor, parts: Sequence[Part], head: Head, form: Form) -> tf.Operation:
    """Returns an op that takes one step of each part's optimizer."""
    steps: list[tf.Operation] = []
    optimizers: list[Any] = []
    scopes = tuple(f"{part.name}/" for part in parts)
    # Embeddings that several columns share are in no part's scope.
    shared = [v for v in V1.trainable_variables() if not v.name.startswith(scopes)]
    no_scope = contextlib.nullcontext()
    for part in parts:
        is_first = part is parts[0]
        variables = [*V1.trainable_variables(f"{part.name}/"), *(shared if is_first else ())]
        optimizer = part.make_optimizer(head, before=optimizers)
        optimizers.append(optimizer)
        in_head = V1.name_scope(f"{head.name or 'head'}/") if form.trains_in_head else no_scope
        in_part = _slots_scope(part.name) if form.scopes_slots else no_scope
        with in_head, in_part:
            steps.append(build_minimize(loss, optimizer, variables, None, adds_slices=True))
    step = V1.train.get_or_create_global_step()
    if getattr(optimizers[0], "iterations", None) is step:
        return tf.group(*steps)
    with tf.control_dependencies(steps):
        return step.assign_add(1).op


@contextlib.contextmanager
def _slots_scope(name: str) -> Iterator[None]:
    """Has an optimizer name its variables as if the head were in the part's scope."""
    in_part = V1.variable_scope(name, reuse=V1.AUTO_REUSE, auxiliary_name_scope=False)
    with in_part, V1.name_scope(f"{name}/{V1.get_default_graph().get_name_scope()}/"):
        yield


def checked_optimizer(
    argument: str, given: Any, learning_rate: float, form: Form
) -> Callable[..., Any]:
    """Returns a function that makes the optimizer for a graph: takes the head and `before`.

    Args:
      argument: the name of the argument, for errors.
      given: a name, an optimizer, or a class or function that returns one.
      learning_rate: the learning rate of an optimizer that is given by name.
      form: the form of the model.
    """
    if isinstance(given, str):
        check_choice(argument, given, NAMED)
        return functools.partial(form.make_optimizer, given, learning_rate)
    if _is_optimizer(given):
        make = optimizer_maker(given)
    elif callable(given):
        check_takes_nothing(argument, given)
        make = given
    else:
        raise WrongTypeError(
            f"`{argument}` ({given!r}) must be an optimizer, a function that returns one, or one "
            f"of {', '.join(map(repr, NAMED))}."
        )

    def make_checked(head: Head, *, before: Sequence[Any]) -> Any:
        made = make()
        if not _is_optimizer(made):
            raise WrongTypeError(
                f"`{argument}` ({given!r}) returned {made!r}; it must return an optimizer."
            )
        if not before and _is_legacy(made):
            try:
                made.iterations = V1.train.get_or_create_global_step()
            except RuntimeError as error:
                raise ValueError(
                    f"`{argument}` ({given!r}) returned {made!r}, which has variables already; it "
                    "must return a new optimizer at each call. Or pass the optimizer itself."
                ) from error
        return made

    return make_checked


def _is_legacy(optimizer: Any) -> bool:
    """Returns whether it is one of `tf_keras.optimizers.legacy`; in 2.15, models took no other."""
    return any(base.__name__ == "OptimizerV2" for base in type(optimizer).__mro__)


def _is_optimizer(value: Any) -> bool:
    return not isinstance(value, type) and callable(getattr(value, "apply_gradients", None))


# --- Parts ----------------------------------------------------------------------------------------


def linear_part(
    columns: Any,
    optimizer: Any,
    combiner: str,
    form: Form,
    *,
    is_wide: bool = False,
) -> Part:
    """A linear model of feature columns.

    Args:
      columns: the feature columns.
      optimizer: a name, an optimizer, or a class or function that returns one.
      combiner: how the weights of several categories of one example are combined.
      form: the form of the model.
      is_wide: whether it is a part of a wide-and-deep model.
    """
    prefix, max_rate = ("linear_", 0.005) if is_wide else ("", 0.2)
    columns = checked_columns(f"{prefix}feature_columns", columns, only_dense=False)
    rate = min(max_rate, 1 / math.sqrt(len(columns)))
    make_optimizer = checked_optimizer(f"{prefix}optimizer", optimizer, rate, form)
    check_choice(f"{prefix}sparse_combiner", combiner, ("sum", "mean", "sqrtn"))

    def build(features: Any, units: int, is_training: bool, partitioner: Any) -> Built:
        logits, summaries = build_linear_logits(columns, features, units, combiner, partitioner)
        return logits, (), summaries | (layer_summaries("linear", logits) if is_wide else {})

    return Part("linear", build, make_optimizer)


def dnn_part(
    columns: Any,
    optimizer: Any,
    units: Any,
    layers: tuple[Any, Any, Any],
    form: Form,
    *,
    prefix: str = "",
) -> Part:
    """A deep model of feature columns.

    Args:
      columns: the feature columns, all dense.
      optimizer: a name, an optimizer, or a class or function that returns one.
      units: the number of units of each hidden layer.
      layers: the activation, the dropout, and whether there is batch normalization.
      form: the form of the model.
      prefix: what is before the names of the arguments, in errors.
    """
    name, slashes = f"{prefix}feature_columns", form.keeps_slashes
    columns = checked_columns(name, columns, only_dense=True, keeps_slashes=slashes)
    rate = form.sgd_rate if optimizer == "SGD" else None
    make_optimizer = checked_optimizer(f"{prefix}optimizer", optimizer, rate or form.dnn_rate, form)
    build_logits = make_layers(prefix, units, *layers)

    def build(features: Any, units: int, is_training: bool, partitioner: Any) -> Built:
        net = build_dense_input(columns, features, keeps_slashes=slashes, partitioner=partitioner)
        return build_logits(net, units, is_training)

    return Part("dnn", build, make_optimizer)


def baseline_part(optimizer: Any, form: Form) -> Part:
    """A model of the labels alone: the same logits for all examples."""
    make_optimizer = checked_optimizer("optimizer", optimizer, 0.3, form)

    def build(features: Any, units: int, is_training: bool, partitioner: Any) -> Built:
        bias = V1.get_variable("bias", [units], initializer=V1.zeros_initializer())
        first = tf.nest.flatten(features)[0]
        size = first.dense_shape[0] if isinstance(first, tf.SparseTensor) else tf.shape(first)[0]
        return tf.ones([size, 1]) * bias, (), {}

    return Part("baseline", build, make_optimizer)


# --- Heads ----------------------------------------------------------------------------------------


def make_classifier_head(
    n_classes: int, weight_column: Any, label_vocabulary: Any, loss_reduction: str
) -> Head:
    """Returns the head of a classifier."""
    check_int("n_classes", n_classes, minimum=2)
    if n_classes == 2:
        return BinaryClassHead(
            weight_column, label_vocabulary=label_vocabulary, loss_reduction=loss_reduction
        )
    return MultiClassHead(n_classes, weight_column, label_vocabulary, loss_reduction)


def check_head(head: Any) -> None:
    """Raises an error unless `head` is one."""
    check_instance("head", head, Head, "an estimator.Head, such as BinaryClassHead()")
