"""The latest, the last and the best model, over restarts."""

import glob
import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.toy import Scripted, checkpoint_steps, numbers, weight_after


def serving_fn():
    x = tf.compat.v1.placeholder(tf.int64, [None], "x")
    return est.export.TensorServingInputReceiver(x, x)


def higher_score(best_eval_result, current_eval_result):
    return current_eval_result["score"] > best_eval_result["score"]


SCORES = [0, 0.5, 0.8, 0.7, 0.85, 0.79, 0.84, 0.9]


@pytest.fixture
def make(tmp_path):
    """Makes Estimators in one directory, with scripted evaluations, and closes them."""
    made = []

    def make(scores=SCORES, **config):
        config = {"save_summary_steps": None, "save_checkpoints_steps": 10, **config}
        run_config = est.RunConfig(**config)
        made.append(est.Estimator(Scripted(scores), str(tmp_path / "model"), run_config))
        return made[-1]

    yield make
    for model in made:
        model.close()


@pytest.fixture
def trained(make):
    """An Estimator after ten steps, whose exports tests make by hand."""
    model = make()
    model.train(numbers(), steps=10)
    return model


def run(model, max_steps, *exporters, **arguments):
    spec = est.EvalSpec(numbers(2), exporters=exporters, throttle_secs=0, **arguments)
    return est.train_and_evaluate(model, est.TrainSpec(numbers(), max_steps), spec)


def export_by_hand(exporter, model, is_final=False, **metrics):
    path = os.path.join(model.model_dir, "export", exporter.name)
    return exporter.export(model, path, model.latest_checkpoint(), metrics, is_final)


def exports(model, name):
    """The numbered directories of an exporter, oldest first."""
    folder = pathlib.Path(model.model_dir, "export", name)
    if not folder.exists():
        return []
    assert all(path.name.isdigit() for path in folder.iterdir())
    return sorted(folder.iterdir(), key=lambda path: int(path.name))


def served_step(path):
    """The step whose weights are in an export."""
    model = tf.saved_model.load(str(path))
    result = model.signatures["serving_default"](tf.constant([1], tf.int64))
    (w,) = next(iter(result.values())).numpy()
    (step,) = [s for s in range(100) if weight_after([[i] for i in range(s)]) == w]
    return step


def record(path):
    return json.loads((path / "assets.extra" / "exporter.json").read_text())


# LatestExporter, FinalExporter.


def test_the_latest_is_exported_after_every_evaluation(make):
    model = make()
    result = run(model, 35, est.LatestExporter("latest", serving_fn))
    found = exports(model, "latest")
    assert [served_step(path) for path in found] == [10, 20, 30, 35]
    assert result.export_results == [str(found[-1]).encode()]


def test_the_latest_is_exported_once_if_the_end_is_known_late_only(make):
    model = make()
    spec = est.EvalSpec(
        numbers(2), exporters=est.LatestExporter("latest", serving_fn), throttle_secs=0
    )
    result = est.train_and_evaluate(model, est.TrainSpec(numbers(20)), spec)
    found = exports(model, "latest")
    assert [served_step(path) for path in found] == [10, 20]
    assert result.export_results == [str(found[-1]).encode()]


@pytest.mark.parametrize(("keep", "steps"), [(1, [35]), (2, [30, 35]), (None, [10, 20, 30, 35])])
def test_old_exports_are_removed(make, keep, steps):
    model = make()
    run(model, 35, est.LatestExporter("latest", serving_fn, exports_to_keep=keep))
    assert [record(path)["checkpoint"] for path in exports(model, "latest")] == [
        f"model.ckpt-{step}" for step in steps
    ]


def test_old_exports_of_an_earlier_run_are_removed_too(make):
    for max_steps in (20, 40):
        model = make()
        run(model, max_steps, est.LatestExporter("latest", serving_fn, exports_to_keep=3))
    assert [served_step(path) for path in exports(model, "latest")] == [20, 30, 40]


def test_exports_of_other_programs_count_and_other_files_stay(trained):
    folder = pathlib.Path(trained.model_dir, "export", "latest")
    exporter = est.LatestExporter("latest", serving_fn, exports_to_keep=2)
    for name in ("1400000000", "1400000001", "7", "notes"):
        (folder / name).mkdir(parents=True)
    (folder / "8").write_text("A file.")
    written = []
    for expected in (["1400000001"], [], []):
        written.append(os.path.basename(export_by_hand(exporter, trained, loss=1.0).decode()))
        assert set(os.listdir(folder)) == {"7", "8", "notes", *expected, *written[-2:]}


def test_the_final_model_is_exported_once_at_the_end(make):
    model = make()
    result = run(model, 35, est.FinalExporter("final", serving_fn))
    (path,) = exports(model, "final")
    assert served_step(path) == 35
    assert result.export_results == [str(path).encode()]


@pytest.mark.parametrize("count", [20, 25])
def test_the_final_model_is_exported_when_the_input_ends(make, count):
    model = make()
    spec = est.EvalSpec(
        numbers(2), exporters=est.FinalExporter("final", serving_fn), throttle_secs=0
    )
    est.train_and_evaluate(model, est.TrainSpec(numbers(count)), spec)
    assert [served_step(path) for path in exports(model, "final")] == [count]


def test_an_export_has_the_extra_assets_and_a_record(trained, tmp_path):
    (tmp_path / "words").write_text("one two")
    exporter = est.LatestExporter(
        "latest", serving_fn, {"vocabulary/words.txt": str(tmp_path / "words")}, as_text=True
    )
    metrics = {"score": np.float32(0.5), "loss": 2.0, "global_step": 10, "image": b"..."}
    path = pathlib.Path(export_by_hand(exporter, trained, **metrics).decode())
    assert (path / "assets.extra" / "vocabulary" / "words.txt").read_text() == "one two"
    assert (path / "saved_model.pbtxt").exists()
    assert record(path) == {
        "exporter": "LatestExporter",
        "checkpoint": "model.ckpt-10",
        "metrics": {"score": 0.5, "loss": 2.0, "global_step": 10.0},
    }


# BestExporter.


def make_best(compare_fn=higher_score, **arguments):
    return est.BestExporter("best", serving_fn, compare_fn=compare_fn, **arguments)


def test_the_best_is_exported_whenever_it_is_new(make):
    model = make()
    result = run(model, 70, make_best())
    assert [served_step(path) for path in exports(model, "best")] == [10, 20, 40, 70]
    assert result.export_results == [str(exports(model, "best")[-1]).encode()]
    assert [record(path)["metrics"]["score"] for path in exports(model, "best")] == [
        np.float32(score) for score in (0.5, 0.8, 0.85, 0.9)
    ]


@pytest.mark.parametrize("restart_after", [20, 30, 40, 45, 50])
def test_the_best_is_known_after_a_restart(make, restart_after):
    for max_steps in (restart_after, 60):
        model = make()
        result = run(model, max_steps, make_best())
    assert [served_step(path) for path in exports(model, "best")] == [10, 20, 40]
    assert result.export_results == [None]


def not_worse(best_eval_result, current_eval_result):
    return current_eval_result["score"] >= best_eval_result["score"]


def test_an_evaluation_is_the_best_only_once_if_equal_ones_are_accepted(make):
    spec = {"throttle_secs": 0, "exporters": make_best(not_worse, exports_to_keep=3)}
    train_spec = est.TrainSpec(numbers(20))  # The end is known after its last evaluation.
    result = est.train_and_evaluate(make(), train_spec, est.EvalSpec(numbers(2), **spec))
    assert [served_step(path) for path in exports(make(), "best")] == [10, 20]
    assert result.export_results == [str(exports(make(), "best")[-1]).encode()]


def test_models_of_equal_names_and_metrics_are_two(make, trained):
    exporter = make_best(not_worse)
    first = export_by_hand(exporter, trained, score=1.0)
    assert export_by_hand(exporter, trained, is_final=True, score=1.0) == first
    path = trained.latest_checkpoint()
    trained.train(numbers(), steps=10)
    newest = trained.latest_checkpoint()
    for file in glob.glob(f"{newest}.*"):  # Other weights, the same name.
        os.replace(file, file.replace(newest, path))
    arguments = os.path.join(trained.model_dir, "export", "best"), path, {"score": 1.0}, True
    assert exporter.export(trained, *arguments) != first
    assert [served_step(path) for path in exports(trained, "best")] == [10, 20]


def test_a_model_of_equal_metrics_is_exported_if_equal_ones_are_accepted(make):
    model = make([0, 0.5, 0.5, 0.5])
    run(model, 30, make_best(not_worse))
    assert [served_step(path) for path in exports(model, "best")] == [10, 20, 30]


def test_the_first_evaluation_is_exported_whatever_older_event_files_say(make):
    run(make(), 50)  # Evaluates, and exports nothing; 0.85 was the best.
    model = make()
    run(model, 70, make_best())
    assert [served_step(path) for path in exports(model, "best")] == [60, 70]


def test_compare_fn_is_called_once_an_evaluation_and_not_for_the_first(trained):
    calls = []

    def note(best_eval_result, current_eval_result):
        calls.append((best_eval_result["score"], current_eval_result["score"]))
        return higher_score(best_eval_result, current_eval_result)

    exporter = make_best(note)
    written = [export_by_hand(exporter, trained, score=s) is not None for s in (5, 4, 6)]
    assert written == [True, False, True]
    assert calls == [(5, 4), (5, 6)]


def test_an_evaluation_that_was_better_but_not_exported_does_not_count(make):
    """Killed between evaluation and export: the best that there is decides, not the best seen."""
    model = make()
    run(model, 20, make_best())
    run(make([0, 0, 0, 0.99]), 30)
    model = make()
    run(model, 40, make_best())
    assert [served_step(path) for path in exports(model, "best")] == [10, 20, 40]


def test_the_lowest_loss_is_the_best_by_default(trained):
    exporter = est.BestExporter(serving_input_receiver_fn=serving_fn)
    assert exporter.name == "best_exporter"
    losses = [0.9, 1.0, 0.8, 0.8, 0.7]
    written = [export_by_hand(exporter, trained, loss=loss) is not None for loss in losses]
    assert written == [True, False, True, False, True]


def test_a_loss_that_is_missing_is_named(trained):
    exporter = est.BestExporter("of_losses", serving_fn)
    export_by_hand(exporter, trained, loss=0.9)
    with pytest.raises(ValueError, match="`current_eval_result` .*no 'loss'. Pass another `comp"):
        export_by_hand(exporter, trained, score=0.9)


@pytest.mark.parametrize(
    "compare_fn",
    [
        higher_score,
        lambda best_eval_result, current_eval_result: (
            not current_eval_result["score"] <= best_eval_result.get("score")
        ),
        lambda current_eval_result, **others: (
            max(current_eval_result.values()) > max(others["best_eval_result"].values())
        ),
    ],
    ids=["by name", "negated", "all values"],
)
def test_nan_is_never_the_best(trained, compare_fn):
    exporter = make_best(compare_fn)
    scores = [np.nan, 0.5, np.float32(np.nan), 0.4, 0.6, np.nan]
    written = [export_by_hand(exporter, trained, score=s) is not None for s in scores]
    assert written == [False, True, False, False, True, False]
    again = make_best(compare_fn)
    assert export_by_hand(again, trained, score=0.55) is None
    assert export_by_hand(again, trained, score=0.65) is not None


def test_a_metric_that_is_nan_and_not_asked_for_does_not_matter(trained):
    exporter = make_best()
    assert export_by_hand(exporter, trained, score=0.5, auc=np.nan) is not None
    assert export_by_hand(exporter, trained, score=0.6, auc=np.nan) is not None


@pytest.mark.parametrize(
    "make_exporter", [make_best, lambda: est.LatestExporter("latest", serving_fn)]
)
def test_a_metric_of_arrays_of_different_sizes_is_left_out_of_the_record(trained, make_exporter):
    nested = {"a": [np.zeros(1), np.zeros(2)]}
    exporter = make_exporter()
    path = export_by_hand(exporter, trained, score=0.5, parts=nested["a"], named=nested)
    record = json.loads(pathlib.Path(os.fsdecode(path), "assets.extra/exporter.json").read_text())
    assert record["metrics"] == {"score": 0.5}


def test_the_best_export_outlives_its_checkpoint(make):
    model = make([0, 0.9, 0.1, 0.1, 0.1], keep_checkpoint_max=1)
    run(model, 40, make_best())
    assert checkpoint_steps(model.model_dir) == [40]
    assert [served_step(path) for path in exports(model, "best")] == [10]


def test_the_best_is_kept_when_old_ones_are_removed(make):
    model = make()
    run(model, 70, make_best(exports_to_keep=1))
    assert [served_step(path) for path in exports(model, "best")] == [70]


def test_records_without_the_metric_are_no_best(trained):
    assert export_by_hand(est.BestExporter("best", serving_fn), trained, loss=0.1) is not None
    assert export_by_hand(make_best(), trained, loss=0.2, score=0.3) is not None


@pytest.mark.parametrize("kind", [est.BestExporter, est.LatestExporter, est.FinalExporter])
def test_extra_assets_are_looked_at_when_an_exporter_exports(trained, tmp_path, kind):
    exporter = kind("extra", serving_fn, assets_extra={"labels.txt": str(tmp_path / "labels")})
    with pytest.raises(ValueError, match=r"assets_extra\['labels.txt'\].* a file that exists"):
        export_by_hand(exporter, trained, is_final=True, loss=1.0)
    (tmp_path / "labels").write_text("seven")
    path = export_by_hand(exporter, trained, is_final=True, loss=1.0).decode()
    assert pathlib.Path(path, "assets.extra", "labels.txt").read_text() == "seven"


@pytest.mark.parametrize("kind", [est.BestExporter, est.LatestExporter, est.FinalExporter])
def test_an_export_without_an_evaluation_is_an_error_that_says_so(trained, kind):
    exporter = kind("x", serving_fn)
    with pytest.raises(ValueError, match="`checkpoint_path` .None. must be the path"):
        exporter.export(trained, "x", None, {"loss": 1.0}, True)
    with pytest.raises(ValueError, match="`eval_result` .None. must be the metrics"):
        exporter.export(trained, "x", trained.latest_checkpoint(), None, True)


def test_an_exporter_of_the_user_needs_a_name_and_export():
    class Incomplete(est.Exporter):
        name = "incomplete"

    with pytest.raises(TypeError, match="abstract"):
        Incomplete()
