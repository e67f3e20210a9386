"""Bfloat16 and XLA are switches of the RunConfig, in every mode; variables stay float32."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from tests.conformance import cases

V1 = tf.compat.v1
NUM_STEPS = 60
# At a higher rate, one rounding may turn a unit on or off, and processors round in different ways.
RATE = 0.2
# bfloat16 has 8 bits. A run in it ends at a loss that is within 2 % of how far the loss fell.
TOLERANCE = 0.02
# Every kind of layers on one replica; under several, one of each library and one by hand.
WHERE = pytest.mark.parametrize(
    ("logits", "strategy", "loop"),
    [
        ("keras", "no_strategy", 1),
        ("tf_keras", "one_device", 1),
        ("v1", "no_strategy", 100),
        ("keras", "mirrored_x2", 100),
        ("tf_keras", "mirrored_x2", 100),
        ("v1", "mirrored_x2", 1),
        ("keras", "central_storage_x2", 100),
        ("v1", "central_storage_x2", 100),
    ],
)


def make_keras_logits(library):
    def logits(features, config, dtypes):
        layers = library.layers
        hidden = layers.BatchNormalization()(features, training=False)  # The same for any batches.
        start = library.initializers.GlorotUniform(seed=1)
        hidden = layers.Dense(8, activation="relu", kernel_initializer=start)(hidden)
        dtypes.add(tf.as_dtype(hidden.dtype).name)
        return layers.Dense(3, dtype="float32", kernel_initializer="zeros")(hidden)

    return logits


def make_v1_logits(scope):
    def logits(features, config, dtypes):
        features = tf.cast(features, config.compute_dtype)
        with scope():
            kernel = V1.get_variable(
                "kernel", [4, 8], features.dtype, V1.glorot_uniform_initializer(seed=1)
            )
            output = V1.get_variable("output", [8, 3], features.dtype, V1.zeros_initializer())
        hidden = tf.nn.relu(features @ kernel)
        dtypes.add(hidden.dtype.name)
        return tf.cast(hidden @ output, tf.float32)

    return logits


LOGITS = {
    "keras": make_keras_logits(keras),
    "tf_keras": make_keras_logits(tf_keras),
    "v1": make_v1_logits(lambda: V1.variable_scope("inner")),
    "v1_own_scope": make_v1_logits(lambda: V1.tpu.bfloat16_scope("inner")),
}


class Model:
    """A `model_fn` that notes in which dtypes its hidden layer computes."""

    def __init__(self, logits):
        self.dtypes = set()
        self._build_logits = LOGITS[logits]

    def __call__(self, features, labels, mode, config):
        logits = self._build_logits(features, config, self.dtypes)
        predictions = {"logits": logits}
        if mode == est.ModeKeys.PREDICT:
            return est.EstimatorSpec(mode, predictions=predictions)
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        )
        train_op = None
        if mode == est.ModeKeys.TRAIN:
            train_op = cases.build_minimize(V1.train.GradientDescentOptimizer(RATE), loss)
        return est.EstimatorSpec(mode, predictions=predictions, loss=loss, train_op=train_op)


def input_fn(input_context):
    size = input_context.get_per_replica_batch_size(cases.BATCH_SIZE)
    # Labels that can be learned.
    labels = np.argmax(cases.FEATURES[:, :3], axis=1)
    data = tf.data.Dataset.from_tensor_slices((cases.FEATURES, labels))
    return data.batch(size, drop_remainder=True).repeat(3)


def train(model_dir, model_fn, **config):
    config = cases.make_config(tf_random_seed=1, **config)
    return est.Estimator(model_fn, str(model_dir), config).train(input_fn, max_steps=NUM_STEPS)


def receiver():
    x = V1.placeholder(tf.float32, [None, cases.NUM_FEATURES])
    return est.export.TensorServingInputReceiver(x, x)


def results_of(model, directory):
    """The loss in training and in evaluation, predictions, and what a SavedModel answers."""
    path = model.export_saved_model(str(directory), receiver)
    serve = tf.saved_model.load(path.decode()).signatures["serving_default"]
    answered = serve(tf.constant(cases.FEATURES))["logits"].numpy()
    with model:
        predicted = np.stack([row["logits"] for row in model.predict(input_fn)])
        return model.train_result.loss, model.evaluate(input_fn)["loss"], predicted, answered


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The results of each model in float32 on one replica."""
    made = {}

    def run(logits):
        if logits not in made:
            path, model_fn = tmp_path_factory.mktemp("plain"), Model(logits)
            made[logits] = results_of(train(path / "model", model_fn), path / "export")
            assert model_fn.dtypes == {"float32"}
        return made[logits]

    return run


@pytest.mark.each_value
@WHERE
def test_bfloat16_tracks_float32_in_every_mode(logits, strategy, loop, plain, tmp_path):
    model_fn = Model(logits)
    config = {"iterations_per_loop": loop, **cases.STRATEGIES[strategy]}
    model = train(tmp_path / "model", model_fn, compute_dtype="bfloat16", **config)
    loss, eval_loss, predicted, answered = results_of(model, tmp_path / "export")
    assert model_fn.dtypes == {"bfloat16"}  # Of training, evaluation, prediction and the export.
    kinds = {model.get_variable_value(name).dtype for name in model.get_variable_names()}
    assert kinds <= {np.dtype("float32"), np.dtype("int64")}
    fallen = np.log(3) - eval_loss  # The logits start at 0.
    assert fallen > 0.7
    assert [loss, eval_loss] == pytest.approx(plain(logits)[:2], abs=TOLERANCE * fallen)
    assert np.mean(np.abs(predicted - plain(logits)[2])) < 0.1  # They go up to 11.
    # A SavedModel computes as `predict` does. Batches of other sizes may be summed in other orders.
    np.testing.assert_allclose(answered, predicted[: len(answered)], atol=0.05)
    assert np.any(predicted != plain(logits)[2])


def test_a_bfloat16_scope_of_the_model_is_as_good(tmp_path):
    runs = {}
    for logits in ("v1", "v1_own_scope"):
        model = train(tmp_path / logits, Model(logits), compute_dtype="bfloat16")
        runs[logits] = [model.get_variable_value(n) for n in ("inner/kernel", "inner/output")]
        assert runs[logits][0].dtype == np.float32
    for ours, theirs in zip(runs["v1"], runs["v1_own_scope"], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_policies_of_the_program_stay_what_they_were(tmp_path):
    keras.mixed_precision.set_global_policy("float32")
    for policy in ("float32", "mixed_float16"):
        tf_keras.mixed_precision.set_global_policy(policy)
        try:
            train(tmp_path / policy, Model("tf_keras"), compute_dtype="bfloat16")
            assert tf_keras.mixed_precision.global_policy().name == policy
            assert keras.mixed_precision.global_policy().name == "float32"
        finally:
            tf_keras.mixed_precision.set_global_policy("float32")


@pytest.mark.parametrize("strategy", ["no_strategy", "mirrored_x2"])
def test_a_model_fn_that_fails_leaves_no_policy(strategy, tmp_path):
    def model_fn(features, labels, mode):
        assert keras.mixed_precision.global_policy().name == "mixed_bfloat16"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(tmp_path, model_fn, compute_dtype="bfloat16", **cases.STRATEGIES[strategy])
    assert keras.mixed_precision.global_policy().name == "float32"
    assert tf_keras.mixed_precision.global_policy().name == "float32"


def test_float32_leaves_the_policy_of_the_program_alone(tmp_path):
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        model_fn = Model("keras")
        train(tmp_path, model_fn)
        assert model_fn.dtypes == {"bfloat16"}
    finally:
        keras.mixed_precision.set_global_policy("float32")


def test_variables_that_are_not_asked_for_as_bfloat16_are_as_ever(tmp_path):
    def model_fn(features, labels, mode):
        w = V1.get_variable("w", [], initializer=V1.ones_initializer())
        count = V1.get_variable("calls", [], tf.int32, V1.zeros_initializer(), trainable=False)
        assert isinstance(w, tf.Variable)
        loss = w * tf.reduce_mean(features)
        train_op = cases.build_minimize(V1.train.GradientDescentOptimizer(0.1), loss)
        return est.EstimatorSpec(mode, loss=loss, train_op=tf.group(train_op, count.assign_add(1)))

    model = train(tmp_path, model_fn, compute_dtype="bfloat16")
    assert model.get_variable_value("calls") == NUM_STEPS


def test_a_dtype_object_is_its_name():
    assert est.RunConfig(compute_dtype=tf.bfloat16).compute_dtype == "bfloat16"
    assert est.RunConfig().compute_dtype == "float32"


# XLA.


@pytest.mark.each_value
@WHERE
def test_a_compiled_model_does_as_one_that_is_not(logits, strategy, loop, plain, tmp_path):
    config = {"iterations_per_loop": loop, **cases.STRATEGIES[strategy]}
    model = train(tmp_path / "model", Model(logits), jit_compile=True, **config)
    for ours, theirs in zip(results_of(model, tmp_path / "export"), plain(logits), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)


@pytest.mark.parametrize("is_asked", [False, True])
@pytest.mark.parametrize("loop", [1, 100])
def test_xla_compiles_if_it_is_asked_to(loop, is_asked, tmp_path):
    """A compiled cluster is an op of its own in the graph that the session runs."""

    class Trace(V1.train.SessionRunHook):
        def before_run(self, run_context):
            options = V1.RunOptions(output_partition_graphs=True)
            return V1.train.SessionRunArgs(None, options=options)

        def after_run(self, run_context, run_values):
            graphs = run_values.run_metadata.partition_graphs
            self.types = {node.op for graph in graphs for node in graph.node}
            self.types |= {
                node.op
                for graph in graphs
                for function in graph.library.function
                for node in function.node_def
            }

    trace = Trace()
    config = cases.make_config(jit_compile=is_asked, iterations_per_loop=loop)
    est.Estimator(Model("v1"), str(tmp_path), config).train(input_fn, [trace], max_steps=5)
    assert bool({"_XlaRun", "XlaLaunch"} & trace.types) == is_asked
