"""The programs that are built for a TPU: their graph, and what it computes when CPUs run it.

There is no TPU here. `tests/described_tpu.py` stands in for one and says how far that goes.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from estimator import _tf
from estimator.config.run_config import RunConfig
from estimator.input.input_calls import get_input
from estimator.model.replicas import Model
from estimator.program.fixed_shape import build_padded_eval_program, build_padded_predict_program
from estimator.program.train_program import build_train_program
from estimator.runtime.strategy import runtime_of
from tests import described_tpu
from tests.old_versions import has_tpu_bridge, writes_texts

v1 = tf.compat.v1
RNG = np.random.default_rng(0)
X = RNG.normal(size=[64, 3]).astype(np.float32)
Y = RNG.normal(size=[64]).astype(np.float32)
CPUS, XLA = described_tpu.running_on_cpus, described_tpu.running_with_xla


class OwnOptimizer(v1.train.Optimizer):
    """Momentum that is applied without the base class, and that does not count steps."""

    def __init__(self):
        super().__init__(use_locking=False, name="own")

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        updates = []
        for grad, var in grads_and_vars:
            m = v1.get_variable(
                f"{var.name.split(':')[0]}/m",
                var.shape.as_list(),
                initializer=v1.zeros_initializer(),
                trainable=False,
            )
            next_m = 0.9 * m + 0.1 * grad
            updates += [var.assign(var - 0.1 * next_m), m.assign(next_m)]
        return tf.group(*updates, name=name)


OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: v1.train.AdamOptimizer(0.1),
    "rmsprop": lambda: v1.train.RMSPropOptimizer(0.1),
    "own": OwnOptimizer,
    "keras adam": lambda: keras.optimizers.Adam(0.1),
    "keras sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "keras (tf-keras) adam": lambda: tf_keras.optimizers.Adam(0.1),
}


def linear_loss(features, labels):
    w = v1.get_variable("w", [3], initializer=v1.constant_initializer([0.5, -1.0, 0.25]))
    b = v1.get_variable("b", [], initializer=v1.zeros_initializer())
    return tf.reduce_mean(tf.square(tf.linalg.matvec(features, w) + b - labels))


def minimized(loss, optimizer="sgd", is_cross_shard=True):
    opt = OPTIMIZERS[optimizer]()
    step = v1.train.get_global_step()
    if is_cross_shard:
        done = est.tpu.CrossShardOptimizer(opt).minimize(loss, step)
    elif optimizer.startswith("keras"):
        variables = v1.trainable_variables()
        opt.apply_gradients(list(zip(tf.gradients(loss, variables), variables, strict=True)))
        done = step.assign_add(1)
    else:
        done = opt.minimize(loss, step)
    return tf.group(done, step.assign_add(1)) if optimizer == "own" else done


def linear_model(optimizer="sgd", is_cross_shard=True, **more):
    def model_fn(features, labels, mode):
        loss = linear_loss(features, labels)
        train_op = minimized(loss, optimizer, is_cross_shard)
        asked = {key: value(loss) for key, value in more.items()}
        return est.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, **asked)

    return model_fn


def batches_of(size, repeat=True):
    def input_fn():
        both = tf.data.Dataset.from_tensor_slices((X, Y))
        return (both.repeat() if repeat else both).batch(size, drop_remainder=True)

    return input_fn


def built(model_fn, strategy, input_fn, iterations_per_loop=10, nan_policy="raise", seed=1):
    config = RunConfig(tf_random_seed=seed)
    return build_train_program(
        Model(model_fn, {}, config),
        lambda: get_input(
            input_fn, mode="train", params={}, config=config, input_context=None
        ).build(),
        runtime_of(strategy, config, est.ModeKeys.TRAIN),
        iterations_per_loop=iterations_per_loop,
        nan_policy=nan_policy,
    )


class Run:
    """A program in a session: of CPUs in the place of a TPU's cores, or as it is."""

    def __init__(self, program, session, place):
        self.program, self._session, self._place = program, session, place
        self._run([v.initializer for v in self.variables()])
        starts = [*program.state.initializers, program.input.initializer]
        self._run([start for start in starts if start is not None])

    def _run(self, fetches, feeds=()):
        fetches = [self._place(fetch) for fetch in fetches]
        return self._session.run(fetches, {self._place(k): v for k, v in dict(feeds).items()})

    def variables(self):
        with self.program.graph.as_default():
            return [copy for v in v1.global_variables() for copy in _tf.copies(v)]

    def values(self):
        """By name, of every copy of every variable."""
        handles = {v.name: v for v in self.variables()}
        read = [v._graph_element for v in handles.values()]
        return dict(zip(handles, self._run(read), strict=True))

    def steps(self, count):
        """One session call; returns the loss and the global step."""
        program = self.program
        return self._run(
            [program.fetches.loss, program.fetches.global_step], {program.feeds.num_steps: count}
        )

    def recorded_steps(self, count):
        feeds = {self.program.feeds.num_steps: count, self.program.feeds.is_recording: True}
        return self._run([self.program.fetches.loss, self.program.fetches.summary], feeds)

    def read(self, tensor):
        return self._run([tensor])[0]


class plain:  # noqa: N801  (used as the context managers of described_tpu are)
    """The graph as it is, in a session of its own."""

    def __init__(self, graph):
        self._graph = graph

    def __enter__(self):
        self._session = tf.compat.v1.Session(graph=self._graph)
        return self._session, lambda one: one

    def __exit__(self, *error):
        self._session.close()


def trained(model_fn, num_cores, batch_size, running=CPUS, calls=(3, 1, 3)):
    """The losses of some calls and all values after them; without cores, without a TPU."""
    strategy = described_tpu.make_strategy(num_cores) if num_cores else tf.distribute.get_strategy()
    program = built(model_fn, strategy, batches_of(batch_size))
    with (running if num_cores else plain)(program.graph) as (session, place):
        run = Run(program, session, place)
        losses = [run.steps(count) for count in calls]
        return losses, run.values()


# What is built.


@pytest.mark.each_value
@pytest.mark.parametrize("iterations_per_loop", [1, 100])
@pytest.mark.parametrize("num_cores", [1, 2, 8])
def test_a_step_is_one_program_for_all_cores_in_one_loop(num_cores, iterations_per_loop):
    calls = []

    def model_fn(features, labels, mode):
        calls.append(features.shape.as_list())
        return linear_model()(features, labels, mode)

    strategy = described_tpu.make_strategy(num_cores)
    program = built(model_fn, strategy, batches_of(4), iterations_per_loop)
    graph = program.graph.as_graph_def()
    assert calls == [[4, 3]]
    assert [node.op for node in graph.node].count("While") == 1
    # The input's batches, one a core, are taken by the loop's body around the program.
    body = next(f for f in graph.library.function if "train_loop_body" in f.signature.name)
    ops = [node.op for node in body.node_def]
    assert ops.count("OptionalGetValue") == num_cores
    assert ops.count("TPUReplicateMetadata") == 1
    metadata = next(n for n in body.node_def if n.op == "TPUReplicateMetadata")
    assert metadata.attr["num_replicas"].i == num_cores
    assert metadata.attr["use_tpu"].b
    inside = {node.op for node in described_tpu.program_nodes(program.graph)}
    assert {"MatMul", "ResourceApplyGradientDescent", "AssignAddVariableOp"} & inside
    assert not {"IteratorGetNext", "OptionalGetValue", "While", "Placeholder"} & inside
    assert program.feeds.num_steps.dtype == tf.int32


def test_every_shape_in_the_program_is_known():
    program = built(linear_model(), described_tpu.make_strategy(2), batches_of(4))
    definition = program.graph.as_graph_def(add_shapes=True)
    assert any("_output_shapes" in n.attr for f in definition.library.function for n in f.node_def)
    unknown = [
        node.name
        for function in definition.library.function
        for node in function.node_def
        if "_tpu_replicate" in node.attr
        for shape in node.attr["_output_shapes"].list.shape
        if shape.unknown_rank or any(dim.size < 0 for dim in shape.dim)
    ]
    assert unknown == []


@pytest.mark.each_value
@pytest.mark.parametrize("is_cross_shard", [True, False])
@pytest.mark.parametrize("optimizer", [name for name in OPTIMIZERS if name != "own"])
def test_each_gradient_is_summed_over_the_cores_by_the_tpu(optimizer, is_cross_shard):
    strategy = described_tpu.make_strategy(2)
    program = built(linear_model(optimizer, is_cross_shard), strategy, batches_of(4))
    nodes = described_tpu.program_nodes(program.graph)
    assert [node.op for node in nodes].count("CrossReplicaSum") == 2  # Of w and of b.


def test_variables_have_a_copy_on_each_core_and_a_host_for_the_rest():
    program = built(linear_model(), described_tpu.make_strategy(2), batches_of(4))
    with program.graph.as_default():
        devices = {copy.device for v in v1.global_variables() for copy in _tf.copies(v)}
    assert devices == {f"/job:localhost/replica:0/task:0/device:TPU:{i}" for i in range(2)}
    assert program.fetches.loss.device.startswith("/job:localhost/replica:0/task:0")


def test_nothing_outside_is_marked_as_part_of_the_program():
    model_fn = linear_model("keras adam")  # Its variables begin as tensors made inside.
    program = built(model_fn, described_tpu.make_strategy(2), batches_of(4))
    marked = [
        op.name for op in program.graph.get_operations() if "_tpu_replicate" in op.node_def.attr
    ]
    assert marked == []


@has_tpu_bridge
@writes_texts
@pytest.mark.parametrize("num_cores", [1, 2])
def test_tensorflow_s_own_bridge_to_tpus_makes_one_cluster_of_the_program(num_cores):
    """The passes that find the program, check what it takes in, and cut it out for the compiler."""
    strategy = described_tpu.make_strategy(num_cores)
    for optimizer in ("adam", "keras adam", "keras (tf-keras) adam"):
        graph = built(linear_model(optimizer), strategy, batches_of(8)).graph
        bridge = tf.mlir.experimental
        program = bridge.convert_graph_def(graph.as_graph_def(), "tf-standard-pipeline")
        assert program.count("TPUReplicateMetadata") == 1
        cut_out = bridge.run_pass_pipeline(program, "tf-replicated-clustering-bridge-v2")
        assert cut_out.count("tf_device.cluster") == 1
        assert cut_out.count("tf_device.replicate") == num_cores - 1
        assert "TPUReplicateMetadata" not in cut_out


def test_all_copies_are_restored_from_what_one_was_saved_as(tmp_path):
    program = built(linear_model("adam"), described_tpu.make_strategy(2), batches_of(4))
    with program.graph.as_default():
        saver = v1.train.Saver(v1.global_variables(), save_relative_paths=True)
    with CPUS(program.graph) as (session, place), program.graph.as_default():
        run = Run(program, session, place)
        run.steps(3)
        trained_values = run.values()
        path = saver.save(session, str(tmp_path / "model.ckpt"), write_meta_graph=False)
        assert sorted(name for name, _ in tf.train.list_variables(path)) == [
            *("b", "b/Adam", "b/Adam_1", "beta1_power", "beta2_power"),
            *("global_step", "w", "w/Adam", "w/Adam_1"),
        ]
        run.steps(3)
        assert run.values()["global_step/replica_1:0"] == 6
        saver.restore(session, path)
        for name, value in run.values().items():
            np.testing.assert_array_equal(value, trained_values[name], err_msg=name)


# What it computes.


@pytest.mark.parametrize("optimizer", ["sgd", "own", "keras sgd"])
def test_two_cores_may_apply_the_sum_of_their_gradients(optimizer):
    """Of the halves' means, which is twice the mean of the whole batch."""

    def model_fn(reduction, factor):
        def model_fn(features, labels, mode):
            loss = linear_loss(features, labels)
            step = v1.train.get_global_step()
            opt = est.tpu.CrossShardOptimizer(OPTIMIZERS[optimizer](), reduction)
            train_op = opt.minimize(factor * loss, step)
            if optimizer == "own":
                train_op = tf.group(train_op, step.assign_add(1))
            return est.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

        return model_fn

    losses, values = trained(model_fn("sum", 1.0), num_cores=2, batch_size=4)
    expected_losses, expected = trained(model_fn("mean", 2.0), num_cores=0, batch_size=8)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    for name in ("w:0", "b:0"):
        np.testing.assert_allclose(values[name], expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.each_value
@pytest.mark.parametrize("is_cross_shard", [True, False])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_two_cores_train_as_one_with_twice_the_batch(optimizer, is_cross_shard):
    if optimizer == "own" and not is_cross_shard:
        return  # Who applies gradients by himself and reduces none trains each core by itself.
    model_fn = linear_model(optimizer, is_cross_shard)
    losses, values = trained(model_fn, num_cores=2, batch_size=4)
    expected_losses, expected = trained(model_fn, num_cores=0, batch_size=8)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    assert len(values) == 2 * len(expected)
    for name, value in values.items():
        one = name.replace("/replica_1:0", ":0")
        np.testing.assert_allclose(value, expected[one], rtol=1e-5, atol=1e-6, err_msg=name)


def test_gradients_are_clipped_by_their_norm_over_all_cores():
    def model_fn(features, labels, mode):
        loss = 100 * linear_loss(features, labels)
        opt = est.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(1.0), clip_norm=0.5)
        train_op = opt.minimize(loss, v1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    _, values = trained(model_fn, num_cores=2, batch_size=4)
    _, expected = trained(model_fn, num_cores=0, batch_size=8)
    np.testing.assert_allclose(values["w:0"], expected["w:0"], rtol=1e-5)


@pytest.mark.parametrize("optimizer", ["adam", "keras adam", "own"])
def test_xla_compiles_the_step_as_a_whole(optimizer):
    losses, values = trained(linear_model(optimizer), 1, 8, running=XLA)
    expected_losses, expected = trained(linear_model(optimizer), 0, 8)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    for name, value in values.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_one_session_call_runs_as_many_steps_as_are_fed():
    program = built(linear_model(), described_tpu.make_strategy(2), batches_of(4))
    with CPUS(program.graph) as (session, place):
        run = Run(program, session, place)
        assert [run.steps(count)[1] for count in (1, 100, 7)] == [1, 101, 108]


def test_a_loss_that_is_not_finite_ends_the_loop_at_its_step():
    def input_fn():
        bad = tf.constant([0, 0, 0, np.nan, 0, 0], tf.float32)
        both = tf.data.Dataset.from_tensor_slices((X[:24], Y[:24])).batch(4, drop_remainder=True)
        both = tf.data.Dataset.zip((both, tf.data.Dataset.from_tensor_slices(bad)))
        return both.map(lambda batch, add: (batch[0] + add, batch[1]))

    program = built(linear_model(), described_tpu.make_strategy(2), input_fn)
    with CPUS(program.graph) as (session, place):
        loss, step = Run(program, session, place).steps(3)
    assert np.isnan(loss)
    assert step == 2  # Batch 3, from 0 on, is the second core's in step 2.


def test_an_input_that_ends_leaves_whole_steps():
    program = built(linear_model(), described_tpu.make_strategy(2), batches_of(9, repeat=False))
    with CPUS(program.graph) as (session, place):
        run = Run(program, session, place)
        loss, step = run.steps(100)  # It ends by itself, with the loss of its last step.
        assert np.isfinite(loss)
        assert (
            step == run.read(program.state.current_step) == 3
        )  # Of 7 batches, for two cores each.


def test_dropout_differs_from_core_to_core_and_from_step_to_step_and_is_repeated():
    def model_fn(features, labels, mode):
        w = v1.get_variable("w", [32], initializer=v1.zeros_initializer())
        kept = tf.nn.dropout(tf.ones([32]), 0.5, seed=3)
        # The sum over cores makes a mask readable: 1 was kept by the first, 2 by the second.
        number = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
        loss = tf.reduce_mean(w * kept * (number + 1))
        step = v1.train.get_global_step()
        return est.EstimatorSpec(
            mode, loss=loss, train_op=v1.train.GradientDescentOptimizer(32.0).minimize(loss, step)
        )

    masks = []
    for calls in ((1,), (1, 1), (2,)):
        _, values = trained(model_fn, 2, 4, calls=calls)
        masks.append(-values["w:0"])
    first, second = masks[0], masks[1] - masks[0]
    assert set(first.tolist()) == {0.0, 1.0, 2.0, 3.0}  # Neither equal nor opposite masks.
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(masks[1], masks[2])


DRAWN = {
    "uniform": lambda x: x + tf.random.uniform([4, 3], seed=1),
    "int": lambda x: x + tf.cast(tf.random.uniform([4, 3], 0, 99, tf.int32, seed=1), x.dtype),
    "normal": lambda x: x + tf.random.normal([4, 3], seed=1),
    "truncated normal": lambda x: x + tf.random.truncated_normal([4, 3], seed=1),
    "shuffle": lambda x: tf.random.shuffle(x, seed=1) * [[1.0], [2.0], [3.0], [4.0]],
    "categorical": lambda x: (
        x + tf.cast(tf.random.categorical(tf.zeros([4, 99]), 3, seed=1), x.dtype)
    ),
    "in a loop": lambda x: tf.while_loop(
        lambda i, a: i < 3, lambda i, a: (i + 1, a + tf.random.normal([4, 3], seed=1)), [0, x]
    )[1],
}


@pytest.mark.parametrize("case", DRAWN)
def test_xla_compiles_what_a_step_draws(case):
    """The same each time, and each step others; XLA makes other floats of the bits than the CPU."""

    def model_fn(features, labels, mode):
        w = v1.get_variable("w", [3], initializer=v1.zeros_initializer())
        out = DRAWN[case](tf.ones([4, 3]) * tf.reshape(tf.range(12.0), [4, 3]))
        loss = tf.reduce_mean(tf.linalg.matvec(out, w))
        step = v1.train.get_global_step()
        train_op = v1.train.GradientDescentOptimizer(1.0).minimize(loss, step)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    one, two, one_by_one = (
        trained(model_fn, 1, 4, XLA, calls)[1]["w:0"] for calls in ((1,), (2,), (1, 1))
    )
    np.testing.assert_array_equal(two, one_by_one)
    assert not np.allclose(two, 2 * one)


def test_moving_statistics_are_updated_as_under_mirrored_replicas():
    def model_fn(features, labels, mode):
        out = keras.layers.BatchNormalization(momentum=0.5)(features, training=True)
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(out, 1) - labels))
        step = v1.train.get_global_step()
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    _, values = trained(model_fn, num_cores=2, batch_size=4, calls=(3, 2))
    moving = [values[f"batch_normalization/moving_mean{copy}:0"] for copy in ("", "/replica_1")]
    expected = np.zeros([2, 3])
    for step in range(5):
        for core in range(2):
            at = (2 * step + core) * 4 % 64
            expected[core] = (expected[core] + X[at : at + 4].mean(0)) / 2
    np.testing.assert_allclose(moving, expected, rtol=1e-5, atol=1e-6)


# What evaluates and predicts.


def rows_model(features, labels, mode):
    w = v1.get_variable("w", [3], initializer=v1.constant_initializer([0.5, -1.0, 0.25]))
    b = v1.get_variable("b", [], initializer=v1.zeros_initializer())
    out = tf.linalg.matvec(features, w) + b
    if mode == est.ModeKeys.PREDICT:
        return est.tpu.TPUEstimatorSpec(mode, predictions={"out": out})
    each = tf.square(out - labels)
    metrics = (lambda each: {"mean": v1.metrics.mean(each)}, [each])
    return est.tpu.TPUEstimatorSpec(mode, loss=tf.reduce_mean(each), eval_metrics=metrics)


def padded_program(build, num_cores, has_labels=True):
    labels = tf.TensorSpec([None], tf.float32) if has_labels else None
    config = RunConfig()
    return build(
        Model(rows_model, {}, config),
        (tf.TensorSpec([None, 3], tf.float32), labels),
        runtime_of(described_tpu.make_strategy(num_cores), config, est.ModeKeys.EVAL),
        batch_size=4,
    )


@pytest.mark.parametrize("running", [CPUS, XLA])
def test_an_evaluation_s_metrics_are_computed_on_the_host(running):
    program = padded_program(build_padded_eval_program, 1)
    inside = {node.op for node in described_tpu.program_nodes(program.graph)}
    assert "MatMul" in inside
    assert "AssignAddVariableOp" not in inside  # As the metric's two counters are.
    values = [X[:4], Y[:4], 3, 1.0]
    with running(program.graph) as (session, place):
        with program.graph.as_default():
            variables = [copy for v in v1.global_variables() for copy in _tf.copies(v)]
        session.run([place(v.initializer) for v in variables])
        session.run(place(program.reset))
        feeds = dict(zip(map(place, program.feeds[0]), values, strict=True))
        loss = session.run([place(program.losses[0]), *map(place, program.updates[0])], feeds)[0]
        mean = session.run(place(program.values["mean"]))
    each = np.square(X[:4] @ [0.5, -1.0, 0.25] - Y[:4])
    assert mean == pytest.approx(each[:3].mean(), rel=1e-5)
    np.testing.assert_allclose(loss, [each.mean(), 1], rtol=1e-5)


@pytest.mark.parametrize(("num_cores", "running"), [(1, XLA), (2, CPUS)])
def test_predictions_of_each_core_are_its_real_rows(num_cores, running):
    program = padded_program(build_padded_predict_program, num_cores, has_labels=False)
    nodes = described_tpu.program_nodes(program.graph)
    assert [node.op for node in nodes].count("TPUReplicateMetadata") == 1
    with running(program.graph) as (session, place):
        with program.graph.as_default():
            variables = [copy for v in v1.global_variables() for copy in _tf.copies(v)]
        session.run([place(v.initializer) for v in variables])
        feeds = {}
        for core, feed in enumerate(program.feeds):
            batch = X[4 * core : 4 * core + 4]
            feeds.update(zip(map(place, feed), [batch, 3 - core, 1.0], strict=True))
        rows = [session.run(place(p["out"]), feeds) for p in program.predictions]
    assert [len(row) for row in rows] == [3, 2][:num_cores]
    for core, row in enumerate(rows):
        expected = X[4 * core : 4 * core + len(row)] @ [0.5, -1.0, 0.25]
        np.testing.assert_allclose(row, expected, rtol=1e-5)


# What leaves it.


def test_host_call_runs_on_the_host_each_step_on_the_tensors_of_all_cores():
    seen = []

    def host_fn(losses, steps):
        def note(losses, steps):
            seen.append((losses.tolist(), steps.tolist()))
            return np.int32(0)

        assert losses.shape.as_list() == [2]
        return tf.numpy_function(note, [losses, steps], tf.int32)

    def call(loss):
        step = v1.train.get_global_step()
        return host_fn, [tf.reshape(loss, [1]), tf.reshape(step, [1])]

    program = built(linear_model(host_call=call), described_tpu.make_strategy(2), batches_of(4))
    with CPUS(program.graph) as (session, place):
        last, _ = Run(program, session, place).steps(3)
    assert [steps for _, steps in seen] == [[1, 1], [2, 2], [3, 3]]
    assert np.mean(seen[-1][0]) == pytest.approx(last)
    assert len({loss for losses, _ in seen for loss in losses}) == 6
    inside = {node.op for node in described_tpu.program_nodes(program.graph)}
    assert not {"PyFunc", "EagerPyFunc"} & inside


def test_summaries_are_made_on_the_host_of_the_last_step_s_values():
    def model_fn(features, labels, mode):
        loss = linear_loss(features, labels)
        with tf.name_scope("model"):
            v1.summary.scalar("loss", loss)
            v1.summary.histogram("features", features)
        merged = v1.summary.merge([v1.summary.scalar("twice", 2 * loss)])
        assert merged is not None
        return est.EstimatorSpec(mode, loss=loss, train_op=minimized(loss))

    program = built(model_fn, described_tpu.make_strategy(1), batches_of(4))
    inside = {node.op for node in described_tpu.program_nodes(program.graph)}
    assert not {op for op in inside if "Summary" in op}
    with CPUS(program.graph) as (session, place):
        loss, summary = Run(program, session, place).recorded_steps(5)
    values = {value.tag: value for value in v1.Summary.FromString(summary).value}
    assert set(values) == {"model/loss", "model/features", "twice"}
    assert values["model/loss"].simple_value == pytest.approx(loss)
    assert values["twice"].simple_value == pytest.approx(2 * loss)
    assert values["model/features"].histo.num == 12


def test_summaries_of_the_input_are_of_the_last_step_s_batch():
    def input_fn():
        features, labels = v1.data.make_one_shot_iterator(batches_of(4)()).get_next()
        v1.summary.scalar("of_input", tf.reduce_sum(features))
        return features, labels

    program = built(linear_model(), described_tpu.make_strategy(2), input_fn)
    with CPUS(program.graph) as (session, place):
        _, summary = Run(program, session, place).recorded_steps(5)
    values = {value.tag: value.simple_value for value in v1.Summary.FromString(summary).value}
    # The first core's fifth batch: the cores take batches in turn.
    assert values["of_input"] == pytest.approx(X[32:36].sum(), rel=1e-5)


def test_a_logging_hook_of_the_model_sees_the_last_step_s_value():
    hooks = []

    def log(loss):
        hooks.append(v1.train.LoggingTensorHook({"loss": loss, "twice": "twice"}, 1))
        tf.identity(2 * loss, "twice")
        return hooks

    program = built(linear_model(training_hooks=log), described_tpu.make_strategy(1), batches_of(4))
    with CPUS(program.graph) as (session, place):
        run = Run(program, session, place)
        loss, _ = run.steps(5)
        logged = {tag: run.read(t) for tag, t in _tf.logging_hook_tensors(hooks[0]).items()}
    assert logged == {"loss": pytest.approx(loss), "twice": pytest.approx(2 * loss)}


def test_a_summary_saver_hook_of_the_model_gets_the_last_step_s_summary():
    hooks = []

    def save(loss):
        summary = v1.summary.scalar("twice", 2 * loss)
        hooks.append(v1.train.SummarySaverHook(1, summary_op=summary, summary_writer=object()))
        return hooks

    model_fn = linear_model(training_hooks=save)
    program = built(model_fn, described_tpu.make_strategy(1), batches_of(4))
    with CPUS(program.graph) as (session, place):
        run = Run(program, session, place)
        loss, _ = run.steps(5)
        (saved,) = _tf.summary_tensors(hooks[0])
        (value,) = v1.Summary.FromString(run.read(saved)).value
    assert (value.tag, value.simple_value) == ("twice", pytest.approx(2 * loss))


# What it refuses.


def dataset_of(signature):
    return lambda: tf.data.Dataset.from_generator(lambda: iter(()), output_signature=signature)


ONE_LABEL = tf.TensorSpec([4], tf.float32)
BAD_INPUTS = {
    "batches of any size": (
        (tf.TensorSpec([None, 3], tf.float32), ONE_LABEL),
        r"`input_fn` yields features with the shape \(None, 3\)[\s\S]*drop_remainder=True",
    ),
    "another dimension": (
        ({"x": tf.TensorSpec([4, None], tf.float32)}, ONE_LABEL),
        r"`input_fn` yields features\['x'\] with the shape \(4, None\)[\s\S]*padded_batch",
    ),
    "no shape": (
        (tf.TensorSpec(None, tf.float32), ONE_LABEL),
        r"`input_fn` yields features with the shape <unknown>[\s\S]*tf.ensure_shape",
    ),
    "strings": (
        ({"word": tf.TensorSpec([4], tf.string)}, ONE_LABEL),
        r"features\['word'\] \(TensorSpec of string\), and a TPU takes dense numbers only",
    ),
    "ragged": (
        ((tf.RaggedTensorSpec([4, None], tf.float32),), ONE_LABEL),
        r"features\[0\] \(RaggedTensorSpec of float32\)[\s\S]*`to_tensor`",
    ),
    "sparse": (
        (tf.SparseTensorSpec([4, 3], tf.float32), ONE_LABEL),
        r"features \(SparseTensorSpec of float32\)[\s\S]*tf.sparse.to_dense",
    ),
    "labels": (
        (tf.TensorSpec([4, 3], tf.float32), tf.TensorSpec([None], tf.float32)),
        r"`input_fn` yields labels with the shape \(None,\)",
    ),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_an_input_that_no_program_can_be_compiled_for_is_named(case):
    signature, message = BAD_INPUTS[case]
    with pytest.raises(ValueError, match=message):
        built(linear_model(), described_tpu.make_strategy(2), dataset_of(signature))


def test_writing_with_tf_summary_inside_is_refused(tmp_path):
    def model_fn(features, labels, mode):
        loss = linear_loss(features, labels)
        with tf.summary.create_file_writer(str(tmp_path)).as_default():
            tf.summary.scalar("loss", loss, step=0)
        return est.EstimatorSpec(mode, loss=loss, train_op=minimized(loss))

    with pytest.raises(ValueError, match=r"`model_fn` writes with tf\.summary[\s\S]*`host_call`"):
        built(model_fn, described_tpu.make_strategy(2), batches_of(4))


def test_accumulation_is_refused():
    def model_fn(features, labels, mode):
        loss = linear_loss(features, labels)
        opt = v1.train.GradientDescentOptimizer(0.1)
        opt = est.tpu.CrossShardOptimizer(opt, accumulate_steps=2)
        train_op = opt.minimize(loss, v1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    with pytest.raises(NotImplementedError, match="`accumulate_steps` of the CrossShardOptimizer"):
        built(model_fn, described_tpu.make_strategy(2), batches_of(4))


def test_a_train_op_that_does_not_count_steps_is_told(caplog):
    def model_fn(features, labels, mode):
        loss = linear_loss(features, labels)
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    built(model_fn, described_tpu.make_strategy(2), batches_of(4))
    assert "`train_op` does not advance the global step" in caplog.text
