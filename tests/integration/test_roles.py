"""`train_and_evaluate` in every task of a cluster; real processes."""

import os
import re

import pytest

from estimator.summary.event_reader import read_evaluations
from tests.integration import worker_run
from tests.integration.cluster import Cluster

PROGRAM = worker_run.__file__


def check_said(task, *lines):
    """A task that does not lead says when it starts, what it waits for, and when it ends."""
    assert re.search(".*\n".join(lines), task.err, re.DOTALL), task.err


@pytest.mark.slow
def test_the_evaluator_evaluates_each_checkpoint_and_ends_with_the_data(tmp_path):
    arguments = (tmp_path, "multi_worker_mirrored", "end of input")
    with Cluster(PROGRAM, "roles", *arguments, chief=1, worker=1, evaluator=1) as cluster:
        assert cluster.statuses() == [0, 0, 0], cluster["evaluator", 0].err[-3000:]
        told = {role: cluster[role, 0].results[0] for role in ("chief", "worker", "evaluator")}
        check_said(
            cluster["worker", 0],
            rf"Worker 0 has started, and waits for the chief \({cluster.addresses['chief'][0]}\)",
            "Worker 0 trains from step 0 to the end of the input",
            r"Worker 0 stopped at step 25 \(end of input\): 25 steps in ",
        )
    for role, result in told.items():
        assert (result["step"], result["reason"]) == (25, "end of input")
        assert (result["metrics"] is None) == (role != "evaluator")
    assert told["evaluator"]["metrics"]["global_step"] == 25
    assert told["evaluator"]["exports"] == 1
    evaluated = read_evaluations(os.path.join(tmp_path, "eval", "*tfevents*"))
    assert list(evaluated) == [10, 20, 25]


@pytest.mark.slow
def test_early_stopping_of_the_chief_stops_every_role(tmp_path):
    arguments = (tmp_path, "parameter_server", "early stop")
    with Cluster(PROGRAM, "roles", *arguments, chief=1, worker=1, ps=1, evaluator=1) as cluster:
        assert cluster.statuses() == [0, 0, 0, 0], cluster["evaluator", 0].err[-3000:]
        told = [task.results[0] for task in cluster.tasks.values()]
        (chief,), (ps,) = cluster.addresses["chief"], cluster.addresses["ps"]
        check_said(
            cluster["worker", 0],
            rf"Worker 0 has started, and waits for ps 0 \({ps}\), the chief \({chief}\)",
            r"Worker 0 trains from step [\d,]+ to 1,000,000",
            r"Worker 0 stopped at step [\d,]+ \(hook\): [\d,]+ steps? in ",
        )
        check_said(
            cluster["ps", 0],
            rf"Ps 0 has started, and waits for the chief \({chief}\)",
            "The chief has started: serving variables until it ends",
            "Ps 0 ends, as the chief has: exit status 0",
        )
    assert {result["reason"] for result in told} == {"hook"}
    assert all(30 <= result["step"] < 1_000_000 for result in told)
    assert told[3]["metrics"]["global_step"] >= 30


@pytest.mark.slow
def test_a_training_that_fails_ends_the_evaluator_with_its_status(tmp_path):
    arguments = (tmp_path, "multi_worker_mirrored", "error")
    with Cluster(PROGRAM, "roles", *arguments, chief=1, worker=1, evaluator=1) as cluster:
        assert cluster.statuses() == [1, 1, 1]
        assert "RuntimeError: the model is bad" in cluster["chief", 0].err


@pytest.mark.slow
def test_a_master_trains_evaluates_and_exports(tmp_path):
    arguments = (tmp_path, "parameter_server", "max_steps")
    with Cluster(PROGRAM, "roles", *arguments, master=1, worker=1, ps=1) as cluster:
        assert cluster.statuses() == [0, 0, 0], cluster["master", 0].err[-3000:]
        told = {role: cluster[role, 0].results[0] for role in ("master", "worker", "ps")}
    assert told["master"]["task_type"] == "master"
    assert told["master"]["metrics"]["global_step"] == told["master"]["step"] >= 60
    assert told["master"]["exports"] == 1
    assert told["worker"]["metrics"] is told["ps"]["metrics"] is None
    assert max(read_evaluations(os.path.join(tmp_path, "eval", "*tfevents*"))) >= 60
