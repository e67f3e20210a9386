import json
import os
import subprocess
import sys

import pytest

from estimator.config.cluster import (
    Cluster,
    environment_with,
    format_tf_config,
    parse_tf_config,
    read_cluster,
)

ADDRESSES = {
    "chief": ["a:1"],
    "worker": ["b:1", "b:2"],
    "ps": ["c:1", "c:2", "c:3"],
}


def tf_config(task_type=None, task_id=None, cluster=None, **more):
    task = {"type": task_type, "index": task_id}
    task = {name: value for name, value in task.items() if value is not None}
    return json.dumps({"cluster": ADDRESSES if cluster is None else cluster, "task": task, **more})


@pytest.mark.parametrize("text", [None, "", "  ", "{}", '{"cluster": {}}', '{"environment": "x"}'])
def test_no_cluster_is_one_local_chief(text):
    cluster = parse_tf_config(text)
    assert cluster == Cluster()
    assert (cluster.task_type, cluster.task_id) == ("worker", 0)
    assert cluster.is_chief
    assert cluster.master == cluster.evaluation_master == ""
    assert (cluster.num_worker_replicas, cluster.num_ps_replicas) == (1, 0)
    assert cluster.global_id_in_cluster == 0
    assert cluster.cluster_spec == {}


@pytest.mark.parametrize(
    ("task_type", "task_id", "global_id", "master"),
    [
        ("chief", 0, 0, "grpc://a:1"),
        ("worker", 0, 1, "grpc://b:1"),
        ("worker", 1, 2, "grpc://b:2"),
        ("ps", 0, 3, "grpc://c:1"),
        ("ps", 2, 5, "grpc://c:3"),
    ],
)
def test_a_task_knows_its_place(task_type, task_id, global_id, master):
    cluster = parse_tf_config(tf_config(task_type, task_id))
    assert (cluster.task_type, cluster.task_id) == (task_type, task_id)
    assert cluster.global_id_in_cluster == global_id
    assert cluster.master == master
    assert cluster.is_chief == (task_type == "chief")
    assert (cluster.num_worker_replicas, cluster.num_ps_replicas) == (3, 3)
    assert cluster.cluster_spec == ADDRESSES


@pytest.mark.parametrize("listed", [{}, {"evaluator": ["d:1"]}])
def test_an_evaluator_is_outside_the_training_cluster(listed):
    cluster = parse_tf_config(tf_config("evaluator", 0, {**ADDRESSES, **listed}))
    assert not cluster.is_chief
    assert cluster.cluster_spec == {}
    assert cluster.master == ""
    assert (cluster.num_worker_replicas, cluster.num_ps_replicas) == (0, 0)
    assert cluster.global_id_in_cluster is None


def test_an_evaluator_is_not_counted_by_those_who_train():
    cluster = parse_tf_config(tf_config("chief", 0, {**ADDRESSES, "evaluator": ["d:1"]}))
    assert cluster.cluster_spec == ADDRESSES
    assert cluster.num_worker_replicas == 3


def test_a_chief_called_master_is_chief_and_keeps_its_name():
    addresses = {"master": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}
    master = parse_tf_config(tf_config("master", 0, addresses))
    assert master.is_chief
    assert (master.named_task_type, master.named_cluster_spec) == ("master", addresses)
    assert (master.master, master.global_id_in_cluster) == ("grpc://a:1", 0)
    assert master.num_worker_replicas == 2
    worker = parse_tf_config(tf_config("worker", 0, addresses))
    assert not worker.is_chief
    assert worker.named_cluster_spec == addresses
    with pytest.raises(ValueError, match='with a "master" is evaluated by that. Call the "master"'):
        parse_tf_config(tf_config("evaluator", 0, addresses))


@pytest.mark.parametrize(
    ("task", "global_id", "master"),
    [("worker", 3, "grpc://b:1"), ("ps", 5, "grpc://c:1"), ("data", 1, "grpc://d:1")],
)
def test_jobs_of_other_names_are_there_and_take_no_part(task, global_id, master):
    cluster = parse_tf_config(tf_config(task, 0, {**ADDRESSES, "data": ["d:1", "d:2"]}))
    assert cluster.named_cluster_spec == {**ADDRESSES, "data": ["d:1", "d:2"]}
    assert cluster.cluster_spec == ADDRESSES
    assert (cluster.global_id_in_cluster, cluster.master) == (global_id, master)
    assert (cluster.num_worker_replicas, cluster.num_ps_replicas) == (3, 3)


def test_ports_may_be_left_open():
    addresses = {"chief": ["a:1"], "worker": ["a:0", "a:0"]}
    cluster = parse_tf_config(tf_config("chief", 0, addresses))
    assert cluster.named_cluster_spec == addresses
    assert list(cluster.unreachable) == ["worker 0", "worker 1"]


@pytest.mark.parametrize("listed", [{}, {"evaluator": ["d:1"]}])
def test_there_may_be_several_evaluators(listed):
    cluster = parse_tf_config(tf_config("evaluator", 2, {**ADDRESSES, **listed}))
    assert (cluster.task_type, cluster.task_id) == ("evaluator", 2)


@pytest.mark.parametrize(("task_id", "is_chief"), [(0, True), (1, False)])
def test_without_a_chief_worker_0_is_it(task_id, is_chief):
    cluster = parse_tf_config(tf_config("worker", task_id, {"worker": ["b:1", "b:2"]}))
    assert cluster.is_chief == is_chief
    assert cluster.num_worker_replicas == 2


def test_a_list_without_tasks_may_be_left_in():
    addresses = {"chief": ["a:1"], "worker": [], "ps": [], "evaluator": []}
    cluster = parse_tf_config(tf_config("chief", 0, addresses))
    assert cluster.named_cluster_spec == {"chief": ["a:1"]}
    assert (cluster.num_worker_replicas, cluster.num_ps_replicas, cluster.master) == (1, 0, "")


def test_a_cluster_of_one_task_runs_in_process():
    assert parse_tf_config(tf_config("chief", 0, {"chief": ["a:1"]})).master == ""


def test_an_index_may_be_a_string_and_defaults_to_0():
    assert parse_tf_config(tf_config("worker", "1")).task_id == 1
    assert parse_tf_config(tf_config("worker")).task_id == 0


@pytest.mark.parametrize(
    ("task", "masters"), [("chief", ("x", "")), ("evaluator", ("", "y")), (None, ("x", "y"))]
)
def test_a_named_session_master_is_for_training_or_for_evaluation(task, masters):
    named = {"session_master": "x", "eval_session_master": "y"}
    text = tf_config(task, 0, **named) if task else json.dumps(named)
    cluster = parse_tf_config(text)
    assert (cluster.master, cluster.evaluation_master) == masters


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "`TF_CONFIG` .* is not JSON: .* A valid one: "),
        ("[]", "must be a dictionary, such as "),
        (tf_config("chief", 0, ["a:1"]), "cluster .* must be a dictionary from role"),
        (tf_config("boss", 0, {"boss": ["a:1"]}), 'has no task that trains. Name a "chief"'),
        (tf_config("chief", 0, {"chief": "a:1"}), 'cluster.chief .* must be a list of "host:port"'),
        (tf_config("chief", 0, {"chief": []}), "cluster .* has no task"),
        (tf_config("chief", 0, {"chief": "a:1"}), "cluster.chief .* must be a list"),
        (tf_config("chief", 0, {"chief": ["a"]}), r"cluster.chief\[0\] .*\"a\".* an address"),
        (tf_config("chief", 0, {"chief": ["a:99999"]}), "must be an address"),
        (tf_config("chief", 0, {"chief": ["http://a:80"]}), "must be an address"),
        (
            tf_config("chief", 0, {"chief": [8080]}),
            r"cluster.chief\[0\] \(8080\) must be an address",
        ),
        (tf_config("chief", 0, {"chief": ["a:1", "a:2"]}), "cluster.chief .* must be one task"),
        (
            tf_config("chief", 0, {"chief": ["a:1"], "worker": ["b:1", "a:1"]}),
            r"cluster.worker\[1\] .*\"a:1\".* is the address of cluster.chief\[0\] too",
        ),
        (tf_config("chief", 0, {"chief": ["a:1"], "master": ["b:1"]}), 'both "chief" and "master"'),
        (
            tf_config("ps", 0, {"ps": ["a:1"]}),
            'has no task that trains. Name a "chief" or a "worker"',
        ),
        (
            tf_config("evaluator", 0, {"chief": ["a:1"], "evaluator": ["a:1"]}),
            r"cluster.evaluator\[0\] .*\"a:1\".* is the address of cluster.chief\[0\] too",
        ),
        (
            tf_config("chief", 0, session_master=3),
            "session_master .3. must be a session target such as",
        ),
        (tf_config(), 'lacks "type": one of "chief", "worker", "ps"'),
        (tf_config("boss", 0), '"boss".* not in the cluster: .* The roles of .*"evaluator"'),
        (tf_config("ps", 0, {"chief": ["a:1"]}), 'task.type .*"ps".* is not in the cluster'),
        (tf_config("worker", 2), "task.index .2. must be between 0 and 1 for 'worker'"),
        (tf_config("worker", -1), "task.index .-1. must be between 0 and 1"),
        (tf_config("worker", True), "task.index .true. must be an integer"),
        (tf_config("worker", 0.5), "task.index .0.5. must be an integer"),
        (tf_config("evaluator", -1), "task.index .-1. must not be negative"),
        (json.dumps({"cluster": ADDRESSES, "task": "chief"}), "task .* must be a dictionary"),
        (json.dumps({"cluster": ADDRESSES}), 'lacks "type"'),
        (json.dumps({"model_dir": ""}), "model_dir .* must be a path, not empty"),
        (json.dumps({"model_dir": 3}), r"model_dir \(3\) must be a path"),
        (json.dumps({"service": "x"}), "service .* must be a dictionary"),
    ],
)
def test_a_malformed_config_is_an_error_that_says_where(text, message):
    with pytest.raises(ValueError, match=message):
        parse_tf_config(text)


def test_the_cluster_is_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", tf_config("worker", 1))
    assert read_cluster() == parse_tf_config(tf_config("worker", 1))
    monkeypatch.delenv("TF_CONFIG")
    assert read_cluster() == Cluster()


def test_the_module_imports_no_tensorflow():
    program = (
        "import importlib.util, sys\n"
        "spec = importlib.util.spec_from_file_location('cluster', sys.argv[1])\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "sys.modules['cluster'] = module\n"
        "spec.loader.exec_module(module)\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    path = sys.modules["estimator.config.cluster"].__file__
    subprocess.run([sys.executable, "-c", program, path], check=True)


@pytest.mark.parametrize("task", [("chief", 0), ("worker", 1), ("ps", 2), ("evaluator", 0)])
def test_what_is_formatted_is_what_is_parsed(task):
    text = format_tf_config({role: tuple(hosts) for role, hosts in ADDRESSES.items()}, *task)
    cluster = parse_tf_config(text)
    assert (cluster.task_type, cluster.task_id) == task
    assert {role: list(hosts) for role, hosts in cluster.addresses.items()} == ADDRESSES


def test_an_environment_for_another_process_leaves_ours_alone(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "ours")
    monkeypatch.setenv("KEPT", "1")
    environment = environment_with(TF_CONFIG="theirs", NEW="2")
    assert [environment[name] for name in ("TF_CONFIG", "KEPT", "NEW")] == ["theirs", "1", "2"]
    assert os.environ["TF_CONFIG"] == "ours"
    assert "NEW" not in os.environ
