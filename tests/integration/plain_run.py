"""A program that sets no logging up: trains, evaluates, predicts and exports.

    python plain_run.py MODEL_DIR MAX_STEPS KILL_AT_STEP

It is killed by SIGKILL after the session call of that step, if it is not 0. The line "---" on
stderr tells what TensorFlow says while it is imported from what comes after.
"""

import os
import signal
import sys

import numpy as np
import tensorflow as tf

import estimator as est

V1 = tf.compat.v1


def input_fn():
    """Batches of 8, from a queue of the old kind: it is deprecated, and so are its runners."""
    x = np.linspace(-1, 1, 64).astype(np.float32).reshape(64, 1)
    row = V1.train.slice_input_producer([x], shuffle=False)[0]
    x = V1.train.batch([row], 8)
    return x, 2 * x


def model_fn(features, labels, mode):
    w = V1.get_variable("w", [1, 1])
    output = tf.matmul(features, w)
    if mode == est.ModeKeys.PREDICT:
        return est.EstimatorSpec(mode, predictions=output)
    loss = tf.reduce_mean(tf.square(output - labels))
    V1.summary.scalar("error", loss)
    train_op = V1.train.GradientDescentOptimizer(0.1).minimize(loss, V1.train.get_global_step())
    metrics = {"error": V1.metrics.mean_absolute_error(labels, output)}
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


def receiver_fn():
    x = V1.placeholder(tf.float32, [None, 1])
    return est.export.TensorServingInputReceiver(x, {"x": x})


class KillHook(est.SessionRunHook):
    """Kills the process after a step."""

    def __init__(self, step):
        self._step = step

    def before_run(self, run_context):
        return est.SessionRunArgs(V1.train.get_global_step())

    def after_run(self, run_context, run_values):
        # Before the step, so that all that belongs to the step before is written.
        if run_values.results > self._step:
            os.kill(os.getpid(), signal.SIGKILL)


def main(model_dir, max_steps, kill_at_step):
    print("---", file=sys.stderr, flush=True)
    config = est.RunConfig(save_checkpoints_steps=100, log_step_count_steps=50)
    with est.Estimator(model_fn, model_dir, config) as line:
        hooks = [KillHook(kill_at_step)] if kill_at_step else []
        line.train(input_fn, hooks=hooks, max_steps=max_steps)
        line.evaluate(input_fn, steps=4)
        next(line.predict(input_fn))
        line.export_saved_model(model_dir + "/export", receiver_fn)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
