"""The command that training prints starts a real TensorBoard, which shows what is expected."""

import json
import re
import shlex
import subprocess
import urllib.request

import pytest

import estimator as est
from estimator.training.report import tensorboard_command
from tests.forked import LIMIT_SECS
from tests.toy import Model, numbers


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """Of a TensorBoard on a model that was trained in loops, profiled and evaluated twice."""
    model_dir = str(tmp_path_factory.mktemp("tensorboard") / "model")
    config = est.RunConfig(
        iterations_per_loop=10,
        save_summary_steps=10,
        log_step_count_steps=20,
        profile_steps=(15, 25),
    )
    with est.Estimator(Model(), model_dir, config) as model:
        model.train(numbers(), max_steps=40)
        model.evaluate(numbers(3))
        model.evaluate(numbers(3), name="dev")
    # The port is any that is free; it serves when all is read.
    once = ["--load_fast=false", "--reload_task=blocking", "--reload_interval=0"]
    command = shlex.split(tensorboard_command(model_dir))
    command += ["--port=0", "--host=127.0.0.1", *once]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            said = []
            while not (found := re.search(r"http://\S+/", said[-1] if said else "")):
                line = process.stdout.readline().decode()
                assert line, said
                said.append(line)
            yield found[0]
        finally:
            process.kill()  # After SIGTERM it may write to the pipe that is closed here, and hang.


def get(url, path):
    with urllib.request.urlopen(url + path, timeout=LIMIT_SECS) as response:
        return json.loads(response.read())


def test_tensorboard_shows_the_curves_of_training_and_of_each_evaluation(url):
    tags = {run: sorted(tags) for run, tags in get(url, "data/plugin/scalars/tags").items()}
    assert tags == {
        ".": ["global_step/sec", "loss"],
        "eval": ["loss", "mean"],
        "eval_dev": ["loss", "mean"],
    }
    # A point is its time, its step and its value.
    points = get(url, "data/plugin/scalars/scalars?run=.&tag=loss")
    assert [step for _, step, _ in points] == [10, 20, 30, 40]
    ((_, step, mean),) = get(url, "data/plugin/scalars/scalars?run=eval_dev&tag=mean")
    assert (step, mean) == (40, 1.0)


def test_tensorboard_shows_the_graph(url):
    assert get(url, "data/plugin/graphs/info")["."]["run_graph"] is True
    path = "data/plugin/graphs/graph?run=.&limit_attr_size=1024&large_attrs_key=_too_large_attrs"
    with urllib.request.urlopen(url + path, timeout=LIMIT_SECS) as response:
        graph = response.read().decode()
    assert 'name: "train_loop"' in graph
    assert 'name: "w"' in graph
