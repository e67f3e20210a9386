"""A training run that may kill itself: shuffled, augmented input and a random model.

    python resumable_run.py MODEL_DIR STRATEGY ITERATIONS_PER_LOOP DROPOUT KILL_AT_STEP

DROPOUT is "none", "keras", "tf", or "tf_v1" for that of TensorFlow after disable_v2_behavior; with
"_x3" after it, the gradients of 3 batches make a step. The run ends at step 25, or, if KILL_AT_STEP
is not 0, by SIGKILL in the first session call that reaches that step, or in the one after it if a
step has several. Checkpoints are due every 7 steps.
"""

import os
import signal
import sys

import tensorflow as tf

import estimator as est

MAX_STEPS = 25
CHECKPOINT_STEPS = 7
STRATEGIES = {
    "none": {},
    "one_device": {"strategy": "one_device"},
    "mirrored": {"strategy": "mirrored", "num_replicas": 2},
    "central_storage": {"strategy": "central_storage", "num_replicas": 2},
}


def input_fn():
    """Batches of 4 of 30 examples, in another order each pass, with noise that none shares."""

    def augment(index, x):
        noise = tf.random.stateless_normal([8], seed=tf.stack([7, index]), stddev=0.1)
        return x + noise, x[:1] - x[1:2]

    examples = tf.random.stateless_uniform([30, 8], seed=[1, 2])
    data = tf.data.Dataset.from_tensor_slices(examples).shuffle(20, seed=3).repeat()
    return data.enumerate().map(augment).batch(4, drop_remainder=True).prefetch(2)


def model_fn(features, labels, mode, params):
    """A hidden layer, Adam, and no, a TF or a Keras dropout.

    With TF's come noise, and a dropout in each turn of a loop and in a branch.
    """
    v1 = tf.compat.v1
    hidden = features @ v1.get_variable("hidden", [8, 16])
    if params["dropout"].startswith("keras"):
        hidden = tf.keras.layers.Dropout(0.4, seed=5)(hidden, training=True)
    elif params["dropout"].startswith("tf"):
        hidden = tf.nn.dropout(hidden, 0.4) + tf.random.normal(tf.shape(hidden), stddev=0.1)
        hidden = tf.nn.dropout(hidden, 0.1, seed=5)
        hidden = build_dropout_of_turns(hidden)
    output = tf.nn.relu(hidden) @ v1.get_variable("output", [16, 1])
    loss = v1.losses.mean_squared_error(labels, output)
    num_batches = 3 if params["dropout"].endswith("_x3") else 1
    optimizer = est.CrossShardOptimizer(v1.train.AdamOptimizer(0.01), accumulate_steps=num_batches)
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def build_dropout_of_turns(x):
    """Two turns of a loop, each with a dropout; that of a branch in every other step."""

    def turn(count, x):
        return count + 1, tf.nn.dropout(x, 0.1)

    _, looped = tf.while_loop(lambda count, _: count < 2, turn, [tf.constant(0), x])
    is_odd = tf.equal(tf.compat.v1.train.get_global_step() % 2, 1)
    return tf.cond(is_odd, lambda: tf.nn.dropout(looped, 0.2), lambda: looped)


class KillAtStep(tf.compat.v1.train.SessionRunHook):
    """Kills this process after the session call that reaches a step, or after some more calls."""

    def __init__(self, step, more_calls=0):
        self._step, self._left = step, more_calls

    def begin(self):
        self._global_step = tf.compat.v1.train.get_global_step()

    def after_run(self, run_context, run_values):
        if run_context.session.run(self._global_step.read_value()) >= self._step:
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1


def run(model_dir, strategy, iterations_per_loop, dropout, kill_at_step=0):
    """Trains up to MAX_STEPS; returns the trained Estimator."""
    config = est.RunConfig(
        tf_random_seed=11,
        save_checkpoints_steps=CHECKPOINT_STEPS,
        iterations_per_loop=iterations_per_loop,
        **STRATEGIES[strategy],
    )
    trained = est.Estimator(model_fn, model_dir, config, {"dropout": dropout})
    hooks = [KillAtStep(kill_at_step, int(dropout.endswith("_x3")))] if kill_at_step else []
    trained.train(input_fn, hooks=hooks, max_steps=MAX_STEPS)
    return trained


if __name__ == "__main__":
    if sys.argv[4] == "tf_v1":
        tf.compat.v1.disable_v2_behavior()
    run(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
