"""A loop whose variables are on ps tasks, over real servers: what it waits for, how it ends."""

import collections
import types

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.cluster.asynchronous import AsynchronousWorkers
from estimator.config.cluster import parse_tf_config
from tests.integration.cluster import make_addresses, tf_config
from tests.toy import Model, numbers, weight_after

V1 = tf.compat.v1
CLUSTERS = {num_ps: make_addresses(worker=1, ps=num_ps) for num_ps in (1, 2)}


# Not "module": a process that runs parts of this module at two times would start them twice.
@pytest.fixture(scope="session", autouse=True)
def servers():
    return [
        tf.distribute.Server(tf.train.ClusterSpec(addresses), "ps", number)
        for num_ps, addresses in CLUSTERS.items()
        for number in range(num_ps)
    ]


class Messages(est.SessionRunHook):
    """Counts what is received from other tasks in the loop of the first call, by sender."""

    def before_run(self, run_context):
        return V1.train.SessionRunArgs([], options=V1.RunOptions(output_partition_graphs=True))

    def after_run(self, run_context, run_values):
        nodes = [n for part in run_values.run_metadata.partition_graphs for n in part.node]
        self.devices = {node.name: node.device for node in nodes}
        self.of_loop = [
            node
            for node in nodes
            if node.op.endswith("Recv")
            and node.name.startswith("train_loop/")
            and node.attr["send_device"] != node.attr["recv_device"]
        ]
        self.senders = collections.Counter(
            tf.DeviceSpec.from_string(node.attr["send_device"].s.decode()).job
            for node in self.of_loop
        )


def train(model_dir, input_fn, model_fn=None, hooks=(), max_steps=None, num_ps=1, **changes):
    config = est.RunConfig(
        cluster=parse_tf_config(tf_config(CLUSTERS[num_ps], "worker", 0)),
        strategy="parameter_server",
        **{"iterations_per_loop": 5, **changes},
    )
    model = est.Estimator(model_fn or Model(), str(model_dir), config)
    model.train(input_fn, list(hooks), max_steps=max_steps)
    return model


def test_a_worker_whose_chief_initializes_nothing_is_told_where_to_look():
    ps, workers = CLUSTERS[1]["ps"], [*CLUSTERS[1]["worker"], *make_addresses(worker=1)["worker"]]
    cluster = parse_tf_config(tf_config({"ps": ps, "worker": workers}, "worker", 1))
    config = est.RunConfig(cluster=cluster, strategy="parameter_server")
    graph = tf.Graph()
    group = AsynchronousWorkers(config, types.SimpleNamespace(graph=graph), {})
    told = pytest.raises(TimeoutError, match="initialize the variables within .*Its log says")
    only_ps = V1.ConfigProto(device_filters=["/job:ps"])
    with V1.Session(f"grpc://{ps[0]}", graph, only_ps) as session, told:
        group.begin(session, lambda: None, 0.0)


def test_gradients_are_not_accumulated_in_what_all_workers_share(tmp_path):
    def model_fn(features, labels, mode):
        optimizer = est.CrossShardOptimizer(
            V1.train.GradientDescentOptimizer(0.1), accumulate_steps=4
        )
        loss = tf.square(V1.get_variable("w", []))
        train_op = optimizer.minimize(loss, V1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    with pytest.raises(ValueError, match=r"`accumulate_steps` \(4\) .*all workers would add to"):
        train(tmp_path, numbers(), model_fn)


def test_a_step_is_told_to_start_by_the_ps_that_has_finished_the_one_before(tmp_path):
    messages = Messages()
    train(tmp_path, numbers(), hooks=[messages], max_steps=5)
    # The gradient, and whether to go on; and w, to start, and the value of the loop's condition.
    assert messages.senders == {"worker": 2, "ps": 3}
    (told,) = [node for node in messages.of_loop if "LoopCond" in node.name]
    assert "ps" in told.attr["send_device"].s.decode()


@pytest.mark.each_value
@pytest.mark.parametrize("num_ps", [1, 2])
@pytest.mark.parametrize("loop", [3, 100])
def test_a_loop_ends_at_the_last_step_and_with_the_input(loop, num_ps, tmp_path):
    train(tmp_path, numbers(7), max_steps=4, iterations_per_loop=loop, num_ps=num_ps)
    model = train(tmp_path, numbers(7, start=4), iterations_per_loop=loop, num_ps=num_ps)
    result = model.train_result
    assert (result.reason, result.global_step) == ("end of input", 11)
    batches = [[i] for i in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)]
    assert model.get_variable_value("w") == weight_after(batches)
    before = weight_after(batches[:-1])
    assert result.loss == pytest.approx((before - 10) ** 2 / 2, rel=1e-6)


def test_what_has_no_device_stays_with_the_worker(tmp_path):
    def model_fn(features, labels, mode):
        with tf.device(None):
            features = tf.numpy_function(np.float32, [features], tf.float32, name="unplaced")
        features.set_shape([1])
        return Model()(features, labels, mode)

    messages = Messages()
    train(tmp_path, numbers(), model_fn, hooks=[messages], max_steps=5)
    (device,) = (at for name, at in messages.devices.items() if "unplaced" in name)
    assert tf.DeviceSpec.from_string(device).job == "worker"


def with_a_nan():
    return tf.data.Dataset.from_tensor_slices(np.float32([0, 1, 2, np.nan, 4, 5, 6, 7, 8])).batch(1)


def test_no_step_follows_one_whose_loss_is_not_a_number(tmp_path):
    model = train(tmp_path, with_a_nan, nan_policy="stop", iterations_per_loop=100)
    assert (model.train_result.reason, model.train_result.global_step) == ("nan loss", 4)


def test_a_skipped_step_leaves_the_weights_as_they_were(tmp_path):
    model = train(tmp_path, with_a_nan, nan_policy="skip", iterations_per_loop=100)
    kept = [[i] for i in (0, 1, 2, 4, 5, 6, 7, 8)]
    assert model.get_variable_value("w") == weight_after(kept)


def test_the_loss_of_the_last_step_is_known_if_the_input_ends_with_an_error(tmp_path):
    def input_fn():
        values = iter(range(7))
        batch = tf.numpy_function(lambda: np.float32([next(values)]), [], tf.float32)
        batch.set_shape([1])
        return batch

    result = train(tmp_path, input_fn, iterations_per_loop=100).train_result
    assert (result.reason, result.global_step) == ("end of input", 7)
    before = weight_after([[i] for i in range(6)])
    assert result.loss == pytest.approx((before - 6) ** 2 / 2, rel=1e-6)


def test_a_loop_places_variables_as_a_single_step_does(tmp_path):
    placed = []

    def model_fn(features, labels, mode):
        for name in "abc":
            variable = V1.get_variable(name, [], initializer=V1.zeros_initializer())
            placed.append(variable.device)
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [1.0]), 0.0)
        placed.append(table.resource_handle.device)
        return Model()(features, labels, mode)

    for loop in (1, 5):
        train(tmp_path / str(loop), numbers(3), model_fn, iterations_per_loop=loop, num_ps=2)
    half = len(placed) // 2
    assert placed[:half] == placed[half:]
    assert len(set(placed[:3])) == 2
