"""Workers that share variables on ps tasks: real processes on this machine."""

import numpy as np
import pytest
import tensorflow as tf

from tests.forked import Program
from tests.integration import repeating_proxy, worker_run
from tests.integration.cluster import Cluster, free_addresses, make_addresses
from tests.toy import checkpoint_steps

PROGRAM = worker_run.__file__


def results(task, case):
    return [result for result in task.results if result["case"] == case]


@pytest.mark.slow
def test_workers_train_at_their_own_pace_and_ps_tasks_end_with_the_chief(tmp_path):
    with Cluster(PROGRAM, "asynchronous", tmp_path, "1,100", chief=1, worker=1, ps=2) as cluster:
        assert cluster.statuses() == [0, 0, 0, 0], cluster["chief", 0].err[-3000:]
        chief, worker = cluster["chief", 0], cluster["worker", 0]
        for loop in (1, 100):
            for task in (chief, worker):
                (result,) = results(task, f"async {loop}")
                assert result["reason"] == "max_steps"
                # One step of the other worker may be under way when the last is reached.
                assert 60 <= result["step"] <= 61
            assert results(chief, f"evaluation {loop}")[0]["loss"] < 2
            steps = checkpoint_steps(tmp_path / f"loop{loop}")
            # There may be no other: the worker may go all the way while the chief starts.
            assert steps[-1] == results(chief, f"async {loop}")[0]["step"]
            reader = tf.train.load_checkpoint(str(tmp_path / f"loop{loop}"))
            # Keras would lose counts: it reads, adds and assigns, while the other task does, too.
            assert abs(reader.get_tensor("count") - reader.get_tensor("global_step")) <= 1
        placed = [r["devices"] for task in (chief, worker) for r in results(task, "placed")]
        assert all(devices == placed[0] for devices in placed)
        in_order = [placed[0][name] for name in ("global_step", "w", "b", "seen")]
        assert in_order == [f"/job:ps/task:{i}" for i in (0, 1, 0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, pytest.param(2, marks=pytest.mark.full)])
def test_a_worker_with_two_devices_makes_what_one_process_makes_of_the_batch(tmp_path, num_workers):
    with Cluster(PROGRAM, "devices_and_ps", tmp_path, worker=num_workers, ps=2) as cluster:
        with worker_run.make_model(str(tmp_path / "one")) as line:
            line.train(worker_run.make_input_fn())
            w = line.get_variable_value("w")
        cluster.check_all_succeed()
        chief = cluster["worker", 0]
        devices = [placed["devices"] for placed in results(chief, "placed")]
        # 8, 16, 4 and 384 bytes.
        names = ("global_step", "w", "b", "seen")
        by_size, in_order = ([f"/job:ps/task:{i}" for i in tasks] for tasks in ("0100", "0101"))
        assert [[placed[name] for name in names] for placed in devices] == [by_size, in_order]
        assert "takes one gradient a worker" in results(chief, "sync")[0]["error"]
        for loop in (1, 100):
            reader = tf.train.load_checkpoint(str(tmp_path / f"loop{loop}"))
            # All shards were seen, each once.
            np.testing.assert_array_equal(reader.get_tensor("seen"), 1.0)
            (result,) = results(chief, f"devices {loop}")
            assert (result["step"], result["reason"]) == (8, "end of input")
            assert results(chief, f"evaluation {loop}")[0]["loss"] < 10
            if num_workers == 1:  # Several go at their own pace.
                np.testing.assert_allclose(reader.get_tensor("w"), w, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["hook", pytest.param("max_steps", marks=pytest.mark.full)])
def test_sync_replicas_placement_by_size_parts_and_the_public_object(tmp_path, end):
    with Cluster(PROGRAM, "synchronous", tmp_path, end, worker=2, ps=2) as cluster:
        assert cluster.statuses() == [0, 0, 0, 0], cluster["worker", 0].err[-3000:]
        for task in (cluster["worker", 0], cluster["worker", 1]):
            # The other worker may have two gradients of the next step.
            last = 20 if end == "max_steps" else 22
            assert 20 <= results(task, "sync")[0]["step"] <= last
            assert "Train with `iterations_per_loop=1`" in results(task, "loop")[0]["error"]
            assert [20 <= r["step"] <= 21 for r in results(task, "object")] == [True, True]
            placed = results(task, "placed")[0]["devices"]
            # 8 bytes; the halves of the table, 800 each, on different ones; 16 and 4 level them.
            names = ("global_step", "table/part_0", "table/part_1", "w", "b")
            expected = [f"/job:ps/task:{i}" for i in (0, 1, 0, 1, 0)]
            assert [placed[name] for name in names] == expected
            shared = results(task, "placed")[1]["devices"]
            assert set(shared.values()) == {"/job:ps/task:0", "/job:ps/task:1"}
        assert np.isfinite(results(cluster["worker", 0], "sync")[0]["step"])


@pytest.mark.slow
def test_workers_go_on_after_a_call_that_a_server_refuses(tmp_path):
    behind = make_addresses(chief=1, worker=1, ps=1)
    in_front = {**behind, "ps": free_addresses(1)}
    arguments = (PROGRAM, "asynchronous", tmp_path, "1")
    # Both requests come before the end of training, which takes one a step and more.
    with (
        Program(repeating_proxy.__file__, *in_front["ps"], *behind["ps"], 30, 60) as proxy,
        Cluster(*arguments, addresses=behind, only=[("ps", 0)]) as servers,
        Cluster(*arguments, addresses=in_front, only=[("chief", 0), ("worker", 0)]) as workers,
    ):
        workers.check_all_succeed()
        servers.check_all_succeed()
        assert proxy.process.poll() is None
        errors = "".join(task.err for task in workers.tasks.values())
        assert errors.count("(Worker) request was received twice") == 2
        assert errors.count("It goes on in a new session") == 2
        for task in workers.tasks.values():
            assert 60 <= results(task, "async 1")[0]["step"] <= 61
