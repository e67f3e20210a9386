"""A training that may kill itself while a thread writes a checkpoint.

    python async_run.py MODEL_DIR KILL_AT

KILL_AT is "data", as soon as a file of the second checkpoint appears; "state", when that checkpoint
is written, but not yet in the file `checkpoint`; or "never".
"""

import glob
import os
import signal
import sys
import threading

import tensorflow as tf

import estimator as est

V1 = tf.compat.v1
SAVE_STEPS, MAX_STEPS = 2, 6
NUM_ROWS, NUM_COLUMNS = 1_000_000, 16  # 64 MB, of which a write takes some time.


class KillingSaver(V1.train.Saver):
    """Kills the process in a save, after the values are written."""

    @property
    def last_checkpoints(self):
        if len(super().last_checkpoints) > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().last_checkpoints


def kill_at_data(model_dir):
    while not glob.glob(os.path.join(model_dir, f"model.ckpt-{SAVE_STEPS}.data*")):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def input_fn():
    return tf.data.Dataset.range(1000).shuffle(50, seed=3).repeat().batch(2)


def make_model_fn(kill_at):
    def model_fn(features, labels, mode):
        table = V1.get_variable(
            "table", [NUM_ROWS, NUM_COLUMNS], initializer=V1.zeros_initializer()
        )
        rows = tf.nn.embedding_lookup(table, features)
        loss = tf.reduce_sum(tf.square(rows - tf.cast(features, tf.float32)[:, tf.newaxis]))
        optimizer = V1.train.GradientDescentOptimizer(0.1)
        train_op = optimizer.minimize(loss, V1.train.get_global_step())
        scaffold = V1.train.Scaffold(saver=KillingSaver()) if kill_at == "state" else None
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op, scaffold=scaffold)

    return model_fn


def run(model_dir, kill_at, is_async=True):
    config = est.RunConfig(
        save_checkpoints_steps=SAVE_STEPS, save_summary_steps=None, async_checkpoints=is_async
    )
    est.Estimator(make_model_fn(kill_at), model_dir, config).train(input_fn, max_steps=MAX_STEPS)


if __name__ == "__main__":
    if sys.argv[2] == "data":
        threading.Thread(target=kill_at_data, args=[sys.argv[1]], daemon=True).start()
    run(*sys.argv[1:])
