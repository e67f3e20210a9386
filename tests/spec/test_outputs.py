import pytest
import tensorflow as tf

from estimator import export
from estimator.spec.outputs import TrainOutput


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def examples():
    return {"examples": tf.compat.v1.placeholder(tf.string, [None])}


def floats(*shape):
    return tf.zeros(shape or (3,))


BAD_OUTPUTS = [
    (lambda: export.PredictOutput(None), r"`outputs` \(None\) must be a Tensor"),
    (lambda: export.PredictOutput(3), r"`outputs` \(3\)"),
    (lambda: export.PredictOutput({}).as_signature_def({}), "at least one tensor"),
    (lambda: export.PredictOutput({1: floats()}), "key 1: keys must be strings"),
    (lambda: export.PredictOutput({("a", 1): floats()}), "keys must be strings"),
    (lambda: export.PredictOutput({"a": [1.0]}), r"`outputs\['a'\]` \(\[1.0\]\)"),
    (lambda: export.PredictOutput({"a": {"b": floats()}}), "not a dict"),
    (lambda: export.PredictOutput(tf.Variable(1.0)), "convert_to_tensor"),
    (export.ClassificationOutput, "both None"),
    (lambda: export.ClassificationOutput(scores=3.0), r"`scores` \(3.0\)"),
    (lambda: export.ClassificationOutput(scores=tf.constant([1])), "must be a float tensor"),
    (lambda: export.ClassificationOutput(classes=tf.constant([1])), "tf.strings.as_string"),
    (lambda: export.ClassificationOutput(classes="a"), r"`classes` \('a'\)"),
    (lambda: export.RegressionOutput(None), r"`value` \(None\)"),
    (lambda: export.RegressionOutput(tf.constant(["a"])), "must be a float tensor"),
    (lambda: export.EvalOutput(loss="low"), r"`loss` \('low'\)"),
    (lambda: export.EvalOutput(predictions={1: floats()}), "`predictions` has the key 1"),
    (lambda: export.EvalOutput(metrics={"a": floats()}), "must be a pair"),
    (lambda: export.EvalOutput(metrics={"a": (1.0, floats())}), "the value of"),
    (lambda: export.EvalOutput(metrics={"a": (floats(), "update")}), "the update_op of"),
    (lambda: export.EvalOutput(metrics={1: (floats(), floats())}), "key 1"),
]


@pytest.mark.parametrize(("make", "message"), BAD_OUTPUTS, ids=[m for _, m in BAD_OUTPUTS])
def test_wrong_outputs_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_an_export_output_is_abstract():
    with pytest.raises(TypeError):
        export.ExportOutput()


def test_a_single_prediction_is_called_output():
    assert list(export.PredictOutput(floats()).outputs) == ["output"]


def test_keys_of_several_heads_are_joined():
    assert list(export.PredictOutput({("head", "logits"): floats()}).outputs) == ["head/logits"]


def test_predict_takes_any_input():
    x = tf.compat.v1.placeholder(tf.float32, [None, 2], name="x")
    signature = export.PredictOutput({"y": x * 2.0}).as_signature_def({"x": x, "s": x})
    assert signature.method_name == "tensorflow/serving/predict"
    assert sorted(signature.inputs) == ["s", "x"]
    assert signature.inputs["x"].name == "x:0"
    assert [dim.size for dim in signature.outputs["y"].tensor_shape.dim] == [-1, 2]


@pytest.mark.parametrize(
    ("has_scores", "has_classes", "names"),
    [(True, False, ["scores"]), (False, True, ["classes"]), (True, True, ["classes", "scores"])],
)
def test_classification_gives_what_it_has(has_scores, has_classes, names):
    scores = floats(3, 2) if has_scores else None
    classes = tf.constant([["a", "b"]]) if has_classes else None
    output = export.ClassificationOutput(scores, classes)
    signature = output.as_signature_def(examples())
    assert signature.method_name == "tensorflow/serving/classify"
    assert list(signature.inputs) == ["inputs"]
    assert sorted(signature.outputs) == names
    assert (output.scores is scores, output.classes is classes) == (True, True)


def test_regression_gives_outputs():
    value = floats()
    output = export.RegressionOutput(value)
    signature = output.as_signature_def(examples())
    assert signature.method_name == "tensorflow/serving/regress"
    assert list(signature.outputs) == ["outputs"]
    assert output.value is value


@pytest.mark.parametrize("kind", [export.ClassificationOutput, export.RegressionOutput])
@pytest.mark.parametrize(
    "make_inputs",
    [
        lambda: {"x": tf.compat.v1.placeholder(tf.float32)},
        lambda: {**examples(), "x": tf.compat.v1.placeholder(tf.string)},
        lambda: {},
    ],
    ids=["float", "two", "none"],
)
def test_classify_and_regress_take_one_string_tensor(kind, make_inputs):
    with pytest.raises(ValueError, match="single string tensor of serialized tf.Examples"):
        kind(floats()).as_signature_def(make_inputs())


@pytest.mark.parametrize("kind", [export.ClassificationOutput, export.RegressionOutput])
def test_classify_and_regress_give_float32(kind):
    with pytest.raises(ValueError, match="float64, but TensorFlow Serving takes float32"):
        kind(tf.zeros([3], tf.float64)).as_signature_def(examples())


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (export.EvalOutput, "tensorflow/supervised/eval"),
        (TrainOutput, "tensorflow/supervised/training"),
    ],
)
def test_supervised_outputs_have_the_prefix_of_their_kind(kind, method):
    output = kind(
        loss=floats(),
        predictions={"a": floats(), ("head", "b"): floats()},
        metrics={"accuracy": (floats(), floats()), "metrics/auc": (floats(), floats())},
    )
    assert list(output.loss) == ["loss"]
    assert list(output.predictions) == ["predictions/a", "predictions/head/b"]
    assert list(output.metrics) == [
        "metrics/accuracy/value",
        "metrics/accuracy/update_op",
        "metrics/auc/value",
        "metrics/auc/update_op",
    ]
    signature = output.as_signature_def(examples())
    assert signature.method_name == method
    assert len(signature.outputs) == 7


def test_a_single_metric_pair_is_called_metrics():
    output = export.EvalOutput(metrics=(floats(), floats()))
    assert list(output.metrics) == ["metrics/value", "metrics/update_op"]
    assert (output.loss, output.predictions) == (None, None)


def test_an_empty_eval_output_makes_no_signature():
    with pytest.raises(ValueError, match="empty"):
        export.EvalOutput().as_signature_def(examples())


def test_an_update_op_becomes_a_tensor_that_waits_for_it():
    count = tf.compat.v1.get_variable("count", initializer=0)
    update = tf.group(count.assign_add(1))
    output = export.EvalOutput(metrics={"count": (count.read_value(), update)})
    with tf.compat.v1.Session() as session:
        session.run(count.initializer)
        session.run(output.metrics["metrics/count/update_op"])
        assert session.run(count) == 1


def test_a_metric_of_legacy_keras_is_a_value_and_an_update():
    tf_keras = pytest.importorskip("tf_keras")
    mean = tf_keras.metrics.Mean()
    mean.update_state(tf.constant([1.0, 5.0]))
    metrics = export.EvalOutput(metrics={"mean": mean}).metrics
    with tf.compat.v1.Session() as session:
        session.run([variable.initializer for variable in mean.variables])
        session.run(metrics["metrics/mean/update_op"])
        assert session.run(metrics["metrics/mean/value"]) == 3.0
