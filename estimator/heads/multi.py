"""`MultiHead`: several heads on one model, whose losses are added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator.config.checks import WrongTypeError, check_number, checked_list
from estimator.heads.head import DEFAULT_OUTPUT, Head, with_suffix
from estimator.heads.regularized_head import RegularizedHead
from estimator.heads.single_head import REDUCTIONS
from estimator.spec import ModeKeys
from estimator.spec.outputs import PredictOutput

V1 = tf.compat.v1


class MultiHead(RegularizedHead):
    """Several heads on one model.

    Labels are a dict from a head's name to its labels. Logits are such a dict, or one tensor, whose
    last dimension is divided among the heads. Predictions have keys (name, key), and metrics end in
    `/name`. An exported model serves the first head by default.
    """

    def __init__(self, heads: Sequence[Head], head_weights: Sequence[float] | None = None) -> None:
        """Checks the heads and weights.

        Args:
          heads: the heads; each has a name.
          head_weights: what each head's loss is multiplied by; None adds them as they are.

        Raises:
          ValueError: there are no heads, names are missing or repeated, or there is another number
            of weights.
          TypeError: something is not a head, or a weight is not a number.
        """
        self._heads = {head.name: head for head in _checked_heads(heads)}
        self.training_scope = f"training_{len(self._heads)}"
        self._weights = checked_list("head_weights", head_weights)
        if head_weights is None:
            self._weights = (1.0,) * len(self._heads)
        for weight in self._weights:
            check_number("head_weights", weight)
        if len(self._weights) != len(self._heads):
            raise ValueError(
                f"`head_weights` ({head_weights}) must have one weight for each of the "
                f"{len(self._heads)} heads."
            )

    @property
    def name(self) -> str:
        """The names of the heads, joined by `_`."""
        return "_".join(map(str, self._heads))

    @property
    def logits_dimension(self) -> int:
        """The sum of the heads' dimensions."""
        return sum(head.logits_dimension for head in self._heads.values())

    @property
    def loss_reduction(self) -> str:
        """That of all heads.

        Raises:
          ValueError: the heads reduce their losses in different ways.
        """
        reductions = [head.loss_reduction for head in self._heads.values()]
        if len({REDUCTIONS.get(one, one) for one in reductions}) > 1:
            raise ValueError(
                f"The heads have the loss reductions {sorted(set(reductions))}. Give all of them "
                "the same, or pass `head.loss(...)` to an optimizer of your own."
            )
        return reductions[0]

    def _build_loss(self, labels: Any, logits: Any, features: Any, mode: str | None) -> tf.Tensor:
        """Returns the weighted sum of the heads' losses."""
        parts = self._logits_by_head(logits)
        losses = self._losses(self._by_head("labels", labels), parts, features, mode)
        if mode == ModeKeys.TRAIN:
            with V1.name_scope(None):
                for name, loss in losses.items():
                    V1.summary.scalar(with_suffix("loss", name), loss)
        weighted = [
            loss * weight for loss, weight in zip(losses.values(), self._weights, strict=True)
        ]
        return tf.add_n(weighted)

    def _build_predictions(self, logits: Any) -> dict[Any, tf.Tensor]:
        """Returns the predictions of all heads; keys are (name, key)."""
        parts = self._logits_by_head(logits)
        return {
            (name, key): value
            for name, head in self._heads.items()
            for key, value in head.predictions(parts[name]).items()
        }

    def _make_metrics(self) -> dict[str, Any]:
        """Returns the metrics of all heads and their losses."""
        made = {}
        for name, head in self._heads.items():
            made[with_suffix("loss", name)] = tf.keras.metrics.Mean()
            made.update(head.metrics())
        return made

    def _update_metrics(
        self, metrics: dict[str, Any], features: Any, logits: Any, labels: Any, mode: str | None
    ) -> None:
        labels, parts = self._by_head("labels", labels), self._logits_by_head(logits)
        for name, loss in self._losses(labels, parts, features, mode).items():
            metrics[with_suffix("loss", name)].update_state(loss)
        for name, head in self._heads.items():
            head.update_metrics(metrics, features, parts[name], labels[name])

    def build_export_outputs(self, predictions: dict[Any, tf.Tensor]) -> dict[str, Any]:
        """Returns the outputs of all heads, the first one's default, and all predictions."""
        outputs: dict[str, Any] = {}
        for name, head in self._heads.items():
            own = {key: value for (owner, key), value in predictions.items() if owner == name}
            exported = head.build_export_outputs(own) or {DEFAULT_OUTPUT: PredictOutput(own)}
            outputs.setdefault(DEFAULT_OUTPUT, exported[DEFAULT_OUTPUT])
            for key, output in exported.items():
                outputs[str(name) if key == DEFAULT_OUTPUT else f"{name}/{key}"] = output
        return outputs | {"predict": PredictOutput(predictions)}

    def build_summaries(self, loss: tf.Tensor, regularization_losses: Any) -> None:
        """Adds the summaries of a training step; the heads' own are made with their losses."""
        with V1.name_scope(None):
            V1.summary.scalar("loss", loss)
            if regularization_losses is not None:
                V1.summary.scalar("regularization_loss", tf.add_n(regularization_losses))

    def _losses(
        self, labels: Mapping, logits: Mapping, features: Any, mode: str | None
    ) -> dict[str | None, tf.Tensor]:
        return {
            name: head.loss(labels[name], logits[name], features=features, mode=mode)
            for name, head in self._heads.items()
        }

    def _logits_by_head(self, logits: Any) -> Mapping:
        """Returns the logits by head; splits a tensor along its last dimension."""
        if isinstance(logits, Mapping):
            return self._by_head("logits", logits)
        logits = tf.convert_to_tensor(logits)
        if tf.compat.dimension_value(logits.shape[-1]) not in (None, self.logits_dimension):
            raise ValueError(
                f"`logits` have shape {logits.shape}; the last dimension must be "
                f"{self.logits_dimension}, the sum of those of the heads."
            )
        sizes = [head.logits_dimension for head in self._heads.values()]
        return dict(zip(self._heads, tf.split(logits, sizes, axis=-1), strict=True))

    def _by_head(self, argument: str, parts: Any) -> Mapping:
        """Returns the labels or logits by head; raises an error if one is missing."""
        if not isinstance(parts, Mapping) or not set(self._heads) <= set(parts):
            there = sorted(parts) if isinstance(parts, Mapping) else parts
            raise ValueError(
                f"`{argument}` ({there}) must be a dict with a tensor for each of the heads "
                f"{list(self._heads)}."
            )
        return parts


def _checked_heads(heads: Any) -> Sequence[Head]:
    if not isinstance(heads, list | tuple) or not heads:
        raise WrongTypeError(f"`heads` ({heads!r}) must be a list with at least one head.")
    for head in heads:
        if not isinstance(head, Head):
            raise WrongTypeError(f"`heads` holds {head!r}, which is not an estimator.Head.")
        if not head.name:
            raise ValueError(
                f"`heads` holds {head!r} without a name. Give each head a `name`, by which labels "
                "and logits are found."
            )
    names = [head.name for head in heads]
    if len(set(names)) < len(names):
        raise ValueError(f"`heads` have the names {names}, which must all differ.")
    return heads
