"""The axes of the conformance tables, a model small enough for hundreds of cases, and its truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import estimator as est

STRATEGIES: dict[str, dict[str, Any]] = {
    "no_strategy": {},
    "one_device": {"strategy": "one_device"},
    "mirrored_x1": {"strategy": "mirrored", "num_replicas": 1},
    "mirrored_x2": {"strategy": "mirrored", "num_replicas": 2},
    "mirrored_x3": {"strategy": "mirrored", "num_replicas": 3},
    "central_storage_x2": {"strategy": "central_storage", "num_replicas": 2},
}
LOOPS = (1, 3, 100)

BATCH_SIZE = 12  # Over all replicas; 1, 2 and 3 of them divide it.
NUM_STEPS = 21  # No multiple of a loop of 100, and the last loop of 3 is a whole one.
NUM_FEATURES, NUM_CLASSES = 4, 3

_random = np.random.RandomState(1)
FEATURES = _random.randn(BATCH_SIZE * NUM_STEPS, NUM_FEATURES).astype(np.float32)
LABELS = _random.randint(NUM_CLASSES, size=len(FEATURES)).astype(np.int32)
KERNEL = _random.randn(NUM_FEATURES, NUM_CLASSES).astype(np.float32)
BIAS = np.zeros(NUM_CLASSES, np.float32)


def make_config(**changes: Any) -> est.RunConfig:
    """A RunConfig that writes its checkpoints alone, and these only at the start and the end."""
    quiet = {"save_summary_steps": None, "log_step_count_steps": None, "resume_input": False}
    return est.RunConfig(**{"checkpoint_save_graph_def": False, **quiet, **changes})


def input_fn(input_context: tf.distribute.InputContext) -> tf.data.Dataset:
    """All examples once, in order; each replica takes its part of a global batch in its turn."""
    batch_size = input_context.get_per_replica_batch_size(BATCH_SIZE)
    examples = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS))
    return examples.batch(batch_size, drop_remainder=True)


def build_softmax_loss(features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Mean cross-entropy of a softmax regression that starts at KERNEL and BIAS."""
    kernel = tf.compat.v1.get_variable("kernel", initializer=KERNEL)
    bias = tf.compat.v1.get_variable("bias", initializer=BIAS)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=features @ kernel + bias
    )
    return tf.reduce_mean(losses)


def build_minimize(optimizer: Any, loss: tf.Tensor) -> tf.Operation:
    """The `train_op` that a user writes for this optimizer, v1 or Keras."""
    global_step = tf.compat.v1.train.get_global_step()
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return optimizer.minimize(loss, global_step=global_step)
    variables = tf.compat.v1.trainable_variables()
    gradients = tf.gradients(loss, variables)
    applied = optimizer.apply_gradients(zip(gradients, variables, strict=True))
    done = [applied] if isinstance(applied, tf.Operation) else []  # Of a legacy optimizer.
    return tf.group(global_step.assign_add(1), *done)


def make_softmax_model_fn(make_optimizer: Callable[[], Any]) -> Callable[..., est.EstimatorSpec]:
    """A `model_fn` that only trains."""

    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> est.EstimatorSpec:
        loss = build_softmax_loss(features, labels)
        return est.EstimatorSpec(mode, loss=loss, train_op=build_minimize(make_optimizer(), loss))

    return model_fn


def trained_weights(model: est.Estimator, names: Sequence[str]) -> dict[str, np.ndarray]:
    """These variables' values in the newest checkpoint."""
    return {name: model.get_variable_value(name) for name in names}


# --- The truth, in NumPy and float64 -------------------------------------------------------------


def softmax_gradients(
    weights: dict[str, np.ndarray], features: np.ndarray, labels: np.ndarray
) -> tuple[float, dict[str, np.ndarray]]:
    """The mean cross-entropy of a batch, and its gradients."""
    logits = features.astype(np.float64) @ weights["kernel"] + weights["bias"]
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = shifted / shifted.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(probabilities[rows, labels]).mean()
    probabilities[rows, labels] -= 1
    errors = probabilities / len(labels)
    return float(loss), {"kernel": features.T @ errors, "bias": errors.sum(axis=0)}


class NumpySgd:
    """w -= rate * g."""

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def __call__(self, weights: dict[str, np.ndarray], gradients: dict[str, np.ndarray]) -> None:
        for name, gradient in gradients.items():
            weights[name] -= self._rate * gradient


class NumpyAdam:
    """Kingma and Ba's algorithm 1 with the order of section 2, as v1 and Keras 3 both have it.

    The epsilon is added to sqrt(v) before its bias is corrected ("epsilon hat"): 1e-8 by default
    in v1, 1e-7 in Keras.
    """

    def __init__(self, rate: float, epsilon: float, beta1: float = 0.9, beta2: float = 0.999):
        self._rate, self._epsilon, self._beta1, self._beta2 = rate, epsilon, beta1, beta2
        self._step = 0
        self._moments: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def __call__(self, weights: dict[str, np.ndarray], gradients: dict[str, np.ndarray]) -> None:
        self._step += 1
        rate = self._rate * np.sqrt(1 - self._beta2**self._step) / (1 - self._beta1**self._step)
        for name, gradient in gradients.items():
            m, v = self._moments.get(name, (np.zeros_like(gradient), np.zeros_like(gradient)))
            m = self._beta1 * m + (1 - self._beta1) * gradient
            v = self._beta2 * v + (1 - self._beta2) * gradient**2
            self._moments[name] = m, v
            weights[name] -= rate * m / (np.sqrt(v) + self._epsilon)


def numpy_training(
    update: Callable[[dict[str, np.ndarray], dict[str, np.ndarray]], None],
    num_steps: int = NUM_STEPS,
) -> tuple[dict[str, np.ndarray], float]:
    """Weights after `num_steps` global batches of the softmax regression, and the last loss."""
    weights = {"kernel": KERNEL.astype(np.float64), "bias": BIAS.astype(np.float64)}
    loss = float("nan")
    for step in range(num_steps):
        batch = slice(step * BATCH_SIZE, (step + 1) * BATCH_SIZE)
        loss, gradients = softmax_gradients(weights, FEATURES[batch], LABELS[batch])
        update(weights, gradients)
    return weights, loss
