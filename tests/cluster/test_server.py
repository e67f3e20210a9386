"""How sessions reach a cluster."""

import json

import grpc
import pytest
import tensorflow as tf

import estimator as est
from estimator import _tf
from estimator.cluster.server import connect_to_existing, make_server_config
from estimator.config.cluster import parse_tf_config
from estimator.runtime.strategy import make_runtime
from tests.integration.cluster import free_addresses, make_addresses
from tests.toy import Model, numbers


def cluster(addresses, **more):
    task = {"type": "chief", "index": 0}
    return parse_tf_config(json.dumps({"cluster": addresses, "task": task, **more}))


def test_to_connect_leaves_the_config_that_is_given_as_it_was():
    given = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    before = given.SerializeToString()
    addresses = {"chief": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}
    given_cluster = cluster(addresses, session_master="grpc://127.0.0.1:1")
    beside_ps = est.RunConfig(cluster=given_cluster, session_config=given)
    alone = est.tpu.RunConfig(master="grpc://127.0.0.1:1", session_config=given)
    config = make_runtime(beside_ps, est.ModeKeys.TRAIN).connect().session_config
    assert list(config.device_filters) == ["/job:ps", "/job:chief/task:0"]
    for connection in (
        make_runtime(alone, est.ModeKeys.TRAIN).connect(),
        connect_to_existing(alone, est.ModeKeys.TRAIN, given),
    ):
        assert connection.session_config.isolate_session_state
        assert connection.session_config.allow_soft_placement
    assert given.SerializeToString() == before


@pytest.mark.parametrize(("other", "spins"), [("a:2", False), ("b:1", True)])
def test_a_server_sees_all_tasks_and_spins_only_if_it_has_its_machine_alone(other, spins):
    addresses = {"chief": ["a:1"], "ps": [other], "worker": ["c:1", "c:2"]}
    cluster = parse_tf_config(
        json.dumps({"cluster": addresses, "task": {"type": "chief", "index": 0}})
    )
    given = tf.compat.v1.ConfigProto(device_filters=["/job:ps"], intra_op_parallelism_threads=3)
    before = given.SerializeToString()
    made = make_server_config(cluster, given)
    assert (list(made.device_filters), made.intra_op_parallelism_threads) == ([], 3)
    assert made.experimental.disable_thread_spinning != spins
    assert given.SerializeToString() == before


@pytest.fixture
def open_channels(monkeypatch):
    """The channels that were made and not closed since."""
    channels = []
    make = grpc.insecure_channel

    def make_noted(*arguments, **options):
        channel = make(*arguments, **options)
        channels.append(channel)
        close = channel.close

        def noted_close():
            channels.remove(channel)
            close()

        channel.close = noted_close
        return channel

    monkeypatch.setattr(grpc, "insecure_channel", make_noted)
    return channels


def test_making_a_callable_can_be_abandoned_as_a_call_can():
    def wait(is_done):
        raise TimeoutError("The server is gone")

    with tf.Graph().as_default() as graph:
        tensor = tf.constant(1)
    # Nobody listens there, and TensorFlow itself would wait for ever.
    (address,) = free_addresses(1)
    session = _tf.open_session(f"grpc://{address}", graph, tf.compat.v1.ConfigProto(), wait)
    with pytest.raises(TimeoutError, match="The server is gone"):
        _tf.make_callable(session, [tensor], [])


def test_waiting_in_vain_leaves_no_connection(tmp_path, open_channels):
    addresses = make_addresses(chief=1, worker=1, ps=1)
    seconds = {"session_creation_timeout_secs": 0.2}
    chief = est.RunConfig(cluster=cluster(addresses), **seconds)
    with pytest.raises(TimeoutError, match="Ps 0"):
        est.Estimator(Model(), str(tmp_path / "a"), chief).train(numbers())
    est.Estimator(Model(), str(tmp_path / "b")).train(numbers(), steps=1)
    master = est.tpu.RunConfig(master=f"grpc://{addresses['ps'][0]}", **seconds)
    with pytest.raises(TimeoutError, match="the server of `master`|The server of `master`"):
        list(est.Estimator(Model(), str(tmp_path / "b"), master).predict(numbers()))
    assert open_channels == []
