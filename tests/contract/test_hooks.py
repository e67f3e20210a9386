"""The stock hooks, in trainings and evaluations."""

import logging
import os

import numpy as np
import pytest

from tests.contract.names import (
    checkpoint_steps,
    est,
    forever,
    mean_model_fn,
    numbers,
    scalars,
    steps_of,
    tf,
    v1,
    v1est,
    weight_after,
)

HOOKS = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "FeedFnHook",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "LoggingTensorHook",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "SecondOrStepTimer",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
]


@pytest.mark.parametrize("name", HOOKS)
def test_hook_is_that_of_tensorflow(name):
    assert getattr(est, name) is getattr(v1.train, name)
    assert getattr(v1est, name) is getattr(v1.train, name)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("SessionRunArgs", ("fetches", "feed_dict", "options")),
        ("SessionRunValues", ("results", "options", "run_metadata")),
    ],
)
def test_fields(name, fields):
    assert getattr(est, name)._fields == fields


def named_model_fn(features, labels, mode):
    """`mean_model_fn` with names for its loss and weight."""
    spec = mean_model_fn(features, labels, mode)
    loss = tf.identity(spec.loss, name="my_loss")
    v1.summary.scalar("mine", spec.loss)
    return est.EstimatorSpec(mode, loss=loss, train_op=spec.train_op, predictions=spec.predictions)


@pytest.fixture
def trained(tmp_path):
    config = est.RunConfig(save_checkpoints_steps=100)
    return est.Estimator(named_model_fn, os.fspath(tmp_path / "model"), config)


def step_of(trained):
    return int(trained.get_variable_value("global_step"))


# --- Stopping ------------------------------------------------------------------------------------


def test_stop_at_step_counts_and_stops(trained):
    trained.train(forever(), hooks=[est.StopAtStepHook(num_steps=2)])
    trained.train(forever(), hooks=[est.StopAtStepHook(num_steps=2)])
    assert step_of(trained) == 4
    trained.train(forever(), hooks=[est.StopAtStepHook(last_step=5)])
    assert step_of(trained) == 5


def test_the_first_to_stop_wins(trained):
    assert step_of(trained.train(forever(), hooks=[est.StopAtStepHook(last_step=3)], steps=9)) == 3


class StopLater(est.StopAtStepHook):
    """Decides by itself, two steps after its last step."""

    def after_run(self, run_context, run_values):
        if run_context.session.run(v1.train.get_global_step()) >= self._last_step + 2:
            run_context.request_stop()


def test_stop_at_step_with_an_after_run_of_its_own_decides_by_it(trained, monkeypatch):
    assert step_of(trained.train(forever(), hooks=[StopLater(last_step=2)], steps=9)) == 4
    monkeypatch.setattr(est.StopAtStepHook, "after_run", lambda *arguments: None)
    # On 2.15, such a hook is also what ends a training of so many steps.
    assert step_of(trained.train(numbers(3), hooks=[est.StopAtStepHook(num_steps=1)])) == 7


@pytest.mark.parametrize("arguments", [{}, {"num_steps": 1, "last_step": 1}], ids=str)
def test_stop_at_step_takes_one_of_two(arguments):
    with pytest.raises(ValueError):
        est.StopAtStepHook(**arguments)


# --- Logging -------------------------------------------------------------------------------------


@pytest.fixture
def lines():
    """What the logger of TensorFlow is told."""
    found = []

    class Handler(logging.Handler):
        def emit(self, record):
            found.append(record.getMessage())

    handler, logger = Handler(), logging.getLogger("tensorflow")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_logging_hook_logs_every_n_steps(trained, lines):
    hook = est.LoggingTensorHook({"it": "my_loss:0"}, every_n_iter=2)
    trained.train(forever(), hooks=[hook], steps=5)
    logged = [line for line in lines if line.startswith("it = ")]
    assert len(logged) == 3
    assert logged[0] == "it = 0.5"


def test_logging_hook_at_the_end(trained, lines):
    hook = est.LoggingTensorHook({"it": "my_loss:0"}, at_end=True)
    trained.train(forever(), hooks=[hook], steps=3)
    assert len([line for line in lines if line.startswith("it = ")]) == 1


def test_logging_hook_takes_a_list_of_names(trained, lines):
    trained.train(forever(), hooks=[est.LoggingTensorHook(["my_loss"], every_n_iter=10)], steps=1)
    assert "my_loss = 0.5" in lines


def test_logging_hook_formats(trained, lines):
    hook = est.LoggingTensorHook(
        {"it": "my_loss:0"}, every_n_iter=10, formatter=lambda values: f"<{values['it']:.2f}>"
    )
    trained.train(forever(), hooks=[hook], steps=1)
    assert "<0.50>" in lines


def spec_hook_model_fn(features, labels, mode):
    spec = mean_model_fn(features, labels, mode)
    hooks = [est.LoggingTensorHook([spec.loss, spec.predictions["x"]], every_n_iter=1)]
    return est.EstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op, training_hooks=hooks)


def test_logging_hook_takes_a_list_of_tensors(tmp_path, lines):
    est.Estimator(spec_hook_model_fn, os.fspath(tmp_path)).train(forever(), steps=2)
    assert len([line for line in lines if "truediv" in line and " = " in line]) >= 2


@pytest.mark.parametrize(
    "arguments",
    [{}, {"every_n_iter": 1, "every_n_secs": 1}, {"every_n_iter": 0}, {"every_n_iter": -1}],
    ids=str,
)
def test_logging_hook_takes_one_interval(arguments):
    with pytest.raises(ValueError):
        est.LoggingTensorHook(["a"], **arguments)


# --- Saving --------------------------------------------------------------------------------------


def test_a_saver_hook_of_the_program(trained, tmp_path):
    where = os.fspath(tmp_path / "other")
    hook = est.CheckpointSaverHook(where, save_steps=2, checkpoint_basename="mine")
    trained.train(forever(), hooks=[hook], steps=4)
    steps = {name.split(".")[0] for name in os.listdir(where) if name.startswith("mine-")}
    assert {"mine-2", "mine-4"} <= steps


@pytest.mark.parametrize(
    "arguments", [{}, {"save_secs": 1, "save_steps": 1}], ids=["no interval", "two intervals"]
)
def test_saver_hook_takes_one_interval(tmp_path, arguments):
    with pytest.raises(ValueError):
        est.CheckpointSaverHook(os.fspath(tmp_path), **arguments).begin()


def test_saver_hook_takes_one_saver(tmp_path):
    with pytest.raises(ValueError):
        est.CheckpointSaverHook(
            os.fspath(tmp_path), save_steps=1, saver=object(), scaffold=v1.train.Scaffold()
        )


def test_counter_hook_records_the_speed(trained, tmp_path):
    where = os.fspath(tmp_path / "speed")
    hook = est.StepCounterHook(every_n_steps=2, output_dir=where)
    trained.train(forever(), hooks=[hook], steps=6)
    steps = steps_of(where, "global_step/sec")
    assert steps
    assert {b - a for a, b in zip(steps, steps[1:], strict=False)} <= {2}


def summary_hook_model_fn(features, labels, mode, params):
    spec = mean_model_fn(features, labels, mode)
    summary = v1.summary.scalar("hooked", spec.loss)
    hooks = [est.SummarySaverHook(save_steps=2, output_dir=params["dir"], summary_op=summary)]
    return est.EstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op, training_hooks=hooks)


def test_summary_hook_records_every_n_steps(tmp_path):
    where = os.fspath(tmp_path / "summaries")
    params = {"dir": where}
    made = est.Estimator(summary_hook_model_fn, os.fspath(tmp_path / "model"), params=params)
    made.train(forever(), steps=5)
    recorded = scalars(where, "hooked")
    assert list(recorded) == [1, 3, 5]
    assert recorded[1] == pytest.approx(0.5)


@pytest.mark.parametrize("arguments", [{}, {"save_steps": 1, "save_secs": 1}], ids=str)
def test_summary_hook_takes_one_interval(arguments):
    with pytest.raises(ValueError):
        est.SummarySaverHook(summary_op="a", **arguments)


# --- Others --------------------------------------------------------------------------------------


def nan_hook_model_fn(features, labels, mode, params):
    spec = mean_model_fn(features, labels, mode)
    hooks = [est.NanTensorHook(spec.loss * float("nan"), fail_on_nan_loss=params["fail"])]
    return est.EstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op, training_hooks=hooks)


def test_nan_hook_fails(tmp_path):
    made = est.Estimator(nan_hook_model_fn, os.fspath(tmp_path), params={"fail": True})
    with pytest.raises(est.NanLossDuringTrainingError):
        made.train(forever(), steps=3)


def test_nan_hook_may_stop_instead(tmp_path):
    made = est.Estimator(nan_hook_model_fn, os.fspath(tmp_path), params={"fail": False})
    assert step_of(made.train(forever(), steps=3)) == 1


def test_nan_error_says_so():
    assert "NaN" in str(est.NanLossDuringTrainingError())


def test_waiter_hook_does_not_wait_for_a_step_that_is_there(trained):
    assert step_of(trained.train(forever(), hooks=[est.GlobalStepWaiterHook(0)], steps=1)) == 1


FINAL = []


def final_model_fn(features, labels, mode):
    spec = mean_model_fn(features, labels, mode)
    step = v1.train.get_global_step() + 0  # After the `train_op`.
    hook = est.FinalOpsHook({"twice": v1.global_variables("w")[0] * 2, "step": step})
    FINAL.append(hook)
    return est.EstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op, training_hooks=[hook])


def test_a_hook_finds_the_loss_among_the_losses(trained):
    class Losses(v1.train.SessionRunHook):
        found = ()

        def begin(self):
            (self._loss,) = v1.get_collection(v1.GraphKeys.LOSSES)

        def before_run(self, run_context):
            return v1.train.SessionRunArgs(self._loss)

        def after_run(self, run_context, run_values):
            self.found += (float(run_values.results),)

    hook = Losses()
    trained.train(forever(), steps=2, hooks=[hook])
    first, second = hook.found
    assert first == pytest.approx(0.5)
    assert 0 < second < first


class SaveAtEnd(v1.train.SessionRunHook):
    """Keeps the weights that an evaluation or a prediction has used."""

    def __init__(self, path):
        self._path = path

    def begin(self):
        self._saver = v1.train.Saver()

    def end(self, session):
        assert isinstance(session, v1.Session)
        self._saver.save(session, self._path)


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_a_hook_saves_what_is_evaluated(trained, tmp_path, verb):
    trained.train(numbers(8), steps=2)
    path = os.fspath(tmp_path / "kept" / "best")
    hooks = [SaveAtEnd(path)]
    if verb == "evaluate":
        trained.evaluate(numbers(8), steps=1, hooks=hooks)
    else:
        list(trained.predict(numbers(8), hooks=hooks))
    (name,) = (name for name in trained.get_variable_names() if name != "global_step")
    assert tf.train.load_variable(path, name) == trained.get_variable_value(name)


@pytest.mark.parametrize("error", [tf.errors.OutOfRangeError(None, None, ""), StopIteration()])
def test_a_batch_counts_whose_hook_says_after_it_that_this_was_the_last(trained, error):
    class End(v1.train.SessionRunHook):
        calls = 0

        def after_run(self, run_context, run_values):
            self.calls += 1
            if self.calls == 2:
                raise error

    trained.train(numbers(8), steps=1)
    of_two = trained.evaluate(numbers(8), steps=2)
    assert trained.evaluate(numbers(8), steps=1) != of_two
    assert trained.evaluate(numbers(8), steps=4, hooks=[End()]) == of_two


def test_no_batch_is_predicted_if_a_hook_stops_when_the_session_is_there(trained):
    class Stop(v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            coord.request_stop()

    trained.train(numbers(8), steps=1)
    assert list(trained.predict(numbers(8), hooks=[Stop()])) == []


def test_final_ops_hook_has_the_last_values(tmp_path):
    est.Estimator(final_model_fn, os.fspath(tmp_path)).train(forever(), steps=2)
    assert FINAL[-1].final_ops_values == {
        "twice": pytest.approx(2 * weight_after(2, 1.0)),
        "step": 2,
    }


def test_profiler_hook_writes_timelines(trained, tmp_path):
    where = tmp_path / "profiles"
    os.makedirs(where)
    with tf.Graph().as_default():
        hook = est.ProfilerHook(save_steps=2, output_dir=os.fspath(where))
    trained.train(forever(), hooks=[hook], steps=3)
    assert [name for name in os.listdir(where) if name.startswith("timeline-")]


def test_a_saver_hook_takes_the_place_of_the_saves_of_the_config(trained, tmp_path):
    hook = est.CheckpointSaverHook(os.fspath(tmp_path / "other"), save_steps=1)
    trained.train(forever(), hooks=[hook], steps=3)
    assert checkpoint_steps(trained.model_dir) == []
    assert checkpoint_steps(os.fspath(tmp_path / "other"))[-1] == 3


# --- The timer -----------------------------------------------------------------------------------


def test_timer_triggers_first_and_then_every_n_steps():
    timer = est.SecondOrStepTimer(every_steps=3)
    triggered = []
    for step in range(1, 10):
        if timer.should_trigger_for_step(step):
            triggered.append(step)
            timer.update_last_triggered_step(step)
    assert triggered == [1, 4, 7]


def test_timer_tells_what_has_passed():
    timer = est.SecondOrStepTimer(every_steps=3)
    assert timer.update_last_triggered_step(1) == (None, None)
    secs, steps = timer.update_last_triggered_step(5)
    assert (secs >= 0, steps) == (True, 4)
    assert timer.last_triggered_step() == 5


def test_timer_does_not_trigger_twice_for_a_step():
    timer = est.SecondOrStepTimer(every_steps=1)
    timer.update_last_triggered_step(4)
    assert not timer.should_trigger_for_step(4)


def test_timer_that_is_reset_triggers():
    timer = est.SecondOrStepTimer(every_steps=5)
    timer.update_last_triggered_step(1)
    timer.reset()
    assert timer.last_triggered_step() is None
    assert timer.should_trigger_for_step(1)


@pytest.mark.parametrize("arguments", [{}, {"every_steps": 1, "every_secs": 1}], ids=str)
def test_timer_takes_one_interval(arguments):
    with pytest.raises(ValueError):
        est.SecondOrStepTimer(**arguments)


# --- In memory, and more metrics -----------------------------------------------------------------


def test_in_memory_evaluator_writes_evaluations(tmp_path):
    made = est.Estimator(mean_model_fn, os.fspath(tmp_path))
    hook = est.experimental.InMemoryEvaluatorHook(made, numbers(3), every_n_iter=2, name="train")
    made.train(forever(), hooks=[hook], steps=4)
    found = scalars(made.eval_dir("train"), "mean_x")
    assert {2, 4} <= set(found)
    assert set(found.values()) == {1.0}


@pytest.mark.parametrize("every_n_iter", [0, -1, None], ids=str)
def test_in_memory_evaluator_needs_an_interval(tmp_path, every_n_iter):
    made = est.Estimator(mean_model_fn, os.fspath(tmp_path))
    with pytest.raises((ValueError, TypeError)):
        est.experimental.InMemoryEvaluatorHook(made, numbers(3), every_n_iter=every_n_iter)


def test_in_memory_evaluator_limits_its_steps(tmp_path):
    made = est.Estimator(mean_model_fn, os.fspath(tmp_path))
    hook = est.experimental.InMemoryEvaluatorHook(made, numbers(9), steps=2, every_n_iter=2)
    made.train(forever(), hooks=[hook], steps=2)
    assert set(scalars(made.eval_dir(), "mean_x").values()) == {0.5}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    made = est.Estimator(mean_model_fn, os.fspath(tmp_path_factory.mktemp("base")))
    return made.train(forever(), steps=1)


METRIC_FNS = {
    "predictions": lambda predictions: {"more": v1.metrics.mean(predictions["x"] * 2)},
    "features": lambda features: {"more": v1.metrics.mean(features["x"] * 2)},
    "features and predictions": lambda features, predictions: {
        "more": v1.metrics.mean(features["x"] + tf.cast(predictions["x"], features["x"].dtype))
    },
    "config": lambda features, config: {
        "more": v1.metrics.mean(features["x"] * (2 if config.is_chief else 0))
    },
    "labels": lambda features, labels: {
        "more": v1.metrics.mean(features["x"] * (2 if labels is None else 0))
    },
}


@pytest.mark.parametrize("case", METRIC_FNS)
def test_add_metrics(base, case):
    more = est.add_metrics(base, METRIC_FNS[case])
    results = more.evaluate(numbers(3))
    assert results["more"] == pytest.approx(2)
    assert {"mean_x", "loss"} <= set(results)


def test_added_metrics_are_of_the_same_model_dir(base):
    assert est.add_metrics(base, METRIC_FNS["features"]).model_dir == base.model_dir


@pytest.mark.parametrize(
    "metric_fn",
    [lambda nonsense: {}, lambda features, more: {}, "text", None],
    ids=["unknown", "one unknown", "text", "None"],
)
def test_wrong_metric_fn_is_an_error(base, metric_fn):
    with pytest.raises((ValueError, TypeError)):
        est.add_metrics(base, metric_fn).evaluate(numbers(1))


def test_an_added_metric_takes_the_place_of_one_of_its_name(base):
    more = est.add_metrics(base, lambda features: {"mean_x": v1.metrics.mean(features["x"] * 5)})
    assert more.evaluate(numbers(3))["mean_x"] == np.float32(5)
