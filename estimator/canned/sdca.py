"""LinearSDCA: trains a linear model by stochastic dual coordinate ascent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.canned.columns import build_linear_logits, build_linear_values, checked_columns
from estimator.canned.one_trainer import check_one_trainer
from estimator.canned.parts import Form, check_head
from estimator.canned.summaries import build_summaries
from estimator.config.checks import (
    WrongTypeError,
    check_bool,
    check_instance,
    check_int,
    check_number,
    check_positive,
)
from estimator.config.run_config import RunConfig
from estimator.heads.binary_class import BinaryClassHead
from estimator.heads.head import Head
from estimator.heads.regression import RegressionHead
from estimator.heads.single_head import SingleHead
from estimator.spec import EstimatorSpec, ModeKeys

V1 = tf.compat.v1
_LOSSES = {BinaryClassHead: "logistic_loss", RegressionHead: "squared_loss"}


class LinearSDCA:
    """An `optimizer` of linear models with two classes or one number: it needs no learning rate.

    Shalev-Shwartz and Zhang, https://www.jmlr.org/papers/v14/shalev-shwartz13a.html. It remembers
    each example, so each example needs the same id in every epoch. Individual steps depend on
    thread timing; the result does not.
    """

    def __init__(
        self,
        example_id_column: str,
        num_loss_partitions: int = 1,
        num_table_shards: int | None = None,
        symmetric_l1_regularization: float = 0.0,
        symmetric_l2_regularization: float = 1.0,
        adaptive: bool = False,
    ) -> None:
        """Checks the arguments; builds nothing.

        Args:
          example_id_column: the feature with the id of each example, a string: [batch size].
          num_loss_partitions: the number of train steps that run concurrently, i.e. of workers;
            with more, convergence is slower. Training here has one worker.
          num_table_shards: the number of hash tables that store the state of examples; None for
            one.
          symmetric_l1_regularization: the weight of the L1 norm of the weights.
          symmetric_l2_regularization: the weight of their L2 norm; best above 1.
          adaptive: whether examples with a large error are used more often.

        Raises:
          TypeError, ValueError: an argument is invalid.
        """
        check_instance("example_id_column", example_id_column, str, "the name of a feature")
        check_int("num_loss_partitions", num_loss_partitions)
        if num_table_shards is not None:
            check_int("num_table_shards", num_table_shards)
        check_number("symmetric_l1_regularization", symmetric_l1_regularization, minimum=0)
        check_positive("symmetric_l2_regularization", symmetric_l2_regularization)
        check_bool("adaptive", adaptive)
        self._example_id_column = example_id_column
        self._num_shards = num_table_shards or 1
        self._l1 = float(symmetric_l1_regularization)
        self._l2 = float(symmetric_l2_regularization)
        self._settings = {
            "l1": self._l1,
            "l2": self._l2,
            "num_loss_partitions": int(num_loss_partitions),
            "num_inner_iterations": 1,
            "adaptive": adaptive,
        }

    def make_model_fn(
        self, head: Head, feature_columns: Any, combiner: str, form: Form
    ) -> Callable[..., EstimatorSpec]:
        """Returns the `model_fn` of a linear model.

        Args:
          head: the head.
          feature_columns: the feature columns.
          combiner: how the weights of several categories of an example are combined.
          form: the form of the model.

        Raises:
          TypeError, ValueError: an argument is invalid, or cannot be used with SDCA.
        """
        single, loss_type = _checked(head, combiner)
        columns = checked_columns("feature_columns", feature_columns, only_dense=False)
        # The names in 2.15 of the weights before regularization; in the v1 form, of a partition.
        slot_name = "linear/{name}/part_0_unshrunk" if form.partitions else "{name}_unshrunk"

        def model_fn(features: Any, labels: Any, mode: str, config: RunConfig) -> EstimatorSpec:
            if mode == ModeKeys.TRAIN:
                reason, others = "remember other examples", ", or use another `optimizer`"
                check_one_trainer("LinearSDCA", reason, mode, config, alternative=others)
            with V1.variable_scope("linear", reuse=V1.AUTO_REUSE):
                logits, summaries = build_linear_logits(columns, features, 1, "sum", None)
                build_summaries(summaries, keeps_scope=form.scopes_summaries)

            def build(loss: tf.Tensor) -> tf.Operation:
                # The loss is that of the weights before the step.
                with tf.control_dependencies([loss]):
                    targets = single.build_targets(features, logits, labels)
                    return self._build_step(columns, features, targets, loss_type, slot_name)

            return head.create_estimator_spec(
                features=features, mode=mode, logits=logits, labels=labels, train_op_fn=build
            )

        return model_fn

    def _build_step(
        self,
        columns: Sequence[Any],
        features: Mapping[str, Any],
        targets: tuple[tf.Tensor, tf.Tensor],
        loss_type: str,
        slot_name: str,
    ) -> tf.Operation:
        keys = tf.raw_ops.SdcaFprint(input=self._ids(features))
        memory = _Memory(self._num_shards)
        with V1.variable_scope("linear", reuse=V1.AUTO_REUSE):
            examples = build_linear_values(columns, features)
        dense, sparse = _build_inputs(columns, examples, tf.shape(keys)[0], slot_name)
        labels, weights = targets
        state, for_sparse, for_dense = tf.raw_ops.SdcaOptimizerV2(
            sparse_example_indices=[one.examples for one in sparse],
            sparse_feature_indices=[one.ids for one in sparse],
            sparse_feature_values=[one.values for one in sparse],
            dense_features=[one.values for one in dense],
            example_weights=weights,
            example_labels=labels,
            sparse_indices=[one.rows for one in sparse],
            sparse_weights=[tf.gather(one.weights.slot, one.rows)[:, 0] for one in sparse],
            dense_weights=[tf.reshape(one.weights.slot, [-1]) for one in dense],
            example_state_data=memory.look_up(keys),
            loss_type=loss_type,
            **self._settings,
        )
        inputs: list[_Dense | _Sparse] = [*sparse, *dense]
        moves = [*for_sparse, *for_dense]
        with tf.control_dependencies([state, *moves]):
            changes = memory.insert(keys, state)
            changes += [one.build_move(move) for one, move in zip(inputs, moves, strict=True)]
        with tf.control_dependencies(changes):
            shrunk = [one.build_shrunk(self._l1 / self._l2) for one in inputs]
        with tf.control_dependencies(shrunk):
            return V1.train.get_or_create_global_step().assign_add(1).op

    def _ids(self, features: Mapping[str, Any]) -> tf.Tensor:
        key = self._example_id_column
        if key not in features:
            raise ValueError(
                f"`example_id_column` ({key!r}) is not among the features ({sorted(features)}). "
                "Return it from `input_fn`."
            )
        ids = features[key]
        if isinstance(ids, tf.SparseTensor) or ids.dtype != tf.string:
            raise WrongTypeError(
                f"The ids of examples, feature {key!r}, must be a dense tensor of strings. Convert "
                "them with tf.strings.as_string."
            )
        return tf.reshape(ids, [-1])


class _Memory:
    """The state of each example, in tables that have 2.15's names in checkpoints."""

    def __init__(self, num_shards: int) -> None:
        with tf.init_scope():  # Outside of a loop's body.
            self._shards = [
                tf.lookup.experimental.DenseHashTable(
                    tf.int64,
                    tf.float32,
                    default_value=[0.0] * 4,
                    empty_key=[0, 0],
                    deleted_key=[1, 1],
                    name=f"ShardedMutableHashTable-{i + 1}-of-{num_shards}",
                )
                for i in range(num_shards)
            ]

    def look_up(self, keys: tf.Tensor) -> tf.Tensor:
        """Returns the state of each example: [batch size, 4]."""
        parts = self._split_by_shard(keys, keys)
        places = self._split_by_shard(tf.range(tf.shape(keys)[0]), keys)
        found = [table.lookup(part) for table, part in zip(self._shards, parts, strict=True)]
        return tf.dynamic_stitch(places, found)

    def insert(self, keys: tf.Tensor, states: tf.Tensor) -> list[tf.Operation]:
        """Returns ops that store new states."""
        own_keys, own_states = self._split_by_shard(keys, keys), self._split_by_shard(states, keys)
        parts = zip(self._shards, own_keys, own_states, strict=True)
        return [table.insert(*part) for table, *part in parts]

    def _split_by_shard(self, values: tf.Tensor, keys: tf.Tensor) -> list[tf.Tensor]:
        num_shards = len(self._shards)
        shards = tf.cast(tf.math.floormod(tf.abs(keys[:, 0]), num_shards), tf.int32)
        return tf.dynamic_partition(values, shards, num_shards)


@dataclasses.dataclass(frozen=True)
class _Weights:
    """The weights of a column, [size, 1], or of the bias, [1].

    Attributes:
      model: the weights of the model.
      slot: the weights before L1 regularization.
    """

    model: tf.Variable
    slot: tf.Variable


@dataclasses.dataclass(frozen=True)
class _Dense:
    """A column of numbers, or the bias.

    Attributes:
      weights: the weights.
      values: [batch size, size].
    """

    weights: _Weights
    values: tf.Tensor

    def build_move(self, change: tf.Tensor) -> tf.Tensor:
        """Returns what adds a change to the weights before regularization."""
        slot = self.weights.slot
        return slot.assign_add(tf.reshape(change, slot.shape))

    def build_shrunk(self, shrinkage: float) -> tf.Tensor:
        """Returns what assigns the weights of the model."""
        return self.weights.model.assign(_shrunk(self.weights.slot.read_value(), shrinkage))


@dataclasses.dataclass(frozen=True)
class _Sparse:
    """A column of categories.

    Attributes:
      weights: the weights.
      values: the value of each category of each example: [number of values].
      examples: the example that each value belongs to.
      ids: its category.
      rows: the categories in this batch; no step reads or writes the weights of others.
    """

    weights: _Weights
    values: tf.Tensor
    examples: tf.Tensor
    ids: tf.Tensor
    rows: tf.Tensor

    def build_move(self, change: tf.Tensor) -> tf.Tensor:
        """Returns what adds a change to the weights before regularization."""
        return self.weights.slot.scatter_add(tf.IndexedSlices(change[:, tf.newaxis], self.rows))

    def build_shrunk(self, shrinkage: float) -> tf.Tensor:
        """Returns what assigns the weights of the model."""
        weights = _shrunk(tf.gather(self.weights.slot, self.rows), shrinkage)
        return self.weights.model.scatter_update(tf.IndexedSlices(weights, self.rows))


def _checked(head: Head, combiner: str) -> tuple[SingleHead, str]:
    """Returns the head and TensorFlow's name of its loss.

    Raises:
      ValueError: the head or the combiner cannot be used.
    """
    check_head(head)
    loss_type = _LOSSES.get(type(head))
    if loss_type is None or head.logits_dimension != 1:
        raise ValueError(
            f"LinearSDCA cannot train {type(head).__name__} with {head.logits_dimension} "
            "logits: only models of two classes, or of one number. Use another `optimizer`."
        )
    assert isinstance(head, SingleHead)  # For mypy.
    if head.loss_fn is not None:
        raise ValueError(
            f"The `loss_fn` ({head.loss_fn!r}) of the head cannot be used with LinearSDCA, "
            f"which trains with the {loss_type.replace('_', ' ')} alone. Leave it out, or use "
            "another `optimizer`."
        )
    if combiner != "sum":
        raise ValueError(
            f"`sparse_combiner` ({combiner!r}) must be 'sum' with LinearSDCA. Use another "
            "`optimizer`."
        )
    return head, loss_type


def _shrunk(weights: tf.Tensor, shrinkage: float) -> tf.Tensor:
    """Returns weights that are nearer to 0 by L1 regularization."""
    if not shrinkage:
        return weights
    return tf.sign(weights) * tf.maximum(0.0, tf.abs(weights) - shrinkage)


def _build_inputs(
    columns: Sequence[Any], examples: Sequence[Any], batch_size: tf.Tensor, slot_name: str
) -> tuple[list[_Dense], list[_Sparse]]:
    """Returns the inputs that are dense, with that of the bias, and those of categories."""
    dense: list[_Dense] = []
    sparse: list[_Sparse] = []
    for column, values in zip(columns, examples, strict=True):
        name = f"linear/linear_model/{_tf.scope_name(column)}/weights"
        if isinstance(values, tuple):
            ids, of_ids = values
            weights = _make_weights(name, slot_name, [column.num_buckets, 1])
            sparse.append(_build_sparse(weights, ids, of_ids, column.num_buckets))
        else:
            dense.append(_Dense(_make_weights(name, slot_name, [values.shape[1], 1]), values))
    weights = _make_weights("linear/linear_model/bias_weights", slot_name, [1])
    return [*dense, _Dense(weights, tf.ones([batch_size, 1]))], sparse


def _make_weights(name: str, slot_name: str, shape: Sequence[int]) -> _Weights:
    """Returns the weights of the model, which may exist, and makes those before regularization."""
    zeros = V1.zeros_initializer()
    scope = V1.VariableScope(reuse=V1.AUTO_REUSE, name="")
    with V1.variable_scope(scope, auxiliary_name_scope=False):
        model = V1.get_variable(name, shape, initializer=zeros)
        slot_name = slot_name.format(name=name)
        slot = V1.get_variable(slot_name, shape, initializer=zeros, trainable=False)
    return _Weights(model, slot)


def _build_sparse(
    weights: _Weights, ids: tf.SparseTensor, of_ids: tf.SparseTensor | None, num_buckets: int
) -> _Sparse:
    """Returns categories; the values of one that an example has several times are added up."""
    values = tf.ones_like(ids.values, tf.float32) if of_ids is None else of_ids.values
    is_category = ids.values >= 0
    flat = ids.indices[:, 0] * num_buckets + tf.cast(ids.values, tf.int64)
    flat, places = tf.unique(tf.boolean_mask(flat, is_category))
    values = tf.boolean_mask(values, is_category)
    values = tf.math.unsorted_segment_sum(values, places, tf.size(flat))
    examples, categories = flat // num_buckets, flat % num_buckets
    return _Sparse(weights, values, examples, categories, tf.unique(categories).y)
