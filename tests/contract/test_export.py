"""export_saved_model, experimental_export_all_saved_models and export_savedmodel."""

import os

import numpy as np
import pytest

from tests.contract.names import (
    EVAL,
    PREDICT,
    TRAIN,
    est,
    files_in,
    forever,
    mean_model_fn,
    tf,
    v1,
    v1est,
    weight_after,
)

W2, W4 = weight_after(2, 1.0), weight_after(4, 1.0)
MODES = []


def model_fn(features, labels, mode):
    MODES.append((mode, None if labels is None else "labels"))
    spec = mean_model_fn(features, None, mode)
    y = spec.predictions["y"]
    outputs = {
        "serving_default": est.export.PredictOutput({"y": y}),
        "scores": est.export.ClassificationOutput(scores=y),
        "value": est.export.RegressionOutput(y),
    }
    return est.EstimatorSpec(
        mode,
        predictions=spec.predictions,
        loss=spec.loss,
        train_op=spec.train_op,
        eval_metric_ops={"mean": v1.metrics.mean(features["x"])},
        export_outputs=outputs,
    )


def raw():
    x = v1.placeholder(tf.float32, [None], "x")
    return est.export.ServingInputReceiver({"x": x}, {"x": x})


def parsing():
    return est.export.build_parsing_serving_input_receiver_fn(
        {"x": tf.io.FixedLenFeature([], tf.float32)}
    )()


def with_alternatives():
    half = v1.placeholder(tf.float32, [None])
    whole = half * 2
    return est.export.ServingInputReceiver({"x": whole}, {"h": half}, {"other": {"w": whole}})


def supervised():
    return est.experimental.build_raw_supervised_input_receiver_fn(
        {"x": v1.placeholder(tf.float32, [None])}, {"label": v1.placeholder(tf.float32, [None])}
    )()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = os.fspath(tmp_path_factory.mktemp("trained"))
    config = est.RunConfig(save_checkpoints_steps=2, keep_checkpoint_max=None)
    made = est.Estimator(model_fn, path, config)
    return made.train(forever(), steps=4)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return os.fspath(tmp_path_factory.mktemp("exports"))


@pytest.fixture(scope="module")
def asset(tmp_path_factory):
    path = tmp_path_factory.mktemp("assets") / "words.txt"
    path.write_text("words")
    return os.fspath(path)


@pytest.fixture(scope="module")
def exported(trained, base, asset):
    MODES.clear()
    where = os.path.join(base, "not", "there")
    return trained.export_saved_model(where, raw, assets_extra={"sub/my.txt": asset})


def signatures(path, tags=("serve",)):
    with tf.Graph().as_default(), v1.Session() as session:
        return v1.saved_model.load(session, list(tags), os.fsdecode(path)).signature_def


def answer(path, x, signature="serving_default"):
    with tf.Graph().as_default(), v1.Session() as session:
        meta = v1.saved_model.load(session, ["serve"], os.fsdecode(path))
        found = meta.signature_def[signature]
        (feed,), outputs = found.inputs.values(), found.outputs
        names = {key: info.name for key, info in outputs.items()}
        return session.run(names, {feed.name: x})


def test_returns_the_path_as_bytes(exported, base):
    assert isinstance(exported, bytes)
    assert os.fsdecode(exported).startswith(os.path.join(base, "not", "there"))
    assert os.path.isdir(exported)


def test_directory_is_named_by_the_time(exported):
    name = os.path.basename(os.fsdecode(exported))
    assert name.isdigit()
    assert len(name) == 10


@pytest.mark.parametrize(
    "name",
    [
        "saved_model.pb",
        "variables/variables.index",
        "variables/variables.data-00000-of-00001",
        "assets.extra/sub/my.txt",
    ],
)
def test_file_is_written(exported, name):
    assert name in files_in(os.fsdecode(exported))


def test_nothing_else_is_left_beside_the_export(exported):
    assert os.listdir(os.path.dirname(exported)) == [os.path.basename(exported)]


def test_model_fn_is_called_once_to_predict(exported):
    assert MODES[0] == (PREDICT, None)


def test_signatures_that_the_receiver_can_serve(exported):
    assert set(signatures(exported)) == {"serving_default"}


def test_signature_names_its_tensors(exported):
    signature = signatures(exported)["serving_default"]
    assert (list(signature.inputs), list(signature.outputs)) == (["x"], ["y"])
    assert signature.inputs["x"].name == "x:0"
    assert signature.method_name == "tensorflow/serving/predict"


def test_export_answers(exported):
    assert answer(exported, [1.0, 2.0])["y"].tolist() == pytest.approx([W4, 2 * W4])


def test_export_can_be_loaded_in_tensorflow_2(exported):
    served = tf.saved_model.load(os.fsdecode(exported)).signatures["serving_default"]
    assert served(tf.constant([2.0]))["y"].numpy() == pytest.approx([2 * W4])


@pytest.fixture(scope="module")
def parsed(trained, base):
    return trained.export_saved_model(os.path.join(base, "parsed"), parsing)


def test_has_no_saver_for_the_graph_that_it_is_loaded_into(exported):
    with tf.Graph().as_default() as graph, v1.Session() as session:
        v1.saved_model.loader.load(session, ["serve"], exported.decode())
        assert not graph.get_collection(v1.GraphKeys.SAVERS)


def test_serialized_examples_have_all_signatures(parsed):
    assert set(signatures(parsed)) == {"serving_default", "scores", "value"}


@pytest.mark.parametrize(
    ("name", "method", "inputs", "outputs"),
    [
        ("serving_default", "predict", ["examples"], ["y"]),
        ("scores", "classify", ["inputs"], ["scores"]),
        ("value", "regress", ["inputs"], ["outputs"]),
    ],
)
def test_signature(parsed, name, method, inputs, outputs):
    signature = signatures(parsed)[name]
    assert signature.method_name == f"tensorflow/serving/{method}"
    assert (list(signature.inputs), list(signature.outputs)) == (inputs, outputs)


def test_serialized_examples_are_answered(parsed):
    example = tf.train.Example()
    example.features.feature["x"].float_list.value.append(3.0)
    found = answer(parsed, [example.SerializeToString()], "value")
    assert found["outputs"] == pytest.approx([3 * W4])


def test_alternative_receivers_have_signatures(trained, base):
    path = trained.export_saved_model(os.path.join(base, "alternatives"), with_alternatives)
    assert set(signatures(path)) == {"serving_default", "other:serving_default"}
    assert answer(path, [1.0])["y"] == pytest.approx([2 * W4])
    assert answer(path, [1.0], "other:serving_default")["y"] == pytest.approx([W4])


def test_checkpoint_path(trained, base):
    checkpoint = os.path.join(trained.model_dir, "model.ckpt-2")
    path = trained.export_saved_model(os.path.join(base, "old"), raw, checkpoint_path=checkpoint)
    assert answer(path, [1.0])["y"] == pytest.approx([W2])


def test_as_text(trained, base):
    path = trained.export_saved_model(os.path.join(base, "text"), raw, as_text=True)
    assert "saved_model.pbtxt" in files_in(os.fsdecode(path))
    assert "saved_model.pb" not in files_in(os.fsdecode(path))


def test_positional_arguments(trained, base, asset):
    checkpoint = os.path.join(trained.model_dir, "model.ckpt-2")
    where = os.path.join(base, "positional")
    path = trained.export_saved_model(where, raw, {"a": asset}, True, checkpoint)
    assert {"assets.extra/a", "saved_model.pbtxt"} <= files_in(os.fsdecode(path))


def test_two_exports_have_two_directories(trained, base):
    where = os.path.join(base, "two")
    first, second = (trained.export_saved_model(where, raw) for _ in range(2))
    assert first < second
    assert sorted(os.listdir(where)) == sorted(
        os.path.basename(os.fsdecode(p)) for p in (first, second)
    )


def test_exporting_writes_nothing_into_model_dir(trained, base):
    before = files_in(trained.model_dir)
    trained.export_saved_model(os.path.join(base, "clean"), raw)
    assert files_in(trained.model_dir) == before


def test_without_a_checkpoint_is_a_value_error(tmp_path):
    fresh = est.Estimator(model_fn, os.fspath(tmp_path / "model"))
    with pytest.raises(ValueError):
        fresh.export_saved_model(os.fspath(tmp_path / "export"), raw)


def test_old_name_on_estimators_of_v1(trained, base):
    old = v1est.Estimator(model_fn, trained.model_dir)
    path = old.export_savedmodel(os.path.join(base, "savedmodel"), raw)
    assert answer(path, [1.0])["y"] == pytest.approx([W4])


def test_a_model_without_export_outputs_serves_its_predictions(trained, base):
    plain = est.Estimator(mean_model_fn, trained.model_dir)
    path = plain.export_saved_model(os.path.join(base, "plain"), raw)
    assert set(signatures(path)["serving_default"].outputs) == {"x", "y"}


@pytest.mark.parametrize(("mode", "tag"), [(EVAL, "eval"), (TRAIN, "train")])
def test_other_modes(trained, base, mode, tag):
    path = trained.export_saved_model(os.path.join(base, tag), supervised, experimental_mode=mode)
    signature = signatures(path, [tag])[tag]
    assert set(signature.inputs) == {"x", "label"}
    assert signature.method_name == f"tensorflow/supervised/{'training' if tag == 'train' else tag}"
    assert {"loss", "predictions/y", "metrics/mean/value"} <= set(signature.outputs)


@pytest.fixture(scope="module")
def all_modes(trained, base):
    receivers = {PREDICT: raw, EVAL: supervised, TRAIN: supervised}
    return trained.experimental_export_all_saved_models(os.path.join(base, "all"), receivers)


def test_all_modes_return_the_path_as_bytes(all_modes):
    assert isinstance(all_modes, bytes)


@pytest.mark.parametrize(
    ("tag", "name"), [("serve", "serving_default"), ("eval", "eval"), ("train", "train")]
)
def test_all_modes_in_one_export(all_modes, tag, name):
    assert name in signatures(all_modes, [tag])


def test_all_modes_answer(all_modes):
    assert answer(all_modes, [1.0])["y"] == pytest.approx([W4])


def test_one_of_all_modes(trained, base):
    path = trained.experimental_export_all_saved_models(os.path.join(base, "one"), {PREDICT: raw})
    assert np.allclose(answer(path, [2.0])["y"], 2 * W4)


def test_a_mode_without_a_function_is_left_out(trained, base):
    receivers = {PREDICT: raw, EVAL: None}
    path = trained.experimental_export_all_saved_models(os.path.join(base, "two"), receivers)
    assert np.allclose(answer(path, [2.0])["y"], 2 * W4)
    with pytest.raises((RuntimeError, ValueError), match="eval"):
        signatures(path, ["eval"])


@pytest.mark.parametrize("receivers", [{}, {PREDICT: None}], ids=str)
def test_no_modes_are_a_value_error(trained, base, receivers):
    with pytest.raises(ValueError):
        trained.experimental_export_all_saved_models(os.path.join(base, "none"), receivers)


def test_receiver_fn_that_returns_nothing_is_an_error(trained, base):
    with pytest.raises((ValueError, TypeError, AttributeError)):
        trained.export_saved_model(os.path.join(base, "nothing"), lambda: None)


def generator_model_fn(features, labels, mode):
    """Draws its input itself; has outputs to predict alone."""
    w, outputs = v1.get_variable("w", initializer=2.0), {}
    if mode == PREDICT:
        outputs["y"] = tf.fill([2], 3.0) * w
    train_op = v1.train.get_or_create_global_step().assign_add(1)
    exported = {"serving_default": est.export.PredictOutput(outputs)}
    return est.EstimatorSpec(
        mode, outputs or None, tf.constant(1.0), train_op, export_outputs=exported
    )


def test_a_model_without_features_or_outputs_to_train(base):
    def without_features():
        receiver = {"seed": v1.placeholder(tf.int32, [], "seed")}
        return est.export.ServingInputReceiver({}, receiver)

    generator = est.Estimator(generator_model_fn, os.path.join(base, "model"))
    generator.train(lambda: tf.data.Dataset.from_tensors({"x": [1.0]}), steps=1)
    path = generator.export_saved_model(os.path.join(base, "export"), without_features)
    served = tf.saved_model.load(path.decode()).signatures["serving_default"]
    assert served(seed=tf.constant(1))["y"].numpy().tolist() == [6, 6]


def test_failed_export_leaves_no_numbered_directory(trained, base):
    where = os.path.join(base, "failed")
    with pytest.raises(ZeroDivisionError):
        trained.export_saved_model(where, lambda: 1 / 0)
    left = os.listdir(where) if os.path.isdir(where) else []
    assert [name for name in left if name.isdigit()] == []


def export_scores_alone(trained, base):
    """Exports an output of classes, which serves serialized examples, for tensors as they are."""
    made = est.Estimator(scores_model_fn, trained.model_dir)
    return made.export_saved_model(os.path.join(base, "scores"), raw)


def scores_model_fn(features, labels, mode):
    spec = model_fn(features, labels, mode)
    outputs = {"serving_default": spec.export_outputs["scores"]}
    return est.EstimatorSpec(mode, predictions=spec.predictions, export_outputs=outputs)


@pytest.mark.only_2_15("an export that has no signature")
def test_an_export_without_a_signature_is_written(trained, base):
    assert set(signatures(export_scores_alone(trained, base))) <= {"__saved_model_init_op"}


@pytest.mark.only_here("an export that has no signature")
def test_an_export_without_a_signature_is_a_value_error(trained, base):
    with pytest.raises(ValueError, match="No signature can be made, .* of serialized tf.Examples"):
        export_scores_alone(trained, base)
