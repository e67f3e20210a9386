"""The loop's size changes neither the weights nor what is recorded when."""

import functools
import glob

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from tests.conformance import cases

NUM_STEPS = 23  # A loop of 3, of 5 and of 100 ends early.
ONE_REPLICA = ["no_strategy", "one_device", "mirrored_x1", "central_storage_x1"]
STRATEGIES = {
    **cases.STRATEGIES,
    "central_storage_x1": {"strategy": "central_storage", "num_replicas": 1},
}
V1 = tf.compat.v1


def input_fn(input_context):
    """Shuffled, without end."""
    examples = tf.data.Dataset.from_tensor_slices((cases.FEATURES, cases.LABELS))
    batch_size = input_context.get_per_replica_batch_size(cases.BATCH_SIZE)
    return examples.shuffle(50).repeat().batch(batch_size, drop_remainder=True)


# --- Models with something random at every step --------------------------------------------------


def build_dense(name, inputs, units, initializer=None):
    with V1.variable_scope(name):
        kernel = V1.get_variable("kernel", [inputs.shape[-1], units], initializer=initializer)
        bias = V1.get_variable("bias", [units], initializer=V1.zeros_initializer())
    return inputs @ kernel + bias


def v1_logits(features):
    """tf.nn.dropout and noise; the initial values are drawn by three initializers."""
    noise = V1.get_variable("noise", initializer=lambda: tf.random.uniform([4]))
    hidden = build_dense("hidden", features + noise * tf.random.normal(tf.shape(features)), 5)
    hidden = tf.nn.dropout(tf.nn.relu(hidden), 0.4)
    return build_dense("logits", hidden, 3, V1.truncated_normal_initializer(stddev=0.5))


def v1_logits_with_op_seeds(features):
    hidden = build_dense("hidden", features, 5, V1.glorot_normal_initializer(seed=3))
    return build_dense("logits", V1.nn.dropout(hidden, rate=0.4, seed=4), 3)


def make_keras_logits(layers):
    def logits(features):
        hidden = layers.Dense(5, activation="relu")(features)
        hidden = layers.Dropout(0.4)(hidden, training=True)
        return layers.Dense(3, kernel_initializer="he_normal")(hidden)

    return logits


def keras_sequential_logits(features):
    layers = keras.layers
    model = keras.Sequential([layers.Dense(5), layers.GaussianNoise(0.3), layers.Dense(3)])
    return model(features, training=True)


LOGITS = {
    "v1": v1_logits,
    "v1_op_seeds": v1_logits_with_op_seeds,
    "keras": make_keras_logits(keras.layers),
    "keras_sequential": keras_sequential_logits,
    "tf_keras": make_keras_logits(tf_keras.layers),
}
OPTIMIZERS = {
    "v1_adam": lambda: V1.train.AdamOptimizer(0.1),
    "keras_adam": lambda: keras.optimizers.Adam(0.1),
    "tf_keras_adam": lambda: tf_keras.optimizers.Adam(0.1),
}


# Each kind of layers and of optimizers, and some that are mixed.
MODELS = [
    ("v1", "v1_adam"),
    ("v1", "keras_adam"),
    ("v1_op_seeds", "v1_adam"),
    ("keras", "keras_adam"),
    ("keras_sequential", "v1_adam"),
    ("tf_keras", "tf_keras_adam"),
]


def model_fn(features, labels, mode, params):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=LOGITS[params["logits"]](features)
    )
    loss = tf.reduce_mean(losses)
    train_op = cases.build_minimize(OPTIMIZERS[params["optimizer"]](), loss)
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def train(model_dir, params, **config):
    """Everything in the checkpoint, by name."""
    config = cases.make_config(tf_random_seed=7, **config)
    model = est.Estimator(model_fn, str(model_dir), config, params)
    model.train(input_fn, max_steps=NUM_STEPS)
    return {name: model.get_variable_value(name) for name in model.get_variable_names()}


def check_bit_equal(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=name)


@pytest.mark.each_value
@pytest.mark.parametrize("strategy", ONE_REPLICA)
@pytest.mark.parametrize(("logits", "optimizer"), MODELS)
def test_loop_size_does_not_change_the_weights(logits, optimizer, strategy, tmp_path):
    params = {"logits": logits, "optimizer": optimizer}
    weights = {
        loop: train(tmp_path / str(loop), params, iterations_per_loop=loop, **STRATEGIES[strategy])
        for loop in (1, 3, 100)
    }
    assert int(weights[1]["global_step"]) == NUM_STEPS
    check_bit_equal(weights[1], weights[3])
    check_bit_equal(weights[1], weights[100])


@pytest.mark.each_value
@pytest.mark.parametrize("strategy", ["mirrored_x2", "central_storage_x2"])
@pytest.mark.parametrize(("logits", "optimizer"), MODELS)
def test_loop_size_does_not_change_the_weights_of_replicas(logits, optimizer, strategy, tmp_path):
    params = {"logits": logits, "optimizer": optimizer}
    weights = {
        loop: train(tmp_path / str(loop), params, iterations_per_loop=loop, **STRATEGIES[strategy])
        for loop in (1, 100)
    }
    assert weights[1].keys() == weights[100].keys()
    for name, value in weights[1].items():
        np.testing.assert_allclose(value, weights[100][name], rtol=0, atol=1e-5, err_msg=name)


def test_steps_between_checkpoints_and_summaries_do_not_change_the_weights(tmp_path):
    params = {"logits": "v1", "optimizer": "v1_adam"}
    plain = train(tmp_path / "plain", params, iterations_per_loop=100)
    for loop in (1, 5):
        cut = train(
            tmp_path / str(loop),
            params,
            iterations_per_loop=loop,
            save_summary_steps=3,
            save_checkpoints_steps=7,
            log_step_count_steps=4,
        )
        check_bit_equal(plain, cut)


# --- Intervals and summaries ---------------------------------------------------------------------

SUMMARY_STEPS = 3
INTERVALS = {
    "save_summary_steps": SUMMARY_STEPS,
    "save_checkpoints_steps": 7,
    "keep_checkpoint_max": None,
}
# The three tests of a run share it.
RUNS = pytest.mark.parametrize(
    ("strategy", "loop"),
    [
        ("no_strategy", 1),
        ("no_strategy", 5),
        ("no_strategy", 100),
        pytest.param("mirrored_x2", 1, marks=pytest.mark.full),
        ("mirrored_x2", 5),
        pytest.param("mirrored_x2", 100, marks=pytest.mark.full),
        pytest.param("central_storage_x2", 1, marks=pytest.mark.full),
        pytest.param("central_storage_x2", 5, marks=pytest.mark.full),
        ("central_storage_x2", 100),
    ],
)


def counting_input_fn(input_context):
    """Step s has the batch [s, s, ...]; `replica` is the replica that takes it."""
    num_replicas = input_context.num_replicas_in_sync
    return tf.data.Dataset.range(1, 1000).interleave(
        lambda step: tf.data.Dataset.range(num_replicas).map(
            lambda replica: {"step": tf.fill([4], step), "replica": tf.fill([4], replica)}
        ),
        cycle_length=1,
        block_length=num_replicas,
    )


def summaries_model_fn(features, mode):
    weight = V1.get_variable("weight", [], initializer=V1.zeros_initializer())
    number = tf.cast(features["step"] * 10 + features["replica"], tf.float32)
    loss = tf.reduce_mean(number) * weight
    V1.summary.scalar("number", tf.reduce_mean(number))
    with tf.name_scope("inner"):
        V1.summary.scalar("doubled", 2 * tf.reduce_mean(number))
    V1.summary.histogram("numbers", number)
    train_op = V1.train.GradientDescentOptimizer(0.1).minimize(
        loss, global_step=V1.train.get_global_step()
    )
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def recorded(model_dir):
    """(tag, step, value) of everything in the event files but the graph, in their order."""
    found = []
    for path in sorted(glob.glob(str(model_dir / "events.out.tfevents.*"))):
        for event in V1.train.summary_iterator(path):
            found += [(value.tag, event.step, value) for value in event.summary.value]
    return found


def train_with_summaries(model_dir, strategy, loop, **config):
    config = cases.make_config(
        iterations_per_loop=loop, **{**INTERVALS, **cases.STRATEGIES[strategy], **config}
    )
    model = est.Estimator(summaries_model_fn, str(model_dir), config)
    model.train(counting_input_fn, max_steps=NUM_STEPS)
    return recorded(model_dir)


@pytest.fixture(scope="module")
def run_with_summaries(tmp_path_factory):
    """By strategy and loop: the directory of a run, and what its event files hold."""

    @functools.cache
    def run(strategy, loop):
        model_dir = tmp_path_factory.mktemp("summaries")
        return model_dir, train_with_summaries(model_dir, strategy, loop)

    return run


def recorded_steps(loop):
    """The last step of the first call of all, and every third step, where loops are cut."""
    due = range(SUMMARY_STEPS, NUM_STEPS + 1, SUMMARY_STEPS)
    return sorted({min(loop, SUMMARY_STEPS), *due})


@RUNS
def test_summaries_are_recorded_at_exactly_their_steps_once(strategy, loop, run_with_summaries):
    _, events = run_with_summaries(strategy, loop)
    due = recorded_steps(loop)
    by_tag = {tag: [step for t, step, _ in events if t == tag] for tag, _, _ in events}
    # Replica 0 speaks for all, under the tags that a single replica has.
    assert by_tag == dict.fromkeys(["loss", "number", "inner/doubled", "numbers"], due)


@RUNS
def test_summaries_hold_the_values_of_their_step(strategy, loop, run_with_summaries):
    _, events = run_with_summaries(strategy, loop)
    due = recorded_steps(loop)
    numbers = {step: value.simple_value for tag, step, value in events if tag == "number"}
    assert numbers == {step: 10 * step for step in due}
    doubled = {step: value.simple_value for tag, step, value in events if tag == "inner/doubled"}
    assert doubled == {step: 20 * step for step in due}
    histograms = {step: value.histo for tag, step, value in events if tag == "numbers"}
    assert {s: (h.num, h.min, h.max, h.sum) for s, h in histograms.items()} == {
        s: (4, 10 * s, 10 * s, 40 * s) for s in due
    }


@RUNS
def test_checkpoints_are_at_exactly_their_steps(strategy, loop, run_with_summaries):
    model_dir, _ = run_with_summaries(strategy, loop)
    paths = glob.glob(str(model_dir / "model.ckpt-*.index"))
    steps = sorted(int(path.rsplit("-", 1)[1].removesuffix(".index")) for path in paths)
    assert steps == [0, 7, 14, 21, 23]


def test_a_loop_size_changes_no_recorded_byte(run_with_summaries):
    first, *others = [
        [
            (tag, step, value.SerializeToString())
            for tag, step, value in run_with_summaries("no_strategy", loop)[1]
            if step % SUMMARY_STEPS == 0  # The first call's last step depends on the loop's size.
        ]
        for loop in (1, 5, 100)
    ]
    assert len(first) >= 7 * 4
    assert all(other == first for other in others)


def test_no_summary_is_recorded_twice_over_a_resumed_run(tmp_path):
    config = cases.make_config(iterations_per_loop=5, **INTERVALS)
    for max_steps in (6, 10, 23):
        model = est.Estimator(summaries_model_fn, str(tmp_path), config)
        model.train(counting_input_fn, max_steps=max_steps)
    steps = [step for tag, step, _ in recorded(tmp_path) if tag == "number"]
    assert steps == list(range(3, 24, 3))
