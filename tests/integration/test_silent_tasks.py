"""A task does not answer any more, and nobody is told; real processes."""

import itertools
import signal

import pytest

from tests.integration import lost_run
from tests.integration.cluster import LIMIT_SECS, Cluster
from tests.integration.network import DIRECTIONS, Network

PROGRAM = lost_run.__file__
PEER_TIMEOUT_SECS = 6
CREATION_SECS = 60

# Who is lost, and who is left, in which kind of training.
LOST = {
    "worker": ("together", ["chief"], ["worker"]),
    "chief": ("together", ["worker"], ["chief"]),
    "ps": ("endless", ["chief", "worker"], ["ps"]),
    "chief beside ps": ("endless", ["worker", "ps"], ["chief"]),
}
USUAL = [("chief", "from there"), ("ps", "both"), ("chief beside ps", "to there")]
CASES = [
    pytest.param(*case, marks=() if case in USUAL else pytest.mark.full)
    for case in itertools.product(LOST, DIRECTIONS)
]


def names_as_lost(cluster, task, role):
    """Whether a task ended with an error that says who does not answer."""
    name = "the chief" if role == "chief" else f"{role} 0"
    full_name = f"{name} ({cluster.addresses[role][0]})"
    last_line = task.err.splitlines()[-1]
    return "UnavailableError: " in last_line and full_name.lower() in last_line.lower()


@pytest.mark.slow
@pytest.mark.parametrize(("lost", "direction"), CASES)
def test_a_machine_that_vanishes_without_a_word_is_named_by_all_others(tmp_path, lost, direction):
    scenario, left, (role,) = LOST[lost]
    with (
        Network() as network,
        Cluster(
            PROGRAM,
            scenario,
            tmp_path,
            CREATION_SECS,
            PEER_TIMEOUT_SECS,
            **network.place(left, [role]),
        ) as cluster,
    ):
        for trainer in ("chief", "worker"):
            cluster[trainer, 0].wait_for("trains")
        network.cut(direction)
        for one in left:
            task = cluster[one, 0]
            assert task.status() == 1, task.err[-3000:]
            assert names_as_lost(cluster, task, role), task.err[-3000:]


@pytest.mark.slow
def test_a_stopped_process_is_named_in_time_and_sooner_if_there_is_a_signal(tmp_path):
    roles = {"chief": 1, "worker": 1, "evaluator": 1}
    impatient, patient = (
        Cluster(PROGRAM, "together", tmp_path / name, only=[], **roles) for name in ("a", "b")
    )
    with impatient, patient:
        for cluster, secs in ((impatient, PEER_TIMEOUT_SECS), (patient, 100 * LIMIT_SECS)):
            for role in ("chief", "worker"):
                cluster.start(role, 0, CREATION_SECS, secs)
        for cluster, stopped in ((impatient, "chief"), (patient, "worker")):
            for role in ("chief", "worker"):
                cluster[role, 0].wait_for("trains")
            cluster[stopped, 0].send(signal.SIGSTOP)
        evaluator = impatient.start("evaluator", 0, 1, PEER_TIMEOUT_SECS)
        patient["chief", 0].send(signal.SIGTERM)
        for cluster, left, lost in ((impatient, "worker", "chief"), (patient, "chief", "worker")):
            task = cluster[left, 0]
            assert task.status() == 1, task.err[-3000:]
            assert names_as_lost(cluster, task, lost), task.err[-3000:]
        # It waits for a chief that may come back, for the one second that it was given.
        assert evaluator.status() == 1, evaluator.err[-3000:]
        address = impatient.addresses["chief"][0]
        message = f"TimeoutError: The chief ({address}) has not been reachable for `session_c"
        assert message in evaluator.err.splitlines()[-1]
