"""Variables of Keras layers where v1 code takes variables, as a GAN's two networks need it."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est

V1 = tf.compat.v1
RATE, NUM_STEPS = 0.25, 3
X = np.float32([[1.0], [3.0]])


def get_step():
    return V1.train.get_global_step()


def minimize(optimizer, loss, variables):
    return optimizer.minimize(loss, get_step(), var_list=variables)


def compute_and_apply(optimizer, loss, variables):
    return optimizer.apply_gradients(optimizer.compute_gradients(loss, variables), get_step())


def apply_gradients_of_loss(optimizer, loss, variables):
    gradients = tf.gradients(loss, variables)
    return optimizer.apply_gradients(
        grads_and_vars=zip(gradients, variables, strict=True), global_step=get_step()
    )


class OwnSgd(V1.train.GradientDescentOptimizer):
    """It knows nothing of replicas."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        steps = [variable.assign_sub(RATE * gradient) for gradient, variable in grads_and_vars]
        return tf.group(*steps, global_step.assign_add(1), name=name)


OPTIMIZERS = {
    "v1": lambda: V1.train.GradientDescentOptimizer(RATE),
    "v1 with slots": lambda: V1.train.MomentumOptimizer(RATE, 0.0),
    "cross_shard v1": lambda: est.CrossShardOptimizer(V1.train.GradientDescentOptimizer(RATE)),
    "cross_shard own": lambda: est.CrossShardOptimizer(OwnSgd(RATE)),
    "cross_shard keras": lambda: est.CrossShardOptimizer(keras.optimizers.SGD(RATE)),
    "cross_shard accumulating": lambda: est.CrossShardOptimizer(
        V1.train.GradientDescentOptimizer(RATE), accumulate_steps=2
    ),
}


@pytest.mark.pairwise
@pytest.mark.parametrize("strategy", [None, "mirrored"])
@pytest.mark.parametrize("apply", [minimize, compute_and_apply, apply_gradients_of_loss])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_only_the_variables_of_a_list_are_trained(library, name, apply, strategy, tmp_path):
    """Each net's output is w * x; the loss is (w1 * x - 1)^2 / 2 + w2 * x."""

    def model_fn(features, labels, mode):
        def make(name):
            layer = library.layers.Dense(1, use_bias=False, kernel_initializer="ones", name=name)
            return library.Sequential([library.Input([1]), layer], name=name)

        trained, other = make("trained"), make("other")
        errors = tf.square(trained(features) - 1.0) / 2 + other(features)
        train_op = apply(OPTIMIZERS[name](), tf.reduce_mean(errors), trained.trainable_variables)
        return est.EstimatorSpec(mode, loss=tf.reduce_mean(errors), train_op=train_op)

    w = 1.0
    for _ in range(NUM_STEPS):
        w -= RATE * np.mean((w * X - 1) * X)
    config = est.RunConfig(
        strategy=strategy, num_replicas=strategy and 2, iterations_per_loop=NUM_STEPS
    )
    batch_size = 1 if strategy else 2  # Of a replica.
    with est.Estimator(model_fn, str(tmp_path), config) as model:
        model.train(
            lambda: tf.data.Dataset.from_tensor_slices(X).repeat().batch(batch_size),
            steps=NUM_STEPS,
        )
        assert model.get_variable_value("global_step") == NUM_STEPS
        for kernel, expected in (("trained/kernel", w), ("other/kernel", 1.0)):
            # An accumulated gradient's name is longer.
            names = [name for name in model.get_variable_names() if name.endswith(kernel)]
            value = model.get_variable_value(min(names, key=len))
            assert value == pytest.approx(expected)


@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_moving_averages_are_of_the_variables_of_a_list(library, tmp_path):
    averages = []

    class Read(est.SessionRunHook):
        def end(self, session):
            averages.append(session.run(self.average))

    read = Read()

    def model_fn(features, labels, mode):
        layer = library.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        loss = tf.reduce_sum(layer(features))
        optimizer = V1.train.MomentumOptimizer(1.0, 0.0)
        trained = optimizer.minimize(loss, get_step())
        average = tf.train.ExponentialMovingAverage(0.5)
        with tf.control_dependencies([trained]):
            train_op = average.apply(layer.trainable_variables)
        read.average = average.average(layer.trainable_variables[0])
        assert average.average_name(layer.trainable_variables[0]).endswith("Average")
        assert optimizer.get_slot(layer.trainable_variables[0], "momentum") is not None
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    model = est.Estimator(model_fn, str(tmp_path))
    model.train(lambda: tf.data.Dataset.from_tensors([[1.0]]).repeat(), hooks=[read], steps=2)
    assert averages == [-1.25]  # Of 0, -1 and -2.


@pytest.mark.parametrize("loop", [1, 3])
@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_a_copy_of_a_network_is_assigned_to(library, loop, tmp_path):
    """As the target network of Q-learning is; here, it is also looked up and counts."""

    def model_fn(features, labels, mode):
        main, target = (
            library.layers.Dense(1, use_bias=False, name=name) for name in ("main", "target")
        )
        loss = tf.reduce_sum(main(features))
        target(features)
        trained = V1.train.GradientDescentOptimizer(1.0).minimize(
            loss, get_step(), main.trainable_variables
        )
        with tf.control_dependencies([trained]):
            pairs = zip(target.variables, main.variables, strict=True)
            copied = [V1.assign(old, tf.convert_to_tensor(new) * 2.0) for old, new in pairs]
        with tf.control_dependencies(copied):
            added = V1.assign_add(target.kernel, [[1.0]])
            ids = tf.sparse.from_dense(tf.zeros([1, 1], tf.int64))
            rows = tf.nn.embedding_lookup_sparse(target.kernel, ids, None)
        with tf.control_dependencies([added, rows]):
            train_op = tf.no_op()
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = est.RunConfig(tmp_path, iterations_per_loop=loop)
    with est.Estimator(model_fn, config=config) as model:
        model.train(lambda: tf.data.Dataset.from_tensors([[1.0]]).repeat(), steps=3)
        kernel = model.get_variable_value("main/kernel")
        assert model.get_variable_value("target/kernel") == pytest.approx(2 * kernel + 1)


@pytest.mark.parametrize("as_dict", [False, True])
def test_a_saver_saves_the_variables_of_a_list(as_dict, tmp_path):
    """It would save none of them, and training could not go on."""

    def model_fn(features, labels, mode):
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        loss = tf.reduce_sum(layer(features))
        train_op = V1.train.GradientDescentOptimizer(1.0).minimize(loss, get_step())
        saved = {"w": layer.kernel, "global_step": get_step()}
        saver = V1.train.Saver(saved if as_dict else list(saved.values()))
        scaffold = V1.train.Scaffold(saver=saver)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op, scaffold=scaffold)

    for num_steps in (2, 4):
        model = est.Estimator(model_fn, str(tmp_path))
        model.train(lambda: tf.data.Dataset.from_tensors([[1.0]]).repeat(), steps=2)
        shapes = dict(tf.train.list_variables(str(tmp_path)))
        (name,) = shapes.keys() - {"global_step"}
        assert (name == "w") == as_dict
        assert model.get_variable_value(name) == -num_steps


def test_variables_in_place_of_the_global_step_are_named(tmp_path):
    def model_fn(features, labels, mode):
        layer = keras.layers.Dense(1)
        loss = tf.reduce_sum(layer(features))
        optimizer = est.CrossShardOptimizer(keras.optimizers.SGD(RATE))
        return est.EstimatorSpec(
            mode, loss=loss, train_op=optimizer.minimize(loss, layer.trainable_variables)
        )

    model = est.Estimator(model_fn, str(tmp_path))
    with pytest.raises(TypeError, match=r"global_step.*Pass the variables.*`var_list`"):
        model.train(lambda: tf.data.Dataset.from_tensors([[1.0]]), steps=1)
