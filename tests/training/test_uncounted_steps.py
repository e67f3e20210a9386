"""A global step that the `train_op` does not count: a hook does, or a branch, or nobody."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.training import step_runner as steps_module
from tests.conformance import cases
from tests.toy import checkpoint_steps, numbers, weight_after

V1 = tf.compat.v1
LOOPS = pytest.mark.parametrize("loop", [1, 5])


class Count(V1.train.SessionRunHook):
    """Counts the global step after every second session call, as AdaNet does after each."""

    def begin(self):
        self.calls = 0
        self.count = V1.assign_add(V1.train.get_global_step(), 1)

    def after_run(self, run_context, run_values):
        self.calls += 1
        if self.calls % 2 == 0:
            run_context.session.run(self.count)


def model_fn(features, labels, mode):
    """As `tests.toy.Model`, but that it counts no step."""
    features = tf.cast(features, tf.float32)
    w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
    loss = tf.reduce_mean(tf.square(w - features)) / 2
    train_op = V1.train.GradientDescentOptimizer(0.25).minimize(loss)
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def make(model_dir, loop, model_fn=model_fn, **config):
    config = cases.make_config(iterations_per_loop=loop, **config)
    return est.Estimator(model_fn, str(model_dir), config)


@LOOPS
def test_a_hook_that_counts_steps_reaches_the_last(loop, tmp_path):
    trained, hook = make(tmp_path, loop, save_checkpoints_steps=2), Count()
    trained.train(numbers(), [hook], max_steps=4)
    assert (trained.train_result.reason, trained.train_result.global_step) == ("max_steps", 4)
    assert hook.calls == 8
    assert checkpoint_steps(trained.model_dir)[-2:] == [2, 4]


@LOOPS
@pytest.mark.parametrize("hooks", [[], [Count()]])
def test_an_input_that_ends_trains_whoever_counts(loop, hooks, tmp_path, caplog):
    trained = make(tmp_path, loop)
    trained.train(numbers(12), hooks, steps=100)
    assert "`train_op` does not advance the global step" in caplog.text
    num_calls = -(-12 // loop)
    result = trained.train_result
    assert (result.reason, result.global_step) == (
        "end of input",
        num_calls // 2 if hooks else 0,
    )
    assert result.loss == pytest.approx((weight_after([[i] for i in range(11)]) - 11) ** 2 / 2)
    assert trained.get_variable_value("w") == weight_after([[i] for i in range(12)])
    trained.train(numbers(12))
    assert trained.get_variable_value("w") == pytest.approx(
        weight_after([[i] for i in [*range(12), *range(12)]]), rel=1e-6
    )


@LOOPS
def test_a_branch_that_counts_every_third_batch_is_enough(loop, tmp_path):
    def counting(features, labels, mode):
        spec = model_fn(features, labels, mode)
        step = V1.train.get_global_step()
        batches = V1.get_variable("batches", [], tf.int64, V1.zeros_initializer(), trainable=False)
        with tf.control_dependencies([spec.train_op]):
            taken = batches.assign_add(1)
        count = tf.cond(
            tf.equal(taken % 3, 0), lambda: step.assign_add(1) > 0, lambda: tf.constant(False)
        )
        return spec._replace(train_op=tf.group(count))

    trained = make(tmp_path, loop, counting)
    trained.train(numbers(), max_steps=5)
    assert (trained.train_result.reason, trained.train_result.global_step) == ("max_steps", 5)
    assert trained.get_variable_value("batches") in range(15, 15 + loop)


def test_training_that_would_never_end_is_an_error_after_many_calls(tmp_path, monkeypatch):
    monkeypatch.setattr(steps_module, "MANY_CALLS", 4)
    monkeypatch.setattr(steps_module, "MANY_STEPS", 8)
    with pytest.raises(ValueError, match=r"still 0 after 8 runs of `train_op`.*never ends"):
        make(tmp_path / "endless", 1).train(numbers(), max_steps=3)
    # Of bare tensors nobody knows whether they end.
    bare = lambda: V1.data.make_one_shot_iterator(numbers(20)()).get_next()  # noqa: E731
    for name, input_fn in (("ending", numbers(20)), ("bare", bare)):
        ending = make(tmp_path / name, 1)
        ending.train(input_fn, max_steps=3)
        assert ending.train_result.reason == "end of input"
        assert np.isfinite(ending.train_result.loss)
