import logging

import pytest
import tensorflow as tf

from estimator import export
from estimator.export.signatures import make_signatures, make_supervised_signatures
from estimator.spec.outputs import TrainOutput

PREDICT = "tensorflow/serving/predict"


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def raw_receiver():
    return export.build_raw_serving_input_receiver_fn({"x": tf.TensorSpec([None, 2])})()


def parsing_receiver():
    spec = {"x": tf.io.FixedLenFeature([2], tf.float32)}
    return export.build_parsing_serving_input_receiver_fn(spec)()


def test_predictions_alone_are_the_default_signature():
    receiver = raw_receiver()
    signatures = make_signatures(receiver, {"y": receiver.features["x"] * 2.0}, None)
    assert list(signatures) == ["serving_default"]
    assert signatures["serving_default"].method_name == PREDICT


def test_a_single_output_is_the_default_too_and_the_users_dict_stays():
    receiver = raw_receiver()
    outputs = {"mine": export.PredictOutput(receiver.features["x"])}
    signatures = make_signatures(receiver, None, outputs)
    assert list(signatures) == ["mine", "serving_default"]
    assert signatures["mine"] == signatures["serving_default"]
    assert list(outputs) == ["mine"]


def test_of_several_outputs_one_must_be_the_default():
    receiver = raw_receiver()
    output = export.PredictOutput(receiver.features["x"])
    with pytest.raises(ValueError, match=r"keys \['a', 'b'\]; one .* 'serving_default'"):
        make_signatures(receiver, None, {"a": output, "b": output})
    signatures = make_signatures(receiver, None, {"a": output, "serving_default": output})
    assert list(signatures) == ["a", "serving_default"]


@pytest.mark.parametrize(
    ("export_outputs", "error", "message"),
    [
        (None, ValueError, r"`outputs` \(None\) must be a Tensor"),
        ({}, ValueError, "at least one output"),
        ([], TypeError, r"`export_outputs` \(\[\]\) must be a dict"),
        ({"a": 3}, TypeError, r"`export_outputs\['a'\]` \(3\) must be an ExportOutput"),
        ({3: export.EvalOutput()}, TypeError, "key 3"),
    ],
)
def test_wrong_export_outputs_are_named(export_outputs, error, message):
    with pytest.raises(error, match=message):
        make_signatures(raw_receiver(), None, export_outputs)


def test_signatures_that_cannot_be_made_are_left_out_with_a_reason(caplog):
    receiver = raw_receiver()
    y = tf.reduce_sum(receiver.features["x"], axis=1)
    unfed = tf.compat.v1.placeholder(tf.float32, name="unfed")
    outputs = {
        "serving_default": export.PredictOutput(y),
        "classify": export.ClassificationOutput(scores=y),
        "regress": export.RegressionOutput(y),
        "eval": export.EvalOutput(loss=y),
        "unfed": export.PredictOutput(y + unfed),
    }
    with caplog.at_level(logging.INFO, "estimator"):
        assert list(make_signatures(receiver, None, outputs)) == ["serving_default"]
    reasons = {record.args[0]: record.args[1] for record in caplog.records[1:]}
    assert "takes {'x': 'float32'}" in reasons["classify"]
    assert "takes {'x': 'float32'}" in reasons["regress"]
    assert "TensorFlow Serving does not offer" in reasons["eval"]
    assert "placeholder 'unfed'" in reasons["unfed"]
    assert {record.levelno for record in caplog.records} == {logging.INFO}


def test_a_missing_default_is_a_warning(caplog):
    receiver = raw_receiver()
    y = tf.reduce_sum(receiver.features["x"], axis=1)
    outputs = {"serving_default": export.RegressionOutput(y), "y": export.PredictOutput(y)}
    assert list(make_signatures(receiver, None, outputs)) == ["y"]
    (record,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert record.args[0] == "serving_default"


def test_alternatives_add_signatures_of_their_own():
    parsed = parsing_receiver()
    x = parsed.features["x"]
    y = tf.reduce_sum(x, axis=1)
    receiver = export.ServingInputReceiver(
        parsed.features, parsed.receiver_tensors, {"raw": {"x": x}}
    )
    outputs = {"serving_default": export.PredictOutput(y), "regress": export.RegressionOutput(y)}
    signatures = make_signatures(receiver, None, outputs)
    assert list(signatures) == ["serving_default", "regress", "raw:serving_default"]
    assert list(signatures["raw:serving_default"].inputs) == ["x"]


def test_signatures_are_made_outside_the_graph_too():
    receiver = parsing_receiver()
    outputs = {"regress": export.RegressionOutput(receiver.features["x"][:, 0])}
    with tf.Graph().as_default():
        assert len(make_signatures(receiver, None, outputs)) == 2


def test_sparse_and_ragged_tensors_are_followed_to_their_placeholders():
    sparse = tf.compat.v1.sparse_placeholder(tf.float32, [None, 2])
    ragged = tf.compat.v1.ragged.placeholder(tf.float32, 1)
    outputs = {
        "s": tf.sparse.map_values(tf.square, sparse),
        "r": tf.ragged.map_flat_values(tf.square, ragged),
    }
    whole = export.ServingInputReceiver(outputs, {"s": sparse, "r": ragged})
    assert list(make_signatures(whole, outputs)) == ["serving_default"]
    part = export.ServingInputReceiver(outputs, {"s": sparse})
    with pytest.raises(ValueError, match="No signature can be made.*RaggedPlaceholder"):
        make_signatures(part, outputs)


@pytest.mark.parametrize("kind", [export.EvalOutput, TrainOutput])
def test_supervised_graphs_have_one_signature(kind):
    spec = tf.TensorSpec([None])
    receiver = export.build_raw_supervised_input_receiver_fn({"x": spec}, spec)()
    loss = tf.reduce_mean(receiver.features["x"] - receiver.labels)
    (key, signature), *rest = make_supervised_signatures(receiver, kind(loss)).items()
    assert (key, rest) == (kind.key, [])
    assert sorted(signature.inputs) == ["label", "x"]
    unfed = tf.compat.v1.placeholder(tf.float32, name="unfed")
    with pytest.raises(ValueError, match="'unfed'"):
        make_supervised_signatures(receiver, kind(loss + unfed))
