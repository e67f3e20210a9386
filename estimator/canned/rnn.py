"""Models of sequences: recurrent layers on feature columns of sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator.canned.columns import build_dense_input, build_sequence_input, checked_columns
from estimator.canned.layers import build_dense_layer
from estimator.canned.parts import (
    Form,
    check_head,
    checked_optimizer,
    make_classifier_head,
)
from estimator.canned.recurrent import make_recurrent
from estimator.config.checks import check_bool
from estimator.config.run_config import RunConfig
from estimator.estimators.estimator import Estimator
from estimator.heads.head import SUMS, Head
from estimator.heads.sequence import SequenceHead
from estimator.heads.train_op import build_minimize
from estimator.optimizer.clipping import clip_by_reduced_norm
from estimator.spec import EstimatorSpec, ModeKeys

V1 = tf.compat.v1
# Of an optimizer that is given by name, as in 2.15: the norm is that of a variable's gradient.
_LEARNING_RATE, _CLIP_NORM = 0.05, 5.0
_LENGTH_TAG = "rnn_model/sequence_input_layer/sequence_length"  # As in 2.15.


class RNNEstimator(Estimator):
    """Recurrent layers on feature columns of sequences, with any head."""

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        head: Head,
        sequence_feature_columns: Sequence[Any],
        context_feature_columns: Sequence[Any] | None = None,
        units: Sequence[int] | None = None,
        cell_type: Any = None,
        rnn_cell_fn: Callable[[], Any] | None = None,
        return_sequences: bool = False,
        model_dir: str | None = None,
        optimizer: Any = "Adagrad",
        config: RunConfig | None = None,
    ) -> None:
        """Checks the arguments; builds nothing.

        Args:
          head: turns logits into a loss, predictions and metrics.
          sequence_feature_columns: dense columns of sequences: of `sequence_numeric_column`, or
            `embedding_column` or `indicator_column` of a `sequence_categorical_column_with_*`.
            The sequences of an example have the same length in all of them.
          context_feature_columns: dense columns whose values are given to every step.
          units: the number of units of each recurrent layer.
          cell_type: the cell of these layers: "simple_rnn", the default, "lstm" or "gru"; or a
            class of Keras cells, whose argument is `units`.
          rnn_cell_fn: instead of `units` and `cell_type`: takes nothing, returns a cell for
            tf.keras.layers.RNN, or a list of them, one for each layer.
          return_sequences: whether there is a prediction, and a label, for each step, and not only
            for the last. Features may then have a "sequence_mask", as in `RNNClassifier`.
          model_dir: see `Estimator`.
          optimizer: see `LinearEstimator`. One that is given by name has a learning rate of 0.05,
            and clips the gradient of each variable to a norm of 5.
          config: see `Estimator`.

        Raises:
          TypeError, ValueError: an argument is invalid.
        """
        check_head(head)
        check_bool("return_sequences", return_sequences)
        if return_sequences and not isinstance(head, SequenceHead):
            head = SequenceHead(head, "sequence_mask")
        argument = "sequence_feature_columns"
        columns = checked_columns(
            argument, sequence_feature_columns, only_dense=True, sequences=True
        )
        context = []
        if context_feature_columns:
            argument = "context_feature_columns"
            context = checked_columns(argument, context_feature_columns, only_dense=True)
        recurrent = make_recurrent(units, cell_type, rnn_cell_fn)
        build_logits = _make_logits_fn(columns, context, recurrent)
        make_optimizer = checked_optimizer("optimizer", optimizer, _LEARNING_RATE, Form())
        train_op_fn = _make_train_op_fn(make_optimizer, head, clips=isinstance(optimizer, str))
        super().__init__(_make_model_fn(head, build_logits, train_op_fn), model_dir, config)


class RNNClassifier(RNNEstimator):
    """Recurrent layers that choose one of several classes."""

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        sequence_feature_columns: Sequence[Any],
        context_feature_columns: Sequence[Any] | None = None,
        units: Sequence[int] | None = None,
        cell_type: Any = None,
        rnn_cell_fn: Callable[[], Any] | None = None,
        return_sequences: bool = False,
        model_dir: str | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: Any = "Adagrad",
        loss_reduction: str = "sum_over_batch_size",
        sequence_mask: str = "sequence_mask",
        config: RunConfig | None = None,
    ) -> None:
        """Checks the arguments; builds nothing.

        Those of the head are as in `BinaryClassHead` and `MultiClassHead`, the others as in
        `RNNEstimator`.

        Args:
          sequence_feature_columns: see `RNNEstimator`.
          context_feature_columns: see `RNNEstimator`.
          units: see `RNNEstimator`.
          cell_type: see `RNNEstimator`.
          rnn_cell_fn: see `RNNEstimator`.
          return_sequences: see `RNNEstimator`.
          model_dir: see `Estimator`.
          n_classes: see `MultiClassHead`.
          weight_column: see `MultiClassHead`.
          label_vocabulary: see `MultiClassHead`.
          optimizer: see `RNNEstimator`.
          loss_reduction: see `MultiClassHead`.
          sequence_mask: with `return_sequences`, the feature, [batch size, time], that is True for
            steps that count in the loss and the metrics. Without it, all steps but padding count.
            Predictions contain it under the same key.
          config: see `Estimator`.
        """
        head = make_classifier_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        if return_sequences is True:
            head = SequenceHead(head, sequence_mask)
        super().__init__(
            head,
            sequence_feature_columns,
            context_feature_columns,
            units,
            cell_type,
            rnn_cell_fn,
            return_sequences,
            model_dir,
            optimizer,
            config,
        )


def _make_logits_fn(columns: list[Any], context: list[Any], recurrent: Callable) -> Callable:
    """Returns a function that builds logits, and the mask of the steps that are not padding."""

    def build(features: Any, head: Head, is_training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        inputs, lengths = build_sequence_input(columns, features)
        V1.summary.histogram(_LENGTH_TAG, lengths)
        if context:
            values = build_dense_input(context, features, scope="dense_features")
            values = tf.tile(values[:, tf.newaxis], [1, tf.shape(inputs)[1], 1])
            inputs = tf.concat([inputs, values], -1)
        # Without any step, as in a batch of empty sequences, there is one of padding.
        is_empty = tf.cast(tf.equal(tf.shape(inputs)[1], 0), tf.int32)
        inputs = tf.pad(inputs, [[0, 0], [0, is_empty], [0, 0]])
        mask = tf.sequence_mask(lengths, tf.shape(inputs)[1])
        with V1.variable_scope("rnn_model", reuse=V1.AUTO_REUSE):
            outputs = recurrent(inputs, mask, is_training)
            if not isinstance(head, SequenceHead):
                outputs = outputs[:, -1]
            with V1.variable_scope("logits", reuse=V1.AUTO_REUSE):
                return build_dense_layer(outputs, head.logits_dimension), mask

    return build


def _make_model_fn(head: Head, build_logits: Callable, train_op_fn: Callable) -> Callable:
    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        logits, mask = build_logits(features, head, mode == ModeKeys.TRAIN)
        if isinstance(head, SequenceHead):
            features = {head.mask_key: mask, **features}
        spec = head.create_estimator_spec(
            features=features, mode=mode, logits=logits, labels=labels, train_op_fn=train_op_fn
        )
        if mode != ModeKeys.PREDICT or not isinstance(head, SequenceHead):
            return spec
        key = head.mask_key
        return spec._replace(predictions={**spec.predictions, key: features[key]})

    return model_fn


def _make_train_op_fn(
    make_optimizer: Callable[..., Any], head: Head, *, clips: bool
) -> Callable[[tf.Tensor], tf.Operation]:
    """Returns the `train_op_fn` that takes a step of the optimizer, which may clip gradients."""

    def build(loss: tf.Tensor) -> tf.Operation:
        optimizer = make_optimizer(head, before=())
        variables, step = V1.trainable_variables(), V1.train.get_or_create_global_step()
        if not clips:
            return build_minimize(loss, optimizer, variables, step)
        reduction = "sum" if head.loss_reduction in SUMS else "mean"
        pairs = optimizer.compute_gradients(loss, variables)
        clipped = [clip_by_reduced_norm([pair], _CLIP_NORM, reduction)[0] for pair in pairs]
        return optimizer.apply_gradients(clipped, global_step=step)

    return build
