"""A `model_fn` that imports a graph with variables, as `hub.Module` does, or loads a SavedModel."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est

V1 = tf.compat.v1
X, Y = np.float32([[1], [2]]), np.float32([[3], [6]])
RATE, STEPS = 0.1, 5


def meta_graph():
    """A linear model without bias, whose variable has a second assignment."""
    with tf.Graph().as_default():
        x = V1.placeholder(tf.float32, [None, 1], "x")
        w = V1.get_variable("w", [1, 1], initializer=V1.ones_initializer(), use_resource=True)
        tf.matmul(x, w, name="y")
        w.assign(w * 2.0, name="double")
        return V1.train.export_meta_graph()


META_GRAPH = meta_graph()


def model_fn(features, labels, mode):
    x = features["x"]
    V1.train.import_meta_graph(META_GRAPH, input_map={"x": x}, import_scope="module")
    y = V1.get_default_graph().get_tensor_by_name("module/y:0")
    loss = tf.reduce_mean((y - labels) ** 2)
    optimizer = V1.train.GradientDescentOptimizer(RATE)
    train_op = optimizer.minimize(loss, V1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, predictions=y, train_op=train_op)


def input_of(**features):
    return lambda: tf.data.Dataset.from_tensors((features, Y)).repeat(STEPS)


def trained_weight(num_steps):
    w = 1.0
    for _ in range(num_steps):
        w -= RATE * np.mean(2 * (X * w - Y) * X)
    return w


@pytest.mark.parametrize("loop", [1, 3, "auto"])
def test_an_imported_graph_trains_without_a_loop(tmp_path, caplog, loop):
    model = est.Estimator(model_fn, str(tmp_path), est.RunConfig(iterations_per_loop=loop))
    model.train(input_of(x=X))
    np.testing.assert_allclose(model.get_variable_value("module/w"), trained_weight(STEPS), 1e-6)
    # An unusual structure does not hide why the loop failed.
    model.train(input_of(x=X, other=X))
    weight = trained_weight(2 * STEPS)
    np.testing.assert_allclose(model.get_variable_value("module/w"), weight, 1e-6)
    loss = model.evaluate(input_of(x=X))["loss"]
    np.testing.assert_allclose(loss, np.mean((X * weight - Y) ** 2), 1e-3)
    warnings = [record for record in caplog.records if "one step" in record.getMessage()]
    assert len(warnings) == (0 if loop == 1 else 2)


class Tripled(tf.Module):
    def __init__(self):
        super().__init__()
        self.three = tf.Variable(3.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 1])])
    def __call__(self, x):
        return self.three * x


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The directories of a SavedModel by the version of TensorFlow that it is for."""
    folder = tmp_path_factory.mktemp("saved")
    paths = {version: str(folder / version) for version in ("v1", "v2")}
    tf.saved_model.save(Tripled(), paths["v2"])
    with tf.Graph().as_default(), V1.Session() as session:
        x = V1.placeholder(tf.float32, [None, 1])
        three = V1.get_variable("three", initializer=3.0, use_resource=True)
        session.run(three.initializer)
        V1.saved_model.simple_save(session, paths["v1"], {"x": x}, {"y": three * x})
    return paths


@pytest.mark.pairwise
@pytest.mark.parametrize("strategy", ["one_device", "mirrored"])
@pytest.mark.parametrize("loop", [1, 3])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_saved_model_may_be_a_part_of_the_model(version, loop, strategy, saved, tmp_path):
    def model_fn(features, labels, mode):
        loaded = tf.saved_model.load(saved[version])
        x = (
            loaded.signatures["serving_default"](features)["y"]
            if version == "v1"
            else loaded(features)
        )
        w = V1.get_variable("w", [], initializer=V1.ones_initializer())
        loss = tf.reduce_mean((x * w / 3.0 - labels) ** 2)
        optimizer = V1.train.GradientDescentOptimizer(RATE)
        train_op = optimizer.minimize(loss, V1.train.get_global_step(), var_list=[w])
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    replicas = {} if strategy == "one_device" else {"num_replicas": 2}
    config = est.RunConfig(str(tmp_path), strategy=strategy, iterations_per_loop=loop, **replicas)
    model = est.Estimator(model_fn, config=config)
    model.train(lambda: tf.data.Dataset.from_tensors((X, Y)).repeat(), max_steps=STEPS)
    weight = trained_weight(STEPS)
    np.testing.assert_allclose(model.get_variable_value("w"), weight, 1e-5)
    loss = model.evaluate(lambda: tf.data.Dataset.from_tensors((X, Y)))["loss"]
    np.testing.assert_allclose(loss, np.mean((X * weight - Y) ** 2), 1e-3)
