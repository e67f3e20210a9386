import contextlib
import json
import os
import re
import shutil
import signal

import pytest
import tensorflow as tf

import estimator as est
from estimator.checkpoint.trainer_lock import FILE_NAME, is_locked, trainer_lock
from estimator.config.cluster import parse_tf_config
from estimator.training.end_record import read_end, write_end
from tests.checkpoint import lock_holder
from tests.forked import Program
from tests.full_disk import no_file_larger_than
from tests.toy import Model, checkpoint_steps, numbers


@pytest.fixture
def holder(tmp_path):
    """Another process that trains in `tmp_path`, until it gets SIGUSR1."""
    with Program(lock_holder.__file__, tmp_path) as program:
        program.wait_for("holds")
        yield program


def end(holder):
    """Lets it come to its end."""
    holder.send(signal.SIGUSR1)
    assert holder.status() == 0


def test_a_second_trainer_is_told_of_the_first_and_writes_nothing(tmp_path, holder):
    config = est.RunConfig(session_creation_timeout_secs=0.1)
    with (
        est.Estimator(Model(), str(tmp_path), config) as second,
        pytest.raises(
            RuntimeError, match=rf"`model_dir` .* by process {holder.process.pid} on .*: end"
        ),
    ):
        second.train(numbers(), steps=1)
    assert os.listdir(tmp_path) == [FILE_NAME]
    end(holder)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("has_record", [True, False])
def test_a_second_chief_leaves_the_record_of_the_end_to_the_first(tmp_path, holder, has_record):
    if has_record:
        write_end(str(tmp_path), exit_status=0, reason="max_steps")
    before = read_end(str(tmp_path))
    cluster = {"chief": ["127.0.0.1:1"], "evaluator": ["127.0.0.1:2"]}
    config = est.RunConfig(
        cluster=parse_tf_config(
            json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})
        ),
        session_creation_timeout_secs=0.1,
    )
    spec = est.TrainSpec(numbers(), max_steps=1)
    with (
        est.Estimator(Model(), str(tmp_path), config) as second,
        pytest.raises(RuntimeError, match="is being trained in"),
    ):
        est.train_and_evaluate(second, spec, est.EvalSpec(numbers()))
    assert read_end(str(tmp_path)) == before
    end(holder)
    with est.Estimator(Model(), str(tmp_path), config) as third:
        est.train_and_evaluate(third, spec, est.EvalSpec(numbers()))
    assert read_end(str(tmp_path)) not in (before, None)


def test_a_trainer_that_was_killed_holds_no_lock(tmp_path, holder):
    holder.send(signal.SIGKILL)
    holder.status()
    assert os.listdir(tmp_path) == [FILE_NAME]
    with est.Estimator(Model(), str(tmp_path)) as second:
        second.train(numbers(), steps=1)
    assert FILE_NAME not in os.listdir(tmp_path)


def test_what_a_killed_trainer_has_forked_holds_no_lock(tmp_path):
    with Program(lock_holder.__file__, tmp_path, "forks") as holder:
        holder.wait_for("holds")
        child = int(re.search(r"forked (\d+)", holder.out)[1])
        try:
            holder.send(signal.SIGKILL)
            holder.status()
            with trainer_lock(str(tmp_path), 0):
                os.kill(child, 0)  # It is still there.
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_forked_process_does_not_remove_the_lock_that_its_parent_holds(tmp_path):
    with contextlib.ExitStack() as stack:
        stack.enter_context(trainer_lock(str(tmp_path), 0))
        child = os.fork()
        if child == 0:
            try:
                stack.close()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert is_locked(str(tmp_path))
    assert not is_locked(str(tmp_path))


def test_a_lock_works_on_a_full_disk(tmp_path):
    for _ in range(2):
        with no_file_larger_than(0), trainer_lock(str(tmp_path), 0):
            assert is_locked(str(tmp_path))
        assert not is_locked(str(tmp_path))


def test_a_trainer_waits_for_one_that_is_ending(tmp_path, holder, caplog):
    waits = []

    def sleep(secs):
        waits.append(secs)
        end(holder)

    caplog.set_level("INFO", "estimator")
    with trainer_lock(str(tmp_path), 10, clock=lambda: 0.0, sleep=sleep):
        assert len(waits) == 1
    assert caplog.messages[0].endswith(": waiting for it to end")


def test_one_process_cannot_train_twice_at_once_in_a_directory(tmp_path):
    with (
        trainer_lock(str(tmp_path), 0),
        pytest.raises(RuntimeError, match="by this process already"),
        trainer_lock(str(tmp_path), 1000),
    ):
        pass


def test_a_directory_that_training_made_and_left_empty_is_removed(tmp_path):
    with trainer_lock(str(tmp_path / "new"), 0):
        assert os.listdir(tmp_path / "new") == [FILE_NAME]
    assert os.listdir(tmp_path) == []


def test_a_link_that_leads_nowhere_is_told(tmp_path):
    os.symlink(tmp_path / "not-mounted", tmp_path / "model")
    with (
        est.Estimator(Model(), str(tmp_path / "model")) as trained,
        pytest.raises(ValueError, match="/model'.* leads through a link"),
    ):
        trained.train(numbers(), steps=1)


def test_a_lock_file_that_cannot_be_removed_hides_no_error_and_holds_no_lock(tmp_path, monkeypatch):
    def fail(path):
        raise PermissionError(path)

    def train():
        with trainer_lock(str(tmp_path), 0), monkeypatch.context() as patch:
            patch.setattr(os, "unlink", fail)
            raise KeyError("of the training")

    with pytest.raises(KeyError, match="of the training"):
        train()
    with trainer_lock(str(tmp_path), 0):
        pass


def test_the_lock_file_of_another_trainer_is_left_alone(tmp_path):
    model_dir = tmp_path / "model"
    with contextlib.ExitStack() as stack:
        stack.enter_context(trainer_lock(str(model_dir), 0))
        shutil.rmtree(model_dir)
        model_dir.mkdir()
        with Program(lock_holder.__file__, model_dir) as other:
            other.wait_for("holds")
            stack.close()
            with pytest.raises(RuntimeError, match=f"by process {other.process.pid}"):
                stack.enter_context(trainer_lock(str(model_dir), 0))
            end(other)


class ChangeAt(tf.compat.v1.train.SessionRunHook):
    """Calls a function once, after a step."""

    def __init__(self, step, change):
        self.step, self.change = step, change

    def after_run(self, run_context, run_values):
        self.step -= 1
        if self.step == 0:
            self.change()


@pytest.mark.parametrize("kind", ["removed", "moved", "left"])
def test_a_directory_that_is_gone_does_not_come_back(kind, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    change = {
        "removed": lambda: shutil.rmtree("model"),
        "moved": lambda: os.rename("model", "elsewhere/model"),
        "left": lambda: os.chdir("elsewhere"),
    }[kind]
    config = est.RunConfig(save_checkpoints_steps=2)
    with (
        est.Estimator(Model(), "model", config) as trained,
        pytest.raises(RuntimeError, match="was removed, moved or replaced"),
    ):
        trained.train(numbers(), max_steps=9, hooks=[ChangeAt(5, change)])
    os.chdir(tmp_path)
    where = {"moved": "elsewhere/model", "left": "model"}
    assert [d for d in ("model", "elsewhere/model") if os.path.exists(d)] == (
        [where[kind]] if kind in where else []
    )
    if kind in where:
        assert checkpoint_steps(where[kind]) == [0, 2, 4]


def test_a_lock_file_that_was_removed_is_made_again(tmp_path):
    config = est.RunConfig(save_checkpoints_steps=2)
    seen = []
    remove = ChangeAt(1, lambda: os.unlink(tmp_path / FILE_NAME))
    look = ChangeAt(3, lambda: seen.append(is_locked(str(tmp_path))))
    with est.Estimator(Model(), str(tmp_path), config) as trained:
        trained.train(numbers(), max_steps=4, hooks=[remove, look])
    assert seen == [True]
    assert not (tmp_path / FILE_NAME).exists()


def test_a_trainer_does_not_save_where_another_trains_by_now(tmp_path):
    model_dir = tmp_path / "model"
    with contextlib.ExitStack() as stack:

        def replace():
            shutil.rmtree(model_dir)
            model_dir.mkdir()
            stack.enter_context(Program(lock_holder.__file__, model_dir)).wait_for("holds")

        with (
            est.Estimator(Model(), str(model_dir), est.RunConfig()) as trained,
            pytest.raises(RuntimeError, match="was removed, moved or replaced"),
        ):
            trained.train(numbers(), max_steps=4, hooks=[ChangeAt(2, replace)])
        assert checkpoint_steps(str(model_dir)) == []
        assert is_locked(str(model_dir))
