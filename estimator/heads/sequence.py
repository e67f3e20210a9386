"""A head that is on top of each step of a sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator.config.checks import WrongTypeError
from estimator.heads.head import Head
from estimator.heads.single_head import SingleHead


class SequenceHead(Head):
    """Gives another head each step of each sequence as an example of its own.

    Logits have shape [batch size, time, logits_dimension]. Steps that are padding do not count in
    the loss and in metrics. Predictions have the shape of sequences.
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
        mask = tf.cast(features[self.mask_key], tf.bool)
        if mask.shape.rank != 2:
            raise ValueError(
                f"The mask, feature {self.mask_key!r}, has shape {mask.shape}; it must be [batch "
                "size, time]."
            )
        column = self._head._weight_column  # noqa: SLF001 - both are of this room
        key = getattr(column, "key", column)
        weights = {key: features[key]} if key in features else {}
        return {
            "labels": _without_padding("labels", labels, mask),
            "logits": tf.boolean_mask(logits, mask),
            "features": {name: _without_padding(name, weights[name], mask) for name in weights},
        }


def _without_padding(name: str, values: Any, mask: tf.Tensor) -> Any:
    """Returns one value for each True of the mask: [number of steps, ...]."""
    if values is None:
        return None
    rank = values.shape.rank
    if rank is not None and rank < 2:
        raise ValueError(
            f"{name} have shape {values.shape}; with `return_sequences` it must be [batch size, "
            "time], with one for each step."
        )
    if isinstance(values, tf.SparseTensor):
        values = tf.sparse.reorder(values).values
        message = f"{name} must have as many values as the sequences have steps."
        count = tf.reduce_sum(tf.cast(mask, tf.int32))
        check = tf.debugging.assert_equal(tf.shape(values)[0], count, message=message)
        with tf.control_dependencies(None if tf.executing_eagerly() else [check]):
            return tf.identity(values)
    return tf.boolean_mask(values, mask)
