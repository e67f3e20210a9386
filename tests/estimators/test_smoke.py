"""A smoke run takes two steps of everything, and leaves nothing."""

import gc
import os
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf

import estimator as est
from tests.bad_input.stage import V1, batches, dataset, linear, tensor_receiver
from tests.toy import events

REPEATED = dataset(lambda data: data.repeat())


@pytest.fixture
def root(tmp_path):
    return tmp_path / "model"


def snapshot(folder):
    return {path: path.is_dir() or path.read_bytes() for path in folder.rglob("*")}


class Calls(V1.train.SessionRunHook):
    def __init__(self):
        self.count = 0

    def after_run(self, run_context, run_values):
        self.count += 1


def make(model_dir, model_fn=linear, **config):
    config = {"strategy": None, **config}
    return est.Estimator(model_fn, str(model_dir), est.RunConfig(smoke=True, **config))


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 100])
@pytest.mark.parametrize(
    ("limit", "reason"),
    [({}, "steps"), ({"steps": 1000}, "steps"), ({"max_steps": 1000}, "max_steps")],
)
def test_training_takes_two_steps(limit, reason, loop, root, tmp_path):
    with make(root, iterations_per_loop=loop) as model:
        for global_step in (2, 4):
            model.train(REPEATED, **limit)
            assert model.train_result.global_step == global_step
            assert model.train_result.reason == reason
        steps = [step for step, tag, _ in events(model.model_dir) if tag == "loss"]
        assert steps == [1, 2, 3, 4]  # What is ever written is written in every step.
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("limit", [{"steps": 1}, {"max_steps": 1}])
def test_fewer_steps_stay_fewer(limit, root):
    with make(root) as model:
        assert model.train(REPEATED, **limit).train_result.global_step == 1


@pytest.mark.parametrize("replicas", [1, 2])
def test_evaluation_and_prediction_take_two_steps(replicas, root, tmp_path):
    config = {"strategy": "mirrored", "num_replicas": replicas}
    with make(root, **config) as model:
        model.train(REPEATED)
        for steps in (None, 1000):
            calls = Calls()
            model.evaluate(REPEATED, steps, [calls])
            assert calls.count == 2
        calls = Calls()
        assert len(list(model.predict(REPEATED, hooks=[calls]))) == 2 * replicas * 2
        assert calls.count == 2
        assert len(list(model.predict(batches(count=2)))) == 2
        calls = Calls()
        model.evaluate(REPEATED, 1, [calls])
        assert calls.count == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("base", [str, os.fsencode, pathlib.Path], ids=["str", "bytes", "path"])
def test_an_export_goes_away_with_the_estimator(base, root, tmp_path):
    model = make(root)
    model.train(REPEATED)
    path = model.export_saved_model(base(str(tmp_path / "export")), tensor_receiver).decode()
    serve = tf.saved_model.load(path).signatures["serving_default"]
    assert serve(tf.ones([3, 2]))["y"].shape[0] == 3
    assert os.path.basename(os.path.dirname(path)) == "export"
    assert list(tmp_path.iterdir()) == []
    scratch = model.model_dir
    assert os.path.isdir(scratch)
    del model
    gc.collect()
    assert not os.path.exists(scratch)
    assert not os.path.exists(path)


def test_a_trained_model_is_read_and_left_as_it_is(root, tmp_path):
    with est.Estimator(linear, str(root)) as trained:
        trained.train(REPEATED, steps=5)
        expected = trained.evaluate(REPEATED, 2)
    before = snapshot(tmp_path)
    with make(root) as model:
        assert model.evaluate(REPEATED) == expected
        assert len(list(model.predict(REPEATED))) == 4
        model.export_saved_model(str(root / "export"), tensor_receiver)
        model.train(REPEATED)  # Anew.
        assert model.train_result.global_step == 2
        assert model.evaluate(REPEATED)["global_step"] == 2
    assert snapshot(tmp_path) == before


def test_train_and_evaluate_leaves_nothing(root, tmp_path):
    exporter = est.FinalExporter("last", tensor_receiver)
    with make(root) as model:
        metrics, exported = est.train_and_evaluate(
            model,
            est.TrainSpec(REPEATED, max_steps=1000),
            est.EvalSpec(REPEATED, steps=100, exporters=exporter),
        )
        assert metrics["global_step"] == model.train_result.global_step == 2
        assert os.path.isdir(exported[0])
        assert exported[0].decode().startswith(model.model_dir)
    assert list(tmp_path.iterdir()) == []


def test_the_functions_see_the_directory_that_goes_away(root):
    seen = []

    def model_fn(features, labels, mode, config):
        seen.append(config.model_dir)
        return linear(features, labels, mode)

    with make(root, model_fn) as model:
        model.train(REPEATED)
        assert seen == [model.model_dir] == [model.config.model_dir]
        assert seen != [str(root)]


def test_what_is_never_written_stays_unwritten(root):
    with make(root, save_summary_steps=None, log_step_count_steps=None) as model:
        model.train(REPEATED)
        assert events(model.model_dir) == []


def test_a_wrong_model_dir_is_still_an_error(tmp_path):
    model_dir = str(tmp_path / "file")
    pathlib.Path(model_dir).write_text("A file.")
    with pytest.raises(ValueError, match="`model_dir`"):
        make(model_dir)


SCRIPT = """
import sys
import estimator as est
from tests.bad_input.stage import batches, linear
model = est.Estimator(linear, sys.argv[1], est.RunConfig(smoke=True))
model.train(batches())
model.evaluate(batches())
print(model.model_dir)
"""


def test_a_process_that_ends_leaves_nothing(tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "model")],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().startswith(str(temporary))
    assert list(tmp_path.iterdir()) == [temporary]
    assert list(temporary.iterdir()) == []
