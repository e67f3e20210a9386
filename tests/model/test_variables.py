"""Variables that a model_fn makes in other ways than `get_variable` and layers."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from tests.toy import numbers

STRATEGIES = [
    {},
    {"strategy": "mirrored", "num_replicas": 2},
    {"strategy": "central_storage", "num_replicas": 2},
]


@pytest.mark.each_value
@pytest.mark.parametrize("iterations_per_loop", [1, 5])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_variable_may_start_from_a_tensor_an_array_or_a_function(
    tmp_path, strategy, iterations_per_loop
):
    def model_fn(features, mode):
        variables = [
            tf.Variable([1.0, 2.0], name="list"),
            tf.Variable(np.float32([3.0, 4.0]), name="array"),
            tf.Variable(lambda: tf.constant([5.0, 6.0]), name="function"),
            tf.Variable(tf.constant([6.0]) + 1.0, name="tensor"),
        ]
        loss = tf.add_n([tf.reduce_sum(variable) for variable in variables])
        train_op = tf.compat.v1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = est.RunConfig(iterations_per_loop=iterations_per_loop, **strategy)
    with est.Estimator(model_fn, str(tmp_path), config) as trained:
        trained.train(numbers(), steps=5)
        assert trained.train_result.loss == 28.0
        values = {name: trained.get_variable_value(name).tolist() for name in NAMES}
    assert values == NAMES


NAMES = {"list": [1, 2], "array": [3, 4], "function": [5, 6], "tensor": [7]}


@pytest.mark.each_value
@pytest.mark.parametrize("iterations_per_loop", [1, 5])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_variable_of_get_variable_has_the_dtype_of_its_initial_value(
    tmp_path, strategy, iterations_per_loop
):
    v1 = tf.compat.v1
    starts = {"int": 2, "array": np.float64([1, 2]), "bool": True, "text": "a"}

    def model_fn(features, mode):
        variables = [v1.get_variable(k, initializer=v, trainable=False) for k, v in starts.items()]
        double = v1.get_variable("tensor", initializer=tf.constant([3.0], tf.float64))
        step = v1.train.get_global_step().assign_add(1)
        averaged = tf.train.ExponentialMovingAverage(0.5).apply([double, variables[1]])
        loss = tf.cast(tf.reduce_sum(double) + tf.cast(variables[0], tf.float64), tf.float32)
        return est.EstimatorSpec(mode, loss=loss, train_op=tf.group(step, averaged))

    config = est.RunConfig(iterations_per_loop=iterations_per_loop, **strategy)
    with est.Estimator(model_fn, str(tmp_path), config) as trained:
        trained.train(numbers(), steps=5)
        assert trained.train_result.loss == 5.0
        values = {name: trained.get_variable_value(name) for name in starts}
        average = trained.get_variable_value("tensor/ExponentialMovingAverage")
    assert values.pop("array").tolist() == [1, 2]
    assert values == {"int": 2, "bool": True, "text": b"a"}
    assert (average, average.dtype) == ([3.0], np.float64)


@pytest.fixture
def v1_variables():
    tf.compat.v1.disable_resource_variables()
    yield
    tf.compat.v1.enable_resource_variables()


@pytest.mark.each_value
@pytest.mark.usefixtures("v1_variables")
@pytest.mark.parametrize("iterations_per_loop", [1, 5])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_variable_of_v1_may_start_from_the_initial_values_of_others(
    tmp_path, strategy, iterations_per_loop
):
    def model_fn(features, mode):
        v1 = tf.compat.v1
        first = v1.get_variable("first", [3], initializer=v1.random_uniform_initializer(seed=1))
        second = tf.Variable(first.initialized_value() * 2, name="second")
        third = tf.Variable(
            lambda: second.initialized_value() + first.initialized_value(), name="third"
        )
        fourth = tf.Variable(
            tf.zeros_like(third.initialized_value()),
            name="fourth",
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
        # In a step, it is the value of that step.
        last = fourth.assign_add(tf.ones_like(fourth) + first.initialized_value() * 0)
        with tf.control_dependencies([last]):
            train_op = v1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=tf.reduce_sum(third), train_op=train_op)

    config = est.RunConfig(iterations_per_loop=iterations_per_loop, **strategy)
    with est.Estimator(model_fn, str(tmp_path), config) as trained:
        trained.train(numbers(), steps=5)
        first, second, third, fourth = map(
            trained.get_variable_value, ("first", "second", "third", "fourth")
        )
    assert len(set(first)) == 3
    np.testing.assert_allclose(second, 2 * first)
    np.testing.assert_allclose(third, 3 * first)
    assert fourth.tolist() == [5, 5, 5]


@pytest.mark.usefixtures("v1_variables")
@pytest.mark.parametrize("iterations_per_loop", [1, 5])
def test_what_a_variable_starts_from_waits_neither_for_a_step_nor_for_a_batch(
    tmp_path, iterations_per_loop
):
    def model_fn(features, mode):
        v1 = tf.compat.v1
        weight = v1.get_variable("weight", [], initializer=v1.ones_initializer())
        total = weight.assign_add(tf.cast(features[0], tf.float32))
        with tf.control_dependencies([features]):
            before = tf.Variable(weight.initialized_value(), name="before")
        with tf.control_dependencies([total]):
            slow = tf.Variable(weight.initialized_value(), name="slow")
            last = slow.assign_add(before + weight - slow)
        with tf.control_dependencies([last]):
            train_op = v1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=total, train_op=train_op)

    config = est.RunConfig(iterations_per_loop=iterations_per_loop)
    with est.Estimator(model_fn, str(tmp_path), config) as trained:
        trained.train(numbers(), steps=5)
        values = [trained.get_variable_value(name) for name in ("before", "weight", "slow")]
    assert values == [1, 1 + 0 + 1 + 2 + 3 + 4, 12]


def test_a_variable_in_a_loop_cannot_start_from_the_batch(tmp_path):
    def model_fn(features, mode):
        weight = tf.Variable(tf.cast(features, tf.float32) + 1, name="weight")
        train_op = tf.compat.v1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=tf.reduce_sum(weight), train_op=train_op)

    trained = est.Estimator(model_fn, str(tmp_path), est.RunConfig(iterations_per_loop=5))
    with pytest.raises(ValueError, match="which has a value only while a step runs. Make it of"):
        trained.train(numbers(), steps=5)


def shuffled_numbers():
    data = tf.data.Dataset.range(100).shuffle(3, seed=1).repeat(2).map(lambda x: x + 1).batch(2)
    return data.concatenate(data.skip(1).take(2))


# As the arguments of datasets are called, and what the library makes before the model.
AS_OTHERS = ("count", "step", "seed", "seed2", "start", "batch_size", "buffer_size", "input")
AS_OTHERS += ("is_recording", "num_steps", "moment", "skipped_steps", "RangeDataset", "training")


@pytest.mark.each_value
@pytest.mark.parametrize("iterations_per_loop", [1, 5])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_variable_may_have_a_name_that_ops_of_the_input_and_the_loop_have(
    tmp_path, strategy, iterations_per_loop
):
    def model_fn(features, mode):
        variables = [
            tf.compat.v1.get_variable(name, initializer=float(i))
            for i, name in enumerate(AS_OTHERS)
        ]
        train_op = tf.compat.v1.train.get_global_step().assign_add(1)
        total = tf.add_n(variables)
        predictions = tf.cast(features, tf.float32) * total
        return est.EstimatorSpec(mode, predictions=predictions, loss=total, train_op=train_op)

    config = est.RunConfig(iterations_per_loop=iterations_per_loop, nan_policy="skip", **strategy)
    with est.Estimator(model_fn, str(tmp_path), config) as trained:
        trained.train(shuffled_numbers, steps=5)
        assert trained.get_variable_names() == sorted(["global_step", *AS_OTHERS])
        loss = sum(range(len(AS_OTHERS)))
        assert trained.train_result.loss == loss
        assert trained.evaluate(shuffled_numbers, steps=2)["loss"] == loss
        assert next(trained.predict(numbers(1, start=1))) == loss


def test_what_an_input_makes_itself_keeps_its_name(tmp_path):
    """Programs fetch these by name; `count` is the model's, the dataset's is `input/count`."""

    class Fetch(tf.compat.v1.train.SessionRunHook):
        def before_run(self, run_context):
            names = ["IteratorGetNext:0", "scale:0", "mine/scale:0", "input/count:0"]
            return tf.compat.v1.train.SessionRunArgs(names)

        def after_run(self, run_context, run_values):
            self.values = [np.asarray(value).tolist() for value in run_values.results]

    def input_fn():
        scale = tf.constant(3, tf.int64, name="scale")
        with tf.name_scope("mine"):
            tf.constant(4, name="scale")
        table = tf.lookup.experimental.DenseHashTable(
            tf.int64, tf.int64, 0, empty_key=-1, deleted_key=-2, name="table"
        )
        tf.Variable(1, name="made")
        tf.compat.v1.get_variable("got", [])
        data = tf.data.Dataset.range(1, 9).repeat(7).map(lambda x: x * scale + table.lookup(x))
        return data.batch(2)

    def model_fn(features, mode):
        count = tf.compat.v1.get_variable("count", [])
        train_op = tf.compat.v1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=count, train_op=train_op)

    fetch = Fetch()
    with est.Estimator(model_fn, str(tmp_path)) as trained:
        trained.train(input_fn, [fetch], steps=1)
        assert fetch.values == [[3, 6], 3, 4, 7]
        names = trained.get_variable_names()
    assert {"count", "made", "got"} <= set(names)
    assert not [name for name in names if "input" in name]


@pytest.mark.each_value
@pytest.mark.parametrize("parts", [None, 2])
@pytest.mark.parametrize("iterations_per_loop", [1, 5])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_variable_of_get_variable_may_have_the_name_of_another(
    tmp_path, strategy, iterations_per_loop, parts
):
    """Of those of a metric, or of one that is made without `get_variable`."""
    v1 = tf.compat.v1

    def model_fn(features, mode):
        x = tf.cast(features, tf.float32)
        partitioner = parts and v1.fixed_size_partitioner(parts)
        total = v1.get_variable("total", [4], partitioner=partitioner)
        count = v1.get_variable("count_1", [4], initializer=v1.ones_initializer())
        plain = tf.Variable(tf.zeros([2]), name="count")
        again = tf.Variable(tf.zeros([2]), name="count")
        metrics = {"mean": v1.metrics.mean(x), "other": v1.metrics.mean(10 * x)}
        sums = map(tf.reduce_sum, [tf.convert_to_tensor(total), count, plain, again])
        loss = tf.add_n([tf.square(one - 1) for one in sums])
        optimizer = est.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.05))
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)

    config = est.RunConfig(iterations_per_loop=iterations_per_loop, **strategy)
    with est.Estimator(model_fn, str(tmp_path), config) as model:
        model.train(numbers(), steps=50)
        assert model.train_result.loss < 1e-6
        results = model.evaluate(numbers(7, batch_size=2))
        assert (results["mean"], results["other"]) == (3.0, 30.0)
        whole = model.get_variable_names()
        assert {"total", "count_1", "count", "global_step"} <= set(whole)
        assert not [name for name in whole if "//" in name]


@pytest.mark.each_value
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("iterations_per_loop", [1, 3])
@pytest.mark.parametrize("make", ["get_variable", "scope", "Variable"])
def test_a_loop_trains_a_variable_with_a_caching_device(
    tmp_path, make, iterations_per_loop, strategy
):
    v1 = tf.compat.v1

    def model_fn(features, mode):
        with v1.variable_scope("", caching_device="/cpu:0" if make == "scope" else None):
            if make == "Variable":
                w = v1.Variable(1.0, name="w", caching_device="/cpu:0", use_resource=True)
            else:
                given = {"caching_device": "/cpu:0"} if make == "get_variable" else {}
                w = v1.get_variable("w", [], initializer=v1.ones_initializer(), **given)
        loss = tf.square(w) * tf.reduce_mean(tf.ones_like(features, tf.float32))
        optimizer = v1.train.GradientDescentOptimizer(0.25)
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = est.RunConfig(iterations_per_loop=iterations_per_loop, **strategy)
    with est.Estimator(model_fn, str(tmp_path), config) as model:
        model.train(numbers(), steps=3)
        assert model.get_variable_value("w") == 0.5**3


@pytest.mark.parametrize("loop", [1, 3])
@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_what_an_optimizer_keeps_of_a_weight_is_beside_the_weight(library, loop, tmp_path):
    """Otherwise a GPU has it under CentralStorage, or, with ps tasks, each worker its own."""

    v1 = tf.compat.v1

    def model_fn(features, mode):
        w = v1.get_variable("w", [2])
        loss = tf.reduce_mean(tf.square(features * w))
        optimizer = est.CrossShardOptimizer(library.optimizers.Adam(0.1))
        train_op = optimizer.minimize(loss, v1.train.get_global_step(), [w])
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    class ReadDevices(v1.train.SessionRunHook):
        def begin(self):
            self.devices = {v.name: v.device for v in v1.global_variables()}

    hook = ReadDevices()
    config = est.RunConfig(strategy="central_storage", num_replicas=2, iterations_per_loop=loop)
    with est.Estimator(model_fn, tmp_path, config) as model:
        model.train(lambda: tf.data.Dataset.from_tensors(tf.ones([2])).repeat(), [hook], steps=3)
    assert len(hook.devices) >= 4  # With the global step, the weight and its two moments.
    assert set(hook.devices.values()) == {"/device:CPU:0"}, hook.devices
