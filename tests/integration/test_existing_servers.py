"""Sessions on servers that run already, in processes of their own."""

import contextlib
import json
import signal

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.forked import ROOT, Program
from tests.integration import existing_run
from tests.integration.cluster import free_addresses, make_addresses
from tests.integration.existing_run import make_model
from tests.integration.worker_run import numbers

PROGRAM = existing_run.__file__


@contextlib.contextmanager
def servers(**roles):
    """One server for each task; yields the addresses and the programs."""
    addresses = make_addresses(**roles)
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(Program(PROGRAM, "server", json.dumps(addresses), role, index))
            for role, listed in addresses.items()
            for index in range(len(listed))
        ]
        for server in started:
            server.wait_for("up\n")
        yield addresses, started


def weights(model):
    return float(model.get_variable_value("w"))


@pytest.mark.slow
def test_every_verb_runs_on_a_server_that_runs_already_and_ends_when_it_does(tmp_path):
    with servers(local=1) as (addresses, (server,)):
        (address,) = addresses["local"]
        master = f"grpc://{address}"
        for loop in (1, 100):
            here = make_model(tmp_path / f"here{loop}", None, loop)
            there = make_model(tmp_path / f"there{loop}", master, loop)
            for model in (here, there):
                model.train(numbers(None), max_steps=7)
                first = model.evaluate(numbers(4))
                # The evaluation's session, which stays, has variables of its own there.
                model.train(numbers(None), max_steps=12)
                assert (first["global_step"], model.train_result.global_step) == (7, 12)
            assert weights(here) == weights(there)
            assert here.evaluate(numbers(4)) == there.evaluate(numbers(4))
            here.close()

        large = np.zeros([2**15, 1], np.float32)
        there.train(lambda: tf.data.Dataset.from_tensor_slices((large, large)).batch(4), steps=1)
        data = est.inputs.numpy_input_fn(np.zeros([4, 1], np.float32), shuffle=False)
        with pytest.raises(ValueError, match="calls Python functions .* without `tf.py_function`"):
            there.train(data, steps=1)

        with Program(PROGRAM, "endless", master, tmp_path / "endless") as client:
            client.wait_for("begun\n")
            server.send(signal.SIGKILL)
            assert client.status() == 1
            gone = f"The server of `master` ({address}) is gone, so training cannot continue"
            assert gone in client.err.splitlines()[-1]
        impatient = make_model(tmp_path / "there1", master, session_creation_timeout_secs=1)
        for verb in (impatient.train, impatient.evaluate):
            with pytest.raises(TimeoutError, match=rf"{address}\) did not answer within .* \(1\)"):
                verb(numbers(4))
        there.close()


@pytest.mark.slow
def test_predictions_run_there_too_and_a_server_that_was_started_again_is_used_anew(tmp_path):
    def model_fn(features, labels, mode):
        w = tf.compat.v1.get_variable("w", [], initializer=tf.ones_initializer())
        if mode == est.ModeKeys.PREDICT:
            return est.EstimatorSpec(mode, predictions=features * w)
        return existing_run.average_model_fn(features, labels, mode)

    (address,) = free_addresses(1)
    start = [PROGRAM, "server", json.dumps({"local": [address]}), "local", 0]
    config = est.tpu.RunConfig(master=f"grpc://{address}", session_creation_timeout_secs=60)
    model = est.Estimator(existing_run.average_model_fn, str(tmp_path))
    model.train(numbers(3))
    with est.Estimator(model_fn, str(tmp_path), config) as predictor:
        expected = [i * weights(model) for i in range(4)]
        for _ in range(2):
            with Program(*start) as server:
                server.wait_for("up\n")
                np.testing.assert_allclose(list(predictor.predict(numbers(4))), expected)


@pytest.mark.slow
def test_variables_of_another_process_are_not_copied_for_a_thread_to_save(tmp_path):
    with servers(local=1) as (addresses, _):
        master = f"grpc://{addresses['local'][0]}"
        with make_model(str(tmp_path), master, async_checkpoints=True) as model:
            message = f"`async_checkpoints` .True. .* the server {master}. Leave it out"
            with pytest.raises(ValueError, match=message):
                model.train(numbers(4))
            assert tf.train.latest_checkpoint(str(tmp_path)) is None
            with make_model(str(tmp_path), master) as saving:
                saving.train(numbers(4))
            # What does not train saves nothing.
            assert model.evaluate(numbers(4))["global_step"] == 4


@pytest.mark.parametrize("master", ["localhost:2222", "grpc://localhost", "grpc://:1"])
def test_a_master_that_is_no_target_is_refused_by_every_verb(tmp_path, master):
    make_model(str(tmp_path)).train(numbers(1))
    model = make_model(str(tmp_path), master)
    for verb in (model.train, model.evaluate, lambda f: next(model.predict(f))):
        with pytest.raises(ValueError, match=f"master` .'{master}'. must be the target of a sess"):
            verb(numbers(4))


@pytest.mark.slow
def test_run_mnist_trains_through_existing_servers_and_again_through_the_same(tmp_path):
    with servers(ps=1, worker=2) as (addresses, started):
        flags = [
            f"{ROOT}/run_mnist.py",
            "--mode=train",
            "--model=mnist_mlp",
            "--seed=1",
            f"--model_dir={tmp_path / 'model'}",
            f"--data_dir={tmp_path / 'data'}",
            "--existing_servers",
            "--job_name=worker",
            f"--ps_hosts={','.join(addresses['ps'])}",
            f"--worker_hosts={','.join(addresses['worker'])}",
        ]
        # The second time the servers still hold what the first has left.
        for loop, steps in ((10, 40), (1, 60)):
            more = [f"--train_steps={steps}", f"--iterations={loop}"]
            with (
                Program(*flags, *more, "--task_index=0") as chief,
                Program(*flags, *more, "--task_index=1") as worker,
            ):
                for task in (chief, worker):
                    assert task.status() == 0, task.err[-3000:]
                (row,) = [line.split() for line in chief.out.splitlines() if "steps " in line]
            assert int(row[1]) in (steps, steps + 1)
        assert [server.process.poll() for server in started] == [None] * 3


@pytest.mark.slow
def test_workers_that_train_together_start_their_own_servers():
    cluster = est.parse_tf_config(
        json.dumps(
            {
                "cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]},
                "task": {"type": "worker", "index": 0},
                "session_master": "grpc://127.0.0.1:1",
            }
        )
    )
    config = est.RunConfig(strategy="multi_worker_mirrored", cluster=cluster)
    with pytest.raises(ValueError, match="`master` .* already runs, but workers .* own servers"):
        est.Estimator(existing_run.average_model_fn, config=config).train(numbers(4))
