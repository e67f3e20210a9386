"""Fine-tuning scripts take their first weights from a checkpoint, in `model_fn`."""

import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from tests.toy import numbers

v1 = tf.compat.v1


def v1_layer(x):
    with v1.variable_scope("dense"):
        kernel = v1.get_variable("kernel", [1, 1])
        bias = v1.get_variable("bias", [1], initializer=v1.zeros_initializer())
    return x @ kernel + bias, kernel, bias


def tf_keras_layer(x):
    layer = tf_keras.layers.Dense(1, name="dense")
    return layer(x), layer.kernel, layer.bias


def keras_layer(x):
    layer = tf.keras.layers.Dense(1, name="dense")
    return layer(x), layer.kernel, layer.bias


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A checkpoint of y = 7 x + 3."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable("old/kernel", initializer=[[7.0]])
        v1.get_variable("old/bias", initializer=[3.0])
        session.run(v1.global_variables_initializer())
        return v1.train.Saver().save(session, str(tmp_path_factory.mktemp("old") / "ckpt"))


@pytest.mark.each_value
@pytest.mark.parametrize("iterations_per_loop", [1, 5])
@pytest.mark.parametrize("where", ["model_fn", "scaffold_fn"])
@pytest.mark.parametrize("layer", [v1_layer, tf_keras_layer, keras_layer])
@pytest.mark.parametrize("strategy", [None, "mirrored", "central_storage"])
def test_weights_start_at_those_of_the_checkpoint_and_train_on(
    tmp_path, checkpoint, strategy, layer, where, iterations_per_loop
):
    def model_fn(features, mode):
        y, kernel, bias = layer(tf.reshape(tf.cast(features, tf.float32), [-1, 1]))

        def init():
            v1.train.init_from_checkpoint(checkpoint, {"old/kernel": kernel, "old/bias": bias})
            return v1.train.Scaffold()

        if where == "model_fn":
            init()
        loss = tf.reduce_mean(y)
        optimizer = v1.train.GradientDescentOptimizer(0.5)
        train_op = optimizer.minimize(loss, v1.train.get_global_step(), var_list=[bias])
        return est.tpu.TPUEstimatorSpec(
            mode,
            loss=loss,
            train_op=train_op,
            scaffold_fn=init if where == "scaffold_fn" else None,
        )

    config = est.RunConfig(
        iterations_per_loop=iterations_per_loop,
        strategy=strategy,
        num_replicas=2 if strategy else None,
    )
    trained = est.Estimator(model_fn, str(tmp_path), config)
    trained.train(numbers(), steps=4)
    # The checkpoint's bias, less 4 steps of 0.5: its gradient is 1.
    assert trained.get_variable_value("dense/bias") == [1.0]
    assert trained.get_variable_value("dense/kernel") == [[7.0]]
    trained.train(numbers(), steps=2)  # From its own checkpoint, not from the old one.
    assert trained.get_variable_value("dense/bias") == [0.0]


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("strategy", [None, "mirrored", "central_storage"])
def test_averages_start_at_the_weights_of_the_checkpoint(tmp_path, strategy, is_before):
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable("old", initializer=tf.fill([100_000], 7.0))
        session.run(v1.global_variables_initializer())
        checkpoint = v1.train.Saver().save(session, str(tmp_path / "old"))

    def model_fn(features, mode):
        # Large ones take time to load. With few, chance could be right.
        weights = [v1.get_variable(f"w{i}", [100_000]) for i in range(20)]

        def load():
            for weight in weights:
                v1.train.init_from_checkpoint(checkpoint, {"old": weight})

        if is_before:
            load()
        average = tf.train.ExponentialMovingAverage(0.5).apply(weights)
        if not is_before:
            load()
        step = v1.train.get_global_step().assign_add(1)
        loss = tf.reduce_mean(tf.cast(features, tf.float32))
        return est.EstimatorSpec(mode, loss=loss, train_op=tf.group(average, step))

    config = est.RunConfig(strategy=strategy, num_replicas=2 if strategy else None)
    trained = est.Estimator(model_fn, str(tmp_path / "new"), config)
    trained.train(numbers(), steps=1)
    for i in range(20):
        average = trained.get_variable_value(f"w{i}/ExponentialMovingAverage")
        assert (average.min(), average.max()) == (7.0, 7.0)


@pytest.mark.parametrize("iterations_per_loop", [1, 5])
def test_a_scope_of_the_checkpoint_fills_a_scope_of_the_model(
    tmp_path, checkpoint, iterations_per_loop
):
    def model_fn(features, mode):
        y, _, _ = v1_layer(tf.reshape(tf.cast(features, tf.float32), [-1, 1]))
        v1.train.init_from_checkpoint(checkpoint, {"old/": "dense/"})
        step = v1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=tf.reduce_mean(y), train_op=step)

    config = est.RunConfig(iterations_per_loop=iterations_per_loop)
    trained = est.Estimator(model_fn, str(tmp_path), config)
    trained.train(numbers(), steps=3)
    assert trained.train_result.loss == 7 * 2 + 3


@pytest.mark.parametrize("layer", [v1_layer, tf_keras_layer, keras_layer])
def test_a_saver_that_model_fn_makes_does_not_run_in_the_steps(tmp_path, layer):
    def model_fn(features, mode):
        y, _, bias = layer(tf.reshape(tf.cast(features, tf.float32), [-1, 1]))
        optimizer = v1.train.GradientDescentOptimizer(0.5)
        train_op = optimizer.minimize(
            tf.reduce_mean(y), v1.train.get_global_step(), var_list=[bias]
        )
        scaffold = v1.train.Scaffold(saver=v1.train.Saver())
        return est.EstimatorSpec(mode, loss=tf.reduce_mean(y), train_op=train_op, scaffold=scaffold)

    trained = est.Estimator(model_fn, str(tmp_path))
    trained.train(numbers(), steps=3)
    trained.train(numbers(), steps=1)
    assert trained.get_variable_value("dense/bias") == [-2.0]


def test_an_assignment_for_a_hook_takes_no_batch_and_no_part_in_the_steps(tmp_path):
    class SetAtStart(v1.train.SessionRunHook):
        def __init__(self, op):
            self.op = op

        def after_create_session(self, session, coord):
            session.run(self.op)

    def model_fn(features, mode):
        count = v1.get_variable("count", [], initializer=v1.zeros_initializer())
        first = v1.get_variable("first", [], initializer=v1.constant_initializer(-1))
        set_count = count.assign(100.0).op
        step = v1.train.get_global_step()
        x = tf.cast(tf.reshape(features, []), tf.float32)
        note = first.assign(tf.where(tf.equal(step, 0), x, first))
        with tf.control_dependencies([note]):
            train_op = tf.group(count.assign_add(1.0), step.assign_add(1))
        return est.EstimatorSpec(
            mode, loss=x, train_op=train_op, training_hooks=[SetAtStart(set_count)]
        )

    trained = est.Estimator(model_fn, str(tmp_path))
    trained.train(numbers(), steps=3)
    assert trained.get_variable_value("count") == 103
    assert trained.get_variable_value("first") == 0  # The hook's call took no batch.
