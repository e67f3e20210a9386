"""run_mnist.py as two workers, by the launcher and by the flags of the classic example."""

import contextlib
import json

import pytest

from estimator_launch.tasks import make_tasks, make_tf_configs
from tests.forked import Program
from tests.integration.cluster import Cluster
from tests.launch.launching import ROOT, lines_of, run

FLAGS = ["--mode=train", "--model=mnist_mlp", "--strategy=multi_worker_mirrored", "--seed=1"]
FLAGS += ["--train_steps=20", "--iterations=10"]


def flags_for(folder):
    return [*FLAGS, f"--model_dir={folder / 'model'}", f"--data_dir={folder / 'data'}"]


@contextlib.contextmanager
def running(commands):
    """run_mnist.py in processes, one for each list of flags; killed in the end."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(Program(str(ROOT / "run_mnist.py"), *flags)) for flags in commands
        ]


def check_all_succeed(programs):
    for program in programs:
        assert program.status() == 0, program.err[-3000:]


@pytest.mark.slow
def test_a_tf_config_as_of_the_launcher_runs_it(tmp_path):
    with Cluster(str(ROOT / "run_mnist.py"), *flags_for(tmp_path), worker=2) as cluster:
        cluster.check_all_succeed()
        chief, worker = (task.out for task in cluster.tasks.values())
    assert ["steps", "20"] in [line.split() for line in chief.splitlines()]
    assert "steps" not in worker


@pytest.mark.full  # With the launcher's TF_CONFIG it runs above; test_training.py has the launcher.
@pytest.mark.slow
def test_the_launcher_runs_it(tmp_path):
    finished = run("--workers=2", "--", "run_mnist.py", *flags_for(tmp_path))
    assert finished.returncode == 0, finished.stderr[-2000:]
    rows = [line.split() for line in lines_of(finished.stdout, "worker 0")]
    assert ["steps", "20"] in rows
    assert "steps" not in "".join(lines_of(finished.stdout, "worker 1"))


@pytest.mark.full  # Below they run it beside a ps.
@pytest.mark.slow
def test_the_classic_flags_run_it(tmp_path):
    tasks = make_tasks(num_workers=2, num_ps=0, has_chief=False, has_evaluator=False)
    hosts = json.loads(make_tf_configs(tasks)[tasks[0]])["cluster"]["worker"]
    task = [*flags_for(tmp_path), "--job_name=worker", f"--worker_hosts={','.join(hosts)}"]
    with running([[*task, f"--task_index={index}"] for index in range(2)]) as programs:
        check_all_succeed(programs)
        chief, worker = (program.out for program in programs)
    assert ["steps", "20"] in [line.split() for line in chief.splitlines()]
    assert "steps" not in worker


@pytest.mark.slow
def test_the_classic_flags_add_up_the_gradients_of_two_workers(tmp_path):
    tasks = make_tasks(num_workers=2, num_ps=1, has_chief=False, has_evaluator=False)
    cluster = json.loads(make_tf_configs(tasks)[tasks[0]])["cluster"]
    flags = [
        "--mode=train",
        "--model=mnist_mlp",
        "--seed=1",
        "--train_steps=20",
        "--iterations=1",
        f"--model_dir={tmp_path / 'model'}",
        f"--data_dir={tmp_path / 'data'}",
        "--sync_replicas",
        "--replicas_to_aggregate=2",
        *(f"--{role}_hosts={','.join(cluster[role])}" for role in ("ps", "worker")),
    ]
    roles = [("ps", 0), ("worker", 0), ("worker", 1)]
    with running([[*flags, f"--job_name={r}", f"--task_index={i}"] for r, i in roles]) as programs:
        check_all_succeed(programs)
        chief = programs[1].out
    (row,) = [line.split() for line in chief.splitlines() if line.startswith("steps ")]
    assert int(row[1]) in (20, 21)
