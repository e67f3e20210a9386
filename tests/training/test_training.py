"""Why training stops, at which step, and what it leaves behind: R21, R24, the end of the input."""

import logging
import signal

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.toy import Model, checkpoint_steps, events, ids_model_fn, ids_of, numbers, weight_after

v1 = tf.compat.v1

LOOPS = pytest.mark.parametrize("iterations_per_loop", [1, 10])


def make(model_dir, iterations_per_loop=1, model_fn=None, **config):
    config = {"save_summary_steps": None, **config}
    run_config = est.RunConfig(iterations_per_loop=iterations_per_loop, **config)
    return est.Estimator(model_fn or Model(), str(model_dir), run_config)


def values_of(*values):
    """An input_fn of batches of one of these."""
    return lambda: tf.data.Dataset.from_tensor_slices(list(map(float, values))).batch(1)


# R21.


@LOOPS
def test_a_nan_raises_and_names_its_step(tmp_path, iterations_per_loop):
    trained = make(tmp_path, iterations_per_loop)
    with pytest.raises(v1.train.NanLossDuringTrainingError, match=r"loss of step 3 is nan"):
        trained.train(values_of(1, 2, np.nan, 4, 5), steps=5)
    assert checkpoint_steps(trained.model_dir) == [0]


@LOOPS
@pytest.mark.parametrize("loss", [np.inf, -np.inf])
def test_an_infinite_loss_counts_as_nan(tmp_path, iterations_per_loop, loss):
    trained = make(tmp_path, iterations_per_loop)
    with pytest.raises(v1.train.NanLossDuringTrainingError, match=r"loss of step 2 is inf"):
        trained.train(values_of(1, loss, 3), steps=3)


@LOOPS
@pytest.mark.parametrize("save_steps", [2, 3, 5])
def test_the_state_after_a_nan_is_never_saved(tmp_path, iterations_per_loop, save_steps):
    trained = make(tmp_path, iterations_per_loop, save_checkpoints_steps=save_steps)
    batches = [1, 2, 3, 4, np.nan, 6, 7]
    with pytest.raises(v1.train.NanLossDuringTrainingError, match="step 5"):
        trained.train(values_of(*batches), steps=7)
    expected = {2: [0, 2, 4], 3: [0, 3], 5: [0]}[save_steps]
    assert checkpoint_steps(trained.model_dir) == expected
    assert trained.get_variable_value("w") == weight_after(batches[: expected[-1]])


def nan_in_the_third_step(features, mode):
    """A finite loss with a gradient that is not: only the next step's loss would show it."""
    w = v1.get_variable("w", [], initializer=v1.ones_initializer())
    step = v1.train.get_global_step()
    factor = tf.where(tf.equal(step, 2), np.nan, 1.0)
    loss = w.read_value() * 1.0
    with tf.control_dependencies([loss]):
        assigned = w.assign(w * factor)
    with tf.control_dependencies([assigned]):
        train_op = step.assign_add(1)
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


@LOOPS
@pytest.mark.parametrize(("steps", "save_steps"), [(9, 3), (3, 3), (3, 5)])
def test_weights_that_are_nan_before_the_loss_is_are_not_saved_either(
    tmp_path, iterations_per_loop, steps, save_steps
):
    """In a save on the way, in one at the last step, and in one because it is the last step."""
    config = {"model_fn": nan_in_the_third_step, "save_checkpoints_steps": save_steps}
    trained = make(tmp_path, iterations_per_loop, **config)
    with pytest.raises(v1.train.NanLossDuringTrainingError, match=r"step 3 .*\['w'\]"):
        trained.train(numbers(), steps=steps)
    assert checkpoint_steps(trained.model_dir) == [0]
    hook, listener = NoteEnd(), NoteEnd()
    stopping = make(tmp_path, iterations_per_loop, nan_policy="stop", **config)
    stopping.train(numbers(), [hook], steps=steps, saving_listeners=[listener])
    result = stopping.train_result
    assert (result.reason, result.global_step, result.loss) == ("nan loss", 3, 1.0)
    assert (hook.ends, listener.ends) == ([()], [(3,)])
    assert checkpoint_steps(trained.model_dir) == [0]


@pytest.mark.parametrize("bad", ["scalar", "matrix", "no_known_shape"])
def test_weights_of_all_shapes_are_checked(tmp_path, bad):
    values = {"scalar": np.ones([]), "matrix": np.ones([2, 3]), "no_known_shape": np.ones([2])}

    def model_fn(features, mode):
        weights = {}
        for name, value in values.items():
            has_shape = name != "no_known_shape"
            shape = value.shape if has_shape else None
            initial = v1.placeholder_with_default(np.float32(value), shape)
            weights[name] = v1.get_variable(name, initializer=initial, validate_shape=has_shape)
        total = tf.add_n([tf.reduce_sum(weight) for weight in weights.values()])
        with tf.control_dependencies([total]):
            changed = weights[bad].assign(weights[bad] * np.nan)
        with tf.control_dependencies([changed]):
            train_op = v1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=total, train_op=train_op)

    trained = make(tmp_path, 1, model_fn=model_fn)
    with pytest.raises(v1.train.NanLossDuringTrainingError, match=rf"step 1 .*\['{bad}'\]"):
        trained.train(numbers(), steps=1)


@LOOPS
def test_policy_stop_ends_training_without_an_error_or_a_save(
    tmp_path, iterations_per_loop, caplog
):
    trained = make(tmp_path, iterations_per_loop, nan_policy="stop", save_checkpoints_steps=2)
    with caplog.at_level(logging.ERROR, "estimator"):
        trained.train(values_of(1, 2, np.nan, 4), steps=4)
    assert trained.train_result.reason == "nan loss"
    assert trained.train_result.global_step == 3
    assert np.isnan(trained.train_result.loss)
    assert checkpoint_steps(trained.model_dir) == [0, 2]
    assert len([r for r in caplog.records if "step 3" in r.getMessage()]) == 1


class NoteEnd(v1.train.SessionRunHook, v1.train.CheckpointSaverListener):
    """Notes the calls of `end`, of a hook or of a listener."""

    def __init__(self):
        self.ends = []

    def end(self, session, *step):
        self.ends.append(step)


@pytest.mark.parametrize("saves", ["library", "hook"])
@pytest.mark.parametrize("values", [(1, 2, np.nan, 4), (1, 2, np.inf)])
def test_policy_stop_tells_hooks_and_listeners_of_the_end(tmp_path, saves, values):
    """The loss of a step, or only what it left in a weight, is not finite."""
    hook, listener = NoteEnd(), NoteEnd()
    trained = make(tmp_path, 1, nan_policy="stop", save_checkpoints_steps=2)
    hooks = [hook]
    if saves == "hook":
        hooks.append(v1.train.CheckpointSaverHook(trained.model_dir, save_steps=2))
    trained.train(values_of(*values), hooks, steps=3, saving_listeners=[listener])
    assert trained.train_result.reason == "nan loss"
    assert hook.ends == [()]
    assert listener.ends == [(3,)]
    assert checkpoint_steps(trained.model_dir)[-1] < 3


@pytest.mark.parametrize(("number", "error"), [(2, KeyboardInterrupt), (15, SystemExit)])
def test_the_result_of_a_training_that_a_signal_ended_can_be_seen(tmp_path, number, error):
    class Raise(v1.train.SessionRunHook):
        calls = 0

        def after_run(self, run_context, run_values):
            self.calls += 1
            if self.calls == 3:
                signal.raise_signal(number)

    trained = make(tmp_path)
    trained.train(numbers(), steps=2)
    before = signal.signal(number, signal.default_int_handler if number == 2 else signal.SIG_DFL)
    try:
        with pytest.raises(error):
            trained.train(numbers(), [Raise()], steps=10)
    finally:
        signal.signal(number, before)
    result = trained.train_result
    assert (result.reason, result.global_step) == ("signal", 5)
    assert result.loss is not None
    assert checkpoint_steps(trained.model_dir)[-1] == 5


def test_a_training_that_failed_has_no_result(tmp_path):
    trained = make(tmp_path)
    trained.train(numbers(), steps=2)
    with pytest.raises(v1.train.NanLossDuringTrainingError):
        trained.train(values_of(np.nan), steps=2)
    assert trained.train_result is None


@LOOPS
def test_policy_ignore_goes_on(tmp_path, iterations_per_loop):
    trained = make(tmp_path, iterations_per_loop, nan_policy="ignore")
    trained.train(values_of(1, 2, np.nan, 4, 5), steps=5)
    assert trained.train_result.reason == "steps"
    assert trained.train_result.global_step == 5
    assert np.isnan(trained.get_variable_value("w"))


@LOOPS
def test_training_resumes_before_the_nan_with_the_weights_of_then(tmp_path, iterations_per_loop):
    batches = [1, 2, 3, 4, np.nan, 6]
    trained = make(tmp_path, iterations_per_loop, save_checkpoints_steps=2)
    with pytest.raises(v1.train.NanLossDuringTrainingError):
        trained.train(values_of(*batches), steps=6)
    trained.train(values_of(7, 8), steps=2)
    assert trained.train_result.global_step == 6
    assert trained.get_variable_value("w") == weight_after([1, 2, 3, 4, 7, 8])


SKIPPED = {"nan_policy": "skip", "save_checkpoints_steps": 4}


@LOOPS
@pytest.mark.parametrize("num_replicas", [1, 2])
def test_policy_skip_leaves_the_weights_as_they_were(tmp_path, iterations_per_loop, num_replicas):
    config = {"strategy": "mirrored", "num_replicas": num_replicas, **SKIPPED}
    trained = make(tmp_path, iterations_per_loop, **config)
    per_step = [[1, 1], [2, 2], [3, np.nan], [4, 4], [np.inf, 5], [6, 6]]
    values = [v for step in per_step for v in step[-num_replicas:]]
    trained.train(values_of(*values), steps=6)
    bad = {1: [2], 2: [2, 4]}[num_replicas]
    good = [step[-num_replicas:] for i, step in enumerate(per_step) if i not in bad]
    assert trained.train_result.global_step == 6
    assert trained.train_result.reason == "steps"
    assert trained.train_result.skipped_steps == len(bad)
    np.testing.assert_allclose(trained.get_variable_value("w"), weight_after(good), rtol=1e-6)
    assert checkpoint_steps(trained.model_dir) == [0, 4, 6]


def keras_model_fn(features, mode):
    """A Keras layer with batch norm and Adam: slots, counters and moving statistics."""
    x = tf.reshape(tf.cast(features, tf.float32), [-1, 1])
    hidden = tf.keras.layers.BatchNormalization()(tf.keras.layers.Dense(3)(x), training=True)
    loss = tf.reduce_mean(tf.square(hidden - 1.0) * x)
    optimizer = est.CrossShardOptimizer(tf.keras.optimizers.Adam(0.1))
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


@LOOPS
def test_policy_skip_takes_back_optimizer_slots_and_moving_statistics(
    tmp_path, iterations_per_loop
):
    """Four good steps and two bad ones are the four good steps."""
    batches = np.float32([[1, 2], [2, 5], [3, 4], [5, 9]])
    with_bad = np.insert(batches, [1, 3], np.nan, axis=0)
    states = []
    for name, rows in {"good": batches, "bad": with_bad}.items():
        trained = make(
            tmp_path / name, iterations_per_loop, keras_model_fn, tf_random_seed=1, **SKIPPED
        )
        trained.train(lambda rows=rows: tf.data.Dataset.from_tensor_slices(rows))
        assert trained.train_result.skipped_steps == len(rows) - 4
        names = [n for n in trained.get_variable_names() if n != "global_step"]
        states.append({n: trained.get_variable_value(n) for n in names})
    assert len(states[0]) >= 10
    for name, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][name], name)


@LOOPS
def test_policy_skip_takes_back_a_weight_that_is_bad_while_the_loss_is_not(
    tmp_path, iterations_per_loop
):
    def model_fn(features, mode):
        w = v1.get_variable("w", [], initializer=v1.ones_initializer())
        step = v1.train.get_global_step()
        factor = tf.where(tf.equal(step, 2), np.nan, 2.0)  # In the third step.
        with tf.control_dependencies([w.assign(w * factor)]):
            train_op = step.assign_add(1)
        return est.EstimatorSpec(mode, loss=tf.reduce_sum(features) * 0.0, train_op=train_op)

    trained = make(tmp_path, iterations_per_loop, model_fn, nan_policy="skip")
    trained.train(values_of(*range(5)), steps=5)
    assert trained.get_variable_value("w") == 2.0**4
    assert trained.train_result == est.TrainResult(5, 0.0, "steps", 1)


def test_a_nan_of_one_of_two_replicas_counts(tmp_path):
    trained = make(tmp_path, 10, strategy="mirrored", num_replicas=2)
    with pytest.raises(v1.train.NanLossDuringTrainingError, match="step 2"):
        trained.train(values_of(1, 2, 3, np.nan, 5, 6), steps=3)


# R24.


@LOOPS
def test_nothing_left_to_train_is_one_message_with_both_numbers_and_a_result(
    tmp_path, iterations_per_loop, caplog
):
    model_fn = Model()
    trained = make(tmp_path, iterations_per_loop, model_fn)
    trained.train(numbers(), max_steps=20)
    for max_steps in (20, 15):
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "estimator"):
            assert trained.train(numbers(), max_steps=max_steps) is trained
        (message,) = [r.getMessage() for r in caplog.records]
        assert "20" in message
        assert str(max_steps) in message
        assert trained.train_result == est.TrainResult(20, None, "max_steps")
    assert model_fn.modes == ["train"]
    assert checkpoint_steps(trained.model_dir) == [0, 20]


def test_before_the_first_training_there_is_no_result(tmp_path):
    assert make(tmp_path).train_result is None


class StopAtOnce(v1.train.SessionRunHook):
    def after_run(self, run_context, run_values):
        run_context.request_stop()


class StopAtSave(v1.train.CheckpointSaverListener):
    def after_save(self, session, global_step_value):
        return True


REASONS = {
    "steps": (numbers(), {"steps": 12}, 12),
    "max_steps": (numbers(), {"max_steps": 12}, 12),
    "end of input": (numbers(12), {}, 12),
    "hook": (numbers(), {"hooks": [v1.train.StopAtStepHook(last_step=12)]}, 12),
    "listener": (numbers(), {"saving_listeners": [StopAtSave()]}, 8),
}


@pytest.mark.each_value
@LOOPS
@pytest.mark.parametrize("reason", REASONS)
def test_the_result_says_why_training_stopped(tmp_path, iterations_per_loop, reason):
    input_fn, arguments, step = REASONS[reason]
    trained = make(tmp_path, iterations_per_loop, save_checkpoints_steps=8)
    trained.train(input_fn, **arguments)
    result = trained.train_result
    assert (result.reason, result.global_step) == (reason, step)
    batches = [[i] for i in range(step)]
    loss = (weight_after(batches[:-1]) - (step - 1)) ** 2 / 2
    np.testing.assert_allclose(result.loss, loss, rtol=1e-6)
    assert trained.get_variable_value("w") == weight_after(batches)
    assert checkpoint_steps(trained.model_dir)[-1] == step


@LOOPS
def test_the_input_may_end_before_the_steps_do(tmp_path, iterations_per_loop):
    trained = make(tmp_path, iterations_per_loop)
    trained.train(numbers(7), max_steps=100)
    assert trained.train_result.reason == "end of input"
    assert trained.train_result.global_step == 7


@LOOPS
def test_a_hook_that_stops_at_the_last_step_of_all_is_not_the_reason(tmp_path, iterations_per_loop):
    trained = make(tmp_path, iterations_per_loop)
    trained.train(numbers(), steps=iterations_per_loop, hooks=[StopAtOnce()])
    assert trained.train_result.global_step == iterations_per_loop
    assert trained.train_result.reason in ("hook", "steps")


# The end of the input.


@pytest.mark.each_value
@pytest.mark.parametrize("strategy", ["mirrored", "central_storage"])
@pytest.mark.parametrize("iterations_per_loop", [1, 5])
@pytest.mark.parametrize("num_batches", [2, 7, 10, 11, 13, 20])
def test_two_replicas_train_whole_steps_only(tmp_path, strategy, iterations_per_loop, num_batches):
    trained = make(tmp_path, iterations_per_loop, strategy=strategy, num_replicas=2)
    trained.train(numbers(num_batches))
    pairs = [[2 * i, 2 * i + 1] for i in range(num_batches // 2)]
    assert trained.train_result.reason == "end of input"
    assert trained.train_result.global_step == num_batches // 2
    assert trained.get_variable_value("global_step") == num_batches // 2
    np.testing.assert_allclose(trained.get_variable_value("w"), weight_after(pairs), rtol=1e-6)


@pytest.mark.each_value
@pytest.mark.parametrize("iterations_per_loop", [1, 5])
@pytest.mark.parametrize("num_batches", [1, 4, 5, 6, 12])
def test_one_replica_trains_every_batch(tmp_path, iterations_per_loop, num_batches):
    trained = make(tmp_path, iterations_per_loop)
    trained.train(numbers(num_batches))
    assert trained.train_result.reason == "end of input"
    assert trained.train_result.global_step == num_batches
    assert trained.get_variable_value("w") == weight_after([[i] for i in range(num_batches)])


@pytest.mark.parametrize("iterations_per_loop", [1, 5])
def test_a_smaller_last_batch_is_trained_too(tmp_path, iterations_per_loop):
    trained = make(tmp_path, iterations_per_loop)
    trained.train(numbers(10, batch_size=4))
    assert trained.train_result.global_step == 3
    batches = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    np.testing.assert_allclose(trained.get_variable_value("w"), weight_after(batches), rtol=1e-6)


@pytest.mark.parametrize("iterations_per_loop", [1, 5])
@pytest.mark.parametrize("config", [{}, {"strategy": "mirrored", "num_replicas": 2}])
def test_an_input_without_one_global_batch_is_an_error(tmp_path, iterations_per_loop, config):
    trained = make(tmp_path, iterations_per_loop, **config)
    with pytest.raises(ValueError, match="no batch for every replica"):
        trained.train(numbers(1 if config else 0))
    assert checkpoint_steps(trained.model_dir) == [0]


@LOOPS
def test_summaries_of_a_loop_that_the_input_cuts_short_are_of_steps_that_ran(
    tmp_path, iterations_per_loop
):
    trained = make(tmp_path, iterations_per_loop, save_summary_steps=4)
    trained.train(numbers(10))
    assert [step for step, tag, _ in events(trained.model_dir) if tag == "loss"] == (
        [1, 4, 8] if iterations_per_loop == 1 else [4, 8]
    )


@LOOPS
def test_an_error_of_the_input_is_not_its_end(tmp_path, iterations_per_loop):
    def checked():
        def check(x):
            with tf.control_dependencies([tf.debugging.assert_less(x, np.int64(4))]):
                return tf.identity(x)

        return tf.data.Dataset.range(1, 10).map(check).batch(1)

    trained = make(tmp_path, iterations_per_loop)
    with pytest.raises(tf.errors.InvalidArgumentError):
        trained.train(checked)
    assert checkpoint_steps(trained.model_dir) == [0]


@LOOPS
def test_a_run_that_failed_leaves_its_last_checkpoint_and_can_go_on(tmp_path, iterations_per_loop):
    class Fail(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls == 4:
                raise ZeroDivisionError

    trained = make(tmp_path, iterations_per_loop, ids_model_fn, save_checkpoints_steps=3)
    input_fn = numbers()
    with pytest.raises(ZeroDivisionError):
        trained.train(input_fn, steps=100, hooks=[Fail()])
    last = checkpoint_steps(trained.model_dir)[-1]
    trained.train(input_fn, steps=5)
    assert ids_of(trained) == list(range(last + 5))
