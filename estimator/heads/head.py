"""`Head`: turns logits and labels into a loss, predictions, metrics and an EstimatorSpec."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator.config.checks import check_choice
from estimator.heads.train_op import build_train_op
from estimator.spec import EstimatorSpec, ModeKeys
from estimator.spec.outputs import PredictOutput

V1 = tf.compat.v1
# The key of the output that an exported model serves by default.
DEFAULT_OUTPUT = V1.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY


class Head(abc.ABC):
    """The top of a model: turns logits into a loss, predictions and metrics.

    Subclass it to define another head: `create_estimator_spec` calls the other methods. Logits have
    shape [D0, ..., DN, logits_dimension], usually [batch size, logits_dimension]. Predictions and
    export outputs are made of the logits alone: a head that adds a feature to them overrides
    `create_estimator_spec`, which a MultiHead or SequenceHead does not call for the heads inside.

    Attributes:
      training_scope: the name scope, outside of all others, of the optimizer. Its own variables,
        such as the powers of Adam's betas, get their names in checkpoints from it. None is that of
        the head, as in the models of `tf.compat.v1.estimator`.
      loss_scope: the name scope of the loss, inside the head's; None for none, as in those models.
    """

    training_scope: str | None = "training"
    loss_scope: str | None = "losses"
    # A subclass may define it instead of `create_estimator_spec`: it takes the same arguments, by
    # name, and returns a TPUEstimatorSpec.
    _create_tpu_estimator_spec: Callable[..., Any] | None = None

    @property
    @abc.abstractmethod
    def name(self) -> str | None:
        """The head's name: a suffix of its metrics and summaries, and its name scope; or None."""

    @property
    @abc.abstractmethod
    def logits_dimension(self) -> int:
        """The size of the last dimension of the logits."""

    @property
    @abc.abstractmethod
    def loss_reduction(self) -> str:
        """How a batch's loss is made of its examples' losses: a `tf.losses.Reduction`."""

    @abc.abstractmethod
    def loss(
        self,
        labels: Any,
        logits: Any,
        features: Any = None,
        mode: str | None = None,
        regularization_losses: Sequence[tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """Returns the loss of a batch: a scalar, including the regularization losses."""

    @abc.abstractmethod
    def predictions(self, logits: Any, keys: Sequence[str] | None = None) -> dict[Any, tf.Tensor]:
        """Returns the predictions by key: those of `keys`, or all if it is None."""

    @abc.abstractmethod
    def metrics(self, regularization_losses: Sequence[tf.Tensor] | None = None) -> dict[str, Any]:
        """Returns new Keras metrics by key."""

    @abc.abstractmethod
    def update_metrics(
        self,
        eval_metrics: dict[str, Any],
        features: Any,
        logits: Any,
        labels: Any,
        mode: str | None = None,
        regularization_losses: Sequence[tf.Tensor] | None = None,
    ) -> dict[str, Any]:
        """Adds a batch to the metrics that `metrics` returned; returns them."""

    def build_export_outputs(self, predictions: dict[Any, tf.Tensor]) -> dict[str, Any] | None:
        """Returns the `export_outputs` for these predictions; None exports them as they are."""
        return None

    def build_summaries(self, loss: tf.Tensor, regularization_losses: Any) -> None:
        """Adds the summaries of a training step to the default graph."""
        with V1.name_scope(None):
            V1.summary.scalar(with_suffix("loss", self.name), loss)
            if regularization_losses is not None:
                total = tf.add_n(regularization_losses)
                V1.summary.scalar(with_suffix("regularization_loss", self.name), total)

    def create_estimator_spec(  # noqa: PLR0913 - the documented signature
        self,
        features: Any,
        mode: str,
        logits: Any,
        labels: Any = None,
        optimizer: Any = None,
        trainable_variables: Sequence[Any] | None = None,
        train_op_fn: Callable[[tf.Tensor], Any] | None = None,
        update_ops: Sequence[Any] | None = None,
        regularization_losses: Sequence[tf.Tensor] | None = None,
    ) -> EstimatorSpec:
        """Returns what a `model_fn` can return.

        Args:
          features: the features; a dict if the head has a `weight_column`.
          mode: a ModeKeys value.
          logits: the logits. A MultiHead also takes a dict from a head's name to its logits.
          labels: the labels; required to train and to evaluate.
          optimizer: minimizes the loss in training: a Keras 3, tf-keras or v1 optimizer, or a
            CrossShardOptimizer. The global step counts its steps.
          trainable_variables: what it optimizes; None: all trainable variables of the graph.
          train_op_fn: instead of `optimizer`: takes the loss, returns the `train_op`.
          update_ops: more ops to run in each training step.
          regularization_losses: scalars that are added to the loss.

        Raises:
          ValueError: in training, not exactly one of `optimizer` and `train_op_fn` is given; labels
            are missing; or what is given does not fit the head.
          TypeError: `optimizer` is not an optimizer.
        """
        check_choice("mode", mode, _MODES)
        if self._create_tpu_estimator_spec is not None:
            return self._create_tpu_estimator_spec(
                features=features,
                mode=mode,
                logits=logits,
                labels=labels,
                optimizer=optimizer,
                trainable_variables=trainable_variables,
                train_op_fn=train_op_fn,
                update_ops=update_ops,
                regularization_losses=regularization_losses,
            ).as_estimator_spec()
        regularization_losses = regularization_losses or None  # An empty collection is a list.
        with V1.name_scope(self.name or "head"):
            predictions = self.predictions(logits)
            if mode == ModeKeys.PREDICT:
                outputs = self.build_export_outputs(predictions)
                return EstimatorSpec(mode, predictions=predictions, export_outputs=outputs)
            batch: dict[str, Any] = {"features": features, "logits": logits, "labels": labels}
            if mode == ModeKeys.EVAL:
                batch["regularization_losses"] = regularization_losses
                loss = self.loss(**batch, mode=mode)
                metrics = self.metrics(regularization_losses=regularization_losses)
                metrics = self.update_metrics(metrics, **batch)
                return EstimatorSpec(mode, predictions, loss, eval_metric_ops=metrics)
            shares = self._shares(regularization_losses)
            loss = self.loss(**batch, mode=mode, regularization_losses=shares)
            with _top_level_scope(self.training_scope):
                train_op = build_train_op(
                    loss, optimizer, trainable_variables, train_op_fn, update_ops
                )
        self.build_summaries(loss, regularization_losses)
        return EstimatorSpec(mode, predictions, loss, train_op)

    def _shares(self, losses: Sequence[tf.Tensor] | None) -> Sequence[tf.Tensor] | None:
        """Returns a replica's share of the regularization losses.

        If replicas' gradients are summed, because the loss is a sum over examples, each replica
        would add all of them.
        """
        num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
        is_sum = self.loss_reduction in SUMS  # In any case: an error if a MultiHead's differ.
        if losses is None or num_replicas == 1 or not is_sum:
            return losses
        return [loss / num_replicas for loss in losses]


@contextlib.contextmanager
def _top_level_scope(name: str | None) -> Iterator[None]:
    """Opens a name scope outside of all others; None opens none."""
    if name is None:
        yield
        return
    with V1.name_scope(None), V1.name_scope(name):
        yield


_MODES = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)
SUMS = ("sum", V1.losses.Reduction.SUM)


def with_default(predictions: dict[Any, tf.Tensor], **outputs: Any) -> dict[str, Any]:
    """Returns the `export_outputs`: these, of which the first is the default, and predictions."""
    default = next(iter(outputs.values()))
    return {DEFAULT_OUTPUT: default, **outputs, "predict": PredictOutput(predictions)}


def with_suffix(key: str, name: str | None) -> str:
    """Returns the key of a metric or summary of the head with this name."""
    return f"{key}/{name}" if name else key
