"""Nothing grows when training, evaluation and prediction alternate."""

import gc
import os

import numpy as np
import psutil
import pytest
import tensorflow as tf

import estimator as est
from tests.toy import Model, modes, numbers

v1 = tf.compat.v1

WARM_UP = 8
CYCLES = 15

# What a cycle that keeps the graph of its training costs with this model: 2.3 MB.
LEAKED_GRAPH_BYTES = 2.3e6


def model_fn(features, mode):
    """Three layers of a Keras model, Adam, a metric and a summary."""
    hidden = tf.cast(tf.reshape(features, [-1, 1]), tf.float32) * tf.ones([1, 20])
    for _ in range(3):
        hidden = tf.keras.layers.Dense(50, activation="relu")(hidden)
    loss = tf.reduce_mean(tf.square(hidden))
    v1.summary.scalar("loss_again", loss)
    train_op = None
    if mode == est.ModeKeys.TRAIN:
        train_op = v1.train.AdamOptimizer(1e-4).minimize(loss, v1.train.get_global_step())
    metrics = {"mean": v1.metrics.mean(hidden)}
    return est.EstimatorSpec(
        mode, loss=loss, train_op=train_op, predictions=hidden, eval_metric_ops=metrics
    )


def run_cycle(trained):
    trained.train(numbers(), steps=4)
    trained.evaluate(numbers(3))
    assert len(list(trained.predict(numbers(3)))) == 3


def count(kind):
    return sum(isinstance(thing, kind) for thing in gc.get_objects())


def what_is_open(process):
    gc.collect()
    return {
        "graphs": count(tf.Graph),
        "sessions": count(v1.Session),
        "threads": process.num_threads(),
        "files": process.num_fds(),
    }


@pytest.mark.slow
@pytest.mark.parametrize("iterations_per_loop", [pytest.param(1, marks=pytest.mark.full), 5])
def test_cycles_of_the_three_verbs_keep_nothing(tmp_path, iterations_per_loop):
    config = est.RunConfig(
        iterations_per_loop=iterations_per_loop, save_summary_steps=2, keep_checkpoint_max=2
    )
    process = psutil.Process(os.getpid())
    with est.Estimator(model_fn, str(tmp_path), config) as trained:
        for _ in range(WARM_UP):
            run_cycle(trained)
        before = what_is_open(process)
        sizes = []
        for _ in range(CYCLES):
            run_cycle(trained)
            now = what_is_open(process)
            # Less, if what another test left goes away just then.
            assert {kind: number for kind, number in now.items() if number > before[kind]} == {}
            sizes.append(process.memory_info().rss)
    growth = np.polyfit(np.arange(CYCLES), sizes, 1)[0]
    assert growth < LEAKED_GRAPH_BYTES / 2
    # The event file, the metrics and the newest two checkpoints: no files are left over.
    names = {name.split(".")[0] for name in os.listdir(tmp_path)}
    assert names == {"checkpoint", "eval", "events", "graph", "input-position", "metrics", "model"}


class Adds(est.SessionRunHook):
    """Names a constant of its own in the graph and asks for it by its name."""

    def __init__(self, value=0.0):
        self.value = value

    def begin(self):
        tf.constant(self.value, name="of_hook")
        self.num_ops = len(v1.get_default_graph().get_operations())

    def before_run(self, run_context):
        return v1.train.SessionRunArgs("of_hook:0")

    def after_run(self, run_context, run_values):
        self.seen = run_values.results


def call(trained, verb, hooks):
    list(getattr(trained, verb)(numbers(2), hooks=hooks))


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_hooks_that_add_ops_in_each_evaluation_find_the_graph_as_it_was_built(tmp_path, verb):
    with est.Estimator(Model(), str(tmp_path)) as trained:
        trained.train(numbers(), steps=1)
        call(trained, verb, [Adds()])
        gc.collect()
        before = count(tf.Graph), count(v1.Session)
        sizes = set()
        for value in range(5):
            hook = Adds(float(value))
            call(trained, verb, [hook])
            assert hook.seen == value
            sizes.add(hook.num_ops)
            gc.collect()
            assert (count(tf.Graph), count(v1.Session)) == before
        assert len(sizes) == 1


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_hooks_that_add_nothing_leave_graph_and_session_warm(tmp_path, verb):
    class FetchesStep(est.SessionRunHook):
        def before_run(self, run_context):
            return v1.train.SessionRunArgs("global_step:0")

    def make_hooks():
        counter = est.StepCounterHook(every_n_steps=1, output_dir=str(tmp_path))
        return [FetchesStep(), counter, est.StopAtStepHook(num_steps=9)]

    with est.Estimator(Model(), str(tmp_path)) as trained:
        trained.train(numbers(), steps=1)
        for _ in range(3):
            call(trained, verb, make_hooks())
        assert len(modes(trained)) == 2  # A "train" and one more.
