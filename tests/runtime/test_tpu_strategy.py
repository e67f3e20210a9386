"""Which TPU a config names, and what is said where there is none."""

import os

import pytest
import tensorflow as tf

import estimator as est
from estimator.runtime.strategy import make_runtime, make_strategy, runtime_of
from estimator.runtime.tpu_strategy import is_tpu
from tests.described_tpu import DescribedTPU
from tests.described_tpu import make_strategy as make_described
from tests.toy import Model, numbers

NOBODY = "grpc://127.0.0.1:1"
TRAIN, EVAL = est.ModeKeys.TRAIN, est.ModeKeys.EVAL
OBJECTS = (
    tf.distribute.TPUStrategy,
    tf.distribute.experimental.TPUStrategy,
    tf.compat.v1.distribute.experimental.TPUStrategy,
)


def described(num_cores=8, **config):
    return est.tpu.RunConfig(cluster=DescribedTPU(num_cores), **config)


def tpu_model(config, **more):
    return est.tpu.TPUEstimator(
        lambda features, labels, mode, params: None, config=config, use_tpu=True, **more
    )


def test_use_tpu_without_a_tpu_is_an_error_before_anything_is_made(tmp_path):
    directory = str(tmp_path / "model")
    with pytest.raises(ValueError) as error:  # noqa: PT011  (the message is the result)
        est.tpu.TPUEstimator(Model(), directory, use_tpu=True, train_batch_size=8)
    message = str(error.value)
    assert message.startswith("There is no TPU: this machine has none. Name the TPU: ")
    for way_out in ("TPUClusterResolver(", 'master="grpc://', 'strategy="mirrored"'):
        assert way_out in message
    assert not os.path.exists(directory)


def test_strategy_tpu_without_a_tpu_is_an_error_before_the_model_is_called(tmp_path):
    model_fn = Model()
    model = est.Estimator(model_fn, str(tmp_path / "model"), est.RunConfig(strategy="tpu"))
    with pytest.raises(ValueError, match="There is no TPU"):
        model.train(numbers(), max_steps=1)
    assert model_fn.modes == []
    assert not os.path.exists(model.model_dir)


@pytest.mark.parametrize("named", ["master", "cluster"])
def test_a_tpu_that_does_not_answer_is_an_error_that_says_so(named):
    where = {
        "master": {"master": NOBODY},
        "cluster": {"cluster": tf.distribute.cluster_resolver.TPUClusterResolver(NOBODY)},
    }
    config = est.tpu.RunConfig(session_creation_timeout_secs=0.5, **where[named])
    with pytest.raises(ValueError, match=r"cannot be found \(DeadlineExceededError[\s\S]*Name the"):
        tpu_model(config)


def test_one_strategy_for_one_tpu():
    config = described(8, strategy="tpu")
    strategy = make_strategy(config, TRAIN)
    assert is_tpu(strategy)
    assert strategy.num_replicas_in_sync == 8
    assert make_strategy(config, EVAL) is strategy
    assert make_strategy(config.replace(tf_random_seed=1), TRAIN) is strategy
    assert runtime_of(strategy, config, TRAIN).host_task == "/job:localhost/replica:0/task:0"


def test_use_tpu_takes_the_tpu_for_every_mode():
    model = tpu_model(described(8), train_batch_size=64, eval_batch_size=16)
    for mode, batch_size in ((TRAIN, 8), (EVAL, 2)):
        runtime = make_runtime(model.config, mode)
        assert is_tpu(runtime.strategy)
        params = model._input_batches.model_params(runtime)
        assert params["batch_size"] == batch_size
        assert params["use_tpu"] is True
        assert params["context"].num_replicas == 8


def test_eval_on_tpu_off_evaluates_on_this_machine():
    model = tpu_model(described(8), train_batch_size=64, eval_batch_size=16, eval_on_tpu=False)
    assert is_tpu(make_strategy(model.config, TRAIN))
    here = make_runtime(model.config, EVAL)
    assert not is_tpu(here.strategy)
    assert model._input_batches.model_params(here)["batch_size"] == 16
    assert model._input_batches.model_params(here)["use_tpu"] is False


@pytest.mark.parametrize("kind", OBJECTS, ids=["v2", "experimental", "v1"])
def test_a_strategy_object_is_taken_as_it_is(kind):
    strategy = make_described(4, kind)
    assert is_tpu(strategy)
    for config in (
        est.RunConfig(train_distribute=strategy),
        est.RunConfig(strategy=strategy),
        tpu_model(est.tpu.RunConfig(train_distribute=strategy)).config,
    ):
        assert make_strategy(config, TRAIN) is strategy
    assert make_strategy(config, EVAL) is strategy  # What `use_tpu` says holds for all modes.


def test_sessions_name_the_tpu_s_machines_and_keep_their_variables_apart():
    resolver = DescribedTPU(4)
    resolver.cluster_spec = lambda: tf.train.ClusterSpec({"worker": ["10.0.0.1:8470"]})
    config = est.tpu.RunConfig(
        cluster=resolver,
        strategy="tpu",
        session_config=tf.compat.v1.ConfigProto(log_device_placement=True),
    )
    session_config = make_runtime(config, TRAIN).session_config()
    assert session_config.isolate_session_state
    assert session_config.log_device_placement
    assert [job.tasks[0] for job in session_config.cluster_def.job] == ["10.0.0.1:8470"]


def test_the_resolver_names_the_master():
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(NOBODY)
    config = est.tpu.RunConfig(cluster=resolver)
    assert (config.master, config.evaluation_master) == (NOBODY, NOBODY)
    assert est.tpu.RunConfig(master="grpc://a:1", evaluation_master="grpc://b:1").master != NOBODY


def test_a_tpu_that_this_tensorflow_cannot_start_is_an_error():
    with pytest.raises(
        ValueError, match=r"The TPU cannot be initialized: No OpKernel .*tensorflow-tpu"
    ):
        runtime_of(make_described(2), est.RunConfig(), TRAIN).start()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: tpu_model(est.tpu.RunConfig(strategy="mirrored")),
            r"`use_tpu=True` and the config's strategy \('mirrored'\) exclude each other",
        ),
        (
            lambda: tpu_model(described(tpu_config=est.tpu.TPUConfig(num_cores_per_replica=2))),
            r"`num_cores_per_replica` \(2\) must be 1[\s\S]*experimental_device_assignment",
        ),
        (
            lambda: make_strategy(described(8, strategy="tpu", num_replicas=4), TRAIN),
            r"`num_replicas` \(4\) must be the number of the TPU's cores \(8\)",
        ),
        (
            lambda: tpu_model(described(8), train_batch_size=100),
            r"`train_batch_size` \(100\) must be a multiple of the number of replicas \(8\)",
        ),
        (
            lambda: tpu_model(described(8, nan_policy="skip")).train(numbers(), max_steps=1),
            r"`nan_policy` \('skip'\) is not supported on a TPU",
        ),
        (lambda: make_strategy(described(0, strategy="tpu"), TRAIN), "There is no TPU"),
    ],
)
def test_what_a_tpu_cannot_do_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
