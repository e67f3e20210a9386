"""Strategy x optimizer x loop size: the weights are those of one replica, computed by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from tests.conformance import cases
from tests.forked import run_text

RATE = 0.5
# Large, so that where an optimizer adds its epsilon shows in the weights.
EPSILON = 1e-2
V1 = tf.compat.v1.train

OPTIMIZERS = {
    "v1_sgd": lambda: V1.GradientDescentOptimizer(RATE),
    "v1_adam": lambda: V1.AdamOptimizer(RATE, epsilon=EPSILON),
    "keras_sgd": lambda: keras.optimizers.SGD(RATE),
    "keras_adam": lambda: keras.optimizers.Adam(RATE, epsilon=EPSILON),
}
TF_KERAS_OPTIMIZERS = {
    "tf_keras_sgd": lambda: tf_keras.optimizers.SGD(RATE),
    "tf_keras_adam": lambda: tf_keras.optimizers.Adam(RATE, epsilon=EPSILON),
    "tf_keras_legacy_adam": lambda: tf_keras.optimizers.legacy.Adam(RATE, epsilon=EPSILON),
}
WRAPPERS = {"bare": lambda optimizer: optimizer, "cross_shard": est.tpu.CrossShardOptimizer}


def make_reference(optimizer, rate=RATE):
    """The same optimizer in NumPy."""
    if optimizer.endswith("adam"):
        return cases.NumpyAdam(rate, EPSILON)
    return cases.NumpySgd(rate)


def train(model_fn, model_dir, **config):
    model = est.Estimator(model_fn, str(model_dir), cases.make_config(**config))
    return model.train(cases.input_fn, max_steps=cases.NUM_STEPS)


def check_matches(model, reference):
    """The weights and the loss of the last step are those of the reference."""
    weights, loss = cases.numpy_training(reference)
    assert model.train_result.global_step == cases.NUM_STEPS
    assert model.train_result.loss == pytest.approx(loss, abs=1e-5)
    for name, value in cases.trained_weights(model, ["kernel", "bias"]).items():
        np.testing.assert_allclose(value, weights[name], rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("optimizer", OPTIMIZERS | TF_KERAS_OPTIMIZERS)
def test_the_variables_of_a_wrapper_are_those_that_are_saved(optimizer, tmp_path):
    names = []

    def model_fn(features, labels, mode):
        wrapped = est.tpu.CrossShardOptimizer((OPTIMIZERS | TF_KERAS_OPTIMIZERS)[optimizer]())
        loss = cases.build_softmax_loss(features, labels)
        train_op = wrapped.minimize(loss, tf.compat.v1.train.get_global_step())
        found = [v.value if isinstance(v, keras.Variable) else v for v in wrapped.variables()]
        names.extend(v.name.partition(":")[0] for v in found)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    saved = set(train(model_fn, tmp_path).get_variable_names()) - {"kernel", "bias"}
    slots = {name for name in saved if "kernel" in name or "bias" in name}
    assert slots <= set(names) <= saved


@pytest.mark.pairwise
@pytest.mark.parametrize("loop", cases.LOOPS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("strategy", cases.STRATEGIES)
def test_weights_are_those_of_the_reference(strategy, optimizer, wrapper, loop, tmp_path):
    model_fn = cases.make_softmax_model_fn(lambda: WRAPPERS[wrapper](OPTIMIZERS[optimizer]()))
    model = train(model_fn, tmp_path, iterations_per_loop=loop, **cases.STRATEGIES[strategy])
    check_matches(model, make_reference(optimizer))


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 100])
@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("optimizer", TF_KERAS_OPTIMIZERS)
@pytest.mark.parametrize("strategy", ["no_strategy", "mirrored_x2", "central_storage_x2"])
def test_weights_with_tf_keras_are_those_of_the_reference(
    strategy, optimizer, wrapper, loop, tmp_path
):
    make_optimizer = TF_KERAS_OPTIMIZERS[optimizer]
    model_fn = cases.make_softmax_model_fn(lambda: WRAPPERS[wrapper](make_optimizer()))
    model = train(model_fn, tmp_path, iterations_per_loop=loop, **cases.STRATEGIES[strategy])
    check_matches(model, make_reference(optimizer))


STRATEGY_OBJECTS = {
    "default": tf.distribute.get_strategy,
    "one_device": lambda: tf.distribute.OneDeviceStrategy("/cpu:0"),
    "mirrored_x1": lambda: tf.distribute.MirroredStrategy(["/cpu:0"]),
    "mirrored_x2": lambda: tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]),
    "central_storage_x2": lambda: tf.distribute.experimental.CentralStorageStrategy(
        ["/cpu:0", "/cpu:1"], parameter_device="/cpu:0"
    ),
}


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 100])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("strategy", STRATEGY_OBJECTS)
def test_a_strategy_object_does_as_its_name(strategy, optimizer, loop, tmp_path):
    model_fn = cases.make_softmax_model_fn(OPTIMIZERS[optimizer])
    with tf.Graph().as_default():  # Eagerly, TensorFlow wants /cpu:1 to be there already.
        distribute = STRATEGY_OBJECTS[strategy]()
    model = train(model_fn, tmp_path, iterations_per_loop=loop, train_distribute=distribute)
    check_matches(model, make_reference(optimizer))


# A fresh process, because logical CPUs can be made only before TensorFlow's eager context is.
EAGER_OBJECT = """
import sys
import tensorflow as tf
two_cpus = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two_cpus)
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
from tests.conformance import test_optimizers as tests
for combination in sys.argv[2:]:
    optimizer, loop = combination.split(":")
    model = tests.train(
        tests.cases.make_softmax_model_fn(tests.OPTIMIZERS[optimizer]),
        f"{sys.argv[1]}/{combination}",
        iterations_per_loop=int(loop),
        train_distribute=strategy,
    )
    tests.check_matches(model, tests.make_reference(optimizer))
    print("matches", combination)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "combinations",
    [
        ["v1_adam:100", "keras_adam:1"],
        pytest.param(
            [f"{optimizer}:{loop}" for optimizer in OPTIMIZERS for loop in (1, 100)],
            marks=pytest.mark.full,
        ),
    ],
    ids=["two", "all"],
)
def test_a_mirrored_strategy_made_eagerly_does_as_its_name(combinations, tmp_path):
    out = run_text(EAGER_OBJECT, tmp_path, *combinations)
    assert out.count("matches") == len(combinations)


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 100])
@pytest.mark.parametrize("optimizer", ["v1_sgd", "keras_sgd"])
@pytest.mark.parametrize("strategy", cases.STRATEGIES)
def test_reduction_sum_adds_up_the_replicas_gradients(strategy, optimizer, loop, tmp_path):
    def make_optimizer():
        return est.tpu.CrossShardOptimizer(
            OPTIMIZERS[optimizer](), reduction=tf.compat.v1.losses.Reduction.SUM
        )

    model_fn = cases.make_softmax_model_fn(make_optimizer)
    config = cases.STRATEGIES[strategy]
    model = train(model_fn, tmp_path, iterations_per_loop=loop, **config)
    # The sum of N replicas' mean gradients is N times the gradient of the global batch.
    check_matches(model, make_reference(optimizer, rate=RATE * config.get("num_replicas", 1)))


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 100])
@pytest.mark.parametrize(
    "optimizer",
    [
        "v1_adam",
        "keras_adam",
        pytest.param("v1_sgd", marks=pytest.mark.full),
        pytest.param("keras_sgd", marks=pytest.mark.full),
    ],
)
def test_training_goes_on_under_another_strategy(optimizer, loop, tmp_path):
    model_fn = cases.make_softmax_model_fn(OPTIMIZERS[optimizer])
    for part, strategy in enumerate(cases.STRATEGIES):
        config = cases.make_config(iterations_per_loop=loop, **cases.STRATEGIES[strategy])
        model = est.Estimator(model_fn, str(tmp_path), config)
        model.train(lambda input_context, part=part: later_input(input_context, 3 * part), steps=3)
    weights, loss = cases.numpy_training(make_reference(optimizer), num_steps=18)
    assert model.train_result.loss == pytest.approx(loss, abs=1e-5)
    np.testing.assert_allclose(
        model.get_variable_value("kernel"), weights["kernel"], rtol=0, atol=1e-5
    )


def later_input(input_context, num_steps):
    """The input from that step on."""
    return cases.input_fn(input_context).skip(num_steps * input_context.num_replicas_in_sync)


def gather_loss(table, features, labels):
    """A loss whose gradient is sparse, with rows that come more than once."""
    return tf.reduce_mean(tf.square(tf.gather(table, labels) - features[:, :2]))


def gather_model_fn(features, labels, mode, params):
    table = tf.compat.v1.get_variable("table", initializer=np.ones([5, 2], np.float32))
    loss = gather_loss(table, features, labels)
    train_op = cases.build_minimize(OPTIMIZERS[params["optimizer"]](), loss)
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


@pytest.fixture(scope="module", params=OPTIMIZERS)
def eager_table(request):
    """An optimizer's name, and the table that it comes to without a graph and this library."""
    table, optimizer = tf.Variable(np.ones([5, 2], np.float32)), OPTIMIZERS[request.param]()
    for start in range(0, len(cases.FEATURES), cases.BATCH_SIZE):
        batch = slice(start, start + cases.BATCH_SIZE)
        with tf.GradientTape() as tape:
            loss = gather_loss(table, cases.FEATURES[batch], cases.LABELS[batch])
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])
    return request.param, table.numpy()


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 100])
@pytest.mark.parametrize("strategy", ["no_strategy", "mirrored_x2", "central_storage_x2"])
def test_sparse_gradients_give_the_weights_of_eager_training(strategy, eager_table, loop, tmp_path):
    optimizer, table = eager_table
    config = cases.make_config(iterations_per_loop=loop, **cases.STRATEGIES[strategy])
    model = est.Estimator(gather_model_fn, str(tmp_path), config, {"optimizer": optimizer})
    model.train(cases.input_fn, max_steps=cases.NUM_STEPS)
    np.testing.assert_array_equal(table[cases.NUM_CLASSES :], 1)  # Rows that no label names.
    np.testing.assert_allclose(model.get_variable_value("table"), table, rtol=0, atol=1e-5)


@pytest.mark.each_value
@pytest.mark.parametrize("loop", cases.LOOPS)
@pytest.mark.parametrize("strategy", ["no_strategy", "mirrored_x2", "central_storage_x2"])
def test_a_keras_schedule_counts_every_step_once(strategy, loop, tmp_path):
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([4, 9], [0.5, 0.1, 0.02])
    model_fn = cases.make_softmax_model_fn(lambda: keras.optimizers.SGD(schedule, name="sgd"))
    model = train(model_fn, tmp_path, iterations_per_loop=loop, **cases.STRATEGIES[strategy])
    step = 0

    def update(weights, gradients):
        nonlocal step
        # The schedule asks how many steps were made: up to and with the boundary.
        cases.NumpySgd(0.5 if step <= 4 else 0.1 if step <= 9 else 0.02)(weights, gradients)
        step += 1

    check_matches(model, update)
    assert model.get_variable_value("sgd/iteration") == cases.NUM_STEPS
