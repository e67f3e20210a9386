"""What the workers of a test's cluster run; each result is a line of JSON on stdout.

python worker_run.py SCENARIO MODEL_DIR [ARGUMENT]
"""

import json
import os
import sys

import numpy as np
import tensorflow as tf

import estimator as est

v1 = tf.compat.v1
NUM_EXAMPLES, BATCH_SIZE, NUM_FEATURES = 96, 12, 4
_random = np.random.RandomState(3)
FEATURES = _random.randn(NUM_EXAMPLES, NUM_FEATURES).astype(np.float32)
LABELS = FEATURES @ np.float32([[1], [-2], [0.5], [3]])


def say(**values):
    print(json.dumps(values), flush=True)


def make_input_fn(num_epochs=1, seed=None):
    """Examples dealt out to the workers; a global batch is the same for any number of them."""

    def input_fn(params, input_context):
        ids = np.arange(NUM_EXAMPLES)
        data = tf.data.Dataset.from_tensor_slices(({"id": ids, "x": FEATURES}, LABELS))
        data = data.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
        if seed is not None:
            data = data.shuffle(20, seed=seed)
        return data.repeat(num_epochs).batch(params["batch_size"], drop_remainder=True)

    return input_fn


def model_fn(features, labels, mode, params):
    """A line, with what each example was seen, a moving mean and, if asked for, dropout."""
    w = v1.get_variable("w", [NUM_FEATURES, 1])
    b = v1.get_variable("b", [1], initializer=v1.zeros_initializer())
    seen = v1.get_variable(
        "seen",
        [NUM_EXAMPLES],
        initializer=v1.zeros_initializer(),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
    x = features["x"]
    if mode == est.ModeKeys.TRAIN and params.get("dropout"):
        x = tf.nn.dropout(x, 0.3, seed=5) + tf.random.normal(tf.shape(x), stddev=0.1)
    output = x @ w + b
    if mode == est.ModeKeys.PREDICT:
        return est.EstimatorSpec(mode, predictions={"y": output})
    loss = tf.reduce_mean(tf.square(output - labels))
    v1.summary.scalar("error", loss)
    optimizer = est.CrossShardOptimizer(v1.train.AdamOptimizer(0.05))
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    if mode == est.ModeKeys.TRAIN:
        note = seen.assign_add(tf.reduce_sum(tf.one_hot(features["id"], NUM_EXAMPLES), 0))
        train_op = tf.group(train_op, note)
    metrics = {"error": v1.metrics.mean(tf.abs(output - labels))}
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


class Weights(v1.train.SessionRunHook):
    """Says this worker's own weights when training ends."""

    def __init__(self, case):
        self._case = case

    def begin(self):
        self._weights = dict.fromkeys((), v1.get_variable)
        self._copies = [
            copy
            for variable in v1.trainable_variables()
            for copy in getattr(variable, "values", [variable])
        ]

    def end(self, session):
        values = [value.ravel().tolist() for value in session.run(self._copies)]
        say(case=self._case, weights=values)


def make_model(model_dir, params=None, **changes):
    defaults = {
        "strategy": "multi_worker_mirrored",
        "tf_random_seed": 7,
        "save_summary_steps": 3,
        "save_checkpoints_steps": 5,
        "session_creation_timeout_secs": 60,
    }
    config = est.tpu.RunConfig(
        est.tpu.TPUConfig(iterations_per_loop=changes.pop("iterations_per_loop", 1)),
        **{**defaults, **changes},
    )
    return est.tpu.TPUEstimator(
        model_fn, model_dir, config, params, train_batch_size=BATCH_SIZE, eval_batch_size=BATCH_SIZE
    )


def verbs(model_dir, loops):
    """Every verb, for each size of the loop: one pass, whose end all workers see together."""
    for loop in map(int, loops.split(",")):
        with make_model(os.path.join(model_dir, f"loop{loop}"), iterations_per_loop=loop) as line:
            line.train(make_input_fn(), hooks=[Weights(f"loop {loop}")])
            result = line.train_result
            say(
                case=f"result {loop}",
                step=result.global_step,
                reason=result.reason,
                loss=result.loss,
            )
            if line.config.is_chief:
                metrics = line.evaluate(make_input_fn())
                say(case=f"evaluation {loop}", **{k: float(v) for k, v in metrics.items()})
            line.train(make_input_fn(2), max_steps=12, hooks=[Weights(f"more {loop}")])
            say(case=f"more result {loop}", reason=line.train_result.reason)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
