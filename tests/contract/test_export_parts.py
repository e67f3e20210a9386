"""The parts of an export: input receivers, the functions that make them, and outputs."""

import pytest

from tests.contract.names import est, tf, v1, v1est

X = est.export
CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"
PREDICT_METHOD = "tensorflow/serving/predict"


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def place(dtype=tf.float32, shape=(None,), name=None):
    return v1.placeholder(dtype, shape, name)


@pytest.mark.parametrize(
    "name",
    [
        "ServingInputReceiver",
        "TensorServingInputReceiver",
        "build_parsing_serving_input_receiver_fn",
        "build_raw_serving_input_receiver_fn",
        "ClassificationOutput",
        "RegressionOutput",
        "PredictOutput",
        "EvalOutput",
        "ExportOutput",
    ],
)
def test_name_is_in_both_places(name):
    assert getattr(X, name) is getattr(v1est.export, name)


# --- Receivers -----------------------------------------------------------------------------------


def test_receiver_is_a_named_tuple():
    features, tensors = {"x": place()}, {"x": place()}
    receiver = X.ServingInputReceiver(features, tensors)
    assert receiver._fields == ("features", "receiver_tensors", "receiver_tensors_alternatives")
    assert tuple(receiver) == (features, tensors, None)


def test_one_feature_is_called_feature():
    x = place()
    assert X.ServingInputReceiver(x, {"a": x}).features == {"feature": x}


def test_one_tensor_is_called_input():
    x = place()
    assert X.ServingInputReceiver({"x": x}, x).receiver_tensors == {"input": x}


def test_one_feature_of_a_tensor_receiver_stays_a_tensor():
    x = place()
    receiver = X.TensorServingInputReceiver(x, x)
    assert receiver.features is x
    assert receiver.receiver_tensors == {"input": x}


def test_alternatives_are_kept():
    x, other = place(), place()
    receiver = X.ServingInputReceiver({"x": x}, x, {"other": {"a": other}})
    assert receiver.receiver_tensors_alternatives == {"other": {"a": other}}


def test_one_alternative_tensor_is_called_input():
    x, other = place(), place()
    receiver = X.ServingInputReceiver({"x": x}, x, {"other": other})
    assert receiver.receiver_tensors_alternatives == {"other": {"input": other}}


WRONG = {
    "no features": lambda x: (None, x),
    "no tensors": lambda x: ({"x": x}, None),
    "features of numbers": lambda x: ({"x": 1}, x),
    "names of features that are numbers": lambda x: ({1.5: x}, x),
    "tensors of numbers": lambda x: ({"x": x}, {"x": 1}),
    "alternatives in a list": lambda x: ({"x": x}, x, [x]),
    "alternatives of numbers": lambda x: ({"x": x}, x, {"other": {"a": 1}}),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_receiver_is_a_value_error(case):
    with pytest.raises(ValueError):
        X.ServingInputReceiver(*WRONG[case](place()))


def test_a_tensor_receiver_takes_no_dict():
    x = place()
    with pytest.raises(ValueError):
        X.TensorServingInputReceiver({"x": x}, x)


def test_tensor_receiver_needs_features():
    with pytest.raises(ValueError):
        X.TensorServingInputReceiver(None, place())


# --- Functions that make receivers ---------------------------------------------------------------

SPEC = {
    "a": v1.io.FixedLenFeature([2], tf.float32),
    "b": v1.io.VarLenFeature(tf.int64),
}


@pytest.fixture
def parsed():
    return X.build_parsing_serving_input_receiver_fn(SPEC)()


def test_parsing_receiver(parsed):
    assert isinstance(parsed, X.ServingInputReceiver)
    assert set(parsed.features) == {"a", "b"}
    assert list(parsed.receiver_tensors) == ["examples"]


def test_parsing_receiver_takes_serialized_examples(parsed):
    tensor = parsed.receiver_tensors["examples"]
    assert (tensor.dtype, tensor.shape.as_list()) == (tf.string, [None])
    assert tensor.name == "input_example_tensor:0"


def test_parsing_receiver_of_one_batch_size():
    receiver = X.build_parsing_serving_input_receiver_fn(SPEC, default_batch_size=4)()
    assert receiver.receiver_tensors["examples"].shape.as_list() == [4]
    assert receiver.features["a"].shape.as_list() == [4, 2]


def test_parsing_receiver_parses(parsed):
    example = tf.train.Example()
    example.features.feature["a"].float_list.value.extend([1.0, 2.0])
    feed = {parsed.receiver_tensors["examples"]: [example.SerializeToString()]}
    with v1.Session() as session:
        assert session.run(parsed.features["a"], feed).tolist() == [[1.0, 2.0]]


def test_parsing_receiver_has_sparse_features(parsed):
    assert isinstance(parsed.features["b"], tf.SparseTensor)


def test_raw_receiver():
    a = place(tf.int32, (None, 3))
    receiver = X.build_raw_serving_input_receiver_fn({"a": a})()
    assert isinstance(receiver, X.ServingInputReceiver)
    tensor = receiver.receiver_tensors["a"]
    assert (tensor.dtype, tensor.shape.as_list()) == (tf.int32, [None, 3])
    assert receiver.features["a"] is tensor


def test_raw_receiver_keeps_the_names_of_placeholders():
    made = X.build_raw_serving_input_receiver_fn({"a": place(name="other")})
    with tf.Graph().as_default():
        assert made().receiver_tensors["a"].op.name == "other"


def test_raw_receiver_of_one_batch_size():
    made = X.build_raw_serving_input_receiver_fn({"a": place()}, default_batch_size=4)
    assert made().receiver_tensors["a"].shape.as_list() == [4]


def test_raw_receiver_leaves_the_first_dimension_open():
    made = X.build_raw_serving_input_receiver_fn({"a": tf.zeros([7, 3])})
    assert made().receiver_tensors["a"].shape.as_list() == [None, 3]


def supervised(features, labels, **arguments):
    return est.experimental.build_raw_supervised_input_receiver_fn(features, labels, **arguments)()


def test_supervised_receiver():
    receiver = supervised({"a": place()}, {"b": place()})
    assert receiver._fields == ("features", "labels", "receiver_tensors")
    assert set(receiver.receiver_tensors) == {"a", "b"}
    assert (list(receiver.features), list(receiver.labels)) == (["a"], ["b"])


def test_supervised_receiver_of_tensors():
    receiver = supervised(place(), place())
    assert set(receiver.receiver_tensors) == {"input", "label"}


def test_supervised_receiver_with_one_name_twice_is_a_value_error():
    with pytest.raises(ValueError):
        supervised({"a": place()}, {"a": place()})


def test_supervised_receiver_of_one_batch_size():
    receiver = supervised({"a": place()}, {"b": place()}, default_batch_size=3)
    assert receiver.receiver_tensors["a"].shape.as_list() == [3]
    assert receiver.receiver_tensors["b"].shape.as_list() == [3]


# --- Outputs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ClassificationOutput", "RegressionOutput", "PredictOutput"])
def test_outputs_are_of_one_class(name):
    assert issubclass(getattr(X, name), X.ExportOutput)


def test_one_predicted_tensor_is_called_output():
    x = place()
    assert X.PredictOutput(x).outputs == {"output": x}


def test_predicted_tensors_keep_their_names():
    x = place()
    assert X.PredictOutput({"a": x}).outputs == {"a": x}


def test_predict_signature():
    x = place()
    signature = X.PredictOutput({"a": x}).as_signature_def({"in": x})
    assert signature.method_name == PREDICT_METHOD
    assert (list(signature.inputs), list(signature.outputs)) == (["in"], ["a"])


@pytest.mark.parametrize("outputs", [1, {"a": 1}, {1: "x"}], ids=str)
def test_wrong_predictions_are_a_value_error(outputs):
    with pytest.raises(ValueError):
        X.PredictOutput(outputs)


def test_classification_keeps_scores_and_classes():
    scores, classes = place(), place(tf.string)
    output = X.ClassificationOutput(scores, classes)
    assert (output.scores, output.classes) == (scores, classes)


@pytest.mark.parametrize("given", [("scores", "classes"), ("scores",), ("classes",)], ids=str)
def test_classify_signature(given):
    tensors = {"scores": place(), "classes": place(tf.string)}
    output = X.ClassificationOutput(**{name: tensors[name] for name in given})
    signature = output.as_signature_def({"examples": place(tf.string)})
    assert signature.method_name == CLASSIFY
    assert set(signature.outputs) == set(given)
    assert list(signature.inputs) == ["inputs"]


WRONG_CLASSES = {
    "nothing": lambda: {},
    "integer scores": lambda: {"scores": place(tf.int32)},
    "scores in a list": lambda: {"scores": [1.0]},
    "integer classes": lambda: {"classes": place(tf.int32)},
    "classes in a list": lambda: {"classes": ["a"]},
}


@pytest.mark.parametrize("case", WRONG_CLASSES)
def test_wrong_classification_is_a_value_error(case):
    with pytest.raises(ValueError):
        X.ClassificationOutput(**WRONG_CLASSES[case]())


RECEIVERS = {
    "two tensors": lambda: {"a": place(tf.string), "b": place(tf.string)},
    "a number": lambda: {"a": place(tf.float32)},
}


@pytest.mark.parametrize("case", RECEIVERS)
@pytest.mark.parametrize("kind", ["classify", "regress"])
def test_signature_needs_one_text(kind, case):
    x = place()
    output = X.ClassificationOutput(x) if kind == "classify" else X.RegressionOutput(x)
    with pytest.raises(ValueError):
        output.as_signature_def(RECEIVERS[case]())


def test_regress_signature():
    x = place()
    output = X.RegressionOutput(x)
    signature = output.as_signature_def({"examples": place(tf.string)})
    assert output.value is x
    assert signature.method_name == REGRESS
    assert (list(signature.inputs), list(signature.outputs)) == (["inputs"], ["outputs"])


@pytest.mark.parametrize("value", [1.0, None, "text"], ids=str)
def test_wrong_regression_is_a_value_error(value):
    with pytest.raises(ValueError):
        X.RegressionOutput(value)


def test_text_is_no_regression():
    with pytest.raises(ValueError):
        X.RegressionOutput(place(tf.string))


def test_eval_output():
    x = place()
    output = X.EvalOutput(x, {"y": x}, {"mean": (x, x)})
    signature = output.as_signature_def({"in": x})
    assert signature.method_name == "tensorflow/supervised/eval"
    assert set(signature.outputs) == {
        "loss",
        "predictions/y",
        "metrics/mean/value",
        "metrics/mean/update_op",
    }


def test_names_of_an_eval_output():
    x = place()
    made = X.EvalOutput(x, {"y": x}, {"mean": (x, x)})
    metric = f"{made.METRICS_NAME}/mean"
    assert set(made.as_signature_def({"in": x}).outputs) == {
        made.LOSS_NAME,
        f"{made.PREDICTIONS_NAME}/y",
        f"{metric}/{made.METRIC_VALUE_SUFFIX}",
        f"{metric}/{made.METRIC_UPDATE_SUFFIX}",
    }


def test_parts_of_an_eval_output():
    x = place()
    output = X.EvalOutput(x, x, {"mean": (x, x)})
    assert output.loss == {"loss": x}
    assert list(output.predictions.values()) == [x]
    assert set(output.metrics) == {"metrics/mean/value", "metrics/mean/update_op"}


# --- What to parse out of an example -------------------------------------------------------------


def column(name="a"):
    return tf.feature_column.numeric_column(name)


def test_parse_spec_of_a_classifier():
    spec = est.classifier_parse_example_spec([column()], label_key="y")
    assert spec == {
        "a": tf.io.FixedLenFeature((1,), tf.float32),
        "y": tf.io.FixedLenFeature((1,), tf.int64),
    }


def test_parse_spec_of_a_regressor():
    spec = est.regressor_parse_example_spec([column()], label_key="y")
    assert spec == {
        "a": tf.io.FixedLenFeature((1,), tf.float32),
        "y": tf.io.FixedLenFeature((1,), tf.float32),
    }


def test_parse_spec_with_a_weight():
    spec = est.classifier_parse_example_spec([column()], "y", weight_column="w")
    assert spec["w"] == tf.io.FixedLenFeature((1,), tf.float32)


def test_parse_spec_with_a_weight_column():
    spec = est.regressor_parse_example_spec([column()], "y", weight_column=column("w"))
    assert spec["w"] == tf.io.FixedLenFeature((1,), tf.float32)


def test_parse_spec_of_text_labels():
    spec = est.classifier_parse_example_spec(
        [column()], "y", label_dtype=tf.string, label_default="?"
    )
    assert spec["y"] == tf.io.FixedLenFeature((1,), tf.string, "?")


def test_parse_spec_of_several_labels():
    spec = est.regressor_parse_example_spec([column()], "y", label_dimension=3)
    assert spec["y"] == tf.io.FixedLenFeature((3,), tf.float32)


def test_parse_spec_of_wider_labels():
    spec = est.regressor_parse_example_spec([column()], "y", label_dtype=tf.float64)
    assert spec["y"].dtype == tf.float64


SPECS = {
    "classifier": est.classifier_parse_example_spec,
    "regressor": est.regressor_parse_example_spec,
}


@pytest.mark.parametrize("name", SPECS)
def test_a_label_that_is_a_feature_is_a_value_error(name):
    with pytest.raises(ValueError):
        SPECS[name]([column()], label_key="a")


@pytest.mark.parametrize("name", SPECS)
def test_a_wrong_weight_is_a_value_error(name):
    with pytest.raises(ValueError):
        SPECS[name]([column()], label_key="y", weight_column=1)


# --- call_logit_fn -------------------------------------------------------------------------------


def test_logit_fn_gets_what_it_takes():
    seen = {}

    def logit_fn(features, mode, params, config):
        seen.update(features=features, mode=mode, params=params, config=config)
        return tf.constant([1.0])

    logits = est.experimental.call_logit_fn(logit_fn, {"x": 1}, "train", {"a": 1}, "config")
    assert tf.is_tensor(logits)
    assert seen == {"features": {"x": 1}, "mode": "train", "params": {"a": 1}, "config": "config"}


def test_logit_fn_may_take_features_alone():
    x = tf.constant([1.0])
    assert est.experimental.call_logit_fn(lambda features: x, {}, "train", {}, None) is x


def test_logit_fn_may_return_a_dict():
    x = tf.constant([1.0])
    logits = est.experimental.call_logit_fn(lambda features: {"a": x}, {}, "train", {}, None)
    assert logits == {"a": x}


@pytest.mark.parametrize("returned", [1, {"a": 1}, None, {1: 1}], ids=str)
def test_logits_that_are_no_tensors_are_a_value_error(returned):
    with pytest.raises(ValueError):
        est.experimental.call_logit_fn(lambda features: returned, {}, "train", {}, None)
