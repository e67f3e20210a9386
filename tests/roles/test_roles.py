"""The evaluator of a cluster, in this process; time is injected."""

import contextlib
import errno
import glob
import json
import os
import pathlib
import signal
import tempfile

import pytest
import tensorflow as tf

import estimator as est
from estimator.checkpoint.trainer_lock import trainer_lock
from estimator.config.cluster import parse_tf_config
from estimator.roles.train_and_evaluate import run_evaluator
from estimator.summary.event_reader import read_evaluations
from estimator.training.end_record import clear_end, read_end, write_end
from tests.forked import Program
from tests.roles.evaluations import Recorder
from tests.toy import Model, numbers

KILLED = str(pathlib.Path(__file__).with_name("killed_evaluator.py"))
TF_CONFIG = {
    "cluster": {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]},
    "task": {"type": "evaluator", "index": 0},
}


class Time:
    """A clock that goes on only while somebody sleeps; `events` happen at their times."""

    def __init__(self, **events):
        self.now = 0.0
        self._events = {float(at[1:]): event for at, event in events.items()}

    def clock(self):
        return self.now

    def sleep(self, secs):
        self.now += secs
        for at in [at for at in self._events if at <= self.now]:
            self._events.pop(at)()
        assert self.now < 1000


@pytest.fixture
def model_dir(tmp_path):
    """Eight checkpoints, 5 to 40, of a training that has ended."""
    config = est.RunConfig(str(tmp_path), save_checkpoints_steps=5, keep_checkpoint_max=None)
    with est.Estimator(Model(), config=config) as trained:
        trained.train(numbers(), max_steps=40)
    return str(tmp_path)


def evaluate(model_dir, time, max_steps=None, **spec):
    config = est.RunConfig(
        model_dir,
        cluster=parse_tf_config(json.dumps(TF_CONFIG)),
        save_checkpoints_steps=5,
        session_creation_timeout_secs=900,
    )
    spec = {"input_fn": numbers(3), "start_delay_secs": 0, "throttle_secs": 0, **spec}
    eval_spec = est.EvalSpec(**spec)
    with est.Estimator(Model(), config=config) as model:
        train_spec = est.TrainSpec(numbers(), max_steps)
        result = run_evaluator(model, train_spec, [eval_spec], time.clock, time.sleep)
    return result, list(read_evaluations(os.path.join(model_dir, "eval", "*tfevents*")))


def test_a_backlog_is_worked_through_in_order_and_only_once(model_dir):
    result, evaluated = evaluate(model_dir, Time(), max_steps=40)
    assert evaluated == [5, 10, 15, 20, 25, 30, 35, 40]
    assert result.metrics["global_step"] == 40
    assert result.train_result.global_step == 40
    before = os.listdir(os.path.join(model_dir, "eval"))
    config = est.RunConfig(model_dir, save_checkpoints_steps=5)
    with est.Estimator(Model(), config=config) as trained:
        trained.train(numbers(), max_steps=50)
    _, evaluated = evaluate(model_dir, Time(), max_steps=50)
    assert evaluated == [5, 10, 15, 20, 25, 30, 35, 40, 45, 50]
    (file,) = set(os.listdir(os.path.join(model_dir, "eval"))) - set(before)
    assert list(read_evaluations(os.path.join(model_dir, "eval", file))) == [45, 50]


@pytest.mark.parametrize("throttle_secs", [0, 600])
def test_a_checkpoint_is_exported_even_if_the_evaluator_was_killed_before(model_dir, throttle_secs):
    with Program(KILLED, "evaluator", model_dir, 15) as killed:
        assert killed.status() == -signal.SIGKILL
        lines = [f"{does} {step}" for step in (5, 10, 15) for does in ("evaluates", "exports")]
        assert killed.out.splitlines() == lines[:-1]
    evaluations = os.path.join(model_dir, "eval")
    assert max(read_evaluations(os.path.join(evaluations, "*tfevents*"))) == 15  # Not exported.
    recorder = Recorder()
    evaluate(model_dir, Time(), 40, throttle_secs=throttle_secs, exporters=recorder)
    between = [] if throttle_secs else [20, 25, 30, 35]
    assert recorder.calls == [(step, False) for step in (15, *between)] + [(40, True)]
    assert all("tfevents" in name for name in os.listdir(evaluations))


def test_a_training_that_evaluates_is_killed_before_it_exports_and_started_again(tmp_path):
    with Program(KILLED, "local", tmp_path, 15) as killed:
        assert killed.status() == -signal.SIGKILL
        assert killed.out.splitlines()[-1] == "evaluates 15"
    recorder = Recorder()
    config = est.RunConfig(str(tmp_path), save_checkpoints_steps=5)
    spec = est.EvalSpec(numbers(3), exporters=recorder, throttle_secs=0)
    with est.Estimator(Model(), config=config) as model:
        est.train_and_evaluate(model, est.TrainSpec(numbers(), max_steps=30), spec)
    assert recorder.calls == [(15, False), (20, False), (25, False), (30, True)]
    evaluations = os.path.join(tmp_path, "eval")
    assert list(read_evaluations(os.path.join(evaluations, "*tfevents*"))) == [
        5,
        10,
        15,
        20,
        25,
        30,
    ]
    assert all("tfevents" in name for name in os.listdir(evaluations))


@pytest.mark.parametrize("state", ["damaged", "removed", "of another training"])
def test_an_unfinished_step_that_cannot_be_evaluated_keeps_nothing_from_training(
    model_dir, state, caplog
):
    evaluations = os.path.join(model_dir, "eval")
    os.mkdir(evaluations)
    pathlib.Path(evaluations, "unfinished-step").write_text("40")
    (data,) = glob.glob(os.path.join(model_dir, "model.ckpt-40.data*"))
    config = est.RunConfig(model_dir, save_checkpoints_steps=5, session_creation_timeout_secs=0.1)
    recorder = Recorder()
    with est.Estimator(Model(), config=config) as model, contextlib.ExitStack() as stack:
        train = est.TrainSpec(numbers(), max_steps=45)
        spec = est.EvalSpec(numbers(3), exporters=recorder, throttle_secs=0)
        if state == "of another training":
            stack.enter_context(trainer_lock(model_dir, 0))
            with pytest.raises(RuntimeError, match="is being trained in"):
                est.train_and_evaluate(model, train, spec)
            assert recorder.calls == []
            assert os.listdir(evaluations) == ["unfinished-step"]
            return
        if state == "damaged":
            os.truncate(data, 8)
        else:
            os.remove(data.split(".data")[0] + ".index")
        est.train_and_evaluate(model, train, spec)
    # Step 40 is trained again. Training is taken to begin there if the index says nothing else.
    assert recorder.calls == [*([] if state == "damaged" else [(40, False)]), (45, True)]
    assert all("tfevents" in name for name in os.listdir(evaluations))


def test_a_checkpoint_of_the_backlog_that_is_damaged_is_passed_over(model_dir):
    os.truncate(os.path.join(model_dir, "model.ckpt-15.index"), 0)
    _, evaluated = evaluate(model_dir, Time(), max_steps=40)
    assert evaluated == [5, 10, 20, 25, 30, 35, 40]


@pytest.mark.parametrize("is_replaced", [True, False])
@pytest.mark.parametrize("spec", [{}, {"every_steps": 10}], ids=["all", "every_steps"])
def test_a_newest_checkpoint_that_is_damaged_is_left_to_the_chief(
    model_dir, spec, is_replaced, caplog
):
    """It trains that step again; `is_replaced`: and no further."""
    (data,) = glob.glob(os.path.join(model_dir, "model.ckpt-40.data*"))
    os.truncate(data, 8)
    os.utime(os.path.join(model_dir, "model.ckpt-40.index"), (0, 0))  # Not a moment ago.

    def replace():
        for path in glob.glob(os.path.join(model_dir, "model.ckpt-40.*")):
            os.remove(path)
        config = est.RunConfig(model_dir, save_checkpoints_steps=5, keep_checkpoint_max=None)
        with est.Estimator(Model(), config=config) as trained:
            trained.train(numbers(), max_steps=40 if is_replaced else 45)

    def end():
        write_end(model_dir, exit_status=0, reason="end of input")

    _, evaluated = evaluate(model_dir, Time(t20=replace, t40=end), **spec)
    every = spec.get("every_steps", 5)
    assert evaluated == [*range(every, 41, every), *([] if is_replaced else [45])]
    assert caplog.text.count("model.ckpt-40 is damaged") == 1


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_checkpoint_that_no_file_names_yet_is_not_the_end(model_dir, is_whole):
    """A chief that is killed in its last save, started again, saves that step again."""
    last = os.path.join(model_dir, "model.ckpt-40")
    state = tf.train.get_checkpoint_state(model_dir)
    tf.compat.v1.train.update_checkpoint_state(
        model_dir, last.replace("40", "35"), list(state.all_model_checkpoint_paths)[:-1]
    )
    if not is_whole:
        os.truncate(last + ".index", 0)

    def restart():
        config = est.RunConfig(model_dir, save_checkpoints_steps=5, keep_checkpoint_max=None)
        with est.Estimator(Model(), config=config) as trained:
            trained.train(numbers(), max_steps=40)

    recorder = Recorder()
    evaluate(model_dir, Time(t20=restart), 40, exporters=recorder)
    assert recorder.calls == [*((step, False) for step in range(5, 40, 5)), (40, True)]


def test_a_last_checkpoint_that_is_damaged_is_an_error(model_dir):
    (data,) = glob.glob(os.path.join(model_dir, "model.ckpt-40.data*"))
    os.truncate(data, 8)
    with pytest.raises(ValueError, match=r"can be restored: .*model.ckpt-40\. A file is missing"):
        evaluate(model_dir, Time(), max_steps=40)


def test_a_checkpoint_that_is_removed_before_its_turn_is_passed_over(model_dir, caplog):
    def input_fn():
        for path in glob.glob(os.path.join(model_dir, "model.ckpt-15.*")):
            os.remove(path)
        return numbers(3)()

    _, evaluated = evaluate(model_dir, Time(), max_steps=40, input_fn=input_fn)
    assert evaluated == [5, 10, 20, 25, 30, 35, 40]
    assert "model.ckpt-15 was removed before it could be evaluated" in caplog.text


def test_an_error_of_an_evaluation_is_not_taken_for_a_damaged_checkpoint(model_dir):
    def input_fn():
        raise ValueError("no data today")

    with pytest.raises(ValueError, match="no data today"):
        evaluate(model_dir, Time(), max_steps=40, input_fn=input_fn)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [({"throttle_secs": 600}, [40]), ({"every_steps": 15}, [15, 30, 40])],
    ids=["throttle_secs", "every_steps"],
)
def test_not_every_checkpoint_is_wanted_but_the_last_one_is(model_dir, spec, expected):
    _, evaluated = evaluate(model_dir, Time(), max_steps=40, **spec)
    assert evaluated == expected


def test_it_waits_for_the_end_of_training(model_dir):
    time = Time(t30=lambda: write_end(model_dir, exit_status=0, reason="hook"))
    result, evaluated = evaluate(model_dir, time)
    assert evaluated[-1] == 40
    assert result.train_result.reason == "hook"
    assert time.now == pytest.approx(30, abs=1)


def write_old_end(model_dir, at_secs=0, **facts):
    """Leaves word of an end that is older than this process, by the clock of the file system."""
    write_end(model_dir, exit_status=0, **facts)
    (path,) = [entry.path for entry in os.scandir(model_dir) if "ended" in entry.name]
    os.utime(path, (at_secs, at_secs))


@pytest.mark.parametrize("is_ahead", [True, False])
def test_the_clock_of_the_chiefs_machine_does_not_make_an_end_old_or_new(model_dir, is_ahead):
    there = 2**33 if is_ahead else 0
    write_old_end(model_dir, at=there, reason="end of input")
    time = Time(
        t1=lambda: clear_end(model_dir),
        t50=lambda: write_end(model_dir, at=there, exit_status=0, reason="max_time"),
    )
    result, _ = evaluate(model_dir, time)
    assert result.train_result.reason == "max_time"
    assert time.now == pytest.approx(50, abs=1)
    time = Time()
    evaluate(model_dir, time)  # The end is newer than this process.
    assert time.now == 0
    assert not [name for name in os.listdir(model_dir) if name.startswith(".")]


def test_no_two_ends_of_training_are_equal(model_dir, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1.0)
    ends = []
    for _ in range(2):
        write_end(model_dir, exit_status=0, reason="hook")
        ends.append(read_end(model_dir))
    assert ends[0] != ends[1]


def test_the_end_of_an_earlier_training_is_not_that_of_this_one(model_dir):
    write_old_end(model_dir, reason="end of input")
    time = Time(
        t1=lambda: clear_end(model_dir),
        t50=lambda: write_end(model_dir, exit_status=0, reason="max_time"),
    )
    result, _ = evaluate(model_dir, time)
    assert result.train_result.reason == "max_time"
    assert read_end(model_dir)["reason"] == "max_time"


@pytest.mark.parametrize("max_steps", [50, None])
@pytest.mark.parametrize("is_end_late", [False, True])
def test_a_second_call_waits_for_the_second_end(model_dir, max_steps, is_end_late):
    """As in a program that calls `train_and_evaluate` twice, in all tasks."""

    def end_first():
        write_end(model_dir, exit_status=0, reason="max_steps", call=1)

    if not is_end_late:
        end_first()
    evaluate(model_dir, Time(), max_steps=40)

    def go_on():
        config = est.RunConfig(model_dir, save_checkpoints_steps=5)
        with est.Estimator(Model(), config=config) as trained:
            trained.train(numbers(), max_steps=50)
        write_end(model_dir, exit_status=0, reason="max_steps", call=2)

    time, exports = Time(t5=end_first, t10=lambda: clear_end(model_dir), t30=go_on), Exports()
    result, _ = evaluate(model_dir, time, max_steps, exporters=exports)
    assert result.train_result.global_step == 50
    assert exports.made[-1] == (50, True)
    assert all(step > 40 for step, _ in exports.made)
    assert time.now == pytest.approx(30, abs=1)


def test_a_slow_evaluator_does_not_wait_for_calls_that_the_chief_has_completed(model_dir):
    write_end(model_dir, exit_status=0, reason="hook", call=2)
    for time, waits in [(Time(), 0), (Time(), 0), (Time(), 900)]:
        evaluate(model_dir, time)
        assert time.now == pytest.approx(waits, abs=1)


def test_a_call_that_failed_is_not_completed(model_dir):
    write_end(model_dir, exit_status=1, reason="signal or error", call=1)
    with pytest.raises(SystemExit):
        evaluate(model_dir, Time())
    write_end(model_dir, exit_status=0, reason="hook", call=1)
    time = Time()
    evaluate(model_dir, time)
    assert time.now == 0


def test_the_chief_counts_its_calls(tmp_path):
    text = json.dumps({"cluster": {"chief": ["a:1"]}, "task": {"type": "chief", "index": 0}})
    config = est.RunConfig(str(tmp_path), cluster=parse_tf_config(text))
    calls = []
    with est.Estimator(Model(), config=config) as model:
        for steps in (5, 5, 10):
            spec = est.TrainSpec(numbers(), steps)
            est.train_and_evaluate(model, spec, est.EvalSpec(numbers(2)))
            calls.append(read_end(model.model_dir)["call"])
    assert calls == [1, 2, 3]


@pytest.mark.parametrize("max_steps", [50, None])
def test_a_chief_that_comes_late_goes_on_with_a_training_that_had_ended(model_dir, max_steps):
    write_old_end(model_dir, reason="max_steps")

    def go_on():
        config = est.RunConfig(model_dir, save_checkpoints_steps=5)
        with est.Estimator(Model(), config=config) as trained:
            trained.train(numbers(), max_steps=50)
        write_end(model_dir, exit_status=0, reason="max_steps")

    time = Time(t500=lambda: clear_end(model_dir), t600=go_on)
    result, evaluated = evaluate(model_dir, time, max_steps)
    assert evaluated[-2:] == [45, 50]
    assert result.train_result.global_step == 50
    assert time.now == pytest.approx(600, abs=1)


@pytest.mark.parametrize("is_ahead", [True, False])
def test_an_end_that_is_not_of_this_time_is_taken_for_the_end_at_last(model_dir, is_ahead):
    """A clock that was set back, or a copy of the directory, leaves a time in the future."""
    write_old_end(model_dir, 2**33 if is_ahead else 0, reason="hook")
    time = Time()
    result, evaluated = evaluate(model_dir, time, max_steps=50)
    assert evaluated[-1] == 40
    assert result.train_result.reason == "hook"
    assert time.now == pytest.approx(900, abs=1)


def test_the_end_of_a_training_that_was_quicker_than_the_evaluator_is_not_old(model_dir):
    write_end(model_dir, exit_status=0, reason="hook")
    time = Time()
    _, evaluated = evaluate(model_dir, time, max_steps=50)
    assert evaluated[-1] == 40
    assert time.now == 0


def test_a_training_that_failed_is_evaluated_and_then_fails_the_evaluator(model_dir, caplog):
    time = Time(t5=lambda: write_end(model_dir, exit_status=143, reason="signal or error"))
    with pytest.raises(SystemExit, match="143"):
        evaluate(model_dir, time)
    assert max(read_evaluations(os.path.join(model_dir, "eval", "*tfevents*"))) == 40
    assert "The evaluator ends, as the chief has: exit status 143." in caplog.text


def test_a_record_in_a_directory_that_cannot_be_written_to_is_not_what_is_named(
    model_dir, monkeypatch
):
    def refuse(**arguments):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    write_end(model_dir, exit_status=1, reason="signal or error")
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    cluster = {"chief": ["127.0.0.1:0"], "evaluator": ["127.0.0.1:0"]}
    config = {"cluster": cluster, "task": {"type": "chief", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with (
        est.Estimator(Model(), config=est.RunConfig(model_dir)) as model,
        pytest.raises(ValueError, match=r"`model_dir` .* cannot be written to \(Read-only file"),
    ):
        est.train_and_evaluate(model, est.TrainSpec(numbers(), 50), est.EvalSpec(numbers()))
    assert read_end(model_dir)["exit_status"] == 1


class Exports(est.Exporter):
    """Keeps the step of each export, and whether it is the final one."""

    def __init__(self):
        self.made = []

    @property
    def name(self):
        return "exports"

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        self.made.append((int(checkpoint_path.rpartition("-")[2]), is_the_final_export))


@pytest.mark.parametrize(
    ("exit_status", "max_steps", "is_final"),
    [(1, 50, False), (1, None, False), (143, 40, True), (0, 50, True), (0, None, True)],
)
def test_the_model_of_a_training_that_failed_is_not_final(
    model_dir, exit_status, max_steps, is_final
):
    exports = Exports()
    write_end(model_dir, exit_status=exit_status, reason="hook")
    with pytest.raises(SystemExit) if exit_status else contextlib.nullcontext():
        evaluate(model_dir, Time(), max_steps, throttle_secs=100, exporters=exports)
    assert exports.made == [(40, is_final)]


@pytest.mark.parametrize("record", [b"", b"{", b"\xff\xfe", b"[]"])
def test_a_damaged_record_says_that_training_has_ended(model_dir, record):
    path = pathlib.Path(model_dir, "training-ended.json")
    time = Time(t5=lambda: path.write_bytes(record))
    _, evaluated = evaluate(model_dir, time)
    assert evaluated[-1] == 40
    assert time.now == 5


def test_it_starts_after_its_delay(model_dir):
    time = Time(t200=lambda: write_end(model_dir, exit_status=0, reason="steps"))
    seen = []
    time._events[119.0] = lambda: seen.append(os.path.exists(os.path.join(model_dir, "eval")))
    time._events[125.0] = lambda: seen.append(os.path.exists(os.path.join(model_dir, "eval")))
    evaluate(model_dir, time, start_delay_secs=120)
    assert seen == [False, True]


def test_every_task_gets_the_results_and_the_chief_and_the_evaluator_write_them(tmp_path):
    with est.Estimator(Model(), str(tmp_path)) as trained:
        trained.train(numbers(), steps=5)
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}
    directories = []
    for role, index in [("worker", 0), ("worker", 1), ("chief", 0), ("evaluator", 0)]:
        text = json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})
        config = est.RunConfig(str(tmp_path), cluster=parse_tf_config(text))
        with est.Estimator(Model(), config=config) as model:
            name = f"of_{role}_{index}"
            assert model.evaluate(numbers(3), name=name)["mean"] == 1.0
            directories.append(model.eval_dir(name))
    written = [list(read_evaluations(os.path.join(path, "*tfevents*"))) for path in directories]
    assert written == [[], [], [5], [5]]
    assert not os.path.exists(directories[0])


def task_config(model_dir, task_type, task_id=0):
    addresses = {**TF_CONFIG["cluster"], "ps": ["127.0.0.1:3"], "data": ["127.0.0.1:4"]}
    task = {"type": task_type, "index": task_id}
    cluster = parse_tf_config(json.dumps({"cluster": addresses, "task": task}))
    return est.RunConfig(str(model_dir), cluster=cluster)


@pytest.mark.parametrize(
    ("task_type", "part"),
    [
        ("evaluator", "evaluates what the others train"),
        ("ps", "holds variables"),
        ("data", "takes no part in training"),
    ],
)
def test_train_is_an_error_in_a_task_that_does_not_train(tmp_path, task_type, part):
    model = est.Estimator(Model(), config=task_config(tmp_path / "model", task_type))
    with pytest.raises(ValueError, match=f"This task is {task_type} 0 of TF_CONFIG.* {part}"):
        model.train(numbers(), steps=1)
    assert not os.path.exists(tmp_path / "model")


def test_a_job_of_another_name_has_no_part_in_train_and_evaluate(tmp_path):
    model = est.Estimator(Model(), config=task_config(tmp_path, "data"))
    specs = est.TrainSpec(numbers(), 1), est.EvalSpec(numbers(3))
    with pytest.raises(ValueError, match="This task is data 0 .* a role that takes no part"):
        est.train_and_evaluate(model, *specs)


def test_a_job_of_another_name_leaves_the_record_of_the_end_of_training_alone(tmp_path):
    write_end(str(tmp_path), exit_status=0, reason="hook")
    end = read_end(str(tmp_path))
    addresses = {"chief": ["127.0.0.1:1"], "data": ["127.0.0.1:2"]}
    text = json.dumps({"cluster": addresses, "task": {"type": "data", "index": 0}})
    config = est.RunConfig(str(tmp_path), cluster=parse_tf_config(text))
    with pytest.raises(ValueError, match="This task is data 0"):
        est.train_and_evaluate(
            est.Estimator(Model(), config=config),
            est.TrainSpec(numbers(), 1),
            est.EvalSpec(numbers(3)),
        )
    assert read_end(str(tmp_path)) == end


def test_a_cluster_whose_ports_are_open_is_an_error_once_it_must_be_reached(tmp_path):
    addresses = {"chief": ["127.0.0.1:0"], "worker": ["127.0.0.1:0"], "ps": ["127.0.0.1:0"]}
    tf_config = {"cluster": addresses, "task": {"type": "chief", "index": 0}}
    config = est.RunConfig(str(tmp_path), cluster=parse_tf_config(json.dumps(tf_config)))
    with pytest.raises(ValueError, match="gives port 0 to chief 0, worker 0, ps 0, so the tasks"):
        est.Estimator(Model(), config=config).train(numbers(), steps=1)


def test_a_process_that_is_not_to_be_chief_trains_and_writes_nothing(tmp_path):
    class Config(est.RunConfig):
        is_chief = property(lambda self: False)

    chief = est.Estimator(Model(), config=est.RunConfig(str(tmp_path)))
    chief.train(numbers(), steps=1)
    before = sorted(os.listdir(tmp_path))
    other = est.Estimator(Model(), config=Config(str(tmp_path), save_summary_steps=1))
    other.train(numbers(), steps=2)
    assert other.train_result.global_step == 3
    assert sorted(os.listdir(tmp_path)) == before
