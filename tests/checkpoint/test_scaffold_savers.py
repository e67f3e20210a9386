"""Savers of a model's own: moving averages, a choice of variables, tf.train.Checkpoint."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.conformance import cases
from tests.toy import RATE, checkpoint_steps, numbers

v1 = tf.compat.v1

STRATEGIES = pytest.mark.parametrize(
    "strategy", ["no_strategy", "one_device", "mirrored_x2", "central_storage_x2"]
)
LOOPS = pytest.mark.parametrize("loop", [1, 100])
WHERE = pytest.mark.parametrize("where", ["scaffold", "scaffold_fn"])

DECAY = 0.5


def make(model_dir, model_fn, strategy="no_strategy", loop=1, **config):
    run_config = cases.make_config(**cases.STRATEGIES[strategy], iterations_per_loop=loop, **config)
    return est.Estimator(model_fn, str(model_dir), run_config)


def spec_with(where, mode, make_scaffold, **values):
    if where == "scaffold":
        return est.EstimatorSpec(mode, scaffold=make_scaffold(), **values)
    return est.tpu.TPUEstimatorSpec(mode, scaffold_fn=make_scaffold, **values)


def averaged_model_fn(where):
    """As `toy.Model`, with a moving average of `w` that the other verbs restore in its place."""

    def model_fn(features, labels, mode):
        x = tf.cast(features, tf.float32)
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        average = tf.train.ExponentialMovingAverage(DECAY)
        loss = tf.reduce_mean(tf.square(w - x)) / 2
        train_op, restored = None, None
        if mode == est.ModeKeys.TRAIN:
            step = v1.train.get_global_step()
            minimize = v1.train.GradientDescentOptimizer(RATE).minimize(loss, step)
            with tf.control_dependencies([minimize]):
                train_op = average.apply(v1.trainable_variables())
        else:
            restored = average.variables_to_restore()

        def make_scaffold():
            return v1.train.Scaffold(saver=v1.train.Saver(restored))

        return spec_with(
            where, mode, make_scaffold, predictions={"y": w * x}, loss=loss, train_op=train_op
        )

    return model_fn


def averaged(batches):
    """`w` and its average after these batches."""
    w = average = 0.0
    for batch in batches:
        w -= RATE * (w - np.mean(batch))
        average = DECAY * average + (1 - DECAY) * w
    return w, average


@pytest.mark.each_value
@LOOPS
@STRATEGIES
@WHERE
def test_moving_averages_take_the_place_of_weights_in_all_but_training(
    tmp_path, strategy, loop, where
):
    model_fn = averaged_model_fn(where)
    trained = make(tmp_path / "model", model_fn, strategy, loop, resume_input=True)
    input_fn = numbers()
    trained.train(input_fn, steps=3)
    trained.train(input_fn, steps=2)  # A resumed training goes on with the weights themselves.
    size = 2 if strategy.endswith("x2") else 1
    w, average = averaged(np.arange(5 * size).reshape(5, size))
    np.testing.assert_allclose(trained.get_variable_value("w"), w, rtol=1e-6)
    name = "w/ExponentialMovingAverage"
    np.testing.assert_allclose(trained.get_variable_value(name), average, rtol=1e-6)
    (row,) = trained.predict(numbers(1, start=1))
    np.testing.assert_allclose(row["y"], average, rtol=1e-6)
    loss = trained.evaluate(numbers(1, start=1))["loss"]
    np.testing.assert_allclose(loss, (average - 1) ** 2 / 2, rtol=1e-5)
    if loop > 1:
        return  # A SavedModel has no loop.
    path = trained.export_saved_model(str(tmp_path / "export"), receiver)
    loaded = tf.saved_model.load(path.decode()).signatures["serving_default"]
    np.testing.assert_allclose(loaded(tf.constant([1.0]))["y"], [average], rtol=1e-6)


def receiver():
    x = v1.placeholder(tf.float32, [None], "x")
    return est.export.TensorServingInputReceiver(x, {"x": x})


@pytest.mark.each_value
@pytest.mark.parametrize(("loop", "where"), [(1, "scaffold_fn"), (100, "scaffold")])
@STRATEGIES
def test_a_saver_of_some_variables_saves_and_restores_those_and_keeps_as_many_as_it_says(
    tmp_path, strategy, loop, where
):
    initialized = []

    def model_fn(features, labels, mode):
        keys = v1.GraphKeys
        total = v1.get_variable("total", [], initializer=v1.zeros_initializer())
        scratch = v1.get_variable(
            "scratch",
            [],
            initializer=v1.ones_initializer(),
            trainable=False,
            collections=[keys.LOCAL_VARIABLES],
        )
        step = v1.train.get_global_step()
        loss = total + tf.reduce_mean(tf.cast(features, tf.float32))
        train_op = v1.train.GradientDescentOptimizer(1.0).minimize(loss, step)

        def make_scaffold():
            saver = v1.train.Saver({"renamed": total, "global_step": step}, max_to_keep=2)
            return v1.train.Scaffold(
                saver=saver, init_fn=lambda scaffold, session: initialized.append(session)
            )

        return spec_with(
            where, mode, make_scaffold, predictions=total * scratch, loss=loss, train_op=train_op
        )

    trained = make(tmp_path, model_fn, strategy, loop, save_checkpoints_steps=1)
    trained.train(numbers(), steps=3)
    trained.train(numbers(), steps=1)
    assert trained.get_variable_names() == ["global_step", "renamed"]
    assert trained.get_variable_value("renamed") == -4.0
    assert checkpoint_steps(tmp_path) == [3, 4]
    assert len(initialized) == 1
    assert trained.evaluate(numbers(2, 2))["loss"] == -3.5


def test_a_variable_that_neither_saver_nor_init_op_knows_is_named(tmp_path):
    def model_fn(features, labels, mode):
        v1.get_variable("other", [], initializer=v1.zeros_initializer())
        step = v1.train.get_global_step()
        saver = v1.train.Saver([step])
        return est.EstimatorSpec(
            mode,
            predictions=tf.cast(step, tf.float32),
            loss=tf.constant(1.0),
            train_op=step.assign_add(1),
            scaffold=v1.train.Scaffold(saver=saver),
        )

    trained = make(tmp_path, model_fn)
    trained.train(numbers(), steps=1)
    for verb in (lambda: trained.train(numbers(), steps=1), lambda: trained.evaluate(numbers(1))):
        with pytest.raises(RuntimeError, match=r"names other\. .*a `saver` that restores"):
            verb()


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("loop", "keep", "where"), [(1, 2, "scaffold"), (100, 0, "scaffold_fn"), (100, 2, "scaffold")]
)
@STRATEGIES
def test_a_tf_train_checkpoint_saves_by_objects_and_keeps_what_the_config_says(
    tmp_path, strategy, loop, where, keep
):
    def model_fn(features, labels, mode):
        total = v1.get_variable("total", [], initializer=v1.zeros_initializer())
        step = v1.train.get_global_step()
        optimizer = v1.train.MomentumOptimizer(1.0, 0.0)
        loss = total + tf.reduce_mean(tf.cast(features, tf.float32))
        train_op = optimizer.minimize(loss, step)

        def make_scaffold():
            checkpoint = tf.train.Checkpoint(weight=total, step=step, optimizer=optimizer)
            return v1.train.Scaffold(saver=checkpoint)

        return spec_with(
            where, mode, make_scaffold, predictions=total + 0.0, loss=loss, train_op=train_op
        )

    trained = make(
        tmp_path / "model",
        model_fn,
        strategy,
        loop,
        save_checkpoints_steps=1,
        keep_checkpoint_max=keep,
    )
    trained.train(numbers(), steps=3)
    trained.train(numbers(), steps=1)
    names = trained.get_variable_names()
    assert {"weight/.ATTRIBUTES/VARIABLE_VALUE", "_CHECKPOINTABLE_OBJECT_GRAPH"} <= set(names)
    assert checkpoint_steps(trained.model_dir) == ([3, 4] if keep else [0, 1, 2, 3, 4])
    assert trained.evaluate(numbers(2, 2))["loss"] == -3.5
    weight = tf.Variable(0.0)
    tf.train.Checkpoint(weight=weight).restore(trained.latest_checkpoint()).expect_partial()
    assert weight.numpy() == -4.0
