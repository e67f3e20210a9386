"""Exports of EVAL and TRAIN, alone and together with PREDICT, as a clean process runs them."""

import os
import pathlib
import pickle
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.tools import saved_model_cli

import estimator as est
from tests import pairwise
from tests.export import clean_process
from tests.export.exported_models import raw_receiver
from tests.forked import Program

V1 = tf.compat.v1
TRAIN, EVAL, PREDICT = est.ModeKeys.TRAIN, est.ModeKeys.EVAL, est.ModeKeys.PREDICT
TAGS = {TRAIN: "train", EVAL: "eval", PREDICT: "serve"}
X = np.random.RandomState(1).randn(6, 3).astype(np.float32)
Y = X.sum(axis=1)


def input_fn():
    return tf.data.Dataset.from_tensors(({"x": X}, Y)).repeat(2)


def once():
    return input_fn().take(1)


def supervised():
    return est.export.build_raw_supervised_input_receiver_fn(
        {"x": tf.TensorSpec([None, 3], tf.float32, "x")}, tf.TensorSpec([None], tf.float32, "y")
    )


def build_keras(metric, *values):
    metric.update_state(*values)
    return metric


def metrics_of(labels, y):
    error = tf.abs(labels - y)
    mean, update = V1.metrics.mean(error)
    return {
        "v1": V1.metrics.mean_absolute_error(labels, y),
        "op": (mean, update.op),
        "keras": build_keras(keras.metrics.Mean(), error),
        "tf_keras": build_keras(tf_keras.metrics.MeanAbsoluteError(), labels, y),
    }


def v1_model(features, labels, mode, make_metrics=metrics_of, has_optimizer=True):
    kernel = V1.get_variable("kernel", [3])
    y = tf.linalg.matvec(features["x"], kernel)
    predictions = {"y": y, "scores": tf.nn.softmax(features["x"])}
    if mode == PREDICT:
        outputs = {
            "serving_default": est.export.PredictOutput(predictions),
            "regress": est.export.RegressionOutput(y),
            "classify": est.export.ClassificationOutput(predictions["scores"]),
        }
        return est.EstimatorSpec(mode, predictions=predictions, export_outputs=outputs)
    losses = tf.square(y - labels)
    step = V1.train.get_global_step()
    train_op = tf.no_op()
    if has_optimizer:
        train_op = V1.train.AdamOptimizer(0.1).minimize(tf.reduce_mean(losses), step)
    return est.EstimatorSpec(
        mode,
        predictions=predictions,
        # Of each example, which only evaluation may have: the export has their mean.
        loss=losses if mode == EVAL else tf.reduce_mean(losses),
        train_op=train_op,
        eval_metric_ops=make_metrics(labels, y),
    )


def keras_model(features, labels, mode):
    """Nothing waits for what its layers and its optimizer assign."""
    is_training = mode == TRAIN
    y = keras.layers.BatchNormalization(momentum=0.5)(features["x"], training=is_training)
    y = tf.squeeze(keras.layers.Dense(1)(y), -1)
    if mode == PREDICT:
        return est.EstimatorSpec(mode, predictions={"y": y})
    loss = tf.reduce_mean(tf.square(y - labels))
    variables = V1.trainable_variables()
    if is_training:
        optimizer = keras.optimizers.Adam(0.1)
        optimizer.apply_gradients(zip(tf.gradients(loss, variables), variables, strict=True))
    train_op = V1.train.get_global_step().assign_add(1)
    return est.EstimatorSpec(
        mode, predictions=y, loss=loss, train_op=train_op, eval_metric_ops=metrics_of(labels, y)
    )


def tpu_model(features, labels, mode):
    spec = v1_model(features, labels, mode, lambda labels, y: None)
    if mode == PREDICT:
        return spec
    return est.tpu.TPUEstimatorSpec(
        mode,
        predictions=spec.predictions,
        loss=spec.loss,
        train_op=spec.train_op,
        eval_metrics=(metrics_of, [labels, spec.predictions["y"]]),
        host_call=(lambda y: tf.numpy_function(np.sum, [y], tf.float32), [labels]),
    )


def accumulating_model(features, labels, mode):
    """A step is of two batches, which are two runs of the train op."""
    make_metrics = metrics_of if mode == EVAL else lambda labels, y: None
    spec = v1_model(features, labels, mode, make_metrics, has_optimizer=False)
    if mode != TRAIN:
        return spec
    optimizer = V1.train.MomentumOptimizer(0.1, 0.9)
    optimizer = est.CrossShardOptimizer(optimizer, accumulate_steps=2)
    return spec.replace(train_op=optimizer.minimize(spec.loss, V1.train.get_global_step()))


MODELS = {
    "v1": v1_model,
    "keras": keras_model,
    "tpu": tpu_model,
    "accumulating": accumulating_model,
}
BATCHES_OF_STEP = {"accumulating": 2}
# By model: the graphs of all modes in one export, or each in an export of its own.
EXPORTS = [("v1", "alone"), ("v1", "together"), ("keras", "together"), ("tpu", "alone")]
EXPORTS += [("accumulating", "together")]
MORE_EXPORTS = [("keras", "alone"), ("tpu", "together"), ("accumulating", "alone")]
FEEDS = {
    TRAIN: {"train": {"x": X, "label": Y}},
    EVAL: {"eval": {"x": X, "label": Y}},
    PREDICT: {"serving_default": {"x": X}},
}


def receivers():
    return {TRAIN: supervised(), EVAL: supervised(), PREDICT: raw_receiver()}


class Runs:
    """What the library itself gives, by model: after two steps, and one more."""

    def __init__(self, root, exports):
        self.jobs, self.expected, self.paths = {}, {}, {}
        self._exports = exports
        for name, model_fn in MODELS.items():
            self._run(name, model_fn, str(root / name), str(root / f"{name}_exports"))
        (root / "jobs").write_bytes(pickle.dumps(self.jobs))
        show = [saved_model_cli.__file__, "show", "--all", "--dir", self.paths["v1"]]
        clean = [clean_process.__file__, root / "jobs", root / "answers"]
        with Program(*show) as shown:
            subprocess.run([sys.executable, *clean], cwd=root, check=True, timeout=300)
            assert shown.status() == 0, shown.err
            self.shown = shown.out
        self.answers = pickle.loads((root / "answers").read_bytes())

    def _run(self, name, model_fn, model_dir, base):
        config = est.RunConfig(strategy="mirrored", num_replicas=2 if name == "v1" else 1)
        with est.Estimator(model_fn, model_dir, config) as model:
            model.train(lambda: input_fn().repeat(4), steps=2)
            if (name, "together") in self._exports:
                together = model.experimental_export_all_saved_models(base, receivers()).decode()
                self.paths[name] = together
                for mode in TAGS:
                    self._add(name, mode, "together", together)
            if (name, "alone") in self._exports:
                for mode, receiver_fn in receivers().items():
                    alone = model.export_saved_model(base, receiver_fn, experimental_mode=mode)
                    self._add(name, mode, "alone", alone.decode())
            results = model.evaluate(once)
            predictions = list(model.predict(once))
        # On one replica, which gets the whole batch, as the export does.
        with est.Estimator(model_fn, model_dir) as model:
            model.train(input_fn, steps=1)
            names = model.get_variable_names()
            trained = {name: model.get_variable_value(name) for name in names}
        self.expected[name] = results, predictions, trained

    def _add(self, name, mode, way, path):
        self.jobs[name, mode, way] = {
            "path": path,
            "tags": [TAGS[mode]],
            "feeds": FEEDS[mode],
            "num_train_calls": BATCHES_OF_STEP.get(name, 1) if mode == TRAIN else 0,
        }


@pytest.fixture(scope="module")
def runs(tmp_path_factory, request):
    exports = EXPORTS + MORE_EXPORTS * pairwise.is_full(request.config)
    return Runs(tmp_path_factory.mktemp("modes"), exports)


OF_EXPORTS = pytest.mark.parametrize(
    ("name", "way"),
    [*EXPORTS, *(pytest.param(*export, marks=pytest.mark.full) for export in MORE_EXPORTS)],
)


@OF_EXPORTS
@pytest.mark.parametrize("loader", ["functions", "session"])
def test_the_graph_of_eval_measures_what_evaluate_does(name, way, loader, runs):
    results, predictions, _ = runs.expected[name]
    answers = runs.answers[name, EVAL, way][loader]["eval"]
    assert answers["loss"].shape == ()
    assert answers["loss"] == pytest.approx(results["loss"], rel=1e-6)
    one = {"y": "predictions"} if name == "keras" else {"y": "predictions/y"}
    np.testing.assert_allclose(answers[one["y"]], in_a_column(predictions), rtol=1e-5, atol=1e-6)
    assert answers["metrics/v1/update_op"] == pytest.approx(results["v1"], rel=1e-6)
    for metric in ("v1", "op", "keras", "tf_keras"):
        value = answers[f"metrics/{metric}/value"]
        if loader == "session":  # A function reads them while it updates them.
            assert value == pytest.approx(results[metric], rel=1e-6), metric


def in_a_column(predictions):
    return np.array([row["y"] if isinstance(row, dict) else row for row in predictions])


@OF_EXPORTS
def test_the_train_op_of_an_export_is_a_step(name, way, runs):
    trained = runs.answers[name, TRAIN, way]["session"]["trained"]
    expected = runs.expected[name][2]
    assert trained["global_step"] == expected["global_step"] == 3
    assert len(trained) >= 2
    for variable, value in trained.items():
        np.testing.assert_allclose(value, expected[variable], rtol=1e-5, atol=1e-6)


@OF_EXPORTS
@pytest.mark.parametrize("loader", ["functions", "session"])
def test_the_graph_to_serve_predicts(name, way, loader, runs):
    answers = runs.answers[name, PREDICT, way][loader]["serving_default"]
    expected = in_a_column(runs.expected[name][1])
    np.testing.assert_allclose(answers["y"], expected, rtol=1e-5, atol=1e-6)


def test_saved_model_cli_shows_every_graph_and_signature(runs):
    for tag, signature, method in (
        ("train", "train", "tensorflow/supervised/training"),
        ("eval", "eval", "tensorflow/supervised/eval"),
        ("serve", "serving_default", "tensorflow/serving/predict"),
    ):
        _, _, of_graph = runs.shown.partition(f"tag-set: '{tag}'")
        _, _, of_signature = of_graph.partition(f"signature_def['{signature}']")
        assert of_signature.partition("Method name is: ")[2].startswith(method), runs.shown
    # A model that takes no examples can neither classify nor regress for a server.
    assert "signature_def['regress']" not in runs.shown


@pytest.mark.parametrize("strips", [True, False])
def test_export_savedmodel_strips_defaults_if_asked(tmp_path, strips):
    model = est.compat.v1.Estimator(v1_model, str(tmp_path / "model"))
    model.train(once, steps=1)
    path = model.export_savedmodel(
        str(tmp_path / "export"), raw_receiver(), as_text=True, strip_default_attrs=strips
    ).decode()
    text = (tmp_path / "export" / path / "saved_model.pbtxt").read_text()
    assert ("stripped_default_attrs: true" in text) is strips


def test_extra_assets_lie_beside_all_graphs(tmp_path):
    model = est.Estimator(v1_model, str(tmp_path / "model"))
    model.train(once, steps=1)
    (tmp_path / "labels.txt").write_text("no\nyes\n")
    path = model.experimental_export_all_saved_models(
        str(tmp_path / "export"),
        {PREDICT: raw_receiver(), EVAL: supervised()},
        assets_extra={"of/labels.txt": str(tmp_path / "labels.txt")},
        as_text=True,
    ).decode()
    folder = pathlib.Path(path)
    assert (folder / "assets.extra" / "of" / "labels.txt").read_text() == "no\nyes\n"
    text = (folder / "saved_model.pbtxt").read_text()
    # The first has the variables of both.
    assert text.index('tags: "eval"') < text.index('tags: "serve"')
    assert "slots" not in text
    assert {
        name for name, _ in tf.train.list_variables(str(folder / "variables" / "variables"))
    } >= {
        "kernel",
        "global_step",
    }


def test_a_writer_of_summaries_is_left_out(tmp_path):
    """Or whoever loads the model would write to the directories of whoever trained it."""
    folder = tmp_path / "summaries"

    def model_fn(features, labels, mode):
        writer = tf.summary.create_file_writer(str(folder))
        with writer.as_default(), tf.summary.record_if(True):
            tf.summary.scalar("x", 1.0, step=1)
        return v1_model(features, labels, mode, lambda labels, y: None)

    model = est.Estimator(model_fn, str(tmp_path / "model"))
    model.train(once, steps=1)
    shutil.rmtree(folder)
    path = model.experimental_export_all_saved_models(str(tmp_path / "export"), receivers())
    for tag in TAGS.values():
        with tf.Graph().as_default(), V1.Session() as session:
            V1.saved_model.load(session, [tag], path.decode())
    assert not folder.exists()


# --- Savers, strategies --------------------------------------------------------------------------


def averaged(modes):
    """A model with averages of its weights, by which it evaluates and predicts in these modes."""

    def model_fn(features, labels, mode):
        spec = v1_model(features, labels, mode, lambda labels, y: None)
        averages = tf.train.ExponentialMovingAverage(0.5)
        weights = V1.trainable_variables()
        if mode == TRAIN:
            with tf.control_dependencies([spec.train_op]):
                return spec.replace(train_op=averages.apply(weights))
        if mode not in modes:
            return spec
        names = averages.variables_to_restore(weights)
        names["global_step"] = V1.train.get_global_step()
        return spec.replace(scaffold=V1.train.Scaffold(saver=V1.train.Saver(names)))

    return model_fn


def test_graphs_share_variables_by_the_names_of_their_savers(tmp_path):
    base = str(tmp_path / "export")
    model = est.Estimator(averaged([PREDICT]), str(tmp_path / "model"))
    model.train(input_fn)
    path = model.experimental_export_all_saved_models(base, receivers()).decode()
    served = tf.saved_model.load(path, tags=["serve"]).signatures["serving_default"]
    found = served(x=tf.constant(X))["y"].numpy()
    names = ("kernel", "kernel/ExponentialMovingAverage")
    raw, average = (X @ model.get_variable_value(name) for name in names)
    np.testing.assert_allclose(found, average, atol=1e-5)  # The kernel is drawn without a seed.
    assert np.abs(found - raw).max() > 1e-3
    with pytest.raises(
        ValueError, match=r"'infer' has variables .* \(kernel/Exponential"
    ) as caught:
        model.experimental_export_all_saved_models(
            base, {EVAL: supervised(), PREDICT: receivers()[PREDICT]}
        )
    assert "or export each mode by itself" in str(caught.value)
    assert os.listdir(base) == [os.path.basename(path)]


def test_a_scope_of_the_caller_does_not_count(tmp_path):
    model = est.Estimator(v1_model, str(tmp_path / "model"))
    model.train(once, steps=1)
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        path = model.export_saved_model(str(tmp_path / "export"), raw_receiver(), as_text=True)
    text = pathlib.Path(path.decode(), "saved_model.pbtxt").read_text()
    assert "replica_1" not in text
    assert "CPU:" not in text
