"""A head that is applied to each step of a sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator.config.checks import WrongTypeError, check_instance
from estimator.heads.head import Head
from estimator.heads.multi_label import MultiLabelHead
from estimator.heads.single_head import SingleHead

_NOT_DENSE = tf.SparseTensor | tf.RaggedTensor


class SequenceHead(Head):
    """Applies another head to each step of each sequence, as if the step were an example.

    Logits have shape [batch size, time, logits_dimension]. Steps that are padding do not count in
    the loss and in metrics. Predictions have the shape of sequences. A `loss_fn` gets the labels
    and logits of all steps that count, [number of steps, ...], and features as they are.
    """

    def __init__(self, head: Head, mask_key: str) -> None:
        """Checks the arguments.

        Args:
          head: the head of a step.
          mask_key: the feature, [batch size, time], that is True for a step and False for padding.
        """
        if not isinstance(head, SingleHead):
            raise WrongTypeError(
                f"`head` ({head!r}) cannot be used with `return_sequences`: a {type(head).__name__}"
                " does not say which features belong to a step. Use a head such as "
                "BinaryClassHead()."
            )
        check_instance("sequence_mask", mask_key, str, "the name of a feature")
        self._head = head
        self.mask_key = mask_key

    @property
    def name(self) -> str | None:
        """The head's name, with a suffix; see `Head`."""
        return f"{self._head.name}_sequential" if self._head.name else None

    @property
    def logits_dimension(self) -> int:
        """The size of the last dimension of the logits."""
        return self._head.logits_dimension

    @property
    def loss_reduction(self) -> str:
        """How the loss is made of the losses of all steps."""
        return self._head.loss_reduction

    def loss(
        self,
        labels: Any,
        logits: Any,
        features: Any = None,
        mode: str | None = None,
        regularization_losses: Sequence[tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """Returns the loss of a batch; see `Head`."""
        steps = self._steps(features, logits, labels)
        return self._head.loss(**steps, mode=mode, regularization_losses=regularization_losses)

    def predictions(self, logits: Any, keys: Sequence[str] | None = None) -> dict[Any, tf.Tensor]:
        """Returns the predictions of all steps by key; see `Head`."""
        return self._head.predictions(logits, keys)

    def metrics(self, regularization_losses: Sequence[tf.Tensor] | None = None) -> dict[str, Any]:
        """Returns new Keras metrics by key; see `Head`."""
        return self._head.metrics(regularization_losses)

    def update_metrics(
        self,
        eval_metrics: dict[str, Any],
        features: Any,
        logits: Any,
        labels: Any,
        mode: str | None = None,
        regularization_losses: Sequence[tf.Tensor] | None = None,
    ) -> dict[str, Any]:
        """Adds a batch to the metrics; see `Head`."""
        steps = self._steps(features, logits, labels)
        return self._head.update_metrics(
            eval_metrics, **steps, mode=mode, regularization_losses=regularization_losses
        )

    def build_export_outputs(self, predictions: dict[Any, tf.Tensor]) -> dict[str, Any] | None:
        """Returns the `export_outputs` of the head of a step; see `Head`."""
        return self._head.build_export_outputs(predictions)

    def _steps(self, features: Mapping[str, Any], logits: Any, labels: Any) -> dict[str, Any]:
        """Returns logits, labels and weights of all steps but padding, as of a batch."""
        mask = self._checked_mask(features[self.mask_key])
        if isinstance(self._head, MultiLabelHead) and isinstance(labels, _NOT_DENSE):
            raise WrongTypeError(
                f"The labels of a MultiLabelHead are a {type(labels).__name__}; with "
                "`return_sequences` they must be dense, [batch size, time, number of classes], of "
                "0 and 1. Convert them in `input_fn`."
            )
        key = self._head.weight_key
        if key is not None and key in features:
            name = f"The weights, feature `{key}`,"
            features = {**features, key: self._without_padding(name, features[key], mask)}
        if labels is not None:
            labels = self._without_padding("The labels", labels, mask)
        return {
            "labels": labels,
            "logits": self._without_padding("The sequences", logits, mask),
            "features": features,
        }

    def _checked_mask(self, mask: Any) -> tf.Tensor:
        if isinstance(mask, _NOT_DENSE):
            raise WrongTypeError(
                f"The mask, feature {self.mask_key!r}, is a {type(mask).__name__}; it must be a "
                "dense tensor, [batch size, time]. Convert it with tf.sparse.to_dense or to_tensor."
            )
        mask = tf.cast(mask, tf.bool)
        if mask.shape.rank != 2:
            raise ValueError(
                f"The mask, feature {self.mask_key!r}, has shape {mask.shape}; it must be [batch "
                "size, time]."
            )
        return mask

    def _without_padding(self, name: str, values: Any, mask: tf.Tensor) -> tf.Tensor:
        """Returns one value for each True of the mask: [number of steps, ...]."""
        if not isinstance(values, _NOT_DENSE):
            values = tf.convert_to_tensor(values)
        rank = values.shape.rank
        if rank is not None and rank < 2:
            raise ValueError(
                f"{name} have shape {values.shape}; with `return_sequences` they must have one "
                "value for each step: [batch size, time]."
            )
        if not isinstance(values, _NOT_DENSE):
            return self._of_dense(name, values, mask)
        if isinstance(values, tf.RaggedTensor) and values.ragged_rank == 1:
            flat, lengths = values.values, values.row_lengths()
        else:
            sparse = values.to_sparse() if isinstance(values, tf.RaggedTensor) else values
            flat = tf.sparse.reorder(sparse).values
            rows = tf.cast(sparse.indices[:, 0], tf.int32)
            lengths = tf.math.bincount(rows, minlength=tf.shape(mask)[0])
        message = (  # The Assert op escapes quotes.
            f"{name} are not dense, so each sequence must have one value for each step that is "
            f"True in the mask, feature `{self.mask_key}`; without this feature, for each step. "
            "The numbers of values, and of steps: "
        )
        expected = tf.reduce_sum(tf.cast(mask, tf.int32), 1)
        return _build_checked(flat, message, tf.cast(lengths, tf.int32), expected)

    def _of_dense(self, name: str, values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        rule = (
            f"{name} must begin with the shape of the mask, feature `{self.mask_key}`, [batch "
            "size, time]; without this feature, time is that of the longest sequence in the batch."
        )
        if not values.shape[:2].is_compatible_with(mask.shape):
            raise ValueError(f"{rule} Their shape is {values.shape}, the mask's {mask.shape}.")
        # Where no step counts, as in a batch of empty sequences, shapes may differ.
        expected = tf.shape(mask)
        given = tf.where(tf.reduce_any(mask), tf.shape(values)[:2], expected)
        values = _build_checked(values, f"{rule} Their shape, and the mask's: ", given, expected)
        return tf.boolean_mask(values, mask)


def _build_checked(
    values: tf.Tensor, message: str, given: tf.Tensor, expected: tf.Tensor
) -> tf.Tensor:
    """Returns `values`, which fail with the message if a number is not as expected."""
    is_right = tf.reduce_all(tf.equal(given, expected))
    check = tf.raw_ops.Assert(condition=is_right, data=[message, given, expected], summarize=8)
    with tf.control_dependencies([check]):
        return tf.identity(values)
