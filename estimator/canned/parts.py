"""The parts of ready-made models, and the one way from parts and a head to a `model_fn`."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator.canned.columns import build_dense_input, build_linear_logits, checked_columns
from estimator.canned.layers import HiddenLayers, checked_units
from estimator.canned.named_optimizers import NAMED, make_named
from estimator.canned.summaries import build_summaries, layer_summaries
from estimator.config.checks import (
    WrongTypeError,
    check_bool,
    check_choice,
    check_instance,
    check_int,
    check_number,
    check_takes_nothing,
    did_you_mean,
)
from estimator.heads.binary_class import BinaryClassHead
from estimator.heads.head import Head
from estimator.heads.multi_class import MultiClassHead
from estimator.heads.train_op import build_minimize
from estimator.optimizer.cross_shard import optimizer_maker
from estimator.spec import EstimatorSpec, ModeKeys

V1 = tf.compat.v1
_MIN_SLICE_BYTES = 64 << 20  # Of columns' variables by default, as in 2.15.
# The logits, the ops that update statistics, and the summaries by tag.
_Built = tuple[tf.Tensor, Sequence[tf.Operation], Mapping[str, tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class Form:
    """How the models of `tf.estimator` and of `tf.compat.v1.estimator` differ.

    Attributes:
      make_optimizer: takes an optimizer's name, its learning rate, the head and `counts_itself`.
      dnn_rate: the learning rate of a deep model's optimizer that is given by name.
      sgd_rate: the learning rate of a deep model with optimizer="SGD"; None for `dnn_rate`.
      keeps_slashes: see `build_dense_input`.
      partitions: whether variables are partitioned over ps tasks.
      partitioner: how the variables of columns are partitioned; None for the default.
      scopes_slots: whether an optimizer's slots are made in the variable scope of its part, from
        which their names in checkpoints derive.
      scopes_summaries: whether the tags of a part's summaries begin with the part's name scope.
    """

    make_optimizer: Callable[..., Any] = make_named
    dnn_rate: float = 0.001
    sgd_rate: float | None = None
    keeps_slashes: bool = True
    partitions: bool = False
    partitioner: Any = None
    scopes_slots: bool = False
    scopes_summaries: bool = False

    def partitioners(self, config: Any) -> tuple[Any, Any]:
        """Returns the partitioners of layers and of columns: None under a strategy, as in 2.15."""
        if not self.partitions or tf.distribute.has_strategy():
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
      optimizer: a name, or a class or function that returns an optimizer.
      argument: the name of the optimizer's argument, for errors.
      learning_rate: the learning rate of an optimizer that is given by name.
      form: the form of the model.
    """

    name: str
    build_logits: Callable[[Any, int, bool, Any], _Built]
    optimizer: str | Callable[[], Any]
    argument: str
    learning_rate: float
    form: Form


def make_model_fn(head: Head, parts: Sequence[Part]) -> Callable[..., EstimatorSpec]:
    """Returns the `model_fn` of a model whose logits are the sum of those of its parts."""

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        is_training = mode == ModeKeys.TRAIN
        all_logits: list[tf.Tensor] = []
        updates: list[tf.Operation] = []
        for part in parts:
            of_layers, of_columns = part.form.partitioners(config)
            with V1.variable_scope(part.name, reuse=V1.AUTO_REUSE, partitioner=of_layers):
                logits, more, summaries = part.build_logits(
                    features, head.logits_dimension, is_training, of_columns
                )
                build_summaries(summaries, keeps_scope=part.form.scopes_summaries)
            all_logits.append(logits)
            updates += more
        return head.create_estimator_spec(
            features=features,
            mode=mode,
            logits=all_logits[0] if len(all_logits) == 1 else tf.add_n(all_logits),
            labels=labels,
            train_op_fn=_build_steps(parts, head) if is_training else None,
            update_ops=updates,
        )

    return model_fn


def _build_steps(parts: Sequence[Part], head: Head) -> Callable[[tf.Tensor], tf.Operation]:
    """Returns the `train_op_fn` that takes one step of each part's optimizer."""

    def build(loss: tf.Tensor) -> tf.Operation:
        steps = []
        scopes = tuple(f"{part.name}/" for part in parts)
        # Embeddings that several columns share are in no part's scope.
        shared = [v for v in V1.trainable_variables() if not v.name.startswith(scopes)]
        for part in parts:
            is_first = part is parts[0]
            variables = [*V1.trainable_variables(f"{part.name}/"), *(shared if is_first else ())]
            optimizer = make_optimizer(
                part.optimizer,
                part.argument,
                part.learning_rate,
                part.form,
                head,
                counts_itself=not is_first,
            )
            with _slots_scope(part.name) if part.form.scopes_slots else contextlib.nullcontext():
                steps.append(build_minimize(loss, optimizer, variables, None))
        with tf.control_dependencies(steps):
            return V1.train.get_or_create_global_step().assign_add(1).op

    return build


@contextlib.contextmanager
def _slots_scope(name: str) -> Iterator[None]:
    """Has an optimizer name its variables as if the head were in the part's scope."""
    in_part = V1.variable_scope(name, reuse=V1.AUTO_REUSE, auxiliary_name_scope=False)
    with in_part, V1.name_scope(f"{name}/{V1.get_default_graph().get_name_scope()}/"):
        yield


def make_optimizer(
    given: str | Callable[[], Any],
    argument: str,
    learning_rate: float,
    form: Form,
    head: Head,
    *,
    counts_itself: bool = False,
) -> Any:
    """Returns the optimizer for a graph; see `Part`, `Form` and `checked_optimizer`."""
    if isinstance(given, str):
        return form.make_optimizer(given, learning_rate, head, counts_itself=counts_itself)
    made = given()
    if not _is_optimizer(made):
        raise WrongTypeError(
            f"`{argument}` ({given!r}) returned {made!r}; it must return an optimizer."
        )
    return made


def _is_optimizer(value: Any) -> bool:
    return not isinstance(value, type) and callable(getattr(value, "apply_gradients", None))


def checked_optimizer(argument: str, optimizer: Any) -> str | Callable[[], Any]:
    """Returns the name, or a function that returns the optimizer in each graph."""
    if isinstance(optimizer, str):
        check_choice(argument, optimizer, NAMED)
        return optimizer
    if _is_optimizer(optimizer):
        return optimizer_maker(optimizer)
    if not callable(optimizer):
        raise WrongTypeError(
            f"`{argument}` ({optimizer!r}) must be an optimizer, a function that returns one, or "
            f"one of {', '.join(map(repr, NAMED))}."
        )
    check_takes_nothing(argument, optimizer)
    return optimizer


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
    argument = f"{prefix}optimizer"
    optimizer = checked_optimizer(argument, optimizer)
    check_choice(f"{prefix}sparse_combiner", combiner, ("sum", "mean", "sqrtn"))

    def build(features: Any, units: int, is_training: bool, partitioner: Any) -> _Built:
        logits, summaries = build_linear_logits(columns, features, units, combiner, partitioner)
        return logits, (), summaries | (layer_summaries("linear", logits) if is_wide else {})

    rate = min(max_rate, 1 / math.sqrt(len(columns)))
    return Part("linear", build, optimizer, argument, rate, form)


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
    argument = f"{prefix}optimizer"
    optimizer = checked_optimizer(argument, optimizer)
    activation, dropout, batch_norm = layers
    hidden = HiddenLayers(
        checked_units(
            f"{prefix}hidden_units", units, "a list of integers, one for each hidden layer"
        ),
        _checked_activation(f"{prefix}activation_fn", activation),
        _checked_dropout(f"{prefix}dropout", dropout),
        batch_norm,
    )
    check_bool("batch_norm", batch_norm)

    def build(features: Any, units: int, is_training: bool, partitioner: Any) -> _Built:
        net = build_dense_input(columns, features, keeps_slashes=slashes, partitioner=partitioner)
        return hidden.build_logits(net, units, is_training)

    rate = form.sgd_rate if optimizer == "SGD" else None
    return Part("dnn", build, optimizer, argument, rate or form.dnn_rate, form)


def baseline_part(optimizer: Any, form: Form) -> Part:
    """A model of the labels alone: the same logits for all examples."""
    optimizer = checked_optimizer("optimizer", optimizer)

    def build(features: Any, units: int, is_training: bool, partitioner: Any) -> _Built:
        bias = V1.get_variable("bias", [units], initializer=V1.zeros_initializer())
        first = tf.nest.flatten(features)[0]
        size = first.dense_shape[0] if isinstance(first, tf.SparseTensor) else tf.shape(first)[0]
        return tf.ones([size, 1]) * bias, (), {}

    return Part("baseline", build, optimizer, "optimizer", 0.3, form)


def _checked_activation(argument: str, activation: Any) -> Callable[[tf.Tensor], tf.Tensor]:
    if activation is None:
        return tf.identity
    if isinstance(activation, str):
        known = [name for name in dir(tf.nn) if callable(getattr(tf.nn, name))]
        if activation not in known:
            raise ValueError(
                f"`{argument}` ({activation!r}) is not in tf.nn. {did_you_mean(activation, known)}"
            )
        return getattr(tf.nn, activation)
    check_instance(argument, activation, Callable, "a function such as tf.nn.relu")
    return activation


def _checked_dropout(argument: str, dropout: Any) -> float | None:
    if dropout is None:
        return None
    check_number(argument, dropout, minimum=0)
    if dropout >= 1:
        raise ValueError(
            f"`{argument}` ({dropout}) must be below 1: it is the probability that a unit is "
            "dropped."
        )
    return float(dropout)


# --- Heads ----------------------------------------------------------------------------------------


def make_classifier_head(
    n_classes: int, weight_column: Any, label_vocabulary: Any, loss_reduction: str
) -> Head:
    """Returns the head of a classifier."""
    check_int("n_classes", n_classes, minimum=2)
    shared = {
        "weight_column": weight_column,
        "label_vocabulary": label_vocabulary,
        "loss_reduction": loss_reduction,
    }
    if n_classes == 2:
        return BinaryClassHead(**shared)
    return MultiClassHead(n_classes, **shared)


def check_head(head: Any) -> None:
    """Raises an error unless `head` is one."""
    check_instance("head", head, Head, "an estimator.Head, such as BinaryClassHead()")
