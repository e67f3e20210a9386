import json
import re

import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver

import cluster_flags
import estimator as est

HOSTS = ["--ps_hosts=a:1,a:2", "--worker_hosts=b:1,b:2,b:3"]


def tf_config_of(*args):
    with flagsaver.flagsaver():
        flags.FLAGS(["program", *args])
        return cluster_flags.make_tf_config()


def test_without_flags_there_is_no_tf_config():
    assert tf_config_of() is None


@pytest.mark.parametrize("role", ["worker", "ps"])
@pytest.mark.parametrize("index", [0, 1])
def test_they_are_the_task_that_tf_config_describes(role, index):
    text = tf_config_of(f"--job_name={role}", f"--task_index={index}", *HOSTS)
    assert json.loads(text) == {
        "cluster": {"worker": ["b:1", "b:2", "b:3"], "ps": ["a:1", "a:2"]},
        "task": {"type": role, "index": index},
    }
    cluster = est.parse_tf_config(text)
    assert (cluster.task_type, cluster.task_id) == (role, index)
    assert cluster.is_chief == ((role, index) == ("worker", 0))
    assert (cluster.num_worker_replicas, cluster.num_ps_replicas) == (3, 2)


def test_workers_need_no_ps():
    text = tf_config_of("--job_name=worker", "--task_index=1", "--worker_hosts=b:1,b:2")
    assert est.parse_tf_config(text).cluster_spec == {"worker": ["b:1", "b:2"]}


def test_an_existing_server_is_the_one_at_the_tasks_own_address():
    task = ["--job_name=worker", "--task_index=2", *HOSTS]
    own = est.parse_tf_config(tf_config_of(*task))
    existing = est.parse_tf_config(tf_config_of(*task, "--existing_servers"))
    assert (own.session_master, existing.session_master) == (None, "grpc://b:3")
    assert own.master == existing.master == "grpc://b:3"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--job_name=chief"], "should be one of <worker|ps|evaluator>"),
        (["--task_index=0"], "--task_index needs --job_name"),
        (HOSTS, "--ps_hosts, --worker_hosts needs --job_name"),
        (["--existing_servers"], "--existing_servers needs --job_name"),
        (["--job_name=worker", *HOSTS], "--job_name=worker needs --task_index"),
        (["--job_name=ps", "--task_index=0"], "--job_name=ps needs --worker_hosts"),
        (
            ["--job_name=worker", "--task_index=3", *HOSTS],
            "--task_index (3) is too large: there are 3 x address in --worker_hosts",
        ),
        (
            ["--job_name=ps", "--task_index=0", HOSTS[1]],
            "--task_index (0) is too large: there are 0 x address in --ps_hosts",
        ),
        (
            ["--job_name=evaluator", "--task_index=1", *HOSTS],
            "--task_index (1) is too large: there are 1 x evaluator",
        ),
        (["--job_name=worker", "--task_index=-1", *HOSTS], "task_index"),
        (
            ["--job_name=worker", "--task_index=0", "--worker_hosts=b"],
            "--worker_hosts: 'b' is no host:port",
        ),
        (
            ["--job_name=worker", "--task_index=0", "--worker_hosts=b:0"],
            "--worker_hosts: 'b:0' is no host:port",
        ),
        (
            ["--job_name=worker", "--task_index=0", "--worker_hosts=b:1,,b:2"],
            "--worker_hosts: '' is no host:port",
        ),
        (
            ["--job_name=worker", "--task_index=0", "--worker_hosts=b:1", "--ps_hosts=b:1"],
            "--worker_hosts: 'b:1' is the address of --ps_hosts[0] too",
        ),
        (
            ["--job_name=ps", "--task_index=0", *HOSTS, "--existing_servers"],
            "--existing_servers is for workers",
        ),
        (["--replicas_to_aggregate=2"], "--replicas_to_aggregate (2) needs --sync_replicas"),
        (["--sync_replicas", "--replicas_to_aggregate=0"], "replicas_to_aggregate"),
        (["--num_gpus=-1"], "num_gpus"),
    ],
)
def test_a_wrong_combination_is_refused(args, message):
    with flagsaver.flagsaver(), pytest.raises(flags.Error, match=re.escape(message)):
        flags.FLAGS(["program", *args])


def test_more_gpus_than_there_are_is_an_error():
    num_gpus = len(tf.config.list_physical_devices("GPU")) + 1
    message = rf"--num_gpus \({num_gpus}\) must be at most what this machine has \({num_gpus - 1}\)"
    with flagsaver.flagsaver(num_gpus=num_gpus), pytest.raises(ValueError, match=message):
        cluster_flags.choose_gpu(0)


def test_every_flag_has_a_help_text():
    for flag in flags.FLAGS.flags_by_module_dict()["cluster_flags"]:
        assert flag.help.endswith("."), flag.name
