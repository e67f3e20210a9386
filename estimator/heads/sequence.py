"""A head that is on top of each step of a sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator.config.checks import WrongTypeError
from estimator.heads.head import Head
from estimator.heads.multi_label import MultiLabelHead
from estimator.heads.single_head import SingleHead

_NOT_DENSE = tf.SparseTensor | tf.RaggedTensor


class SequenceHead(Head):
    """Gives another head each step of each sequence as an example of its own.

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
        if not isinstance(mask_key, str):
            raise WrongTypeError(f"`sequence_mask` ({mask_key!r}) must be the name of a feature.")
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
            features = {**features, key: self._without_padding(key, features[key], mask)}
        return {
            "labels": self._without_padding("labels", labels, mask),
            "logits": tf.boolean_mask(logits, mask),
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

    def _without_padding(self, name: str, values: Any, mask: tf.Tensor) -> Any:
        """Returns one value for each True of the mask: [number of steps, ...]."""
        if values is None:
            return None
        rank = values.shape.rank
        if rank is not None and rank < 2:
            raise ValueError(
                f"{name} have shape {values.shape}; with `return_sequences` it must be [batch "
                "size, time], with one for each step."
            )
        if isinstance(values, tf.RaggedTensor):
            values = values.to_sparse()
        if not isinstance(values, tf.SparseTensor):
            return tf.boolean_mask(values, mask)
        values = tf.sparse.reorder(values).values
        message = (
            f"{name}, which are sparse, must have one value for each step that the mask has as "
            f"True. Without a feature {self.mask_key!r}, the mask has all steps of the sequences."
        )
        count = tf.reduce_sum(tf.cast(mask, tf.int32))
        check = tf.debugging.assert_equal(tf.shape(values)[0], count, message=message)
        with tf.control_dependencies([check]):
            return tf.identity(values)
