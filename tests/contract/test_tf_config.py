"""RunConfig in a cluster: what TF_CONFIG says, for every role."""

import json

import pytest

from tests.contract.names import est, tf_config, v1

CLUSTER = {
    "chief": ["host0:2222"],
    "ps": ["host1:2222", "host2:2222"],
    "worker": ["host3:2222", "host4:2222", "host5:2222"],
}
OLD_CLUSTER = {
    "master": ["host0:2222"],
    "ps": ["host1:2222"],
    "worker": ["host3:2222", "host4:2222"],
}


def config_of(monkeypatch, text, **fields):
    monkeypatch.setenv("TF_CONFIG", text if isinstance(text, str) else json.dumps(text))
    return est.RunConfig(**fields)


# By task: cluster_spec, master, evaluation_master, is_chief, num_ps_replicas, num_worker_replicas,
# task_type, task_id, global_id_in_cluster.
TASKS = {
    ("chief", 0): (CLUSTER, "grpc://host0:2222", "", True, 2, 4, "chief", 0, 0),
    ("worker", 0): (CLUSTER, "grpc://host3:2222", "", False, 2, 4, "worker", 0, 1),
    ("worker", 2): (CLUSTER, "grpc://host5:2222", "", False, 2, 4, "worker", 2, 3),
    ("ps", 0): (CLUSTER, "grpc://host1:2222", "", False, 2, 4, "ps", 0, 4),
    ("ps", 1): (CLUSTER, "grpc://host2:2222", "", False, 2, 4, "ps", 1, 5),
    ("evaluator", 0): ({}, "", "", False, 0, 0, "evaluator", 0, None),
}
OLD_TASKS = {
    ("master", 0): (OLD_CLUSTER, "grpc://host0:2222", "", True, 1, 3, "master", 0, 0),
    ("worker", 1): (OLD_CLUSTER, "grpc://host4:2222", "", False, 1, 3, "worker", 1, 2),
    ("ps", 0): (OLD_CLUSTER, "grpc://host1:2222", "", False, 1, 3, "ps", 0, 3),
}
FIELDS = (
    "cluster_spec",
    "master",
    "evaluation_master",
    "is_chief",
    "num_ps_replicas",
    "num_worker_replicas",
    "task_type",
    "task_id",
    "global_id_in_cluster",
)


def check(monkeypatch, cluster, task, field, expected):
    config = config_of(monkeypatch, tf_config(cluster, *task))
    value = getattr(config, field)
    assert (value.as_dict() if field == "cluster_spec" else value) == expected


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task[0]}-{task[1]}")
def test_task(monkeypatch, task, field):
    check(monkeypatch, CLUSTER, task, field, TASKS[task][FIELDS.index(field)])


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("task", OLD_TASKS, ids=lambda task: f"{task[0]}-{task[1]}")
def test_task_beside_a_master(monkeypatch, task, field):
    check(monkeypatch, OLD_CLUSTER, task, field, OLD_TASKS[task][FIELDS.index(field)])


FILTERS = {
    ("chief", 0): ["/job:ps", "/job:chief"],
    ("worker", 1): ["/job:ps", "/job:worker/task:1"],
    ("ps", 0): ["/job:ps", "/job:worker", "/job:chief", "/job:master"],
}


@pytest.mark.parametrize("task", FILTERS, ids=lambda task: task[0])
def test_device_filters(monkeypatch, task):
    config = config_of(monkeypatch, tf_config(CLUSTER, *task))
    assert list(config.session_config.device_filters) == FILTERS[task]
    assert config.session_config.allow_soft_placement


def test_evaluator_has_no_session_config(monkeypatch):
    assert config_of(monkeypatch, tf_config(CLUSTER, "evaluator", 0)).session_config is None


def test_given_session_config_has_no_filters(monkeypatch):
    given = v1.ConfigProto(log_device_placement=True)
    config = config_of(monkeypatch, tf_config(CLUSTER, "worker", 0), session_config=given)
    assert config.session_config == given


LOCAL = {
    "nothing": ({}, "task_type", "worker"),
    "an empty cluster": ({"cluster": {}}, "is_chief", True),
    "worker 0": ({"task": {"type": "worker", "index": 0}}, "task_id", 0),
    "worker 0 is chief": ({"task": {"type": "worker", "index": 0}}, "is_chief", True),
    "session_master": ({"session_master": "grpc://a:1"}, "master", "grpc://a:1"),
    "eval master": ({"eval_session_master": "grpc://a:1"}, "evaluation_master", "grpc://a:1"),
    "service": ({"service": {"a": [1]}}, "service", {"a": [1]}),
    "model_dir": ({"model_dir": "/a/b"}, "model_dir", "/a/b"),
    "other keys": ({"environment": "cloud"}, "num_worker_replicas", 1),
}


@pytest.mark.parametrize("case", LOCAL)
def test_without_a_cluster(monkeypatch, case):
    text, field, expected = LOCAL[case]
    assert getattr(config_of(monkeypatch, text), field) == expected


def test_a_list_without_tasks_counts_none(monkeypatch):
    config = config_of(monkeypatch, tf_config({"chief": ["h:1"], "worker": []}, "chief", 0))
    assert (config.num_worker_replicas, config.num_ps_replicas) == (1, 0)
    assert (config.is_chief, config.task_type) == (True, "chief")


WITH_EVALUATOR = {"chief": ["h:1"], "evaluator": ["h:2"]}
WITH_UNKNOWN = {"chief": ["h:1"], "gpu": ["h:2"]}
CLUSTERS = {
    "session_master": (CLUSTER, ("worker", 0), {"session_master": "g"}, "master", "g"),
    "worker's eval master": (
        CLUSTER,
        ("worker", 0),
        {"eval_session_master": "g"},
        "evaluation_master",
        "",
    ),
    "evaluator's eval master": (
        CLUSTER,
        ("evaluator", 0),
        {"eval_session_master": "g"},
        "evaluation_master",
        "g",
    ),
    "evaluator's master": (CLUSTER, ("evaluator", 0), {"session_master": "g"}, "master", ""),
    "an index as text": (CLUSTER, ("worker", "1"), {}, "task_id", 1),
    "service": (CLUSTER, ("worker", 0), {"service": {"a": 1}}, "service", {"a": 1}),
    "model_dir": (CLUSTER, ("worker", 0), {"model_dir": "/m"}, "model_dir", "/m"),
    "a chief alone": ({"chief": ["h:1"]}, ("chief", 0), {}, "master", ""),
    "a chief alone counts": ({"chief": ["h:1"]}, ("chief", 0), {}, "num_worker_replicas", 1),
    "a listed evaluator": (WITH_EVALUATOR, ("evaluator", 0), {}, "task_type", "evaluator"),
    "chief beside an evaluator": (WITH_EVALUATOR, ("chief", 0), {}, "is_chief", True),
    "evaluator 3": (CLUSTER, ("evaluator", 3), {}, "task_id", 3),
    "port 0": ({"chief": ["h:0"], "worker": ["h:1"]}, ("worker", 0), {}, "master", "grpc://h:1"),
    "an unknown job": (WITH_UNKNOWN, ("chief", 0), {}, "num_worker_replicas", 1),
    "a task of an unknown job": (WITH_UNKNOWN, ("gpu", 0), {}, "task_type", "gpu"),
}


@pytest.mark.parametrize("case", CLUSTERS)
def test_in_a_cluster(monkeypatch, case):
    cluster, task, others, field, expected = CLUSTERS[case]
    config = config_of(monkeypatch, tf_config(cluster, *task, **others))
    assert getattr(config, field) == expected


CHIEF = {"type": "chief", "index": 0}
WRONG = {
    "no task": {"cluster": CLUSTER},
    "no type": {"cluster": CLUSTER, "task": {"index": 0}},
    "a negative index": {"cluster": CLUSTER, "task": {"type": "worker", "index": -1}},
    "an index too high": {"cluster": CLUSTER, "task": {"type": "worker", "index": 3}},
    "a task of no job": {"cluster": CLUSTER, "task": {"type": "nonsense", "index": 0}},
    "two chiefs": {"cluster": {"chief": ["a:1", "b:1"]}, "task": CHIEF},
    "a chief and a master": {"cluster": {"chief": ["a:1"], "master": ["b:1"]}, "task": CHIEF},
    "ps alone": {"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}},
    "an empty model_dir": {"model_dir": ""},
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_tf_config_is_a_value_error(monkeypatch, case):
    with pytest.raises(ValueError):
        config_of(monkeypatch, WRONG[case])


LENIENT = {
    "a chief without a cluster": {"task": CHIEF},
    "workers without a chief": {
        "cluster": {"worker": ["a:1", "b:1"]},
        "task": {"type": "worker", "index": 0},
    },
    "no index": {"cluster": CLUSTER, "task": {"type": "chief"}},
}


@pytest.mark.only_2_15("clusters without a chief")
@pytest.mark.parametrize("case", LENIENT)
def test_incomplete_tf_config_is_a_value_error(monkeypatch, case):
    with pytest.raises(ValueError):
        config_of(monkeypatch, LENIENT[case])


@pytest.mark.only_here("clusters without a chief")
@pytest.mark.parametrize("case", LENIENT)
def test_incomplete_tf_config_has_a_chief(monkeypatch, case):
    config = config_of(monkeypatch, LENIENT[case])
    assert (config.is_chief, config.task_id) == (True, 0)


def test_text_that_is_not_json_is_a_value_error(monkeypatch):
    with pytest.raises(ValueError):
        config_of(monkeypatch, "{chief")


def test_service_must_be_a_dict(monkeypatch):
    with pytest.raises(TypeError):
        config_of(monkeypatch, {"service": "a"})


def test_model_dir_must_be_that_of_tf_config(monkeypatch):
    with pytest.raises(ValueError, match="model_dir"):
        config_of(monkeypatch, {"model_dir": "/a"}, model_dir="/b")


def test_model_dir_may_repeat_that_of_tf_config(monkeypatch):
    assert config_of(monkeypatch, {"model_dir": "/a"}, model_dir="/a").model_dir == "/a"


def test_replace_does_not_read_tf_config_again(monkeypatch):
    config = config_of(monkeypatch, tf_config(CLUSTER, "worker", 1))
    monkeypatch.delenv("TF_CONFIG")
    replaced = config.replace(tf_random_seed=1)
    assert (replaced.task_type, replaced.task_id) == ("worker", 1)
    assert replaced.cluster_spec.as_dict() == CLUSTER
