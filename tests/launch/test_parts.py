import io
import socket

import pytest

from estimator.config.cluster import parse_tf_config
from estimator_launch.output import MAX_LINE_BYTES, Output
from estimator_launch.tasks import Task, make_tasks, make_tf_configs


def copied(data):
    """What the output makes of the bytes that a task prints."""
    stdout = io.BytesIO()
    Output(["ps 0"], stdout, io.BytesIO()).copy_lines("ps 0", io.BytesIO(data), stdout)
    return stdout.getvalue()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", b""),
        (b"\n", b"[ps 0]   \n"),
        (b"a\nb\n", b"[ps 0]   a\n[ps 0]   b\n"),
        (b"no end", b"[ps 0]   no end\n"),
        (b"10%\r20%\r30%\n", b"[ps 0]   30%\n"),
        (b"a\r\n", b"[ps 0]   a\n"),
        (b"\xff\x00\n", b"[ps 0]   \xff\x00\n"),
    ],
)
def test_every_line_has_its_prefix(data, expected):
    assert copied(data) == expected


def test_a_line_without_an_end_comes_in_pieces():
    pieces = copied(b"x" * (2 * MAX_LINE_BYTES + 1)).splitlines()
    assert [len(piece) - len("[ps 0]   ") for piece in pieces] == [MAX_LINE_BYTES] * 2 + [1]


def test_no_port_is_given_twice_and_each_is_free():
    tasks = make_tasks(num_workers=100, num_ps=20, has_chief=True, has_evaluator=True)
    configs = make_tf_configs(tasks)
    assert list(configs) == tasks
    cluster = parse_tf_config(configs[Task("ps", 19)])
    addresses = [address for listed in cluster.addresses.values() for address in listed]
    assert len(set(addresses)) == len(addresses) == 122
    for address in addresses:
        host, port = address.split(":")
        with socket.create_server((host, int(port))):
            pass


def test_an_evaluator_is_outside_the_training_cluster():
    tasks = make_tasks(num_workers=1, num_ps=0, has_chief=False, has_evaluator=True)
    cluster = parse_tf_config(make_tf_configs(tasks)[Task("evaluator", 0)])
    assert (cluster.task_type, cluster.cluster_spec) == ("evaluator", {})
    assert {role: len(listed) for role, listed in cluster.addresses.items()} == {
        "worker": 1,
        "evaluator": 1,
    }
