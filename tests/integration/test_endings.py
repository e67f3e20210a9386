"""Training ends, or has nothing to do, in every task; real processes."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

import estimator as est
from estimator.config.cluster import parse_tf_config
from estimator.summary.event_reader import read_evaluations
from estimator.training.end_record import read_end, write_end
from tests.integration import ending_run, lost_run
from tests.integration.cluster import LIMIT_SECS, ROOT, Cluster, tf_config
from tests.integration.worker_run import average_model_fn, numbers
from tests.toy import checkpoint_steps

PROGRAM = ending_run.__file__


@pytest.mark.slow
def test_workers_end_at_the_step_of_a_hook_and_need_nobody_elses_files(tmp_path):
    with Cluster(PROGRAM, "together", tmp_path, worker=2) as cluster:
        cluster.check_all_succeed()
        told = [task.results for task in cluster.tasks.values()]
    for results in told:
        assert [(r["case"], r["step"], r["reason"]) for r in results[:4]] == [
            ("stopped", 4, "hook"),
            ("finished", 4, "max_steps"),
        ] * 2
        # Four steps of 0, 1, 2, 3 end at 2.125; the step that goes on from there sees a 0. Whether
        # all workers are given the old model, or the chief alone, is the same, as `warm_start_from`
        # and by `init_from_checkpoint` in model_fn; what another worker alone loads is not used.
        assert [r["weights"] for r in results[4:]] == [[[1.0625]]] * 4 + [[[0.0]]]
    # A checkpoint has the sum over both workers, under the variable's own name; a model that is
    # loaded from it, if only by the chief, begins with the same sum.
    for name in ("count", "warm_count", "init_count"):
        newest = est.Estimator(average_model_fn, str(tmp_path / "0" / name))
        assert newest.get_variable_value("count") == 2
    newest = est.Estimator(average_model_fn, str(tmp_path / "0" / "chief_counts"))
    assert newest.get_variable_value("chiefs") == 2
    # An average begins with the weight of the old model, not with the initializer's.
    for name in ("average_init", "average_warm"):
        newest = est.Estimator(average_model_fn, str(tmp_path / "0" / name))
        assert newest.get_variable_value("w/ExponentialMovingAverage") == 2.125
    for loop in (1, 5):
        # Only the end: without saves on the way the start is not saved either.
        assert checkpoint_steps(tmp_path / f"0/loop{loop}") == [4]
        assert checkpoint_steps(tmp_path / f"1/loop{loop}") == []


@pytest.mark.slow
def test_workers_beside_a_ps_end_at_the_step_of_a_hook(tmp_path):
    with Cluster(PROGRAM, "beside_ps", tmp_path, chief=1, worker=1, ps=1) as cluster:
        assert cluster.statuses() == [0, 0, 0], cluster["chief", 0].err[-3000:]
        told = [cluster[role, 0].results for role in ("chief", "worker")]
    for stopped, finished in told:
        assert (stopped["reason"], finished["reason"]) == ("hook", "max_steps")
        assert 20 <= stopped["step"] <= finished["step"] < 30
    assert len(checkpoint_steps(tmp_path)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "roles"),
    [
        ("parameter_server", {"chief": 1, "worker": 1, "ps": 1}),
        ("multi_worker_mirrored", {"chief": 1, "worker": 1}),
    ],
)
def test_a_training_that_was_stopped_early_takes_no_step_again(tmp_path, strategy, roles):
    with est.Estimator(average_model_fn, str(tmp_path)) as model:
        model.train(numbers(None), max_steps=4)
        model.evaluate(numbers(4))
    with Cluster(PROGRAM, "stopped_early", tmp_path, strategy, **roles) as cluster:
        assert cluster.statuses() == [0] * len(roles), cluster["chief", 0].err[-3000:]
        told = [cluster[role, 0].results for role in ("chief", "worker")]
    assert told == [[{"step": 4, "reason": "hook"}]] * 2
    assert max(checkpoint_steps(tmp_path)) == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "roles"),
    [
        ("parameter_server", {"chief": 1, "worker": 1, "ps": 1, "evaluator": 1}),
        ("multi_worker_mirrored", {"chief": 1, "worker": 1}),
    ],
)
def test_a_training_that_is_finished_ends_every_task_again(tmp_path, strategy, roles):
    with est.Estimator(average_model_fn, str(tmp_path)) as model:
        model.train(numbers(None), max_steps=4)
    with Cluster(PROGRAM, "finished", tmp_path, 4, strategy, **roles) as cluster:
        assert cluster.statuses() == [0] * len(roles), cluster["chief", 0].err[-3000:]
        outputs = [task.out.splitlines()[-1] for task in cluster.tasks.values()]
        assert outputs == ["4 max_steps"] * len(roles)
        assert "do not answer" not in cluster["chief", 0].err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "roles", "started"),
    [
        ("parameter_server", {"chief": 1, "worker": 1, "ps": 1}, [("worker", 0), ("ps", 0)]),
        ("parameter_server", {"chief": 1, "worker": 1, "ps": 2}, [("chief", 0), ("ps", 0)]),
        ("multi_worker_mirrored", {"chief": 1, "worker": 1}, [("worker", 0)]),
        ("multi_worker_mirrored", {"chief": 1, "worker": 1}, [("chief", 0)]),
    ],
)
def test_a_task_that_comes_back_after_the_end_ends(tmp_path, strategy, roles, started):
    with est.Estimator(average_model_fn, str(tmp_path)) as model:
        model.train(numbers(None), max_steps=4)
    if ("chief", 0) not in started:
        write_end(str(tmp_path), exit_status=0, reason="max_steps")
    with Cluster(PROGRAM, "restarted", tmp_path, strategy, only=started, **roles) as cluster:
        assert cluster.statuses() == [0] * len(started), cluster[started[0]].err[-3000:]
        outputs = [task.out.splitlines()[-1] for task in cluster.tasks.values()]
        assert outputs == ["4 max_steps"] * len(started)
        assert "Nothing is left to train" in cluster[started[0]].err
    assert read_end(str(tmp_path))["exit_status"] == 0


@pytest.mark.slow
def test_a_ps_does_not_wait_in_its_second_call_for_a_chief_that_has_ended(tmp_path):
    with Cluster(PROGRAM, "twice", tmp_path, chief=1, ps=1) as cluster:
        assert cluster.statuses() == [0, 0], cluster["chief", 0].err[-3000:]
        assert cluster["chief", 0].out.splitlines()[-1] == "8 max_steps"
        assert cluster["ps", 0].out.splitlines() == ["8 max_steps"] * 2
        assert "do not answer" not in cluster["ps", 0].err


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["parameter_server", "multi_worker_mirrored"])
def test_a_worker_ends_if_the_others_have_ended_while_it_built_its_model(tmp_path, strategy):
    with est.Estimator(average_model_fn, str(tmp_path)) as model:
        model.train(numbers(None), max_steps=4)
    roles = {"chief": 1, "worker": 1, **({"ps": 1} if strategy == "parameter_server" else {})}
    only = [("worker", 0)]
    with Cluster(PROGRAM, "late", tmp_path, strategy, only=only, **roles) as cluster:
        assert cluster.statuses() == [0], cluster[only[0]].err[-3000:]
        assert cluster[only[0]].out.splitlines()[-1] == "4 max_steps"
        assert "Nothing is left to train" in cluster[only[0]].err


@pytest.mark.slow
def test_a_worker_that_comes_back_while_the_others_end_ends_too(tmp_path):
    with Cluster(PROGRAM, "back_late", tmp_path, chief=1, worker=1, ps=1) as cluster:
        cluster["worker", 0].wait_for("trains")
        cluster["worker", 0].send(signal.SIGKILL)
        cluster["worker", 0].status()
        (tmp_path / "go").touch()
        cluster["chief", 0].wait_for("ends")
        worker = cluster.start("worker", 0)
        worker.wait_for("starts")
        (tmp_path / "end").touch()
        assert cluster.statuses() == [0] * 3, worker.err[-3000:]
        assert worker.out.splitlines()[-1] == "4 max_steps"
        assert "Nothing is left to train" in worker.err


@pytest.mark.slow
@pytest.mark.parametrize(("is_recorded", "num_steps"), [(False, 4), (True, 3)])
def test_a_task_waits_for_a_training_that_has_not_ended(tmp_path, is_recorded, num_steps):
    with est.Estimator(average_model_fn, str(tmp_path)) as model:
        model.train(numbers(None), max_steps=num_steps)
    if is_recorded:
        write_end(str(tmp_path), exit_status=0, reason="max_steps")
    roles, strategy = {"chief": 1, "worker": 1}, "multi_worker_mirrored"
    only = [("worker", 0)]
    with Cluster(PROGRAM, "restarted", tmp_path, strategy, only=only, **roles) as cluster:
        assert cluster.statuses() == [1]
        assert "did not answer within `session_creation_timeout_secs` (3)" in cluster[only[0]].err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "roles", "started"),
    [
        ("parameter_server", {"chief": 1, "worker": 1, "ps": 1}, [("worker", 0), ("ps", 0)]),
        ("multi_worker_mirrored", {"chief": 1, "worker": 1}, [("worker", 0)]),
    ],
)
def test_a_task_that_comes_back_after_an_early_stop_waits_for_the_chief_and_ends_well(
    tmp_path, strategy, roles, started
):
    with est.Estimator(average_model_fn, str(tmp_path)) as model:
        model.train(numbers(None), max_steps=3)
    write_end(str(tmp_path), exit_status=0, reason="hook", call=1)
    (path,) = tmp_path.glob("*ended*")
    os.utime(path, (0, 0))
    with Cluster(PROGRAM, "restarted", tmp_path, strategy, only=started, **roles) as cluster:
        assert cluster.statuses() == [0] * len(started), cluster[started[0]].err[-3000:]
        for task in cluster.tasks.values():
            assert task.out.splitlines()[-1] == "3 hook"
            assert "did not answer within `session_creation_timeout_secs` (3)" in task.err


@pytest.mark.slow
def test_a_ps_ends_with_a_chief_that_fails_before_it_has_a_server(tmp_path):
    # A ps that is started after the failure cannot know that it is not from an earlier training.
    roles = {"ps": 1, "chief": 1}
    cluster = Cluster(lost_run.__file__, "endless", tmp_path, 600, only=[("ps", 0)], **roles)
    with socket.socket() as taken:
        host, _, port = cluster.addresses["chief"][0].partition(":")
        taken.bind((host, int(port)))
        taken.listen()
        with cluster:
            cluster["ps", 0].wait_for("waits for the chief", where="err")
            assert cluster.start("chief", 0).status() == 1
            assert "cannot listen" in cluster["chief", 0].err
            assert cluster["ps", 0].status() == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("whom", "number", "batches", "status"),
    [
        # So does one of all that get it.
        pytest.param(["chief"], "TERM", 0, 143, marks=pytest.mark.full),
        (["chief"], "INT", 20, 130),
        (["ps"], "TERM", 20, 143),
        (["ps", "worker", "chief"], "TERM", 0, 143),
    ],
    ids=["chief", "waiting chief", "ps", "all"],
)
def test_a_chief_or_a_ps_that_gets_a_signal_ends_all_and_saves(
    tmp_path, whom, number, batches, status
):
    number = getattr(signal, f"SIG{number}")
    # A signal comes to the second ps, which has to reach the first.
    roles = {"chief": 1, "worker": 2, "ps": 2}
    with Cluster(PROGRAM, "drained", tmp_path, batches, **roles) as cluster:
        chief = cluster["chief", 0]
        chief.wait_for("trains\n" * 20)  # Of an input of 20 batches it now waits for the others.
        for worker in (0, 1):
            cluster["worker", worker].wait_for("trains")
        # The others can do without a worker, which may come back.
        cluster["worker", 1].send(signal.SIGTERM)
        assert cluster["worker", 1].status() == 143
        other = cluster["worker", 0]
        other.wait_for("trains\n" * (5 + other.out.count("trains")))
        for role in whom:
            cluster[role, int(role == "ps")].send(number)
        statuses = [s if s >= 0 else 128 - s for s in cluster.statuses()]
        assert statuses == [status, status, 143, status, status], other.err[-3000:]
    *_, step = checkpoint_steps(tmp_path)
    assert step > 20


@pytest.mark.slow
def test_the_launchers_evaluator_evaluates_for_the_one_that_trains(tmp_path):
    launched = subprocess.run(
        [sys.executable, "-m", "estimator_launch", "--evaluator", "--", PROGRAM, "alone", tmp_path],
        env={**os.environ, "PYTHONPATH": ROOT, "CUDA_VISIBLE_DEVICES": ""},
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECS,
    )
    assert launched.returncode == 0, launched.stderr[-3000:]
    lines = launched.stdout.splitlines()
    told = [json.loads(line[line.index("{") :]) for line in lines if '"role"' in line]
    ended = {"reason": "end of input"}
    assert sorted(told, key=lambda result: result["role"]) == [
        {"role": "evaluator", "is_evaluated": True, **ended},
        {"role": "worker", "is_evaluated": False, **ended},
    ]
    pattern = os.path.join(tmp_path, "eval", "*tfevents*")
    assert max(read_evaluations(pattern)) == 25
    assert len(os.listdir(tmp_path / "eval")) == 1  # One process's file.


def test_one_task_that_knows_of_no_evaluator_leaves_word_for_one(tmp_path):
    cluster = parse_tf_config(tf_config({"chief": ["127.0.0.1:1"]}, "chief", 0))
    config = est.RunConfig(str(tmp_path), cluster=cluster)
    eval_spec = est.EvalSpec(numbers(4))
    with est.Estimator(average_model_fn, config=config) as model:
        result = est.train_and_evaluate(model, est.TrainSpec(numbers(9), 1000), eval_spec)
        assert result.metrics["global_step"] == 9
        end = read_end(str(tmp_path))
        assert (end["exit_status"], end["reason"]) == (0, "end of input")
        with pytest.raises(ValueError, match="gave no batch"):
            est.train_and_evaluate(model, est.TrainSpec(numbers(0), 1000), eval_spec)
        end = read_end(str(tmp_path))
        assert (end["exit_status"], end["reason"]) == (1, "signal or error")
