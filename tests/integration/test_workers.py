"""Workers that train one model together: real processes on this machine."""

import glob
import os
import re
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.forked import run_text
from tests.integration import worker_run
from tests.integration.cluster import Cluster, make_addresses, tf_config
from tests.toy import checkpoint_steps, events

PROGRAM = worker_run.__file__
LOOPS = (1, 100)
TWO = [("worker", 0), ("worker", 1)]


def results(task, case):
    return [result for result in task.results if result["case"] == case]


def values_of(model_dir):
    """Every value in the newest checkpoint."""
    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(model_dir)))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def reference(model_dir):
    """What one process makes of the same global batches."""
    with worker_run.make_model(str(model_dir)) as line:
        line.train(worker_run.make_input_fn())
        assert line.train_result.global_step == 8
        return line.get_variable_value("w"), line.get_variable_value("b"), line.train_result.loss


@pytest.fixture(scope="module")
def verbs(tmp_path_factory):
    model_dir = tmp_path_factory.mktemp("verbs")
    with Cluster(PROGRAM, "verbs", model_dir / "two", "1,100", worker=2) as cluster:
        one = reference(model_dir / "one")
        cluster.check_all_succeed()
        yield model_dir / "two", cluster, one


@pytest.mark.slow
def test_two_workers_have_the_same_bits_and_the_weights_of_one_process(verbs):
    _, cluster, (w, b, _) = verbs
    for case in ("pass", "more"):
        of_each = [[r["weights"] for r in results(cluster[task], case)] for task in TWO]
        assert of_each[0] == of_each[1]
        assert len(of_each[0]) == len(LOOPS)
        assert of_each[0][0] == of_each[0][1]  # Nor does the loop's size matter.
    weights = results(cluster[TWO[0]], "pass")[0]["weights"]
    np.testing.assert_allclose(weights[0], w.ravel(), rtol=1e-5)
    np.testing.assert_allclose(weights[1], b.ravel(), rtol=1e-5)


@pytest.mark.slow
def test_the_shards_end_together_and_the_loss_is_that_of_all(verbs):
    _, cluster, (_, _, loss) = verbs
    for task in TWO:
        for result in results(cluster[task], "result"):
            assert (result["step"], result["reason"]) == (8, "end of input")
            assert result["loss"] == pytest.approx(loss, rel=1e-5)
        assert [r["reason"] for r in results(cluster[task], "more result")] == ["max_steps"] * 2


@pytest.mark.slow
def test_train_returns_on_no_worker_before_the_chief_has_saved_the_last_step(verbs):
    _, cluster, _ = verbs
    for task in TWO:
        for result in results(cluster[task], "saved"):
            assert (result["step"], result["is_listener_done"]) == (8, True)


@pytest.mark.slow
def test_the_context_of_input_fn_says_which_worker_of_how_many_calls_it(verbs):
    _, cluster, _ = verbs
    for index, task in enumerate(TWO):
        (told, again) = results(cluster[task], "context of train")
        assert told == again
        assert told["hosts"] == [index, 2]
        assert told["replicas"] == [1, 2]
        assert told["call"] == [index, 2, 1]
    for told in results(cluster[TWO[0]], "context of eval"):
        assert (told["hosts"], told["replicas"], told["call"]) == ([0, 1], [1, 1], [0, 1, 1])


@pytest.mark.slow
def test_the_union_of_the_shards_is_the_data_set(verbs):
    model_dir, _, _ = verbs
    for loop in LOOPS:
        reader = tf.train.load_checkpoint(f"{model_dir}/loop{loop}/model.ckpt-8")
        np.testing.assert_array_equal(reader.get_tensor("seen"), 1.0)


@pytest.mark.slow
def test_the_chief_alone_writes_and_evaluates_by_itself(verbs):
    model_dir, cluster, _ = verbs
    for loop in LOOPS:
        directory = f"{model_dir}/loop{loop}"
        assert checkpoint_steps(directory) == [0, 5, 8, 10, 12]
        assert len(glob.glob(f"{directory}/events.*")) == 1
        steps = [step for step, tag, _ in events(directory) if tag == "error"]
        assert steps == [*([1] if loop == 1 else []), 3, 6, 9, 12]
        positions = sorted(
            os.path.basename(p) for p in glob.glob(f"{directory}/input-position/*.index")
        )
        assert positions == [
            f"input-position-of-worker-{i}-of-2-{s}.index" for i in (0, 1) for s in (10, 12)
        ]
    assert [r["global_step"] for r in results(cluster[TWO[0]], "evaluation")] == [8.0, 8.0]
    assert results(cluster[TWO[1]], "evaluation") == []


@pytest.mark.slow
def test_three_workers_of_the_public_object_with_a_chief(tmp_path):
    with Cluster(PROGRAM, "kinds", tmp_path, "object", chief=1, worker=2) as cluster:
        w, b, _ = reference(tmp_path / "one")
        cluster.check_all_succeed()
        for loop in LOOPS:
            of_each = [
                results(task, f"object {loop}")[0]["weights"] for task in cluster.tasks.values()
            ]
            assert of_each[0] == of_each[1] == of_each[2]
            np.testing.assert_allclose(of_each[0][0], w.ravel(), rtol=1e-5)
            np.testing.assert_allclose(of_each[0][1], b.ravel(), rtol=1e-5)


@pytest.mark.slow
def test_what_workers_tell_each_other_needs_no_gradients_of_float32(tmp_path):
    """A loss that is itself reduced, and weights of float64; one of the inputs is shorter."""
    with Cluster(PROGRAM, "reduced", tmp_path, worker=2) as cluster:
        cluster.check_all_succeed()
        for case in (f"{dtype} {loop}" for dtype in ("float32", "float64") for loop in LOOPS):
            for task in TWO:
                # Of 0, 1 and 2; the last loss is that of 2 before the step.
                (result,) = results(cluster[task], case)
                assert result["weights"] == [[0.5 * 2 + 0.25 * 1]]
                (end,) = results(cluster[task], f"{case} end")
                assert (end["step"], end["reason"]) == (3, "end of input")
                assert end["loss"] == (0.5 - 2) ** 2 / 2


@pytest.mark.slow
def test_several_devices_a_worker_and_keras_layers(tmp_path):
    with Cluster(PROGRAM, "kinds", tmp_path, "devices", "keras", worker=2) as cluster:
        w, _, _ = reference(tmp_path / "one")
        cluster.check_all_succeed()
        for loop in LOOPS:
            of_each = [results(cluster[task], f"devices {loop}")[0]["weights"] for task in TWO]
            assert of_each[0] == of_each[1]
            assert of_each[0][0] == of_each[0][1]  # The copies of `w` in one worker.
            np.testing.assert_allclose(of_each[0][0], w.ravel(), rtol=1e-5)
            np.testing.assert_array_equal(values_of(tmp_path / f"devices{loop}")["seen"], 1.0)
            of_each = [results(cluster[task], f"keras {loop}")[0]["weights"] for task in TWO]
            assert of_each[0] == of_each[1]
        # Each mask keeps every other of 64 places: equal masks of both would count twos only.
        masks = values_of(tmp_path / "keras1")["masks"]
        assert np.sum(masks % 2) > 10
        assert 8 * 2 * 0.4 < masks.mean() < 8 * 2 * 0.6
        # The moving mean is that over the workers: half-way to the batch's mean in each step.
        batches = worker_run.FEATURES.reshape(8, 12, 4).mean(1)
        mean = np.zeros(4)
        for batch in batches:
            mean = mean / 2 + batch / 2
        statistics = results(cluster[TWO[0]], "statistics 100")[0]["mean"]
        np.testing.assert_allclose(statistics, mean, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_workers_stop_at_the_same_step_for_the_same_reason(tmp_path):
    with Cluster(PROGRAM, "stops", tmp_path, worker=2) as cluster:
        cluster.check_all_succeed()
        chiefs, others = (cluster[task].results for task in TWO)
    assert len(chiefs) == 2 * 7 + 4 + 4
    for ours, theirs in zip(chiefs, others, strict=True):
        assert [ours[k] for k in ("case", "step", "reason")] == [
            theirs[k] for k in ("case", "step", "reason")
        ]
    for loop, hook_step in ((1, 3), (100, 6)):
        found = {r["case"]: r for r in chiefs[:14] if r["loop"] == loop}
        stopped = {case: (r["step"], r["reason"]) for case, r in found.items() if r["step"]}
        # A hook's wish reaches the others in the next call: a loop is empty then, one step is not.
        assert stopped == {
            "uneven": (7, "end of input"),
            "stop": (5, "nan loss"),
            "skip": (12, "end of input"),
            "hook": (hook_step, "hook"),
            "cut by one": (20, "max_steps"),
        }
        assert "gave no batch" in found["empty"]["reason"]
        assert "The loss of step 5 is nan" in found["raise"]["reason"]
        assert found["raise"]["latest"].endswith("ckpt-3")
        assert found["stop"]["latest"].endswith("ckpt-3")
        w = 0.0
        for i in range(12):
            w += (i - w) / 2 if i != 4 else 0.0  # The step that was skipped, on both.
        assert found["skip"]["w"] == pytest.approx(w)
        recorded = [
            step
            for step, tag, _ in events(os.path.dirname(found["cut by one"]["latest"]))
            if tag == "loss"
        ]
        # Every 5 steps; the first call of all is recorded too.
        assert recorded == [1, 5, 10, 15, 20]
    endless, in_loop, between_loops, empty = chiefs[14:18]
    assert (endless["step"], endless["reason"]) == (20, "max_steps")
    for found, step in ((in_loop, 7), (between_loops, 6)):
        assert (found["step"], found["reason"]) == (step, "end of input")
        assert found["w"] == pytest.approx(sum(i * 0.5 ** (step - i) for i in range(step)))
    assert "gave no batch" in empty["reason"]
    listener, by_clock, by_hook, with_statistics = chiefs[18:]
    assert (listener["step"], listener["reason"]) == (6, "listener")
    assert by_clock["saved"] == [0, *range(2, 21)]  # The chief's clock, as the next call tells all.
    assert (by_hook["step"], by_hook["saved"]) == (20, [0, 4, 8, 12, 16, 20])
    assert "A CheckpointSaverHook saves in the chief alone" in with_statistics["reason"]


@pytest.fixture(scope="module")
def differing(tmp_path_factory):
    model_dir = tmp_path_factory.mktemp("differing")
    with Cluster(PROGRAM, "differs", model_dir, worker=2) as cluster:
        cluster.check_all_succeed()
        yield model_dir, cluster


@pytest.mark.slow
def test_workers_that_differ_are_told_in_what(differing):
    _, cluster = differing
    for task in TWO:
        told = {r["case"]: r["error"] for r in cluster[task].results}
        assert "`iterations_per_loop` is 1 on worker 0 and 2 on worker 1" in told["loop"]
        assert "`max_steps` is 3 on worker 0 and 4 on worker 1" in told["steps"]
        assert "CheckpointSaverHooks is 1 on worker 0 and 0 on worker 1" in told["hooks"]
        assert "StopAtStepHook is last_step=2 on worker 0 and none on worker 1" in told["stop"]
        for loop in (1, 3):
            assert "alone read from all workers is running_mean (" in told[f"summary {loop}"]
        assert "variable more is float32 (3, 1) on worker 0 and float32 (3, 2)" in told["model"]
        assert "variable only_there is missing on worker 0" in told["model"]


@pytest.mark.slow
def test_if_one_worker_lost_its_position_all_start_their_input_at_the_beginning(differing):
    model_dir, cluster = differing
    # Three steps, of 12 examples each, and two from the beginning. What each worker had counted by
    # itself goes on from the checkpoint on both: the sum over them is right only if it does.
    np.testing.assert_array_equal(
        values_of(model_dir / "position")["seen"], [2] * 24 + [1] * 12 + [0] * 60
    )
    for task in TWO:
        assert "The position in the input of worker 1 at step" in cluster[task].err


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    model_dir = tmp_path_factory.mktemp("unbroken")
    with Cluster(PROGRAM, "resume", model_dir, 9, 0, worker=2) as cluster:
        cluster.check_all_succeed()
    return values_of(model_dir)


@pytest.mark.slow
@pytest.mark.each_value
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_killed_worker_is_named_and_a_restart_of_all_goes_on_exactly(
    tmp_path, unbroken, victim, is_async
):
    broken, survivor = tmp_path / "broken", 1 - victim
    with Cluster(PROGRAM, "resume", broken, victim, 13, is_async, worker=2) as cluster:
        assert cluster["worker", victim].status() == -signal.SIGKILL
        died = time.monotonic()
        assert cluster["worker", survivor].status() == 1
        assert time.monotonic() - died < 30
        address = cluster.addresses["worker"][victim]
        assert (
            f"UnavailableError: Worker {victim} ({address}) is gone"
            in cluster["worker", survivor].err
        )
        # A checkpoint that a thread was writing may be absent.
        assert checkpoint_steps(broken)[-1] in (10, 15, *([5] if is_async else []))
        with Cluster(PROGRAM, "resume", broken, 9, 0, is_async, worker=2) as again:
            again.check_all_succeed()
    ours, expected = values_of(broken), unbroken
    assert expected["global_step"] == 25
    assert expected["seen"].sum() == 25 * 12
    assert any("moving_variance" in name for name in expected)
    assert set(ours) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)


@pytest.mark.slow
def test_a_signal_to_one_worker_saves_one_checkpoint_and_ends_all(tmp_path):
    with Cluster(PROGRAM, "endless", tmp_path, worker=2) as cluster:
        cluster["worker", 1].wait_for("begun")
        cluster["worker", 1].send(signal.SIGTERM)
        assert cluster.statuses() == [143, 143]
    *_, step = checkpoint_steps(tmp_path)
    assert step % 50 == 0
    assert values_of(tmp_path)["seen"].sum() == 12 * step
    positions = sorted(
        os.path.basename(path) for path in glob.glob(f"{tmp_path}/input-position/*.index")
    )
    assert positions == [f"input-position-of-worker-{i}-of-2-{step}.index" for i in (0, 1)]


@pytest.mark.slow
def test_an_error_that_one_process_catches_ends_the_training_of_all_and_the_next_begins(tmp_path):
    with Cluster(PROGRAM, "fails", tmp_path, chief=1, worker=2) as cluster:
        cluster.check_all_succeed()
        tasks = [("chief", 0), ("worker", 0), ("worker", 1)]
        chief, other, last = ({r["case"]: r for r in cluster[task].results} for task in tasks)
    for case, fails, name in (
        ("model_fn", last, "Worker 1"),
        ("input_fn", chief, "The chief"),
        ("begin", other, "Worker 0"),
    ):
        assert fails[case]["error"] == f"OSError: in {case}"
        for hears in (chief, other, last):
            if hears is not fails:
                assert f"UnavailableError: {name} (" in hears[case]["error"]
                assert f") has failed (OSError: in {case}), so" in hears[case]["error"]
    for task in (chief, other, last):
        differs = r"ValueError: The workers .* number of collectives is \d+ on the chief and \d+ on"
        assert re.match(differs, task["program"]["error"], re.DOTALL)
    # The last worker fails in a hook, then the chief when it saves, then the last one's input.
    for hears in (chief, other):
        assert "UnavailableError: Worker 1 (" in hears["hook"]["error"]
        assert ") has failed (ZeroDivisionError: in a hook), so" in hears["hook"]["error"]
    assert last["hook"]["error"] == "ZeroDivisionError: in a hook"
    for hears in (other, last):
        assert "UnavailableError: The chief (" in hears["save"]["error"]
        assert ") has failed (OSError: No space left on device), so" in hears["save"]["error"]
    assert chief["save"]["error"] == "OSError: No space left on device"
    for task in (chief, other, last):
        assert (task["none"]["step"], task["none"]["error"]) == (20, None)
    assert checkpoint_steps(tmp_path)[:8] == [0, 3, 6, 9, 12, 15, 18, 20]
    assert last["input"]["error"].startswith("UnknownError: ")
    for hears in (chief, other):
        # TensorFlow itself ends a call that waited for the last one before that failed.
        assert re.search(
            r"^UnavailableError: Worker 1 .* has failed \(Unknown.*KeyError: 'in the input'\), so"
            r"|^UnavailableError: TensorFlow has ended all collectives of this process",
            hears["input"]["error"],
        )


@pytest.mark.slow
def test_without_loops_tensors_that_end_on_one_worker_are_an_error_on_all(tmp_path):
    with Cluster(PROGRAM, "tensors_end", tmp_path, worker=2) as cluster:
        cluster.check_all_succeed()
        (ends, *again), (hears, *too) = (
            [r["error"] for r in cluster[task].results] for task in TWO
        )
    assert ends.startswith("ValueError: The input of this worker ended, and others may have more")
    # TensorFlow itself may end a call that waited for the first one before that failed.
    assert re.search(
        r"^UnavailableError: Worker 0 .* has failed \(ValueError: The input of this worker ended"
        r"|^UnavailableError: TensorFlow has ended all collectives of this process",
        hears,
    )
    if (again, too) != ([None], [None]):
        assert all("Start all tasks again" in error for error in again + too)


@pytest.mark.slow
def test_a_worker_that_is_missing_or_dies_before_the_first_step_is_named(tmp_path):
    with (
        Cluster(PROGRAM, "lonely", tmp_path / "a", worker=3, only=[("worker", 1)]) as lonely,
        Cluster(PROGRAM, "dies_before_the_first_step", tmp_path / "b", worker=2) as left,
    ):
        assert lonely.statuses() == [1]
        first, _, last = lonely.addresses["worker"]
        message = f"TimeoutError: Worker 0 ({first}), worker 2 ({last}) did not answer within"
        assert message in lonely["worker", 1].err
        assert left.statuses() == [1, -signal.SIGKILL]
        assert "UnavailableError: Worker 1 (" in left["worker", 0].err


def test_without_a_cluster_the_strategy_is_for_one_process(tmp_path):
    w, _, _ = reference(tmp_path)
    assert w.shape == (4, 1)
    assert est.RunConfig(strategy="multi_worker_mirrored").num_worker_replicas == 1


def test_a_strategy_that_is_made_for_a_cluster_of_one_worker_trains_alone(tmp_path):
    addresses = make_addresses(worker=1)
    text = f"""
import tensorflow as tf
import estimator as est
from tests.toy import Model, numbers
config = est.RunConfig(train_distribute=tf.distribute.MultiWorkerMirroredStrategy())
with est.Estimator(Model(), {str(tmp_path)!r}, config) as model:
    model.train(numbers(), max_steps=3)
"""
    run_text(text, TF_CONFIG=tf_config(addresses, "worker", 0))
    assert checkpoint_steps(tmp_path) == [0, 3]
