"""Gradients of several batches, applied once as their mean, are those of the whole batch."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from tests.conformance import cases
from tests.toy import checkpoint_steps

V1 = tf.compat.v1
RATE = 0.5
SIZE, MICRO = 4, 8  # 4 x 8 is 32.
NUM_STEPS = 7  # 224 of 252 examples; the other 28 make 3 more batches of 8.

# Where gradients are clipped, they are as of one replica and one batch, too.
OPTIMIZERS = {
    "v1_sgd_clipped": (lambda: V1.train.GradientDescentOptimizer(RATE), {"clip_norm": 0.1}),
    "v1_adam": (lambda: V1.train.AdamOptimizer(RATE, epsilon=1e-2), {}),
    "keras_adam": (lambda: keras.optimizers.Adam(RATE, epsilon=1e-2), {}),
    "tf_keras_adam_clipped": (
        lambda: tf_keras.optimizers.Adam(RATE, epsilon=1e-2),
        {"clip_norm": 0.1},
    ),
}
LOOPS = pytest.mark.parametrize("loop", [1, 100])
WHERE = pytest.mark.parametrize(
    ("strategy", "loop"), [("no_strategy", 1), ("mirrored_x2", 100), ("central_storage_x2", 100)]
)
EVERYWHERE = pytest.mark.parametrize(
    ("strategy", "loop"),
    [
        ("no_strategy", 1),
        ("no_strategy", 100),
        ("one_device", 100),
        ("mirrored_x2", 1),
        ("mirrored_x2", 100),
        ("central_storage_x2", 1),
        ("central_storage_x2", 100),
    ],
)


def make_input_fn(batch_size, *rest):
    """Examples in order in global batches of `batch_size`, and then of the sizes in `rest`."""

    def input_fn(input_context):
        replicas = input_context.num_replicas_in_sync
        count = len(cases.FEATURES) // batch_size * batch_size
        starts = [0, count, *(count + size for size in np.cumsum(rest))][: len(rest) + 1]
        parts = [
            tf.data.Dataset.from_tensor_slices(
                (cases.FEATURES[at : at + n], cases.LABELS[at : at + n])
            ).batch(size // replicas)
            for at, n, size in zip(starts, [count, *rest], [batch_size, *rest], strict=True)
        ]
        for part in parts[1:]:
            parts[0] = parts[0].concatenate(part)
        return parts[0]

    return input_fn


def make_model_fn(optimizer, **options):
    make_optimizer, given = OPTIMIZERS[optimizer]
    return cases.make_softmax_model_fn(
        lambda: est.tpu.CrossShardOptimizer(make_optimizer(), **{**given, **options})
    )


def train(model_dir, model_fn, input_fn, max_steps=None, hooks=None, **config):
    model = est.Estimator(model_fn, str(model_dir), cases.make_config(**config))
    return model.train(input_fn, hooks, max_steps=max_steps)


def weights_at(model, step):
    path = f"{model.model_dir}/model.ckpt-{step}"
    return {name: tf.train.load_variable(path, name) for name in ("kernel", "bias")}


def check_equal(model, reference, step):
    expected = weights_at(reference, step)
    for name, value in weights_at(model, step).items():
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=1e-6, err_msg=name)


def everything_in(model):
    return {name: model.get_variable_value(name) for name in model.get_variable_names()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Each optimizer's run on one replica with whole batches, and the input's end as the last."""
    made = {}

    def run(optimizer):
        if optimizer not in made:
            path, input_fn = tmp_path_factory.mktemp("whole"), make_input_fn(SIZE * MICRO, 24)
            made[optimizer] = train(
                path, make_model_fn(optimizer), input_fn, save_checkpoints_steps=NUM_STEPS
            )
        return made[optimizer]

    return run


@pytest.mark.each_value
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@EVERYWHERE
def test_batches_of_a_step_train_like_one_batch(strategy, loop, optimizer, whole, tmp_path):
    model_fn = make_model_fn(optimizer, accumulate_steps=SIZE)
    model = train(
        tmp_path,
        model_fn,
        make_input_fn(MICRO),
        iterations_per_loop=loop,
        save_checkpoints_steps=NUM_STEPS,
        **cases.STRATEGIES[strategy],
    )
    assert model.train_result.reason == "end of input"
    assert model.train_result.global_step == NUM_STEPS + 1
    assert checkpoint_steps(model.model_dir) == [0, NUM_STEPS, NUM_STEPS + 1]
    check_equal(model, whole(optimizer), NUM_STEPS)
    # The last step is the mean of the three batches that are there.
    check_equal(model, whole(optimizer), NUM_STEPS + 1)
    assert int(model.get_variable_value("CrossShardOptimizer/num_taken")) == 0


@LOOPS
def test_the_loss_of_a_step_is_the_mean_over_its_batches(loop, whole, tmp_path):
    model_fn = make_model_fn("v1_adam", accumulate_steps=SIZE)
    config = {"iterations_per_loop": loop, **cases.STRATEGIES["mirrored_x2"]}
    model = train(tmp_path, model_fn, make_input_fn(MICRO), NUM_STEPS, **config)
    model_fn = make_model_fn("v1_adam")
    reference = train(tmp_path / "whole", model_fn, make_input_fn(SIZE * MICRO), NUM_STEPS)
    assert model.train_result.reason == "max_steps"
    assert model.train_result.loss == pytest.approx(reference.train_result.loss, abs=1e-6)


@LOOPS
def test_another_call_of_train_goes_on_after_the_end_of_the_input(loop, tmp_path):
    model_fn = make_model_fn("v1_adam", accumulate_steps=SIZE)
    model = train(tmp_path, model_fn, make_input_fn(MICRO), iterations_per_loop=loop)
    model.train(make_input_fn(MICRO))
    assert model.train_result.global_step == 2 * (NUM_STEPS + 1)


# Resuming.


class SaveAtCall(V1.train.SessionRunHook):
    """Saves after a number of session calls, wherever a step stands, and then fails."""

    def __init__(self, model_dir, call):
        self._path, self._left = f"{model_dir}/model.ckpt-2", call

    def begin(self):
        self._saver = V1.train.Saver(V1.global_variables())

    def after_run(self, run_context, run_values):
        self._left -= 1
        if self._left == 0:
            self._saver.save(run_context.session, self._path)
            raise ZeroDivisionError


@pytest.mark.parametrize("optimizer", ["v1_adam", "keras_adam"])
def test_a_run_saved_within_an_accumulation_resumes_bit_equal(optimizer, tmp_path):
    model_fn = make_model_fn(optimizer, accumulate_steps=SIZE)
    unbroken = train(tmp_path / "unbroken", model_fn, make_input_fn(MICRO), NUM_STEPS)
    broken = tmp_path / "broken"
    with pytest.raises(ZeroDivisionError):
        train(broken, model_fn, make_input_fn(MICRO), 3, [SaveAtCall(str(broken), 10)])
    resumed = est.Estimator(model_fn, str(broken), cases.make_config(iterations_per_loop=100))
    assert int(resumed.get_variable_value("global_step")) == 2
    assert int(resumed.get_variable_value("CrossShardOptimizer/num_taken")) == 2
    assert np.any(resumed.get_variable_value("CrossShardOptimizer/kernel") != 0)
    resumed.train(
        lambda input_context: make_input_fn(MICRO)(input_context).skip(10), max_steps=NUM_STEPS
    )
    expected = everything_in(unbroken)
    assert {"CrossShardOptimizer/kernel", "CrossShardOptimizer/bias"} <= expected.keys()
    for name, value in everything_in(resumed).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


@WHERE
def test_a_run_may_begin_to_accumulate_and_change_its_size(strategy, loop, whole, tmp_path):
    for first, last, size in ((0, 3, 1), (3, 5, 4), (5, 7, 2)):

        def input_fn(input_context, first=first, size=size):
            batches = make_input_fn(SIZE * MICRO // size)(input_context)
            return batches.skip(first * size * input_context.num_replicas_in_sync)

        model_fn = make_model_fn("v1_adam", accumulate_steps=size)
        config = {"iterations_per_loop": loop, **cases.STRATEGIES[strategy]}
        model = train(tmp_path, model_fn, input_fn, last, **config)
    check_equal(model, whole("v1_adam"), 7)


# What else is in a step.


@WHERE
def test_a_sparse_gradient_stays_sparse(strategy, loop, tmp_path):
    """Momentum leaves rows alone that no batch of the step has."""

    def make_input(batch_size):
        def input_fn(input_context):
            ids = np.random.RandomState(3).randint(12, size=96)
            replicas = input_context.num_replicas_in_sync
            return tf.data.Dataset.from_tensor_slices(ids).batch(batch_size // replicas)

        return input_fn

    def make_fn(**options):
        def model_fn(features, mode):
            table = V1.get_variable(
                "table", initializer=np.arange(24, dtype=np.float32).reshape(12, 2) / 24
            )
            loss = tf.reduce_mean(tf.square(tf.gather(table, features)))
            optimizer = est.tpu.CrossShardOptimizer(V1.train.MomentumOptimizer(1.0, 0.9), **options)
            train_op = optimizer.minimize(loss, V1.train.get_global_step())
            return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

        return model_fn

    whole = train(tmp_path / "whole", make_fn(clip_norm=0.3), make_input(8))
    parts = train(
        tmp_path / "parts",
        make_fn(accumulate_steps=2, clip_norm=0.3),
        make_input(4),
        iterations_per_loop=loop,
        **cases.STRATEGIES[strategy],
    )
    assert whole.train_result.global_step == parts.train_result.global_step == 12
    for name in ("table", "table/Momentum"):
        np.testing.assert_allclose(
            parts.get_variable_value(name), whole.get_variable_value(name), rtol=0, atol=1e-6
        )


@pytest.mark.each_value
@pytest.mark.parametrize("library", [keras, tf_keras])
@WHERE
def test_batch_norm_is_updated_with_each_batch(library, strategy, loop, tmp_path):
    def model_fn(features, labels, mode):
        x = library.layers.BatchNormalization(momentum=0.9)(features, training=True)
        x = library.layers.Dense(3)(x)
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x)
        )
        optimizer = est.tpu.CrossShardOptimizer(
            V1.train.GradientDescentOptimizer(0.0), accumulate_steps=SIZE
        )
        train_op = optimizer.minimize(loss, V1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    model = train(
        tmp_path,
        model_fn,
        make_input_fn(MICRO),
        3,
        iterations_per_loop=loop,
        **cases.STRATEGIES[strategy],
    )
    mean = np.zeros(cases.NUM_FEATURES)
    for start in range(0, 3 * SIZE * MICRO, MICRO):
        mean = 0.9 * mean + 0.1 * cases.FEATURES[start : start + MICRO].mean(axis=0)
    name = next(n for n in model.get_variable_names() if n.endswith("moving_mean"))
    np.testing.assert_allclose(model.get_variable_value(name), mean, rtol=0, atol=1e-6)


@pytest.mark.each_value
@WHERE
def test_variables_may_be_those_of_keras_itself(strategy, loop, whole, tmp_path):
    def model_fn(features, labels, mode):
        layer = keras.layers.Dense(
            3,
            kernel_initializer=lambda shape, dtype: tf.constant(cases.KERNEL, dtype),
            bias_initializer=lambda shape, dtype: tf.constant(cases.BIAS, dtype),
            name="layer",
        )
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=labels, logits=layer(features)
        )
        variables = layer.trainable_variables
        assert all(isinstance(variable, keras.Variable) for variable in variables)
        loss = tf.reduce_mean(losses)
        gradients = tf.gradients(loss, [variable.value for variable in variables])
        optimizer = est.tpu.CrossShardOptimizer(
            OPTIMIZERS["keras_adam"][0](), accumulate_steps=SIZE
        )
        step = V1.train.get_global_step()
        train_op = optimizer.apply_gradients(zip(gradients, variables, strict=True), step)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = {"iterations_per_loop": loop, **cases.STRATEGIES[strategy]}
    model = train(tmp_path, model_fn, make_input_fn(MICRO), NUM_STEPS, **config)
    for name, expected in weights_at(whole("keras_adam"), NUM_STEPS).items():
        value = model.get_variable_value(f"layer/{name}")
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-6, err_msg=name)


# Clipping.


@pytest.mark.each_value
@pytest.mark.parametrize("optimizer", ["v1_sgd_clipped", "tf_keras_adam_clipped"])
@WHERE
def test_clipped_gradients_are_those_of_one_replica(strategy, loop, optimizer, whole, tmp_path):
    config = {"iterations_per_loop": loop, **cases.STRATEGIES[strategy]}
    model_fn, input_fn = make_model_fn(optimizer), make_input_fn(SIZE * MICRO)
    check_equal(train(tmp_path, model_fn, input_fn, **config), whole(optimizer), NUM_STEPS)


@pytest.mark.parametrize(("reduction", "replicas"), [("mean", 1), ("sum", 2)])
def test_the_norm_of_an_update_is_at_most_the_clip_norm(reduction, replicas, tmp_path):
    weights = {"kernel": cases.KERNEL.astype(np.float64), "bias": cases.BIAS.astype(np.float64)}
    batch = slice(0, SIZE * MICRO)
    _, gradients = cases.softmax_gradients(weights, cases.FEATURES[batch], cases.LABELS[batch])
    norm = replicas * np.sqrt(sum(np.sum(g**2) for g in gradients.values()))
    for clip_norm in (norm / 2, norm * 2):
        model_fn = cases.make_softmax_model_fn(
            lambda clip_norm=clip_norm: est.tpu.CrossShardOptimizer(
                V1.train.GradientDescentOptimizer(1.0), reduction, clip_norm=clip_norm
            )
        )
        config = cases.STRATEGIES["mirrored_x2"]
        model = train(tmp_path / str(clip_norm), model_fn, make_input_fn(32), 1, **config)
        after = weights_at(model, 1)
        moved = np.sqrt(sum(np.sum((after[name] - weights[name]) ** 2) for name in weights))
        assert moved == pytest.approx(min(norm, clip_norm), abs=1e-6)


@pytest.mark.parametrize("strategy", ["no_strategy", "mirrored_x2"])
def test_one_norm_clips_gradients_of_several_dtypes(strategy, tmp_path):
    """A float16's square may be too large for a float16."""
    values = {"double": 4800.0, "half": 1200.0, "single": 1600.0}
    dtypes = {"double": tf.float64, "half": tf.float16, "single": tf.float32}

    def model_fn(features, labels, mode):
        terms = [
            tf.cast(V1.get_variable(n, [], dtypes[n], V1.zeros_initializer()), tf.float32) * value
            for n, value in values.items()
        ]
        optimizer = est.tpu.CrossShardOptimizer(
            V1.train.GradientDescentOptimizer(1.0), clip_norm=13.0
        )
        step = V1.train.get_global_step()
        return est.EstimatorSpec(
            mode, loss=sum(terms), train_op=optimizer.minimize(sum(terms), step)
        )

    model = train(tmp_path, model_fn, make_input_fn(32), 1, **cases.STRATEGIES[strategy])
    for name, value in values.items():
        assert model.get_variable_value(name) == pytest.approx(-value / 400, rel=1e-3)
