"""An input that ends within a loop: the loop ends with its last real step, and all hear of it."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.conformance import cases
from tests.toy import Model, checkpoint_steps, events, ids_model_fn, ids_of, numbers, weight_after

V1 = tf.compat.v1
STRATEGIES = pytest.mark.parametrize("strategy", ["one_device", "mirrored_x2"])


class Note(V1.train.SessionRunHook):
    """Notes the global step after each session call."""

    def __init__(self):
        self.steps = []

    def begin(self):
        self.step = V1.train.get_global_step()

    def after_run(self, run_context, run_values):
        self.steps.append(int(run_context.session.run(self.step)))


class Logged(V1.train.LoggingTensorHook):
    """Notes the values instead of logging them."""

    def __init__(self, tensors):
        super().__init__(tensors, every_n_iter=1)
        self.values = []

    def _log_tensors(self, tensor_values):
        self.values.append(float(tensor_values["feature"]))


def train(model_dir, input_fn, hooks=(), model_fn=None, max_steps=None, **config):
    config = cases.make_config(**{"iterations_per_loop": 100, **config})
    model = est.Estimator(model_fn or Model(), str(model_dir), config)
    return model.train(input_fn, list(hooks), max_steps=max_steps)


def metrics_of(model):
    with open(f"{model.model_dir}/metrics.jsonl") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.each_value
@STRATEGIES
@pytest.mark.parametrize("num_batches", [2, 5, 10])
def test_a_loop_that_the_input_cuts_short_ends_as_any_other(strategy, num_batches, tmp_path):
    made = []

    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        feature = tf.cast(tf.reduce_mean(features), tf.float32)
        V1.summary.scalar("feature", feature)
        made.append(Logged({"feature": feature}))
        return spec._replace(training_hooks=[made[-1]])

    replicas = 2 if strategy.endswith("x2") else 1
    note, num_steps = Note(), num_batches // replicas
    model = train(
        tmp_path,
        numbers(num_batches),
        [note],
        model_fn,
        log_step_count_steps=1000,
        save_summary_steps=1000,
        **cases.STRATEGIES[strategy],
    )
    batches = np.arange(num_steps * replicas).reshape(-1, replicas)
    before = weight_after(batches[:-1])
    result = model.train_result
    assert (result.reason, result.global_step) == ("end of input", num_steps)
    assert result.loss == pytest.approx(np.mean((before - batches[-1]) ** 2) / 2, rel=1e-6)
    assert note.steps == [num_steps]
    assert made[0].values == [float(batches[-1][0])]
    assert [(line["step"], line["loss"]) for line in metrics_of(model)] == [
        (num_steps, pytest.approx(result.loss))
    ]
    # The first call of a training records.
    shown = [(s, v.simple_value) for s, tag, v in events(model.model_dir) if tag == "feature"]
    assert shown == [(num_steps, float(batches[-1][0]))]
    assert checkpoint_steps(model.model_dir)[-1] == num_steps


@pytest.mark.parametrize("loop", [1, 100])
def test_what_is_due_at_the_last_step_of_a_cut_loop_is_written(loop, tmp_path):
    """Two batches complete a step of three, as it is flushed; the summary is of the last batch."""

    def model_fn(features, labels, mode):
        w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
        mean = tf.reduce_mean(tf.cast(features, tf.float32))
        V1.summary.scalar("feature", mean)
        optimizer = est.tpu.CrossShardOptimizer(
            V1.train.GradientDescentOptimizer(1.0), accumulate_steps=3
        )
        loss = mean - w * mean
        train_op = optimizer.minimize(loss, V1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = {"save_summary_steps": 2, "save_checkpoints_steps": 2, "log_step_count_steps": 2}
    model = train(tmp_path, numbers(11), (), model_fn, iterations_per_loop=loop, **config)
    # w is 0, then 1, 5, 12 and 21.5; the last step is of the batches 9 and 10.
    assert model.get_variable_value("w") == 1 + 4 + 7 + 9.5
    result = model.train_result
    assert (result.reason, result.global_step) == ("end of input", 4)
    assert result.loss == pytest.approx(9.5 - 12 * 9.5)
    assert checkpoint_steps(model.model_dir)[-2:] == [2, 4]
    assert [(line["step"], line["loss"]) for line in metrics_of(model)] == [
        (2, pytest.approx(0)),
        (4, pytest.approx(9.5 - 12 * 9.5)),
    ]
    shown = {s: v.simple_value for s, tag, v in events(model.model_dir) if tag == "feature"}
    assert shown[2] == 5.0
    if loop > 1:  # A call of one batch does not know that it is the last.
        assert shown[4] == 10.0


def queued():
    return tf.reshape(V1.train.range_input_producer(7, num_epochs=1, shuffle=False).dequeue(), [1])


def one_shot():
    data = tf.data.Dataset.range(7).batch(1)
    return tf.cast(V1.data.make_one_shot_iterator(data).get_next(), tf.float32)


def initializable():
    iterators = [
        V1.data.make_initializable_iterator(tf.data.Dataset.range(n).batch(1)) for n in (9, 7)
    ]
    for iterator in iterators:
        V1.add_to_collection(V1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    first, second = (tf.cast(iterator.get_next(), tf.float32) for iterator in iterators)
    return (first + second) / 2


def generated():
    """A Python function that has no more."""
    values = iter(range(7))
    batch = tf.numpy_function(lambda: np.float32([next(values)]), [], tf.float32)
    batch.set_shape([1])
    return batch


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 5, 100])
@pytest.mark.parametrize("make_input", [queued, one_shot, initializable, generated])
def test_tensors_that_end_lose_no_loss(make_input, loop, tmp_path):
    model = train(tmp_path, make_input, iterations_per_loop=loop)
    result = model.train_result
    assert (result.reason, result.global_step) == ("end of input", 7)
    assert model.get_variable_value("w") == weight_after([[i] for i in range(7)])
    before = weight_after([[i] for i in range(6)])
    assert result.loss == pytest.approx((before - 6) ** 2 / 2, rel=1e-6)
    assert metrics_of(model)[-1]["loss"] == pytest.approx(result.loss)


def test_hooks_hear_of_the_last_step_of_a_one_shot_iterator(tmp_path):
    note = Note()
    train(tmp_path, one_shot, [note], iterations_per_loop=5)
    assert note.steps == [5, 7]


def test_a_stock_hook_writes_no_summary_of_a_step_that_is_not_due(tmp_path):
    hooks = {}

    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        summary = V1.summary.scalar("shown", spec.loss)
        hook = V1.train.SummarySaverHook(4, output_dir=hooks["dir"], summary_op=summary)
        return spec._replace(training_hooks=[hook])

    for loop in (1, 100):
        hooks["dir"] = str(tmp_path / f"events-{loop}")
        train(tmp_path / f"model-{loop}", numbers(7), (), model_fn, iterations_per_loop=loop)
        assert [step for step, tag, _ in events(hooks["dir"]) if tag == "shown"] == [1, 5]


@pytest.mark.parametrize("loop", [4, 100])
def test_no_batch_is_lost_between_loops_and_runs(loop, tmp_path):
    """The batch of the next turn is taken only if that turn is made."""
    config = {"iterations_per_loop": loop, "resume_input": True}

    def run(count, steps):
        config_ = cases.make_config(**config)
        model = est.Estimator(ids_model_fn, str(tmp_path), config_)
        return model.train(numbers(count), max_steps=steps)

    run(20, 6)
    run(20, 13)
    model = run(30, None)  # Other data than before: the input starts at its beginning.
    assert ids_of(model)[:13] == list(range(13))
    assert model.train_result.reason == "end of input"


def losses_of(x, w, b):
    return tf.reduce_mean(tf.square(tf.cast(x, tf.float32) * w)), tf.square(b)


@pytest.mark.pairwise
@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("optimizer", [V1.train.GradientDescentOptimizer, keras.optimizers.SGD])
@STRATEGIES
def test_a_weight_whose_gradient_needs_no_batch_ends_with_the_input(
    strategy, optimizer, in_function, tmp_path
):
    """With loops of 1, TensorFlow could update it beside the batch that is not there."""

    def model_fn(features, labels, mode):
        w, b = (V1.get_variable(n, [], initializer=V1.ones_initializer()) for n in "wb")
        build = tf.function(losses_of) if in_function else losses_of
        train_op = cases.build_minimize(optimizer(0.25), sum(build(features, w.value(), b.value())))
        return est.EstimatorSpec(mode, loss=w, train_op=train_op)

    num_batches = 9 if strategy.endswith("x2") else 4  # One replica gets a batch, the other none.
    config = {"iterations_per_loop": 1, **cases.STRATEGIES[strategy]}
    model = train(tmp_path, numbers(num_batches), (), model_fn, **config)
    assert model.get_variable_value("b") == 0.5**4


@pytest.mark.usefixtures("v1_control_flow")
@pytest.mark.parametrize("loop", [1, 3])
def test_a_v1_loop_of_the_model_that_assigns_ends_with_the_input(loop, tmp_path):
    def model_fn(features, labels, mode):
        count = V1.get_variable("count", [], tf.int32, V1.zeros_initializer())
        V1.summary.scalar("before", count)
        counted = tf.while_loop(lambda k: k < 3, lambda k: k + 0 * count.assign_add(1) + 1, [0])
        spec = Model()(features, labels, mode)
        return spec._replace(train_op=tf.group(spec.train_op, counted))

    config = {"iterations_per_loop": loop, "save_summary_steps": 1}
    model = train(tmp_path, numbers(4), (), model_fn, **config)
    assert model.get_variable_value("count") == 12
    shown = {s: v.simple_value for s, tag, v in events(model.model_dir) if tag == "before"}
    assert shown == {1: 0, 2: 3, 3: 6, 4: 9}


@STRATEGIES
def test_a_loss_that_is_not_finite_at_the_end_of_a_cut_loop_is_found(strategy, tmp_path):
    def input_fn():
        return tf.data.Dataset.from_tensor_slices(np.float32([1, 2, 3, 4, 5, np.nan])).batch(1)

    config = cases.STRATEGIES[strategy]
    with pytest.raises(V1.train.NanLossDuringTrainingError, match="The loss of step"):
        train(tmp_path / "raise", input_fn, **config)
    model = train(tmp_path / "skip", input_fn, nan_policy="skip", **config)
    assert model.train_result.reason == "end of input"
    assert model.train_result.skipped_steps == 1
    assert np.isfinite(model.get_variable_value("w"))
