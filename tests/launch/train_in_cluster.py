"""A worker that trains the toy model together with others.

    python train_in_cluster.py MODEL_DIR MAX_STEPS [kill]

With "kill", worker 1 ends by SIGKILL once, after the first checkpoint of a step that was trained.
MAX_STEPS 0: no end.
"""

import os
import signal
import sys

import tensorflow as tf

import estimator as est
from tests.toy import Model, numbers


class Say(tf.compat.v1.train.SessionRunHook):
    """Says on stdout that a session call has ended."""

    def after_run(self, run_context, run_values):
        print("trains", flush=True)


class KillOnce(tf.compat.v1.train.SessionRunHook):
    """Ends the process as a crash would, once, if there is a checkpoint besides that of step 0."""

    def __init__(self, model_dir):
        self._model_dir = model_dir
        self._path = os.path.join(model_dir, "killed")

    def before_run(self, run_context):
        latest = tf.train.latest_checkpoint(self._model_dir) or "-0"
        if not latest.endswith("-0") and not os.path.exists(self._path):
            with open(self._path, "w"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)


def input_fn(input_context):
    """Worker i of n takes i, i + n, i + 2n, ..."""
    count = input_context.num_input_pipelines
    return numbers(start=0)().shard(count, input_context.input_pipeline_id)


def main(model_dir, max_steps, *kill):
    config = est.RunConfig(
        strategy="multi_worker_mirrored", iterations_per_loop=5, save_checkpoints_steps=10
    )
    hooks = [Say()]
    if kill and config.task_id == 1:
        hooks.append(KillOnce(model_dir))
    with est.Estimator(Model(), model_dir, config) as trained:
        trained.train(input_fn, hooks=hooks, max_steps=int(max_steps) or None)
        step = trained.train_result.global_step
        print("weight", step, float(trained.get_variable_value("w")), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
