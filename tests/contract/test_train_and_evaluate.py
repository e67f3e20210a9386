"""TrainSpec, EvalSpec, train_and_evaluate, exporters and early stopping."""

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
    tf,
    tf_config,
    v1,
)

HOOK = v1.train.SessionRunHook()


def input_fn():
    return forever()()


def raw():
    x = v1.placeholder(tf.float32, [None])
    return est.export.ServingInputReceiver({"x": x}, {"x": x})


# --- The specs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("TrainSpec", ("input_fn", "max_steps", "hooks", "saving_listeners")),
        (
            "EvalSpec",
            (
                "input_fn",
                "steps",
                "name",
                "hooks",
                "exporters",
                "start_delay_secs",
                "throttle_secs",
            ),
        ),
    ],
)
def test_specs_are_named_tuples(name, fields):
    spec = getattr(est, name)(input_fn)
    assert spec._fields == fields
    assert list(spec._asdict()) == list(fields)
    assert spec[0] is input_fn
    assert len(list(spec)) == len(fields)


DEFAULTS = {
    ("TrainSpec", "max_steps"): None,
    ("TrainSpec", "hooks"): (),
    ("TrainSpec", "saving_listeners"): (),
    ("EvalSpec", "steps"): 100,
    ("EvalSpec", "name"): None,
    ("EvalSpec", "hooks"): (),
    ("EvalSpec", "exporters"): (),
    ("EvalSpec", "start_delay_secs"): 120,
    ("EvalSpec", "throttle_secs"): 600,
}


@pytest.mark.parametrize(("name", "field"), DEFAULTS)
def test_default(name, field):
    assert getattr(getattr(est, name)(input_fn), field) == DEFAULTS[name, field]


def test_given_train_spec():
    spec = est.TrainSpec(input_fn, 3, [HOOK], [])
    assert tuple(spec) == (input_fn, 3, (HOOK,), ())


def test_steps_of_specs_may_be_whole_floats_and_arrays_of_one_number():
    assert est.TrainSpec(input_fn, 1e6).max_steps == 1_000_000
    assert est.EvalSpec(input_fn, np.array(3)).steps == 3
    assert est.EvalSpec(input_fn, 1e1).steps == 10


def test_given_eval_spec():
    exporter = est.FinalExporter("a", raw)
    spec = est.EvalSpec(input_fn, 3, "b", [HOOK], exporter, 4, 5)
    assert tuple(spec) == (input_fn, 3, "b", (HOOK,), (exporter,), 4, 5)


@pytest.mark.parametrize("name", ["TrainSpec", "EvalSpec"])
def test_replace(name):
    field = "max_steps" if name == "TrainSpec" else "steps"
    spec = getattr(est, name)(input_fn)._replace(**{field: 7})
    assert (getattr(spec, field), spec.input_fn) == (7, input_fn)


@pytest.mark.parametrize("name", ["TrainSpec", "EvalSpec"])
def test_fields_are_read_only(name):
    with pytest.raises(AttributeError):
        getattr(est, name)(input_fn).input_fn = None


def exporters(*names):
    return [est.LatestExporter(name, raw) for name in names]


WRONG = {
    "input_fn of training": (TypeError, lambda: est.TrainSpec(1)),
    "max_steps of 0": (ValueError, lambda: est.TrainSpec(input_fn, max_steps=0)),
    "max_steps below 0": (ValueError, lambda: est.TrainSpec(input_fn, max_steps=-1)),
    "hooks of training": (TypeError, lambda: est.TrainSpec(input_fn, hooks=["a"])),
    "listeners": (TypeError, lambda: est.TrainSpec(input_fn, saving_listeners=["a"])),
    "input_fn of evaluation": (TypeError, lambda: est.EvalSpec("a")),
    "steps of 0": (ValueError, lambda: est.EvalSpec(input_fn, steps=0)),
    "name": (TypeError, lambda: est.EvalSpec(input_fn, name=3)),
    "hooks of evaluation": (TypeError, lambda: est.EvalSpec(input_fn, hooks=[1])),
    "start_delay_secs": (ValueError, lambda: est.EvalSpec(input_fn, start_delay_secs=-1)),
    "throttle_secs": (ValueError, lambda: est.EvalSpec(input_fn, throttle_secs=-1)),
    "exporters": (TypeError, lambda: est.EvalSpec(input_fn, exporters=["a"])),
    "two exporters of a name": (
        ValueError,
        lambda: est.EvalSpec(input_fn, exporters=exporters("a", "a")),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_spec(case):
    error, make = WRONG[case]
    with pytest.raises(error):
        make()


# --- train_and_evaluate --------------------------------------------------------------------------


class Noting(est.Exporter):
    """Notes its calls."""

    def __init__(self, name):
        self.calls = []
        self.name_ = name

    @property
    def name(self):
        return self.name_

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        self.calls.append(
            (
                os.path.relpath(export_path, estimator.model_dir),
                os.path.basename(checkpoint_path),
                int(eval_result["global_step"]),
                is_the_final_export,
            )
        )
        return b"path" if is_the_final_export else None


class Counting(v1.train.SessionRunHook):
    def __init__(self):
        self.begins = self.runs = 0

    def begin(self):
        self.begins += 1

    def after_run(self, run_context, run_values):
        self.runs += 1


class Run:
    def __init__(self, root):
        config = est.RunConfig(save_checkpoints_steps=2)
        self.estimator = est.Estimator(mean_model_fn, os.fspath(root), config)
        self.exporter = Noting("mine")
        self.train_hook, self.eval_hook = Counting(), Counting()
        self.train_spec = est.TrainSpec(input_fn, max_steps=5, hooks=[self.train_hook])
        self.eval_spec = est.EvalSpec(
            numbers(4),
            steps=3,
            name="test",
            hooks=[self.eval_hook],
            exporters=self.exporter,
            throttle_secs=0,
        )
        self.returned = est.train_and_evaluate(self.estimator, self.train_spec, self.eval_spec)
        self.calls = list(self.exporter.calls)
        self.eval_counts = (self.eval_hook.begins, self.eval_hook.runs)
        self.again = est.train_and_evaluate(self.estimator, self.train_spec, self.eval_spec)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Run(tmp_path_factory.mktemp("run"))


def test_trains_to_max_steps(run):
    assert checkpoint_steps(run.estimator.model_dir)[-1] == 5


def test_returns_the_last_metrics_and_exports(run):
    metrics, exports = run.returned
    assert (metrics["global_step"], metrics["mean_x"]) == (5, 1)
    assert exports == [b"path"]


def test_evaluates_every_checkpoint(run):
    assert set(scalars(run.estimator.eval_dir("test"), "loss")) == {2, 4, 5}


def test_model_is_trained_in_one_session(run):
    assert (run.train_hook.begins, run.train_hook.runs) == (1, 5)


def test_hooks_of_the_evaluation_are_called_each_time(run):
    assert run.eval_counts == (3, 9)


def test_exporter_is_called_after_each_evaluation(run):
    where = os.path.join("export", "mine")
    steps = [call[2] for call in run.calls]
    assert {call[0] for call in run.calls} == {where}
    assert steps == [2, 4, 5]
    assert [call[1] for call in run.calls] == [f"model.ckpt-{step}" for step in steps]


def test_only_the_last_export_is_final(run):
    assert [call[3] for call in run.calls] == [False, False, True]


def test_nothing_is_left_to_train_the_second_time(run):
    assert run.train_hook.runs == 5


@pytest.mark.only_2_15("nothing left to train")
def test_with_nothing_left_to_train_there_are_no_metrics(run):
    assert run.again[0] is None


@pytest.mark.only_here("nothing left to train")
def test_with_nothing_left_to_train_the_last_checkpoint_is_evaluated(run):
    assert run.again[0]["global_step"] == 5


class StopEarly(v1.train.SessionRunHook):
    def after_run(self, run_context, run_values):
        run_context.request_stop()


ENDS_EARLY = {
    "no_max_steps": lambda: est.TrainSpec(numbers(1, 2)),
    "input": lambda: est.TrainSpec(numbers(1, 2), max_steps=9),
    "hook": lambda: est.TrainSpec(input_fn, max_steps=9, hooks=[StopEarly()]),
}


def exported_at_the_end(model_dir, train_spec):
    eval_spec = est.EvalSpec(input_fn, steps=1, exporters=est.FinalExporter("last", raw))
    model = est.Estimator(mean_model_fn, model_dir)
    _, (exported,) = est.train_and_evaluate(model, train_spec, eval_spec)
    return exported is not None and os.path.isdir(os.fsdecode(exported))


def test_a_model_at_max_steps_is_final(tmp_path):
    assert exported_at_the_end(str(tmp_path), est.TrainSpec(input_fn, max_steps=2))


@pytest.mark.only_2_15("the final export")
@pytest.mark.parametrize("case", ENDS_EARLY)
def test_a_model_before_max_steps_is_not_final(case, tmp_path):
    assert not exported_at_the_end(str(tmp_path), ENDS_EARLY[case]())


@pytest.mark.only_here("the final export")
@pytest.mark.parametrize("case", ENDS_EARLY)
def test_whatever_ends_training_the_model_is_final(case, tmp_path):
    assert exported_at_the_end(str(tmp_path), ENDS_EARLY[case]())


WRONG_CALLS = {
    "estimator": lambda run: (mean_model_fn, run.train_spec, run.eval_spec),
    "train_spec": lambda run: (run.estimator, run.eval_spec, run.eval_spec),
    "eval_spec": lambda run: (run.estimator, run.train_spec, run.train_spec),
}


@pytest.mark.parametrize("case", WRONG_CALLS)
def test_wrong_argument_is_a_type_error(run, case):
    with pytest.raises(TypeError):
        est.train_and_evaluate(*WRONG_CALLS[case](run))


def test_training_ends_with_its_input(tmp_path):
    made = est.Estimator(mean_model_fn, os.fspath(tmp_path))
    specs = est.TrainSpec(numbers(3)), est.EvalSpec(numbers(2), throttle_secs=0)
    metrics, exports = est.train_and_evaluate(made, *specs)
    assert (metrics["global_step"], exports) == (3, [])


# --- Exporters -----------------------------------------------------------------------------------


class Fake:
    """What exporters need of an estimator."""

    def __init__(self, root):
        self.model_dir = os.fspath(root)
        self.config = est.RunConfig()
        self.calls = []

    def eval_dir(self, name=None):
        return os.path.join(self.model_dir, f"eval_{name}" if name else "eval")

    def export_saved_model(self, export_dir_base, serving_input_receiver_fn, **arguments):
        self.calls.append((serving_input_receiver_fn, arguments))
        path = os.path.join(export_dir_base, str(1600000000 + len(self.calls)))
        os.makedirs(path)
        open(os.path.join(path, "saved_model.pb"), "w").close()
        return path.encode()


def export(exporter, fake, loss=1.0, final=False, checkpoint=None):
    checkpoint = checkpoint or f"model.ckpt-{len(fake.calls)}"
    path = os.path.join(fake.model_dir, "export", exporter.name)
    result = None if loss is None else {"loss": loss, "global_step": 1}
    return exporter.export(fake, path, checkpoint, result, final)


def left(fake, name):
    return sorted(os.listdir(os.path.join(fake.model_dir, "export", name)))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: est.LatestExporter("a", raw), "a"),
        (lambda: est.FinalExporter("a", raw), "a"),
        (lambda: est.BestExporter("a", raw), "a"),
        (lambda: est.BestExporter(serving_input_receiver_fn=raw), "best_exporter"),
    ],
    ids=["latest", "final", "best", "best by default"],
)
def test_name(make, name):
    exporter = make()
    assert isinstance(exporter, est.Exporter)
    assert exporter.name == name


def test_latest_exporter_exports_each_time(tmp_path):
    fake, exporter = Fake(tmp_path), est.LatestExporter("a", raw)
    paths = [export(exporter, fake, final=final) for final in (False, True)]
    assert [path is not None for path in paths] == [True, True]
    assert len(left(fake, "a")) == 2


def test_latest_exporter_keeps_the_newest(tmp_path):
    fake, exporter = Fake(tmp_path), est.LatestExporter("a", raw, exports_to_keep=2)
    for _ in range(4):
        export(exporter, fake)
    assert left(fake, "a") == ["1600000003", "1600000004"]


def test_latest_exporter_may_keep_all(tmp_path):
    fake, exporter = Fake(tmp_path), est.LatestExporter("a", raw, exports_to_keep=None)
    for _ in range(7):
        export(exporter, fake)
    assert len(left(fake, "a")) == 7


def test_latest_exporter_keeps_five_by_default(tmp_path):
    fake, exporter = Fake(tmp_path), est.LatestExporter("a", raw)
    for _ in range(7):
        export(exporter, fake)
    assert len(left(fake, "a")) == 5


def test_final_exporter_exports_once(tmp_path):
    fake, exporter = Fake(tmp_path), est.FinalExporter("a", raw)
    assert export(exporter, fake) is None
    assert export(exporter, fake, final=True) is not None
    assert len(fake.calls) == 1


@pytest.mark.parametrize("kind", ["LatestExporter", "FinalExporter", "BestExporter"])
def test_what_the_exporter_passes_on(tmp_path, kind):
    fake = Fake(tmp_path)
    source = tmp_path / "words.txt"
    source.write_text("words")
    assets = {"a.txt": os.fspath(source)}
    exporter = getattr(est, kind)(
        name="a", serving_input_receiver_fn=raw, assets_extra=assets, as_text=True
    )
    export(exporter, fake, final=True, checkpoint="the-checkpoint")
    receiver_fn, arguments = fake.calls[0]
    assert receiver_fn is raw
    assert assets.items() <= arguments["assets_extra"].items()
    assert arguments["as_text"] is True
    assert arguments["checkpoint_path"] == "the-checkpoint"


@pytest.mark.parametrize("kind", ["LatestExporter", "BestExporter"])
@pytest.mark.parametrize("exports_to_keep", [0, -1])
def test_keeping_none_is_a_value_error(kind, exports_to_keep):
    with pytest.raises(ValueError):
        getattr(est, kind)(name="a", serving_input_receiver_fn=raw, exports_to_keep=exports_to_keep)


@pytest.mark.parametrize(
    ("losses", "exported"),
    [
        ([3, 2, 1], [1, 1, 1]),
        ([1, 2, 3], [1, 0, 0]),
        ([2, 3, 1], [1, 0, 1]),
        ([2, 2], [1, 0]),
    ],
    ids=str,
)
def test_best_exporter_exports_what_is_better(tmp_path, losses, exported):
    fake, exporter = Fake(tmp_path), est.BestExporter("a", raw)
    paths = [export(exporter, fake, loss=loss) for loss in losses]
    assert [path is not None for path in paths] == [bool(flag) for flag in exported]


def test_best_exporter_compares_by_a_function_of_the_program(tmp_path):
    seen = []

    def larger(best_eval_result, current_eval_result):
        seen.append((best_eval_result["loss"], current_eval_result["loss"]))
        return current_eval_result["loss"] > best_eval_result["loss"]

    fake, exporter = Fake(tmp_path), est.BestExporter("a", raw, compare_fn=larger)
    paths = [export(exporter, fake, loss=loss) for loss in (1, 3, 2)]
    assert [path is not None for path in paths] == [True, True, False]
    assert seen == [(1, 3), (3, 2)]


@pytest.mark.parametrize(
    "compare_fn",
    [None, lambda a, b: True, lambda best_eval_result: True],
    ids=["None", "other names", "one argument"],
)
def test_wrong_compare_fn_is_a_value_error(compare_fn):
    with pytest.raises(ValueError):
        est.BestExporter("a", raw, compare_fn=compare_fn)


@pytest.mark.parametrize("loss", [None])
def test_best_exporter_needs_a_result(tmp_path, loss):
    fake, exporter = Fake(tmp_path), est.BestExporter("a", raw)
    export(exporter, fake, loss=1.0)
    with pytest.raises(ValueError):
        export(exporter, fake, loss=loss)


def test_best_exporter_exports_at_its_first_evaluation_of_a_run(tmp_path):
    fake = Fake(tmp_path)
    export(est.BestExporter("a", raw), fake, loss=1.0)
    assert export(est.BestExporter("a", raw), fake, loss=1.0) is not None


def result_of_chief(tmp_path, monkeypatch):
    """Of a cluster whose evaluator is another task, which is not started."""
    tasks = {"chief": ["127.0.0.1:1"], "evaluator": ["127.0.0.1:2"]}
    monkeypatch.setenv("TF_CONFIG", tf_config(tasks, "chief", 0))
    made = est.Estimator(mean_model_fn, os.fspath(tmp_path), est.RunConfig())
    specs = est.TrainSpec(forever(), max_steps=2), est.EvalSpec(numbers(2))
    return est.train_and_evaluate(made, *specs)


@pytest.mark.only_2_15("the result in a cluster")
def test_a_chief_returns_nothing(tmp_path, monkeypatch):
    assert result_of_chief(tmp_path, monkeypatch) is None


@pytest.mark.only_here("the result in a cluster")
def test_a_chief_returns_how_training_ended(tmp_path, monkeypatch):
    result = result_of_chief(tmp_path, monkeypatch)
    assert result.metrics is None
    assert (result.train_result.global_step, result.train_result.reason) == (2, "max_steps")
