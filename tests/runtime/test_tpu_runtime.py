"""When a TPU is started, and what of sessions on it. The TPU itself is described and not there."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator import _tf
from estimator.runtime.strategy import make_strategy, runtime_of
from tests.described_tpu import DescribedTPU
from tests.described_tpu import make_strategy as make_described

v1 = tf.compat.v1
COMPILATION = tf.errors.InvalidArgumentError(None, None, "Compilation failure")


def runtime_on(strategy, mode=est.ModeKeys.TRAIN):
    return runtime_of(strategy, est.RunConfig(), mode)


@pytest.fixture
def starts(monkeypatch):
    """The arguments of each start of a TPU of one core."""
    calls = []
    topology = tf.tpu.experimental.Topology(
        mesh_shape=[1, 1, 1, 1], device_coordinates=np.zeros([1, 1, 4], np.int32)
    )

    def initialize_system(**arguments):
        calls.append(arguments)
        return tf.constant(topology.serialized())

    monkeypatch.setattr(v1.tpu, "initialize_system", initialize_system)
    monkeypatch.setattr(_tf.tpu._tpu_strategy_util, "_INITIALIZED_TPU_SYSTEMS", {})
    return calls


def test_a_tpu_is_started_once_and_a_failed_compilation_closes_nothing(starts):
    strategy = make_described(1)
    for _ in range(2):
        runtime_on(strategy).start()
    assert starts == [
        {"compilation_failure_closes_chips": False, "tpu_cancellation_closes_chips": False}
    ]
    assert _tf.is_initialized_tpu(_tf.tpu_resolver(strategy))


@pytest.mark.parametrize(
    ("error", "num_starts"),
    [
        (COMPILATION, 2),
        (tf.errors.UnavailableError(None, None, "preempted"), 2),
        (tf.errors.OutOfRangeError(None, None, "the end of the input"), 1),
        (ZeroDivisionError(), 1),
    ],
    ids=["compilation", "preemption", "end of input", "not of TensorFlow"],
)
def test_a_tpu_is_started_again_after_an_operation_has_failed(starts, error, num_starts):
    runtime = runtime_on(make_described(1))
    runtime.start()
    before = runtime.num_failures()
    with pytest.raises(RuntimeError), runtime.restarting_after_failure():
        raise RuntimeError("what the library makes of it") from error
    assert runtime.num_failures() - before == num_starts - 1
    for _ in range(2):
        runtime.start()
    assert len(starts) == num_starts


def test_other_strategies_know_no_tpu_that_fails(starts):
    runtime = runtime_on(tf.distribute.get_strategy())
    with pytest.raises(tf.errors.InvalidArgumentError), runtime.restarting_after_failure():
        raise COMPILATION
    runtime.start()
    assert (runtime.num_failures(), starts) == (0, [])


def test_the_hosts_of_a_remote_tpu_are_watched():
    resolver = DescribedTPU(2)
    resolver.master = lambda *arguments: "grpc://10.0.0.1:8470"
    resolver.cluster_spec = lambda: tf.train.ClusterSpec({"worker": ["10.0.0.1:8470", "b:8470"]})
    with tf.Graph().as_default():
        strategy = tf.distribute.TPUStrategy(resolver)
    for mode in (est.ModeKeys.TRAIN, est.ModeKeys.EVAL):
        connection = runtime_on(strategy, mode).connect()
        assert connection.target == "grpc://10.0.0.1:8470"
        assert connection.is_elsewhere
        assert connection.needed == {
            "the TPU's worker 0": "10.0.0.1:8470",
            "the TPU's worker 1": "b:8470",
        }
    assert runtime_on(make_described(2)).connect().needed == {}


@pytest.mark.parametrize("name", ["local", "nobody-knows-it"])
def test_a_name_in_the_environment_that_nobody_knows_is_an_error_with_the_way_out(
    name, monkeypatch
):
    monkeypatch.setenv("TPU_NAME", name)
    with pytest.raises(ValueError, match=r"TPU[\s\S]*Name the TPU: est\.tpu\.RunConfig"):
        make_strategy(est.RunConfig(strategy="tpu"), est.ModeKeys.TRAIN)
