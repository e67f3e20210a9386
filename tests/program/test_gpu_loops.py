"""What a loop does differently for a GPU: there is none here, and its ops are placed on the CPU.

So this shows which graph is built and what it computes, not how fast it is.
"""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.runtime import local
from estimator.runtime import strategy as strategies
from tests.toy import RATE, checkpoint_steps, events

V1 = tf.compat.v1
# Without a strategy TensorFlow places what has no device, on a GPU if there is one.
UNPLACED = ""
GPU = "/replica:0/task:0/device:GPU:0"
SIZE = 70_000  # Of an example: a batch of it is large enough for a copy in advance.


@pytest.fixture(params=["gpu", "cpu"])
def on_gpu(request, monkeypatch):
    """Whether the library believes that there is a GPU."""
    if request.param == "gpu":
        pretend(monkeypatch)
    return request.param == "gpu"


@pytest.fixture
def gpu(monkeypatch):
    pretend(monkeypatch)


def pretend(monkeypatch):
    monkeypatch.setattr(local, "count_gpus", lambda: 1)
    monkeypatch.setattr(strategies, "_check_gpus", lambda strategy: None)


class KeepGraph(est.SessionRunHook):
    def begin(self):
        self.graph = V1.get_default_graph().as_graph_def()

    def body(self):
        """The ops of the loop's body, by name."""
        functions = {function.signature.name: function for function in self.graph.library.function}
        (loop,) = [node for node in self.graph.node if node.op in ("While", "StatelessWhile")]
        return {node.name: node for node in functions[loop.attr["body"].func.name].node_def}

    def waiting(self):
        """Where batches wait for their iteration, in order."""
        handles = [node for node in self.graph.node if node.op == "VarHandleOp"]
        return [node for node in handles if node.name.startswith("training/batch")]


def examples(count, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "large": rng.normal(size=[count, SIZE]).astype(np.float32),
        "bytes": rng.integers(0, 9, size=[count, SIZE * 4]).astype(np.uint8),
        "small": rng.normal(size=[count, 1]).astype(np.float32),
        "word": np.asarray([b"word"] * count),
    }


def model_fn(features, labels, mode):
    """A weight `w` that is pulled to the mean of all features."""
    words = tf.cast(tf.strings.length(features["word"]), tf.float32)
    target = tf.reduce_mean(features["large"]) + tf.reduce_mean(features["small"] + words)
    target += tf.reduce_mean(tf.cast(features["bytes"], tf.float32)) + tf.reduce_mean(labels)
    w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
    loss = tf.square(w - target) / 2
    train_op = V1.train.GradientDescentOptimizer(RATE).minimize(loss, V1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def weights_after(batches):
    """What `w` is after each of the steps, by NumPy."""
    w, found = 0.0, []
    for batch, labels in batches:
        means = [np.mean(batch[name], dtype=np.float64) for name in ("large", "small", "bytes")]
        w -= RATE * (w - sum(means) - 4.0 - np.mean(labels, dtype=np.float64))
        found.append(w)
    return found


@pytest.mark.pairwise
@pytest.mark.parametrize("iterations_per_loop", [2, 5, 100])
@pytest.mark.parametrize("drop_remainder", [True, False])
@pytest.mark.parametrize("strategy", [None, "one_device", "mirrored"])
def test_each_step_has_its_own_batch(
    strategy, drop_remainder, iterations_per_loop, on_gpu, tmp_path
):
    del on_gpu
    features, labels = examples(11), np.arange(11, dtype=np.float32)[:, None]

    def input_fn():
        data = tf.data.Dataset.from_tensor_slices((features, labels))
        return data.repeat(2).batch(4, drop_remainder=drop_remainder)

    config = est.RunConfig(
        strategy=strategy,
        num_replicas=strategy and 1,
        iterations_per_loop=iterations_per_loop,
        save_checkpoints_steps=3,
    )
    repeated = {name: np.concatenate([values, values]) for name, values in features.items()}
    twice = np.concatenate([labels, labels])
    num_steps = 22 // 4 if drop_remainder else 6
    batches = [
        ({name: values[4 * i : 4 * i + 4] for name, values in repeated.items()}, twice[4 * i :][:4])
        for i in range(num_steps)
    ]
    expected = weights_after(batches)
    for max_steps, last in ((2, 2), (None, num_steps)):  # Goes on at the third batch.
        with est.Estimator(model_fn, str(tmp_path), config) as model:
            model.train(input_fn, max_steps=max_steps)
            assert model.get_variable_value("global_step") == last
            assert model.get_variable_value("w") == pytest.approx(expected[last - 1], rel=1e-5)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("strategy", "gpu_name"), [(None, UNPLACED), ("one_device", GPU)])
def test_what_is_large_waits_on_the_gpu(strategy, gpu_name, tmp_path):
    shapes = []

    def noting_model_fn(features, labels, mode):
        graph = V1.get_default_graph()
        batch = [graph.get_tensor_by_name(f"IteratorGetNext:{i}") for i in range(5)]
        shapes.append([tensor.shape[1:].as_list() for tensor in batch])
        return model_fn(features, labels, mode)

    def input_fn():
        data = tf.data.Dataset.from_tensor_slices((examples(4), np.zeros([4, 1], np.float32)))
        return data.batch(2, drop_remainder=True)

    keep = KeepGraph()
    config = est.RunConfig(iterations_per_loop=2, strategy=strategy)
    est.Estimator(noting_model_fn, str(tmp_path), config).train(input_fn, hooks=[keep])
    waiting = [(tf.as_dtype(node.attr["dtype"].type), node.device) for node in keep.waiting()]
    assert waiting == [(tf.variant, "/device:CPU:0"), (tf.uint8, gpu_name), (tf.float32, gpu_name)]
    writes = [
        node
        for node in keep.body().values()
        if node.op == "AssignVariableOp" and node.device == gpu_name and "training" in node.name
    ]
    assert len(writes) == 2
    assert shapes == [[[4 * SIZE], [SIZE], [1], [], [1]]]  # As they are without a loop.


NOT_COPIED = {
    "small": lambda: tf.data.Dataset.from_tensor_slices({"x": np.zeros([4, 9], np.float32)}),
    "whole numbers": lambda: tf.data.Dataset.from_tensor_slices(
        {"x": np.zeros([4, SIZE], np.int32), "y": np.zeros([4, SIZE], np.int64)}
    ),
    "strings": lambda: tf.data.Dataset.from_tensor_slices({"x": np.full([4, SIZE], b"a")}),
    "unknown size": lambda: tf.data.Dataset.from_generator(
        lambda: iter(np.zeros([4, SIZE], np.float32)),
        output_signature=tf.TensorSpec([None], tf.float32),
    ).map(lambda x: {"x": x}),
}


def loss_of_sums(features):
    sums = [tf.reduce_sum(tf.strings.length(x) if x.dtype == tf.string else x) for x in features]
    return tf.add_n([tf.cast(value, tf.float32) for value in sums])


def plain_model_fn(features, labels, mode):
    del labels
    w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
    loss = tf.square(w - loss_of_sums(features.values()))
    train_op = V1.train.GradientDescentOptimizer(RATE).minimize(loss, V1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("kind", NOT_COPIED)
def test_other_batches_wait_on_the_host_alone(kind, tmp_path):
    keep = KeepGraph()
    model = est.Estimator(plain_model_fn, str(tmp_path), est.RunConfig(iterations_per_loop=2))
    model.train(lambda: NOT_COPIED[kind]().batch(2, drop_remainder=True), hooks=[keep])
    assert model.get_variable_value("global_step") == 2
    assert {node.device for node in keep.waiting()} == {"/device:CPU:0"}


@pytest.mark.usefixtures("gpu")
def test_what_the_input_computes_from_a_batch_stays_on_the_host(tmp_path):
    def input_fn():
        data = tf.data.Dataset.from_tensor_slices(np.ones([4, SIZE], np.float32)).batch(2)
        batch = V1.data.make_one_shot_iterator(data).get_next()
        return {"x": batch, "doubled": tf.ensure_shape(batch, [2, SIZE]) * 2.0}

    keep = KeepGraph()
    model = est.Estimator(plain_model_fn, str(tmp_path), est.RunConfig(iterations_per_loop=2))
    model.train(input_fn, hooks=[keep])
    assert model.get_variable_value("global_step") == 2
    assert {node.device for node in keep.waiting()} == {"/device:CPU:0"}


# --- Loops that run ahead -------------------------------------------------------------------------


def losses_model_fn(features, labels, mode):
    """The loss is the feature; the gradient, the label, may be finite where the loss is not."""
    w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
    loss = tf.reduce_sum(features) + w * tf.reduce_sum(labels)
    train_op = V1.train.GradientDescentOptimizer(1.0).minimize(loss, V1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def losses(*values):
    def input_fn():
        pairs = np.float32(values), np.float32([1.0] * len(values))
        return tf.data.Dataset.from_tensor_slices(pairs).batch(1)

    return input_fn


@pytest.mark.pairwise
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("step", range(1, 9))
@pytest.mark.parametrize("policy", ["raise", "stop"])
def test_training_ends_at_a_loss_that_is_not_finite(policy, step, bad, on_gpu, tmp_path):
    del on_gpu
    config = est.RunConfig(iterations_per_loop=3, nan_policy=policy, save_checkpoints_steps=3)
    values = [0.0] * 8
    values[step - 1] = bad
    model = est.Estimator(losses_model_fn, str(tmp_path), config)
    if policy == "raise":
        with pytest.raises(V1.train.NanLossDuringTrainingError, match=f"step {step} is {bad}"):
            model.train(losses(*values))
    else:
        result = model.train(losses(*values)).train_result
        assert (result.reason, result.global_step) == ("nan loss", step)
    assert checkpoint_steps(tmp_path) == [s for s in (0, 3, 6) if s < step]


@pytest.mark.pairwise
@pytest.mark.parametrize("policy", ["raise", "stop"])
@pytest.mark.parametrize("fails", ["histogram", "check", "auc"])
def test_the_step_after_may_fail_because_of_it(fails, policy, on_gpu, tmp_path):
    """The loss and the weight are NaN after step 2 of 3, the last of which records summaries."""
    del on_gpu

    def failing_model_fn(features, labels, mode):
        w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
        value = w.read_value()
        loss = tf.reduce_sum(features) + value * tf.reduce_sum(labels)
        waits = []
        if fails == "histogram":
            V1.summary.histogram("w", value)
        elif fails == "check":
            waits = [tf.debugging.check_numerics(value, "w")]
        else:
            waits = V1.metrics.auc([True], tf.reshape(tf.sigmoid(value), [1]))
        with tf.control_dependencies(waits):
            optimizer = V1.train.GradientDescentOptimizer(1.0)
            train_op = optimizer.minimize(loss, V1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    pairs = np.float32([0, np.nan, 0]), np.float32([1, np.nan, 1])
    config = est.RunConfig(iterations_per_loop=3, nan_policy=policy, save_summary_steps=3)
    model = est.Estimator(failing_model_fn, str(tmp_path), config)

    def train():
        model.train(lambda: tf.data.Dataset.from_tensor_slices(pairs).batch(1))

    if policy == "raise":
        with pytest.raises(V1.train.NanLossDuringTrainingError):
            train()
    else:
        train()
        assert model.train_result.reason == "nan loss"
    assert checkpoint_steps(tmp_path) == [0]


def test_the_step_of_a_bad_loss_is_never_before_the_first(on_gpu, tmp_path):
    del on_gpu

    def every_third_model_fn(features, labels, mode):
        spec = losses_model_fn(features, labels, mode)
        batches = V1.get_variable("batches", [], tf.int64, V1.zeros_initializer(), trainable=False)
        counted = batches.assign_add(1)
        train_op = V1.train.get_global_step().assign_add(tf.cast(counted % 3 == 0, tf.int64))
        return spec._replace(train_op=train_op)

    config = est.RunConfig(iterations_per_loop=3)
    model = est.Estimator(every_third_model_fn, str(tmp_path), config)
    with pytest.raises(V1.train.NanLossDuringTrainingError, match="step 0 is nan"):
        model.train(losses(np.nan, 0, 0, 0))


def recorded_losses(directory):
    return {step: value.simple_value for step, tag, value in events(directory) if tag == "loss"}


def test_with_skip_a_bad_step_is_reverted(on_gpu, tmp_path):
    del on_gpu
    config = est.RunConfig(iterations_per_loop=3, nan_policy="skip", save_summary_steps=3)
    model = est.Estimator(losses_model_fn, str(tmp_path), config)
    result = model.train(losses(0, np.nan, 0, 0, np.inf, np.nan, 0)).train_result
    assert (result.global_step, result.skipped_steps, result.loss) == (7, 3, -3.0)
    assert model.get_variable_value("w") == -4.0
    assert recorded_losses(tmp_path)[3] == -1.0


def test_with_ignore_every_step_counts(on_gpu, tmp_path):
    del on_gpu
    config = est.RunConfig(iterations_per_loop=3, nan_policy="ignore", save_summary_steps=3)
    model = est.Estimator(losses_model_fn, str(tmp_path), config)
    result = model.train(losses(0, np.inf, 0, 0, np.inf, 0)).train_result
    assert model.get_variable_value("w") == -6.0
    assert result.loss == -5.0
    assert recorded_losses(tmp_path)[3] == -2.0


def device_of_loss(model, input_fn):
    keep = KeepGraph()
    model.train(input_fn, steps=2, hooks=[keep])
    # The op of a body's result has a name that ends with the result's index.
    ops = [node for name, node in keep.body().items() if name in ("loss_of_step", "loss_of_step_0")]
    return ops[0].device


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("strategy", "device"), [(None, UNPLACED), ("mirrored", GPU)])
def test_a_loop_on_a_gpu_does_not_wait_for_the_loss(strategy, device, tmp_path):
    config = est.RunConfig(iterations_per_loop=2, strategy=strategy)
    model = est.Estimator(losses_model_fn, str(tmp_path), config)
    assert device_of_loss(model, losses(0, 0)) == device


@pytest.mark.usefixtures("gpu")
def test_a_graph_of_a_gpu_can_be_imported_where_there_is_none(tmp_path):
    """In a session that does not move ops to another device."""
    config = est.RunConfig(iterations_per_loop=2)

    def input_fn():
        data = tf.data.Dataset.from_tensor_slices((examples(4), np.zeros([4, 1], np.float32)))
        return data.batch(2, drop_remainder=True)

    model = est.Estimator(model_fn, str(tmp_path), config)
    model.train(input_fn)
    with tf.Graph().as_default(), V1.Session() as session:
        saver = V1.train.import_meta_graph(f"{model.latest_checkpoint()}.meta")
        saver.restore(session, model.latest_checkpoint())
        (w,) = [variable for variable in V1.global_variables() if variable.op.name == "w"]
        assert session.run(w) == model.get_variable_value("w")


def accumulating_model_fn(features, labels, mode):
    w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
    loss = tf.reduce_sum(features) + w * tf.reduce_sum(labels)
    optimizer = est.CrossShardOptimizer(V1.train.GradientDescentOptimizer(1.0), accumulate_steps=2)
    train_op = optimizer.minimize(loss, V1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def tensors():
    queue = V1.train.input_producer(tf.zeros([3]), num_epochs=1, shuffle=False)
    return queue.dequeue_many(1), tf.ones([1])


WAITING = {
    "gradients are accumulated": (accumulating_model_fn, losses(0, 0, 0, 0), {}),
    "the input is a queue": (losses_model_fn, tensors, {}),
    "ops are placed by the config": (
        losses_model_fn,
        losses(0, 0),
        {"device_fn": lambda op: "/cpu:0"},
    ),
    "there are two replicas": (
        losses_model_fn,
        losses(0, 0, 0, 0),
        {"strategy": "mirrored", "num_replicas": 2},
    ),
}


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("case", WAITING)
def test_a_loop_waits_for_the_loss_if(case, tmp_path, monkeypatch):
    monkeypatch.setattr(local, "replica_devices", lambda count: ["/cpu:0", "/cpu:1"])
    fn, input_fn, settings = WAITING[case]
    config = est.RunConfig(iterations_per_loop=2, **settings)
    device = device_of_loss(est.Estimator(fn, str(tmp_path), config), input_fn)
    assert tf.DeviceSpec.from_string(device).device_type == "CPU"


@pytest.mark.usefixtures("gpu")
def test_weights_are_checked_where_they_are(tmp_path):
    keep = KeepGraph()
    config = est.RunConfig(iterations_per_loop=2, nan_policy="skip")
    est.Estimator(losses_model_fn, str(tmp_path), config).train(losses(0, 0), hooks=[keep])
    checks = [node.device for node in keep.body().values() if node.op == "IsFinite"]
    assert checks
    assert "/device:CPU:0" not in checks
