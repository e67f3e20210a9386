"""A task is killed or never comes; real processes."""

import os
import signal
import time

import pytest

from estimator.summary.event_reader import read_evaluations
from tests.integration import ending_run, lost_run, worker_run
from tests.integration.cluster import LIMIT_SECS, Cluster
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
        assert signalled["worker", 0].status() == 143
        assert late["worker", 0].status() == 1
        ps, chief = (late.addresses[role][0] for role in ("ps", "chief"))
        message = f"TimeoutError: Ps 0 ({ps}), the chief ({chief}) did not answer within"
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
            assert task.status() == 1
            address = cluster.addresses["ps"][0]
            last_line = task.err.splitlines()[-1]
            # The worker may find that the chief has ended as well.
            assert f"Error: Ps 0 ({address})" in last_line
            # On a busy machine it may begin to look for the ps only when that is killed.
            is_late = task is worker and scenario == "slow_start" and "did not answer" in last_line
            assert is_late or "gone, so training cannot continue" in last_line
            assert "failed to close" not in task.err  # TensorFlow gives up after 30 seconds.


@pytest.mark.slow
def test_the_evaluator_goes_on_with_a_chief_that_comes_back_and_does_not_wait_for_ever(tmp_path):
    pattern = os.path.join(tmp_path, "eval", "*tfevents*")
    with Cluster(PROGRAM, "together", tmp_path, chief=1, worker=1, evaluator=1) as cluster:
        cluster["chief", 0].wait_for("trains")
        cluster["chief", 0].send(signal.SIGKILL)
        assert cluster["worker", 0].status() == 1
        before = max(checkpoint_steps(tmp_path), default=0)
        for role in ("chief", "worker"):
            cluster[role, 0].end()
            cluster.start(role, 0)
        end = time.monotonic() + LIMIT_SECS
        while max(read_evaluations(pattern), default=0) <= before:
            assert cluster["evaluator", 0].process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        cluster["chief", 0].send(signal.SIGKILL)
        assert cluster["worker", 0].status() == 1
        cluster["evaluator", 0].end()
        late = cluster.start("evaluator", 0, 2)
        assert late.status() == 1
        address = cluster.addresses["chief"][0]
        message = f"TimeoutError: The chief ({address}) has not been reachable for `session_c"
        assert message in late.err.splitlines()[-1]


@pytest.mark.slow
def test_a_chief_beside_a_ps_trains_without_a_worker_that_never_comes(tmp_path):
    # It may have been restarted after the worker has ended.
    roles = {"chief": 1, "worker": 1, "ps": 1}
    arguments = (ending_run.__file__, "restarted", tmp_path, "parameter_server")
    with Cluster(*arguments, only=[("ps", 0)], **roles) as cluster:
        # The chief waits for it no longer than for the worker, three seconds.
        cluster["ps", 0].wait_for("waits for the chief", where="err")
        cluster.start("chief", 0)
        assert cluster.statuses() == [0, 0], cluster["chief", 0].err[-3000:]
        assert cluster["chief", 0].out.splitlines()[-1] == "4 max_steps"
        absent = f"Training begins without worker 0 ({cluster.addresses['worker'][0]}), which"
        assert absent in cluster["chief", 0].err


@pytest.mark.slow
def test_a_ps_serves_a_chief_that_comes_back(tmp_path):
    with Cluster(PROGRAM, "endless", tmp_path, chief=1, ps=1) as cluster:
        ps = cluster["ps", 0]
        cluster["chief", 0].wait_for("trains")
        cluster["chief", 0].send(signal.SIGKILL)
        end = time.monotonic() + LIMIT_SECS
        while "waiting for it to come back" not in ps.err:
            assert ps.process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        cluster["chief", 0].end()
        chief = cluster.start("chief", 0)
        chief.wait_for("trains")
        chief.send(signal.SIGTERM)
        assert chief.status() == ps.status() == 143
        assert checkpoint_steps(tmp_path)[-1] > 0


@pytest.mark.slow
def test_a_model_that_fails_ends_every_task_beside_a_ps_too(tmp_path):
    roles = {"chief": 1, "worker": 1, "ps": 1, "evaluator": 1}
    arguments = (tmp_path, "parameter_server", "error")
    with Cluster(worker_run.__file__, "roles", *arguments, **roles) as cluster:
        assert cluster.statuses() == [1, 1, 1, 1]
        assert "RuntimeError: the model is bad" in cluster["chief", 0].err
