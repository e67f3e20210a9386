import copy
import dataclasses
import json
import pathlib
import pickle
import types

import pytest
import tensorflow as tf

from estimator.config.cluster import Cluster, parse_tf_config
from estimator.config.run_config import RunConfig
from estimator.config.tpu_config import InputPipelineConfig, TPUConfig
from estimator.config.tpu_run_config import TPURunConfig


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)


def one_device():
    return tf.distribute.OneDeviceStrategy("/cpu:0")


def test_the_defaults_are_those_of_tf_estimator():
    config = RunConfig()
    assert config.model_dir is None
    assert config.save_summary_steps == config.log_step_count_steps == 100
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (None, 600)
    assert config.keep_checkpoint_max == 5
    assert config.keep_checkpoint_every_n_hours == 10000
    assert config.session_creation_timeout_secs == 7200
    assert config.checkpoint_save_graph_def
    assert config.iterations_per_loop == 1
    assert (config.task_type, config.task_id, config.is_chief) == ("worker", 0, True)
    assert (config.num_worker_replicas, config.num_ps_replicas) == (1, 0)
    assert (config.master, config.evaluation_master, config.service) == ("", "", None)
    assert config.global_id_in_cluster == 0
    assert config.cluster_spec == tf.train.ClusterSpec({})


def test_positional_arguments_stand_where_they_stood():
    config = RunConfig("dir", 1, 2, None, 3, None, 4, 5, 6, None, None, "grpc")
    assert (config.model_dir, config.tf_random_seed, config.save_summary_steps) == ("dir", 1, 2)
    assert (config.save_checkpoints_secs, config.keep_checkpoint_max) == (3, 4)
    assert (config.log_step_count_steps, config.protocol) == (6, "grpc")


@pytest.mark.parametrize(
    ("named", "steps", "secs"),
    [
        ({}, None, 600),
        ({"save_checkpoints_steps": 10}, 10, None),
        ({"save_checkpoints_secs": 10}, None, 10),
        ({"save_checkpoints_steps": None}, None, None),
        ({"save_checkpoints_secs": None}, None, None),
        ({"save_checkpoints_secs": 0}, None, None),
        ({"save_checkpoints_steps": None, "save_checkpoints_secs": None}, None, None),
        ({"save_checkpoints_steps": 10, "save_checkpoints_secs": None}, 10, None),
        ({"save_checkpoints_steps": None, "save_checkpoints_secs": 10}, None, 10),
    ],
)
def test_only_what_is_not_named_saves_every_600_secs(named, steps, secs):
    config = RunConfig(**named)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (steps, secs)


@pytest.mark.parametrize(
    ("changes", "steps", "secs"),
    [
        ({"save_checkpoints_steps": 3}, 3, None),
        ({"save_checkpoints_secs": 3}, None, 3),
        ({"model_dir": "dir"}, None, 600),
        ({"save_checkpoints_secs": None}, None, None),
    ],
)
def test_replacing_one_interval_takes_away_the_other(changes, steps, secs):
    config = RunConfig().replace(**changes)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (steps, secs)


@pytest.mark.parametrize(
    "name",
    ["save_summary_steps", "save_checkpoints_steps", "log_step_count_steps", "keep_checkpoint_max"],
)
def test_zero_and_none_are_one_value(name):
    assert RunConfig(**{name: 0}) == RunConfig(**{name: None})
    assert getattr(RunConfig(**{name: 0}), name) is None


def test_every_field_holds_what_it_is_given():
    given = {
        "session_config": tf.compat.v1.ConfigProto(log_device_placement=True),
        "device_fn": lambda op: "/cpu:0",
        "protocol": "grpc+verbs",
        "experimental_max_worker_delay_secs": 0,
        "session_creation_timeout_secs": 0.5,
        "peer_timeout_secs": 0.5,
        "checkpoint_save_graph_def": False,
        "keep_checkpoint_every_n_hours": 0.1,
        "train_distribute": one_device(),
        "eval_distribute": one_device(),
        "compute_dtype": "bfloat16",
        "jit_compile": True,
        "max_time_secs": 0.5,
        "smoke": True,
        "iterations_per_loop": "30s",
    }
    for config in (RunConfig(**given), RunConfig().replace(**given)):
        assert {name: getattr(config, name) for name in given} == given


def test_a_path_object_becomes_a_string():
    assert RunConfig(pathlib.Path("a", "b")).model_dir == "a/b"


def test_a_config_is_frozen_and_replace_leaves_it_alone():
    config = RunConfig(model_dir="a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.model_dir = "b"
    with pytest.raises(dataclasses.FrozenInstanceError):
        del config.model_dir
    with pytest.raises(AttributeError):
        config.is_chief = False
    assert config.replace(model_dir="b").model_dir == "b"
    assert config.model_dir == "a"


@pytest.mark.parametrize("config", [RunConfig("a"), TPURunConfig(TPUConfig(7), model_dir="a")])
def test_a_program_may_add_attributes_which_copies_have_too(config):
    config.hparams = {"rate": 0.1}
    for copied in (config.replace(model_dir="b"), copy.deepcopy(config)):
        assert copied.hparams == {"rate": 0.1}
    config.hparams = None
    del config.hparams
    assert not hasattr(config, "hparams")


def test_properties_of_a_subclass_count():
    class Config(RunConfig):
        is_chief = property(lambda self: False)
        model_dir = property(lambda self: "mine")
        task_id = property(lambda self: 3)
        master = property(lambda self: "grpc://other:1")

    config = Config(tf_random_seed=1)
    assert config.replace(tf_random_seed=2).model_dir == config.model_dir == "mine"
    cluster = config.obeyed_cluster()
    assert (cluster.is_chief, cluster.task_id, cluster.task_type) == (False, 3, "worker")
    assert config.named_master("train") == "grpc://other:1"


def test_a_subclass_may_say_that_the_chief_s_task_is_not_the_chief():
    class Config(RunConfig):
        is_chief = property(lambda self: False)

    assert RunConfig().obeyed_cluster().is_chief
    assert not Config().obeyed_cluster().is_chief


def test_properties_of_a_subclass_may_describe_a_cluster():
    spec = tf.train.ClusterSpec({"master": ["a:1"], "ps": ["b:1"], "worker": ["c:1", "c:2"]})

    class Config(RunConfig):
        cluster_spec = property(lambda self: spec)
        task_type = property(lambda self: "master")

    cluster = Config().obeyed_cluster()
    assert cluster.named_cluster_spec == spec.as_dict()
    assert (cluster.named_task_type, cluster.is_chief) == ("master", True)
    assert (cluster.num_ps_replicas, cluster.num_worker_replicas) == (1, 3)
    assert RunConfig().obeyed_cluster() == Cluster()


@pytest.mark.parametrize(
    ("task", "filters"),
    [
        (("chief", 0), ["/job:ps", "/job:chief"]),
        (("worker", 1), ["/job:ps", "/job:worker/task:1"]),
        (("ps", 0), ["/job:ps", "/job:worker", "/job:chief", "/job:master"]),
    ],
)
def test_a_task_of_a_cluster_has_device_filters_by_default(task, filters):
    addresses = {"chief": ["a:1"], "worker": ["b:1", "b:2"], "ps": ["c:1"]}
    tf_config = {"cluster": addresses, "task": {"type": task[0], "index": task[1]}}
    cluster = parse_tf_config(json.dumps(tf_config))
    config = RunConfig(cluster=cluster)
    assert config.session_config.device_filters == filters
    assert config.session_config.allow_soft_placement
    assert "session_config" not in repr(config)
    assert config.replace(cluster=Cluster()).session_config is None
    given = tf.compat.v1.ConfigProto(log_device_placement=True)
    assert RunConfig(cluster=cluster, session_config=given).session_config == given


@pytest.mark.parametrize("config", [RunConfig("a"), TPURunConfig(TPUConfig(7), model_dir="a")])
def test_copies_are_equal(config):
    assert copy.deepcopy(config) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert config.replace() == config


def make_full_configs():
    """A config of each kind, whose fields hold what has no hash too."""
    cluster = {"cluster": {"worker": ["a:1", "b:1"]}, "service": {"a": ["b"]}}
    cluster["task"] = {"type": "worker", "index": 1}
    fields = {
        "cluster": parse_tf_config(json.dumps(cluster)),
        "session_config": tf.compat.v1.ConfigProto(log_device_placement=True),
        "profile_steps": [1, 2],
        "experimental_distribute": types.SimpleNamespace(train_distribute=None),
    }
    dims = TPUConfig(
        num_cores_per_replica=2,
        per_host_input_for_training=InputPipelineConfig.PER_HOST_V2,
        input_partition_dims=[[2], [1]],
    )
    return fields["cluster"], dims, RunConfig("a", **fields), TPURunConfig(dims, **fields)


def test_equal_configs_have_equal_hashes():
    for one, other in zip(make_full_configs(), make_full_configs(), strict=True):
        assert one == other
        assert hash(one) == hash(other)
        assert {one: "found"}[other] == "found"
    assert hash(RunConfig("a", 1)) == hash(RunConfig("a", 1))
    assert len({RunConfig(), RunConfig("a"), TPURunConfig(), RunConfig(tf_random_seed=1)}) == 4


def test_a_subclass_may_add_attributes_and_survives_replace():
    class Config(RunConfig):
        def __init__(self, speed):
            super().__init__(model_dir="a")
            self.speed = speed

    config = Config(3).replace(model_dir="b")
    assert (type(config), config.speed, config.model_dir) == (Config, 3, "b")


def test_a_subclass_may_have_private_attributes_of_its_own():
    class Config(RunConfig):
        def __init__(self):
            super().__init__()
            self._speed, self._is_chief = 3, False

        @property
        def is_chief(self):
            return self._is_chief

    config = Config()
    assert (config._speed, config.is_chief) == (3, False)


@pytest.mark.parametrize("name", ["_model_dir", "_save_summary_steps", "_is_chief", "_master"])
@pytest.mark.parametrize(
    "config", [RunConfig(), TPURunConfig()], ids=lambda one: type(one).__name__
)
def test_the_private_names_of_2_15_are_refused(config, name):
    with pytest.raises(AttributeError, match=f"`{name}` of a .* has no effect. `{name[1:]}`"):
        setattr(config, name, 1)


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        (RunConfig(), "RunConfig()"),
        (RunConfig("a", save_checkpoints_steps=5), "RunConfig(model_dir='a', save_checkpoints_st"),
        (RunConfig(save_checkpoints_secs=None), "RunConfig(save_checkpoints_secs=None)"),
        (RunConfig(strategy="mirrored", num_replicas=2), "RunConfig(strategy='mirrored', num_rep"),
        (TPUConfig(num_shards=8), "TPUConfig(num_shards=8)"),
    ],
)
def test_only_what_differs_from_the_default_is_shown(config, shown):
    assert repr(config).startswith(shown)
    assert len(repr(config)) < 60


def test_the_cluster_is_read_once_when_the_config_is_made(monkeypatch):
    text = {"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker"}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(text))
    config = RunConfig()
    monkeypatch.delenv("TF_CONFIG")
    config = config.replace(model_dir="a")
    assert (config.task_type, config.is_chief, config.master) == ("worker", False, "grpc://b:1")
    assert (config.num_worker_replicas, config.global_id_in_cluster) == (2, 1)
    assert config.cluster_spec.as_dict() == text["cluster"]


def test_what_tf_config_says_beside_the_cluster(monkeypatch):
    text = {"model_dir": "there", "service": {"name": "x"}, "session_master": "a"}
    monkeypatch.setenv("TF_CONFIG", json.dumps(text))
    config = RunConfig()
    assert (config.model_dir, config.service, config.master) == ("there", {"name": "x"}, "a")
    assert RunConfig("there").model_dir == "there"
    assert config.replace(model_dir="here").model_dir == "here"
    with pytest.raises(ValueError, match="`model_dir` .'here'. must be that of `TF_CONFIG` .'ther"):
        RunConfig("here")


def test_an_old_distribute_config_is_taken_apart():
    strategy = one_device()
    old = types.SimpleNamespace(train_distribute=strategy, eval_distribute=None)
    config = RunConfig(experimental_distribute=old)
    assert config.train_distribute is strategy
    assert config.eval_distribute is None


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"model_dir": 3}, TypeError, r"`model_dir` \(3\) must be a path"),
        ({"model_dir": ""}, ValueError, "`model_dir` .* must not be empty"),
        ({"tf_random_seed": "x"}, TypeError, "`tf_random_seed` .* must be an integer"),
        ({"save_summary_steps": -1}, ValueError, r"`save_summary_steps` \(-1\) must be at least 1"),
        ({"save_summary_steps": 1.5}, TypeError, "`save_summary_steps` .* must be an integer"),
        ({"save_checkpoints_steps": True}, TypeError, "`save_checkpoints_steps` .* an integer"),
        ({"save_checkpoints_steps": False}, TypeError, "`save_checkpoints_steps` .* an integer"),
        ({"save_checkpoints_secs": -1}, ValueError, "`save_checkpoints_secs` .* positive"),
        ({"save_checkpoints_secs": "1"}, TypeError, "`save_checkpoints_secs` .* a number"),
        (
            {"save_checkpoints_steps": 1, "save_checkpoints_secs": 2},
            ValueError,
            r"`save_checkpoints_steps` \(1\) and `save_checkpoints_secs` \(2\) exclude each other",
        ),
        ({"session_config": {}}, TypeError, "`session_config` .* ConfigProto"),
        ({"keep_checkpoint_max": -1}, ValueError, "`keep_checkpoint_max`"),
        ({"keep_checkpoint_every_n_hours": 0}, ValueError, "`keep_checkpoint_every_n_hours`"),
        ({"log_step_count_steps": -5}, ValueError, "`log_step_count_steps`"),
        ({"train_distribute": "mirrored"}, TypeError, 'goes into `strategy`, as in strategy="mir'),
        ({"eval_distribute": 2}, TypeError, "`eval_distribute`"),
        ({"device_fn": "/cpu:0"}, TypeError, "`device_fn` .* a function"),
        ({"device_fn": lambda node: ""}, ValueError, "of exactly one argument, `op`"),
        ({"device_fn": lambda op, x: ""}, ValueError, "of exactly one argument, `op`"),
        ({"protocol": 1}, TypeError, "`protocol`"),
        ({"protocol": "http"}, ValueError, "`protocol` .'http'. is unknown. .*'grpc'"),
        ({"experimental_max_worker_delay_secs": 0.5}, TypeError, "delay_secs` .* an integer"),
        ({"experimental_max_worker_delay_secs": -1}, ValueError, "delay_secs` .-1. must be at lea"),
        ({"session_creation_timeout_secs": 0}, ValueError, "`session_creation_timeout_secs`"),
        ({"checkpoint_save_graph_def": "yes"}, TypeError, "True or False"),
        ({"strategy": "miror"}, ValueError, "`strategy` .'miror'. is unknown. .* 'mirrored'"),
        ({"strategy": 3}, TypeError, "`strategy` .* a name or a strategy object"),
        ({"num_replicas": 0, "strategy": "mirrored"}, ValueError, "`num_replicas` .* at least 1"),
        ({"num_replicas": 2}, ValueError, '`num_replicas` .2. must be 1 .* strategy="mirrored"'),
        ({"num_replicas": 2, "strategy": "one_device"}, ValueError, 'pass strategy="mirrored"'),
        ({"iterations_per_loop": 0}, ValueError, "`iterations_per_loop` .* at least 1"),
        ({"iterations_per_loop": None}, TypeError, "`iterations_per_loop` .* an integer"),
        ({"nan_policy": "Stop!"}, ValueError, "`nan_policy` .'Stop!'. is unknown. .*'stop'"),
        ({"resume_input": 1}, TypeError, "`resume_input`"),
        (
            {"compute_dtype": "bf16"},
            ValueError,
            "`compute_dtype` .'bf16'. is unknown. .*'bfloat16'",
        ),
        ({"compute_dtype": "float16"}, ValueError, "'float32' or 'bfloat16': float16 loses small"),
        ({"compute_dtype": None}, ValueError, "`compute_dtype` .None. is unknown"),
        ({"jit_compile": "yes"}, TypeError, "`jit_compile` .'yes'. must be True or False"),
        ({"smoke": 1}, TypeError, "`smoke` .1. must be True or False"),
        ({"max_time_secs": 0}, ValueError, "`max_time_secs` .0. must be positive"),
        ({"peer_timeout_secs": 0}, ValueError, "`peer_timeout_secs` .0. must be positive"),
        ({"max_time_secs": "1h"}, TypeError, "`max_time_secs` .'1h'. must be a number"),
        ({"cluster": None}, TypeError, "`cluster` .None. must be a Cluster"),
        ({"cluster": {"worker": ["a:1"]}}, TypeError, "`cluster` .* must be a Cluster"),
    ],
)
def test_a_wrong_field_is_an_error_when_the_config_is_made(fields, error, message):
    with pytest.raises(error, match=message):
        RunConfig(**fields)
    if len(fields) == 1:
        with pytest.raises(error, match=message):
            RunConfig().replace(**fields)


@pytest.mark.parametrize("name", ["train_distribute", "eval_distribute"])
def test_strategy_excludes_the_strategies_of_one_mode(name):
    with pytest.raises(ValueError, match=f"`strategy` .* and `{name}` .* exclude each other"):
        RunConfig(strategy="mirrored", **{name: one_device()})


@pytest.mark.parametrize("name", ["strategy", "train_distribute", "eval_distribute"])
def test_a_strategy_object_has_its_own_replicas(name):
    with pytest.raises(ValueError, match="`num_replicas` .2. cannot change a strategy object"):
        RunConfig(num_replicas=2, **{name: one_device()})


def test_replacing_an_unknown_field_names_the_nearest():
    message = "`save_checkpoint_steps` is not a field of RunConfig. .* 'save_checkpoints_steps'?"
    with pytest.raises(ValueError, match=message):
        RunConfig().replace(save_checkpoint_steps=1)


def test_a_tpu_run_config_is_shown_as_programs_call_it():
    assert repr(TPURunConfig(model_dir="a")).startswith("tpu.RunConfig(model_dir='a'")
    with pytest.raises(ValueError, match=r"`steps` is not a field of tpu\.RunConfig"):
        TPURunConfig().replace(steps=1)
    derived = type("Derived", (TPURunConfig,), {})
    assert repr(derived(model_dir="a")).startswith("Derived(model_dir='a'")


def test_a_tpu_config_sets_the_length_of_the_loop():
    config = TPURunConfig(TPUConfig(iterations_per_loop=50), model_dir="a")
    assert (config.iterations_per_loop, TPURunConfig().iterations_per_loop) == (50, 2)
    assert config.replace(iterations_per_loop=3).tpu_config.iterations_per_loop == 3
    assert config.replace(tpu_config=TPUConfig(4)).iterations_per_loop == 4


def test_the_master_of_a_tpu_evaluates_too_unless_another_is_named():
    assert TPURunConfig().master == TPURunConfig().evaluation_master == ""
    assert TPURunConfig(master="a").evaluation_master == "a"
    other = TPURunConfig(master="a", evaluation_master="b")
    assert (other.master, other.evaluation_master) == ("a", "b")
    assert [other.named_master(mode) for mode in ("train", "eval", "infer")] == ["a", "b", "a"]
    assert TPURunConfig(master="a").replace(model_dir="dir").master == "a"
    in_cluster = Cluster({"chief": ("a:1",), "worker": ("b:1",)}, "worker")
    assert TPURunConfig().replace(cluster=in_cluster).evaluation_master == "grpc://b:1"
    evaluator = Cluster(task_type="evaluator", eval_session_master="y")
    assert TPURunConfig(master="a").replace(cluster=evaluator).evaluation_master == "y"


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"iterations_per_loop": 3}, ValueError, "belongs in the `tpu_config`"),
        ({"tpu_config": 3}, TypeError, "`tpu_config` .3. must be a TPUConfig"),
        ({"cluster": object(), "master": "a"}, ValueError, "`cluster` .* exclude each other"),
    ],
)
def test_a_wrong_tpu_run_config_is_an_error(fields, error, message):
    with pytest.raises(error, match=message):
        TPURunConfig(**fields)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (True, InputPipelineConfig.PER_HOST_V1),
        (False, InputPipelineConfig.PER_SHARD_V1),
        (InputPipelineConfig.PER_SHARD_V1, InputPipelineConfig.PER_SHARD_V1),
        (InputPipelineConfig.PER_HOST_V2, InputPipelineConfig.PER_HOST_V2),
    ],
)
def test_a_bool_is_the_old_way_to_name_an_input_pipeline(given, kept):
    assert TPUConfig(per_host_input_for_training=given).per_host_input_for_training == kept


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"iterations_per_loop": 0}, ValueError, "`iterations_per_loop`"),
        ({"iterations_per_loop": "5x"}, ValueError, "`iterations_per_loop` .* a time such as"),
        ({"num_shards": -1}, ValueError, "`num_shards`"),
        ({"num_cores_per_replica": 3}, ValueError, "`num_cores_per_replica` .3. must be one of"),
        ({"per_host_input_for_training": 9}, ValueError, "InputPipelineConfig"),
        ({"eval_training_input_configuration": 1}, ValueError, "PER_HOST_V1 or SLICED"),
        ({"input_partition_dims": [[1, 2]]}, ValueError, "needs `num_cores_per_replica`"),
        ({"input_partition_dims": 2, "num_cores_per_replica": 2}, TypeError, "must be a list"),
        (
            {"input_partition_dims": [[1], [2], [3]], "num_cores_per_replica": 2},
            ValueError,
            "must have one or two parts",
        ),
        (
            {"input_partition_dims": [[1, 2]], "num_cores_per_replica": 2},
            ValueError,
            "needs `per_host_input_for_training=InputPipelineConfig.PER_HOST_V2`",
        ),
        ({"tpu_job_name": 3}, TypeError, "`tpu_job_name`"),
        ({"initial_infeed_sleep_secs": -1}, ValueError, "`initial_infeed_sleep_secs`"),
        ({"experimental_host_call_every_n_steps": 0}, ValueError, "every_n_steps"),
        ({"experimental_allow_per_host_v2_parallel_get_next": 1}, TypeError, "True or False"),
        ({"experimental_feed_hook": 1}, TypeError, "`experimental_feed_hook`"),
    ],
)
def test_a_wrong_tpu_config_is_an_error(fields, error, message):
    with pytest.raises(error, match=message):
        TPUConfig(**fields)


def test_a_cluster_may_be_passed_instead_of_tf_config():
    task = {"type": "worker", "index": 1}
    text = json.dumps({"cluster": {"worker": ["a:1", "b:1"], "ps": ["c:1"]}, "task": task})
    cluster = parse_tf_config(text)
    for config in (RunConfig(cluster=cluster), TPURunConfig(cluster=cluster)):
        assert config.cluster == cluster
        assert (config.task_id, config.num_worker_replicas, config.num_ps_replicas) == (1, 2, 1)
        assert config.master == "grpc://b:1"
    assert config.tpu_cluster_resolver is None
    # A session elsewhere, as for servers that run already.
    assert TPURunConfig(cluster=cluster, master="grpc://d:1").master == "grpc://d:1"


def test_asynchronous_checkpoints_are_refused_with_ps_tasks():
    tasks = {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}
    for task_type in ("chief", "worker", "ps"):
        text = json.dumps({"cluster": tasks, "task": {"type": task_type, "index": 0}})
        with pytest.raises(ValueError, match=r"`async_checkpoints` .* ps tasks .* Leave it out"):
            RunConfig(cluster=parse_tf_config(text), async_checkpoints=True)
