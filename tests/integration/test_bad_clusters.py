"""Clusters that cannot work: what each task is told, by the real thing."""

import socket

import pytest

import estimator as est
from tests.integration import lost_run, worker_run
from tests.integration.cluster import Cluster, free_addresses, tf_config
from tests.toy import Model, numbers

ONE_OF_EACH = {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}


def model_of(model_dir, addresses, role, **config):
    cluster = est.parse_tf_config(tf_config(addresses, role, 0))
    return est.Estimator(Model(), config=est.RunConfig(str(model_dir), cluster=cluster, **config))


@pytest.mark.parametrize(
    ("strategy", "without", "message"),
    [
        ("mirrored", "ps", r"names 1 chief, 1 worker, but .*'mirrored'.* trains in one process. P"),
        (None, "ps", "names 1 chief, 1 worker, but .* Pass RunConfig.strategy=.multi_worker"),
        (
            "parameter_server",
            "ps",
            "TF_CONFIG names 1 chief, 1 worker. Add .ps. to its cluster, or",
        ),
        ("multi_worker_mirrored", None, "'multi_worker_mirrored'. has no use for a ps: .* Leave"),
        ("central_storage", None, "'central_storage'. has no use for a ps"),
    ],
)
@pytest.mark.parametrize("role", ["chief", "worker", "ps", "evaluator"])
def test_every_task_is_told_that_the_strategy_does_not_fit(
    tmp_path, strategy, without, message, role
):
    addresses = {name: listed for name, listed in ONE_OF_EACH.items() if name != without}
    if role == without:
        pytest.raises(ValueError, model_of, tmp_path, addresses, role)
        return
    model = model_of(tmp_path / "model", addresses, role, strategy=strategy)
    with pytest.raises(ValueError, match=message):
        est.train_and_evaluate(model, est.TrainSpec(numbers()), est.EvalSpec(numbers(3)))
    assert not (tmp_path / "model").exists()


def test_a_ps_does_not_train(tmp_path):
    model = model_of(tmp_path, ONE_OF_EACH, "ps")
    with pytest.raises(ValueError, match="This task is ps 0 .* Call `train_and_evaluate`, as"):
        model.train(numbers())


@pytest.mark.parametrize("strategy", ["multi_worker_mirrored", "parameter_server"])
@pytest.mark.parametrize("role", ["chief", "ps"])
def test_a_port_that_is_in_use_is_named(tmp_path, strategy, role):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        own, other = f"127.0.0.1:{taken.getsockname()[1]}", *free_addresses(1)
        addresses = {"chief": [own], "ps" if strategy == "parameter_server" else "worker": [other]}
        if role == "ps":
            addresses = {"chief": [other], "ps": [own]}
            strategy = "parameter_server"
        model = model_of(tmp_path, addresses, role, strategy=strategy)
        with pytest.raises(ValueError, match=f"{role} 0 cannot listen on {own} .* another port"):
            est.train_and_evaluate(model, est.TrainSpec(numbers()), est.EvalSpec(numbers(3)))


@pytest.mark.slow
def test_a_worker_at_an_address_that_does_not_resolve_is_named_with_the_reason(tmp_path):
    addresses = {"worker": [*free_addresses(1), "no-such-host.invalid:2222"]}
    task = [("worker", 0)]
    with Cluster(
        worker_run.__file__, "lonely", tmp_path, addresses=addresses, only=task
    ) as cluster:
        assert cluster.statuses() == [1]
        (line,) = [e for e in cluster["worker", 0].err.splitlines() if "TimeoutError: " in e]
        assert "Worker 1 (no-such-host.invalid:2222) whose host does not resolve (" in line
        assert "did not answer within `session_creation_timeout_secs` (1)" in line


@pytest.mark.slow
def test_a_worker_with_another_model_than_the_chiefs_is_told_which_variables_differ(tmp_path):
    with Cluster(lost_run.__file__, "other_model", tmp_path, chief=1, worker=1, ps=1) as cluster:
        assert cluster.statuses() == [0, 1, 0]
        err = cluster["worker", 0].err
    on_ps = "/job:ps/task:0"
    shape = f"more is float32 (3, 1) {on_ps} on the chief and float32 (3, 2) {on_ps} on worker 0"
    assert shape in err
    assert f"variable only_there is missing on the chief and float32 () {on_ps}" in err
    assert "of_the_chief" not in err  # What the chief has besides is its own affair.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "`TF_CONFIG` .'{'. is not JSON: .* A valid one: "),
        (
            tf_config(ONE_OF_EACH, "boss", 0),
            '`TF_CONFIG` task.type .*"boss".* The roles of training .*"chief"',
        ),
        (tf_config({"ps": ["c:1"]}, "ps", 0), "cluster .* has no task that trains. Name a "),
        (tf_config({**ONE_OF_EACH, "worker": ["a:1"]}, "ps", 0), "is the address of cluster.chief"),
        (
            tf_config(ONE_OF_EACH, "worker", 1),
            "task.index .1. must be between 0 and 0 for 'worker'",
        ),
    ],
)
def test_a_config_is_not_made_of_a_tf_config_that_is_wrong(monkeypatch, text, message):
    monkeypatch.setenv("TF_CONFIG", text)
    for make in (est.RunConfig, est.tpu.RunConfig, lambda: est.Estimator(Model())):
        with pytest.raises(ValueError, match=message):
            make()
