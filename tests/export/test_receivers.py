import numpy as np
import pytest
import tensorflow as tf

from estimator import export
from estimator.export import receivers

EAGER = tf.zeros([3, 2], tf.int32)  # Made here, outside the graph of the fixture.


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def tensor(name="t"):
    return tf.compat.v1.placeholder(tf.float32, [None, 2], name=name)


def raw(features, **options):
    return export.build_raw_serving_input_receiver_fn(features, **options)


def parsing(spec, **options):
    return export.build_parsing_serving_input_receiver_fn(spec, **options)


def supervised(features, labels, **options):
    return export.build_raw_supervised_input_receiver_fn(features, labels, **options)


X = {"x": tf.io.FixedLenFeature([], tf.float32)}
BAD_RECEIVERS = [
    (lambda: export.ServingInputReceiver(None, tensor()), r"`features` \(None\) must be"),
    (lambda: export.ServingInputReceiver([], tensor()), r"`features` \(\[\]\) must be"),
    (lambda: export.ServingInputReceiver({"a": 1}, tensor()), r"a value of `features` \(1\)"),
    (lambda: export.ServingInputReceiver({1.5: tensor()}, tensor()), "key 1.5"),
    (lambda: export.ServingInputReceiver(tensor(), None), r"`receiver_tensors` \(None\)"),
    (lambda: export.ServingInputReceiver(tensor(), {}), "`receiver_tensors` .* at least one"),
    (lambda: export.ServingInputReceiver(tensor(), {1: tensor()}), "`receiver_tensors` .* key 1"),
    (lambda: export.ServingInputReceiver(tensor(), {"a": "b"}), r"`receiver_tensors\['a'\]`"),
    (lambda: export.ServingInputReceiver(tensor(), tensor(), tensor()), "must be a dict of name"),
    (
        lambda: export.ServingInputReceiver(tensor(), tensor(), {"alt": {"a": 1}}),
        r"`receiver_tensors_alternatives\['alt'\]\['a'\]` \(1\)",
    ),
    (lambda: export.TensorServingInputReceiver(None, tensor()), "must be a single tensor"),
    (lambda: export.TensorServingInputReceiver({"a": tensor()}, tensor()), "ServingInputReceiver"),
    (lambda: export.TensorServingInputReceiver(tensor(), 1), r"`receiver_tensors` \(1\)"),
    (lambda: export.SupervisedInputReceiver(None, tensor(), tensor()), r"`features` \(None\)"),
    (lambda: export.SupervisedInputReceiver(tensor(), None, tensor()), r"`labels` \(None\)"),
    (lambda: export.SupervisedInputReceiver(tensor(), tensor(), {}), "`receiver_tensors`"),
    (lambda: raw(None), r"`features` \(None\) must be a dict"),
    (lambda: raw(tensor()), "must be a dict of name to tensor"),
    (lambda: raw({}), "at least one tensor"),
    (lambda: raw({3: tensor()}), "key 3"),
    (lambda: raw({"a": "b"}), r"`features\['a'\]` \('b'\) must be a dense tensor"),
    (lambda: raw({"a": tf.SparseTensorSpec([None, 2])}), "sparse_placeholder"),
    (lambda: raw({"a": tf.TensorSpec([])}), "is a scalar"),
    (lambda: raw({"a": tensor()}, default_batch_size=0), r"`default_batch_size` \(0\)"),
    (lambda: raw({"a": tensor()}, default_batch_size="8"), r"`default_batch_size` \('8'\)"),
    (lambda: raw({"a": tensor()}, default_batch_size=True), r"`default_batch_size` \(True\)"),
    (lambda: parsing(None), r"`feature_spec` \(None\)"),
    (lambda: parsing({}), r"`feature_spec` \({}\)"),
    (lambda: parsing({"a": tensor()}), "build_raw_serving_input_receiver_fn"),
    (lambda: parsing(X, default_batch_size=-1), r"`default_batch_size` \(-1\)"),
    (lambda: supervised(None, tensor()), r"`features` \(None\)"),
    (lambda: supervised(tensor(), None), r"`labels` \(None\)"),
    (lambda: supervised({"a": tensor()}, {"a": tensor()}), r"share the names \['a'\]"),
    (lambda: supervised({"label": tensor()}, tensor()), r"share the names \['label'\]"),
    (lambda: supervised(tensor(), tensor(), default_batch_size=0), "`default_batch_size`"),
]


@pytest.mark.parametrize(("make", "message"), BAD_RECEIVERS, ids=[m for _, m in BAD_RECEIVERS])
def test_wrong_receivers_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_single_tensors_get_the_names_of_the_contract():
    x, y = tensor(), tensor()
    receiver = export.ServingInputReceiver(x, y, {"alt": x})
    assert receiver.features == {"feature": x}
    assert receiver.receiver_tensors == {"input": y}
    assert receiver.receiver_tensors_alternatives == {"alt": {"input": x}}
    features, receiver_tensors, alternatives = receiver
    assert (features, receiver_tensors, alternatives) == tuple(receiver)


def test_a_tensor_receiver_leaves_the_tensor_alone():
    x = tensor()
    receiver = export.TensorServingInputReceiver(x, {"x": x})
    assert receiver.features is x
    assert receiver.receiver_tensors == {"x": x}
    assert receiver.receiver_tensors_alternatives is None


@pytest.mark.parametrize(
    "make_features",
    [
        lambda: {"a": tensor(), 1: tensor()},
        lambda: {"a": tf.SparseTensor([[0, 0]], [1.0], [1, 1])},
        lambda: {"a": tf.ragged.constant([[1], [2, 3]])},
        lambda: {"a": {"b": (tensor(), tensor())}},
        lambda: (tensor(), tensor()),
    ],
    ids=["int key", "sparse", "ragged", "nested", "tuple"],
)
def test_features_of_any_structure_pass_unchanged(make_features):
    features = make_features()
    assert export.ServingInputReceiver(features, tensor()).features is features


TEMPLATES = [
    lambda: tensor("scope/x"),
    lambda: tf.TensorSpec([None, 2], tf.float32, "scope/x"),
    lambda: tf.TensorSpec([5, 2], tf.float32, "scope/x"),
]


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("make_template", TEMPLATES, ids=["tensor", "spec", "fixed"])
def test_raw_receivers_take_the_shape_but_the_batch_size(make_template, batch_size):
    receiver_fn = raw({"x": make_template()}, default_batch_size=batch_size)
    with tf.Graph().as_default():
        receiver = receiver_fn()
        x = receiver.receiver_tensors["x"]
        assert (x.op.type, x.name, x.dtype) == ("Placeholder", "scope/x:0", tf.float32)
        assert x.shape.as_list() == [batch_size, 2]
        assert receiver.features["x"] is x
        assert receiver.features is not receiver.receiver_tensors


def test_raw_receivers_take_arrays_and_eager_tensors_and_odd_names():
    receiver = raw({"a b": EAGER, "_é": np.zeros([1, 5]), "any": tf.TensorSpec(None)})()
    tensors = receiver.receiver_tensors
    assert {name: x.name for name, x in tensors.items()} == {
        "a b": "a_b:0",
        "_é": "input:0",
        "any": "any:0",
    }
    assert [x.dtype for x in tensors.values()] == [tf.int32, tf.float64, tf.float32]
    assert tensors["any"].shape.rank is None


@pytest.mark.parametrize("batch_size", [None, 2])
def test_parsing_receivers_take_serialized_examples(batch_size):
    spec = {"x": tf.io.FixedLenFeature([2], tf.float32), "w": tf.io.VarLenFeature(tf.string)}
    receiver = parsing(spec, default_batch_size=batch_size)()
    serialized = receiver.receiver_tensors["examples"]
    assert serialized.name == "input_example_tensor:0"
    assert serialized.shape.as_list() == [batch_size]
    example = tf.train.Example()
    example.features.feature["x"].float_list.value.extend([1.0, 2.0])
    example.features.feature["w"].bytes_list.value.append(b"word")
    with tf.compat.v1.Session() as session:
        features = session.run(receiver.features, {serialized: [example.SerializeToString()] * 2})
    assert features["x"].tolist() == [[1.0, 2.0]] * 2
    assert features["w"].values.tolist() == [b"word"] * 2


def test_supervised_receivers_keep_single_tensors_single():
    receiver = supervised(tensor("a"), tensor("b"), default_batch_size=3)()
    assert isinstance(receiver, export.SupervisedInputReceiver)
    assert receiver.receiver_tensors == {"input": receiver.features, "label": receiver.labels}
    assert receiver.features.shape.as_list() == [3, 2]


def test_supervised_receivers_keep_dicts():
    receiver = supervised({"a": tensor()}, {"b": tensor()})()
    features, labels, receiver_tensors = receiver
    assert receiver_tensors == {**features, **labels}
    assert list(receiver_tensors) == ["a", "b"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: export.ServingInputReceiver(tensor(), tensor()),
        lambda: export.TensorServingInputReceiver(tensor(), tensor(), {"alt": tensor()}),
        lambda: export.SupervisedInputReceiver(tensor(), tensor(), tensor()),
        parsing(X),
    ],
)
def test_the_check_lets_receivers_pass(make):
    receivers.call_receiver_fn(make, "serving_input_receiver_fn")


@pytest.mark.parametrize("value", [None, 3, {"features": 1}, ("features", "tensors"), len])
def test_the_check_names_the_function_that_returned_the_wrong_thing(value):
    with pytest.raises(TypeError, match="`my_fn` returned .* must return a ServingInputReceiver"):
        receivers.call_receiver_fn(lambda: value, "my_fn")


def test_the_check_finds_tensors_of_another_graph():
    receiver = export.ServingInputReceiver(tensor(), {"x": tensor()})
    with tf.Graph().as_default(), pytest.raises(ValueError, match="inside the function"):
        receivers.call_receiver_fn(lambda: receiver, "my_fn")


def test_the_check_finds_eager_tensors():
    receiver = export.ServingInputReceiver(EAGER, EAGER)
    with pytest.raises(ValueError, match="inside the function"):
        receivers.call_receiver_fn(lambda: receiver, "my_fn")
