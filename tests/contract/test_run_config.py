"""RunConfig without a cluster: its fields, their defaults and checks, and `replace`."""

import copy
import pathlib

import pytest

from tests.contract.names import est, tf, v1, v1est

DEFAULTS = {
    "model_dir": None,
    "tf_random_seed": None,
    "save_summary_steps": 100,
    "save_checkpoints_steps": None,
    "save_checkpoints_secs": 600,
    "session_config": None,
    "keep_checkpoint_max": 5,
    "keep_checkpoint_every_n_hours": 10000,
    "log_step_count_steps": 100,
    "train_distribute": None,
    "device_fn": None,
    "protocol": None,
    "eval_distribute": None,
    "experimental_max_worker_delay_secs": None,
    "session_creation_timeout_secs": 7200,
    "checkpoint_save_graph_def": True,
    "service": None,
    "master": "",
    "evaluation_master": "",
    "is_chief": True,
    "num_ps_replicas": 0,
    "num_worker_replicas": 1,
    "task_type": "worker",
    "task_id": 0,
    "global_id_in_cluster": 0,
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_default(name):
    assert getattr(est.RunConfig(), name) == DEFAULTS[name]


def test_default_cluster_spec_is_empty():
    spec = est.RunConfig().cluster_spec
    assert isinstance(spec, tf.train.ClusterSpec)
    assert spec.as_dict() == {}


def test_the_names_are_one_class():
    assert v1est.RunConfig is est.RunConfig


def device_of(op):
    del op
    return "/cpu:0"


GIVEN = {
    "model_dir": "/a/b",
    "tf_random_seed": 7,
    "save_summary_steps": 3,
    "save_checkpoints_steps": 11,
    "save_checkpoints_secs": 13,
    "session_config": v1.ConfigProto(log_device_placement=True),
    "keep_checkpoint_max": 17,
    "keep_checkpoint_every_n_hours": 1.5,
    "log_step_count_steps": 19,
    "device_fn": device_of,
    "protocol": "grpc",
    "experimental_max_worker_delay_secs": 23,
    "session_creation_timeout_secs": 29,
    "checkpoint_save_graph_def": False,
}


@pytest.mark.parametrize("name", GIVEN)
def test_given(name):
    assert getattr(est.RunConfig(**{name: GIVEN[name]}), name) == GIVEN[name]


@pytest.mark.parametrize("name", GIVEN)
def test_replaced(name):
    before = est.RunConfig()
    after = before.replace(**{name: GIVEN[name]})
    assert getattr(after, name) == GIVEN[name]
    assert getattr(before, name) == DEFAULTS[name]


@pytest.mark.parametrize("name", [name for name, value in DEFAULTS.items() if value is not None])
def test_fields_are_read_only(name):
    config = est.RunConfig()
    with pytest.raises(AttributeError):
        setattr(config, name, 1)


def test_fields_by_position():
    config = est.RunConfig("/a", 1, 2, 3, None, None, 4, 5, 6)
    assert (config.model_dir, config.tf_random_seed, config.save_summary_steps) == ("/a", 1, 2)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (3, None)
    assert config.keep_checkpoint_max == 4
    assert config.keep_checkpoint_every_n_hours == 5
    assert config.log_step_count_steps == 6


def test_model_dir_may_be_a_path_object():
    assert est.RunConfig(model_dir=pathlib.Path("/a/b")).model_dir == "/a/b"


@pytest.mark.parametrize(
    ("given", "steps", "secs"),
    [
        ({}, None, 600),
        ({"save_checkpoints_steps": 5}, 5, None),
        ({"save_checkpoints_secs": 5}, None, 5),
        ({"save_checkpoints_steps": None}, None, None),
        ({"save_checkpoints_secs": None}, None, None),
        ({"save_checkpoints_steps": None, "save_checkpoints_secs": None}, None, None),
        ({"save_checkpoints_steps": 5, "save_checkpoints_secs": None}, 5, None),
    ],
)
def test_checkpoint_intervals(given, steps, secs):
    config = est.RunConfig(**given)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (steps, secs)


@pytest.mark.parametrize(
    ("first", "changes", "steps", "secs"),
    [
        ({"save_checkpoints_steps": 5}, {"save_checkpoints_secs": 7}, None, 7),
        ({"save_checkpoints_secs": 5}, {"save_checkpoints_steps": 7}, 7, None),
        ({}, {"save_checkpoints_steps": 7}, 7, None),
        ({"save_checkpoints_steps": 5}, {"save_checkpoints_steps": 7}, 7, None),
        ({"save_checkpoints_steps": 5}, {"save_checkpoints_secs": None}, 5, None),
        ({"save_checkpoints_secs": 5}, {"save_checkpoints_secs": None}, None, None),
        ({"save_checkpoints_steps": 5}, {"tf_random_seed": 1}, 5, None),
    ],
)
def test_replacing_an_interval_takes_away_the_other(first, changes, steps, secs):
    config = est.RunConfig(**first).replace(**changes)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (steps, secs)


WRONG = {
    "empty model_dir": ("model_dir", ""),
    "tf_random_seed of 1.5": ("tf_random_seed", 1.5),
    "tf_random_seed in text": ("tf_random_seed", "1"),
    "negative save_summary_steps": ("save_summary_steps", -1),
    "negative save_checkpoints_steps": ("save_checkpoints_steps", -1),
    "negative save_checkpoints_secs": ("save_checkpoints_secs", -1),
    "session_config in a dict": ("session_config", {"a": 1}),
    "negative keep_checkpoint_max": ("keep_checkpoint_max", -1),
    "no hours": ("keep_checkpoint_every_n_hours", 0),
    "negative log_step_count_steps": ("log_step_count_steps", -1),
    "worker delay of 1.5": ("experimental_max_worker_delay_secs", 1.5),
    "no session timeout": ("session_creation_timeout_secs", 0),
    "device_fn of x": ("device_fn", lambda x: ""),
    "device_fn of two": ("device_fn", lambda op, x: ""),
    "device_fn in text": ("device_fn", "/cpu:0"),
    "unknown protocol": ("protocol", "http"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("way", ["made", "replaced"])
def test_wrong_value_is_a_value_error(case, way):
    name, value = WRONG[case]
    make = est.RunConfig if way == "made" else est.RunConfig().replace
    with pytest.raises(ValueError, match=name):
        make(**{name: value})


def test_both_intervals_are_a_value_error():
    with pytest.raises(ValueError, match="save_checkpoints_steps"):
        est.RunConfig(save_checkpoints_steps=1, save_checkpoints_secs=1)


def test_both_intervals_replaced_are_a_value_error():
    with pytest.raises(ValueError, match="save_checkpoints_steps"):
        est.RunConfig().replace(save_checkpoints_steps=1, save_checkpoints_secs=1)


@pytest.mark.parametrize("name", ["master", "is_chief", "task_type", "cluster_spec", "nonsense"])
def test_what_the_cluster_says_cannot_be_replaced(name):
    with pytest.raises(ValueError, match=name):
        est.RunConfig().replace(**{name: "x"})


def test_unknown_field_is_a_type_error():
    with pytest.raises(TypeError):
        est.RunConfig(nonsense=1)


def test_replace_keeps_what_it_is_not_told():
    config = est.RunConfig(**{k: v for k, v in GIVEN.items() if k != "save_checkpoints_secs"})
    replaced = config.replace(tf_random_seed=8)
    for name, value in GIVEN.items():
        if name not in ("tf_random_seed", "save_checkpoints_secs"):
            assert getattr(replaced, name) == value, name


def test_replace_returns_the_class_of_a_subclass():
    class Config(est.RunConfig):
        pass

    assert type(Config().replace(tf_random_seed=1)) is Config


def test_deep_copy_has_the_same_fields():
    copied = copy.deepcopy(est.RunConfig(tf_random_seed=3, save_checkpoints_steps=5))
    assert (copied.tf_random_seed, copied.save_checkpoints_steps) == (3, 5)


def test_further_attributes_are_kept():
    config = est.RunConfig()
    config.hparams = {"a": 1}
    assert config.hparams == {"a": 1}


def test_further_attributes_survive_replace():
    config = est.RunConfig()
    config.hparams = {"a": 1}
    assert config.replace(tf_random_seed=1).hparams == {"a": 1}


def test_zero_summary_steps():
    assert not est.RunConfig(save_summary_steps=0).save_summary_steps


def test_zero_keep_checkpoint_max():
    assert not est.RunConfig(keep_checkpoint_max=0).keep_checkpoint_max


@pytest.mark.only_2_15("intervals of zero")
@pytest.mark.parametrize(
    "name", ["save_summary_steps", "save_checkpoints_steps", "keep_checkpoint_max"]
)
def test_zero_reads_back_as_zero(name):
    assert getattr(est.RunConfig(**{name: 0}), name) == 0


@pytest.mark.only_here("intervals of zero")
@pytest.mark.parametrize(
    "name",
    [
        "save_summary_steps",
        "save_checkpoints_steps",
        "save_checkpoints_secs",
        "keep_checkpoint_max",
        "log_step_count_steps",
    ],
)
def test_zero_reads_back_as_none(name):
    assert getattr(est.RunConfig(**{name: 0}), name) is None


@pytest.mark.only_2_15("intervals of zero")
def test_zero_log_steps_are_an_error():
    with pytest.raises(ValueError, match="log_step_count_steps"):
        est.RunConfig(log_step_count_steps=0)


@pytest.mark.parametrize("name", ["train_distribute", "eval_distribute"])
def test_strategy_object(name):
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    assert getattr(est.RunConfig(**{name: strategy}), name) is strategy


@pytest.mark.parametrize(
    "name",
    [
        "save_summary_steps",
        "log_step_count_steps",
        "keep_checkpoint_max",
        "keep_checkpoint_every_n_hours",
    ],
)
def test_none_is_accepted(name):
    assert getattr(est.RunConfig(**{name: None}), name) is None


def test_repr_is_text():
    assert "RunConfig" in repr(est.RunConfig())


def test_subclass_may_override_a_property():
    class Config(est.RunConfig):
        @property
        def is_chief(self):
            return False

    assert Config().is_chief is False


@pytest.mark.only_2_15("waiting for ever for a session")
def test_a_session_may_be_waited_for_without_an_end():
    assert est.RunConfig(session_creation_timeout_secs=None).session_creation_timeout_secs is None


@pytest.mark.only_here("waiting for ever for a session")
def test_a_session_is_not_waited_for_without_an_end():
    with pytest.raises(ValueError, match="session_creation_timeout_secs"):
        est.RunConfig(session_creation_timeout_secs=None)


class Distribute:
    """As DistributeConfig of tf.contrib.distribute."""

    def __init__(self, **strategies):
        self.train_distribute = self.eval_distribute = self.remote_cluster = None
        vars(self).update(strategies)


@pytest.mark.parametrize("name", ["train_distribute", "eval_distribute"])
def test_a_strategy_is_given_in_one_place(name):
    one, other = (tf.distribute.OneDeviceStrategy("/cpu:0") for _ in range(2))
    old = Distribute(**{name: one})
    config = est.RunConfig(experimental_distribute=old)
    assert getattr(config, name) is one
    for changed in (other, None):
        assert getattr(config.replace(**{name: changed}), name) is changed
    with pytest.raises(ValueError, match=name):
        est.RunConfig(experimental_distribute=old, **{name: other})
