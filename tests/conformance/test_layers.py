"""The same net in each flavour of layers: state updates, names, and every verb."""

import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from tests import legacy_keras
from tests.conformance import cases

V1 = tf.compat.v1
MOMENTUM = 0.9
NUM_STEPS = 7  # Loops of 4 and 3.
REPLICAS = ["no_strategy", "mirrored_x2", "central_storage_x2"]

# The features are far from the mean 0 and variance 1 that moving statistics start at.
FEATURES = (3 + 2 * cases.FEATURES).astype(np.float32)


def input_fn(input_context, mode):
    examples = tf.data.Dataset.from_tensor_slices((FEATURES, cases.LABELS))
    batch_size = input_context.get_per_replica_batch_size(cases.BATCH_SIZE)
    return examples.batch(batch_size, drop_remainder=mode == est.ModeKeys.TRAIN)


# --- Flavours: (features, is_training) -> logits and the moving mean and variance ----------------


def v1_logits(features, is_training):
    """By hand, as before there were layers; the updates are in UPDATE_OPS."""
    with V1.variable_scope("norm"):
        shape, ones = features.shape[1:], V1.ones_initializer()
        state = {
            "trainable": False,
            "synchronization": tf.VariableSynchronization.ON_READ,
            "aggregation": tf.VariableAggregation.MEAN,
        }
        gamma = V1.get_variable("gamma", shape, initializer=ones)
        mean = V1.get_variable("mean", shape, initializer=V1.zeros_initializer(), **state)
        variance = V1.get_variable("variance", shape, initializer=ones, **state)
        now_mean, now_variance = mean, variance
        if is_training:
            now_mean, now_variance = tf.nn.moments(features, axes=[0])
            for moving, now in ((mean, now_mean), (variance, now_variance)):
                update = moving.assign(MOMENTUM * moving + (1 - MOMENTUM) * now)
                V1.add_to_collection(V1.GraphKeys.UPDATE_OPS, update)
        normed = tf.nn.batch_normalization(features, now_mean, now_variance, None, gamma, 1e-3)
    kernel = V1.get_variable("kernel", [4, 3])
    return normed @ kernel, mean, variance


def make_layers_logits(layers):
    def logits(features, is_training):
        norm = layers.BatchNormalization(momentum=MOMENTUM)
        hidden = layers.Dense(5, activation="relu")(norm(features, training=is_training))
        return layers.Dense(3)(hidden), norm.moving_mean, norm.moving_variance

    return logits


def make_sequential_logits(library):
    def logits(features, is_training):
        layers = library.layers
        norm = layers.BatchNormalization(momentum=MOMENTUM)
        model = library.Sequential([norm, layers.Dense(5, activation="relu"), layers.Dense(3)])
        return model(features, training=is_training), norm.moving_mean, norm.moving_variance

    return logits


def make_functional_logits(library):
    def logits(features, is_training):
        layers = library.layers
        inputs = library.Input([4])
        norm = layers.BatchNormalization(momentum=MOMENTUM)
        model = library.Model(inputs, layers.Dense(3)(layers.Dropout(0.1)(norm(inputs))))
        return model(features, training=is_training), norm.moving_mean, norm.moving_variance

    return logits


def tf_layers_logits(features, is_training):
    """tf.compat.v1.layers, as of old; with tf-keras only."""
    normed = V1.layers.batch_normalization(features, momentum=MOMENTUM, training=is_training)
    names = ("batch_normalization/moving_mean:0", "batch_normalization/moving_variance:0")
    by_name = {variable.name: variable for variable in V1.global_variables()}
    hidden = V1.layers.dense(normed, 5, activation=tf.nn.relu)
    return V1.layers.dense(hidden, 3), *(by_name[name] for name in names)


FLAVOURS = {
    "v1": v1_logits,
    "keras": make_layers_logits(keras.layers),
    "keras_sequential": make_sequential_logits(keras),
    "keras_functional": make_functional_logits(keras),
    "tf_keras": make_layers_logits(tf_keras.layers),
    "tf_keras_sequential": make_sequential_logits(tf_keras),
    "tf_keras_functional": make_functional_logits(tf_keras),
}
if legacy_keras.IS_LEGACY:
    FLAVOURS = {
        "v1": v1_logits,
        "tf_layers": tf_layers_logits,
        "tf_keras": make_layers_logits(tf.keras.layers),
    }


def model_fn(features, labels, mode, params):
    is_training = mode == est.ModeKeys.TRAIN or params.get("always_trains", False)
    logits, mean, variance = FLAVOURS[params["flavour"]](features, is_training)
    predictions = {"logits": logits, "features": features}
    if mode == est.ModeKeys.PREDICT:
        return est.EstimatorSpec(mode, predictions=predictions)
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )
    if mode == est.ModeKeys.EVAL:
        # What evaluation has in its session, after all updates.
        metrics = {
            name: (tf.identity(tf.convert_to_tensor(value)), tf.no_op())
            for name, value in (("mean", mean), ("variance", variance))
        }
        return est.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    optimizer = V1.train.AdamOptimizer(0.01)
    updates = V1.get_collection(V1.GraphKeys.UPDATE_OPS) if params.get("is_wired") else []
    with tf.control_dependencies(updates):
        train_op = optimizer.minimize(loss, global_step=V1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


# One of each library; the names of all are compared in `test_names_are_the_same_in_every_build`.
IN_SHORT = ("v1", "tf_layers", "keras_functional", "tf_keras_sequential")


@pytest.fixture(
    params=[
        name if name in IN_SHORT else pytest.param(name, marks=pytest.mark.full)
        for name in FLAVOURS
    ]
)
def flavour(request):
    return request.param


# A tf-keras functional model calls its layers in a graph of its own, where CentralStorage cannot
# assign a variable for all replicas.
LIMITS = {("tf_keras_functional", "central_storage_x2")}


FLAVOURS_AND_STRATEGIES = pytest.mark.parametrize(
    ("flavour", "strategy"),
    [case for case in itertools.product(FLAVOURS, REPLICAS) if case not in LIMITS],
)


def make_model(model_dir, flavour, loop=4, strategy="no_strategy", **params):
    config = cases.make_config(
        tf_random_seed=3, iterations_per_loop=loop, **cases.STRATEGIES[strategy]
    )
    return est.Estimator(
        model_fn, str(model_dir), config.replace(resume_input=True), {"flavour": flavour, **params}
    )


def moving_statistics(num_steps, num_replicas=1):
    """The mean of the replicas' moving statistics, each of its own batches; in NumPy."""
    mean, variance = np.zeros([num_replicas, 4]), np.ones([num_replicas, 4])
    batches = FEATURES.astype(np.float64).reshape([cases.NUM_STEPS, num_replicas, -1, 4])
    for batch in batches[:num_steps]:
        mean = MOMENTUM * mean + (1 - MOMENTUM) * batch.mean(axis=1)
        variance = MOMENTUM * variance + (1 - MOMENTUM) * batch.var(axis=1)
    return {"mean": mean.mean(axis=0), "variance": variance.mean(axis=0)}


def checkpoint_statistics(model):
    """The moving mean and variance, whatever the flavour calls them."""
    names = [name for name in model.get_variable_names() if "Adam" not in name]
    return {
        kind: model.get_variable_value(next(name for name in names if name.endswith(kind)))
        for kind in ("mean", "variance")
    }


def check_statistics(actual, expected):
    for kind, value in expected.items():
        np.testing.assert_allclose(actual[kind], value, rtol=1e-5, err_msg=kind)


@pytest.mark.each_value
@pytest.mark.parametrize(("loop", "is_wired"), [(1, False), (4, False), (4, True)])
@FLAVOURS_AND_STRATEGIES
def test_moving_statistics_are_updated_once_a_step(flavour, strategy, loop, is_wired, tmp_path):
    model = make_model(tmp_path, flavour, loop, strategy, is_wired=is_wired)
    model.train(input_fn, max_steps=NUM_STEPS)
    num_replicas = cases.STRATEGIES[strategy].get("num_replicas", 1)
    check_statistics(checkpoint_statistics(model), moving_statistics(NUM_STEPS, num_replicas))


@pytest.mark.each_value
@pytest.mark.parametrize("always_trains", [False, True])
@FLAVOURS_AND_STRATEGIES
def test_evaluation_leaves_moving_statistics_as_they_are(
    flavour, strategy, always_trains, tmp_path
):
    with make_model(tmp_path, flavour, strategy=strategy, always_trains=always_trains) as model:
        model.train(input_fn, max_steps=NUM_STEPS)
        before = checkpoint_statistics(model)
        assert np.abs(before["mean"]).min() > 0.5
        first = model.evaluate(input_fn)
        second = model.evaluate(input_fn)
        list(model.predict(input_fn))
        third = model.evaluate(input_fn)
    for results in (first, second, third):
        check_statistics(results, before)
        if not always_trains:  # Which draws dropout anew.
            assert results["loss"] == first["loss"]


def predicted(model):
    return np.stack([row["logits"] for row in model.predict(input_fn)])


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """What a model of a flavour gave that was trained, asked and trained again; each made once."""

    @functools.cache
    def live(flavour, strategy):
        keras.layers.Dense(2).build([None, 2])  # The user's own layers count up Keras's names.
        loop = 1 if strategy == "no_strategy" else 4
        parts = []
        with make_model(tmp_path_factory.mktemp("lived"), flavour, loop, strategy) as model:
            for steps in (3, 4):
                model.train(input_fn, steps=steps)
                names = names_and_shapes(model.model_dir)
                parts.append((predicted(model), model.evaluate(input_fn), names))
        return parts

    return live


@pytest.mark.each_value
@FLAVOURS_AND_STRATEGIES
def test_every_verb_works_and_resumes(flavour, strategy, lived):
    (untrained, before, _), (logits, after, _) = lived(flavour, strategy)
    assert (before["global_step"], after["global_step"]) == (3, 7)
    assert untrained.shape == logits.shape == (len(FEATURES), 3)
    assert np.abs(untrained - logits).max() > 1e-3
    # The loss of an evaluation is the mean of its batches', all as large here.
    log_sums = np.log(np.exp(logits.astype(np.float64)).sum(axis=1))
    losses = log_sums - logits[np.arange(len(logits)), cases.LABELS]
    assert after["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    num_replicas = cases.STRATEGIES[strategy].get("num_replicas", 1)
    check_statistics(after, moving_statistics(7, num_replicas))


def test_another_instance_restores_what_was_trained(flavour, tmp_path):
    with make_model(tmp_path, flavour) as model:
        model.train(input_fn, max_steps=NUM_STEPS)
        logits, results = predicted(model), model.evaluate(input_fn)
    with make_model(tmp_path, flavour) as again:
        np.testing.assert_array_equal(predicted(again), logits)
        assert again.evaluate(input_fn)["loss"] == results["loss"]
        again.train(input_fn, max_steps=NUM_STEPS + 2)
    check_statistics(checkpoint_statistics(again), moving_statistics(NUM_STEPS + 2))


def test_central_storage_refuses_a_functional_tf_keras_model_with_batch_norm(tmp_path):
    for flavour, strategy in LIMITS & set(itertools.product(FLAVOURS, REPLICAS)):
        with pytest.raises(ValueError, match="moving.* is assigned in a branch, .*replicas cannot"):
            make_model(tmp_path, flavour, strategy=strategy).train(input_fn, steps=1)


class CountsInBranch(keras.layers.Layer):
    """Counts the batches in a branch, by a variable whose copies are to be averaged."""

    def build(self, shape):
        self.count = self.add_weight(
            name="count", shape=(), initializer="zeros", trainable=False, aggregation="mean"
        )

    def call(self, inputs):
        value = self.count.value
        tf.cond(
            tf.size(inputs) > 0,
            lambda: tf.identity(self.count.assign_add(1.0)),
            lambda: tf.identity(value),
        )
        return inputs


@pytest.mark.usefixtures("control_flow")
@pytest.mark.parametrize("strategy", ["mirrored_x2", "central_storage_x2"])
def test_an_assignment_in_a_branch_that_replicas_cannot_make_says_so(strategy, tmp_path):
    def model_fn(features, labels, mode):
        layer = CountsInBranch()
        layer.build(features.shape)
        loss = cases.build_softmax_loss(layer.call(features), labels)
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        return est.EstimatorSpec(mode, loss=loss, train_op=cases.build_minimize(optimizer, loss))

    config = cases.make_config(**cases.STRATEGIES[strategy])
    with pytest.raises(ValueError, match='count. is assigned in a branch.*`aggregation="none"`'):
        est.Estimator(model_fn, str(tmp_path), config).train(cases.input_fn, steps=1)


def names_and_shapes(model_dir):
    return dict(tf.train.list_variables(tf.train.latest_checkpoint(str(model_dir))))


@pytest.mark.each_value
@FLAVOURS_AND_STRATEGIES
def test_names_are_the_same_in_every_build(flavour, strategy, lived, tmp_path):
    names = [part[-1] for part in lived(flavour, strategy)]
    with make_model(tmp_path, flavour, loop=4) as model:
        model.train(input_fn, steps=1)
    names.append(names_and_shapes(model.model_dir))
    first, *others = names
    assert len(first) >= 6
    assert all(other == first for other in others)


def test_a_library_build_does_not_disturb_the_users_own_keras_names(tmp_path):
    before = keras.layers.Dense(1).name
    with make_model(tmp_path, next(name for name in FLAVOURS if "keras" in name)) as model:
        model.train(input_fn, steps=1)
    kind, _, number = before.rpartition("_")
    following = keras.layers.Dense(1).name
    assert following == (f"{kind}_{int(number) + 1}" if number.isdigit() else "dense_1")


LEGACY = {
    "in short": "(tf_layers or tf_keras) and (once_a_step or every_verb)",
    "all": "tf_layers or tf_keras",
}

if not legacy_keras.IS_LEGACY:

    @pytest.mark.slow
    @pytest.mark.parametrize("how_much", ["in short", pytest.param("all", marks=pytest.mark.full)])
    def test_all_of_this_holds_with_tf_use_legacy_keras(how_much):
        printed = legacy_keras.run_tests(__file__, LEGACY[how_much])
        assert " passed" in printed
        assert "skipped" not in printed
