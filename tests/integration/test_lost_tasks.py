"""R12, R13: a task is killed or never comes; real processes."""

import signal
import time

import pytest

from tests.integration import lost_run
from tests.integration.cluster import Cluster
from tests.toy import checkpoint_steps

PROGRAM = lost_run.__file__


@pytest.mark.slow
def test_tasks_that_wait_for_a_ps_end_by_a_signal_and_in_time(tmp_path):
    roles = {"chief": 1, "worker": 1, "ps": 1}
    with (
        Cluster(PROGRAM, "endless", tmp_path / "a", only=[("worker", 0)], **roles) as signalled,
        Cluster(PROGRAM, "endless", tmp_path / "b", 2, only=[("worker", 0)], **roles) as late,
    ):
        signalled["worker", 0].wait_for("waiting")
        signalled["worker", 0].send(signal.SIGTERM)
        assert signalled["worker", 0].status(20) == 143
        assert late["worker", 0].status(30) == 1
        ps, chief = (late.addresses[role][0] for role in ("ps", "chief"))
        message = f"TimeoutError: Ps 0 ({ps}), the chief ({chief}) did not come within"
        assert message in late["worker", 0].err
        assert "`session_creation_timeout_secs` (2)" in late["worker", 0].err


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["endless", "slow_start"])
def test_a_killed_ps_is_named_by_all_that_wait_for_it(tmp_path, scenario):
    with Cluster(PROGRAM, scenario, tmp_path, chief=1, worker=1, ps=1) as cluster:
        chief, worker, ps = (cluster[role, 0] for role in ("chief", "worker", "ps"))
        if scenario == "endless":
            for task in (chief, worker):
                task.wait_for("trains")
        else:
            chief.wait_for("initializing")
            worker.wait_for("waiting")
        ps.send(signal.SIGKILL)
        ps.status()
        (tmp_path / "go").touch()
        for task in (chief, worker):
            assert task.status(30) == 1
            address = cluster.addresses["ps"][0]
            # The worker may find that the chief has ended as well.
            assert f"UnavailableError: Ps 0 ({address})" in task.err.splitlines()[-1]
            assert "gone, so training cannot go on" in task.err.splitlines()[-1]


@pytest.mark.slow
def test_the_evaluator_waits_for_a_chief_that_comes_back_and_not_for_ever(tmp_path):
    arguments = (tmp_path, 10**6)
    with Cluster(PROGRAM, "restarted", *arguments, chief=1, worker=1, evaluator=1) as cluster:
        evaluator = cluster["evaluator", 0]
        for victim in range(2):
            cluster["chief", 0].wait_for("trains")
            cluster["chief", 0].send(signal.SIGKILL)
            assert cluster["worker", 0].status(40) == 1
            if victim == 0:
                before = max(checkpoint_steps(tmp_path), default=0)
                for role in ("chief", "worker"):
                    cluster[role, 0].end()
                    cluster.start(role, 0)
                assert evaluator.process.poll() is None
        killed = time.monotonic()
        assert evaluator.status(60) == 1
        assert time.monotonic() - killed < 60
        address = cluster.addresses["chief"][0]
        message = f"TimeoutError: The chief ({address}) has not been there for"
        assert message in evaluator.err.splitlines()[-1]
        assert max(checkpoint_steps(tmp_path), default=0) >= before
