"""A predictor calls a SavedModel's signature from dict of arrays to dict of arrays."""

import concurrent.futures

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.forked import Program


def model_fn(features, labels, mode):
    w = tf.compat.v1.get_variable("w", [], initializer=tf.compat.v1.zeros_initializer())
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a", "b"], [10.0, 20.0]), 0.0
    )
    y = features["x"] * w + table.lookup(features["word"])[:, tf.newaxis]
    step = tf.compat.v1.train.get_global_step()
    outputs = {"twice": est.export.PredictOutput({"z": 2 * y})}
    return est.EstimatorSpec(
        mode,
        predictions={"y": y, "w": w + tf.zeros_like(y)},
        export_outputs=outputs | {"serving_default": est.export.PredictOutput({"y": y})},
        loss=w,
        train_op=tf.group(w.assign_add(1.0), step.assign_add(1)),
    )


def input_fn():
    return tf.data.Dataset.from_tensors({"x": [[1.0, 1.0]], "word": ["a"]}).repeat()


def receiver_fn():
    x = tf.compat.v1.placeholder(tf.float32, [None, 2], "x")
    word = tf.compat.v1.placeholder(tf.string, [None], "word")
    features = {"x": x, "word": word}
    return est.export.ServingInputReceiver(features, features)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return est.Estimator(model_fn, str(tmp_path_factory.mktemp("model"))).train(input_fn, steps=3)


@pytest.fixture(scope="module")
def exports(model, tmp_path_factory):
    base = tmp_path_factory.mktemp("exports")
    model.export_saved_model(str(base), receiver_fn)
    return base


@pytest.fixture(scope="module")
def predictor(exports):
    with est.make_predictor(exports) as predictor:
        yield predictor


INPUTS = {"x": [[1, 2], [3, 4]], "word": ["b", "c"]}


def test_an_export_and_an_estimator_give_the_same(predictor, model):
    expected = [[23, 26], [9, 12]]
    assert predictor(INPUTS)["y"].tolist() == expected
    assert list(predictor.feed_tensors) == ["word", "x"]
    assert repr(predictor) == "Predictor of ['y'] from ['word', 'x']"
    with est.make_predictor(model, receiver_fn, signature="twice") as other:
        assert (other(INPUTS)["z"] / 2).tolist() == expected


def test_arrays_of_other_kinds_are_converted_where_nothing_is_lost(predictor):
    expected = predictor(INPUTS)["y"].tolist()
    for x in (np.array(INPUTS["x"], "float64"), np.array(INPUTS["x"], "int32")):
        for word in (np.array(["b", "c"]), np.array([b"b", b"c"], object)):
            assert predictor({"x": x, "word": word})["y"].tolist() == expected


@pytest.fixture(scope="module")
def repeating(tmp_path_factory):
    """A predictor that returns strings as often as an input with a default says."""
    path = str(tmp_path_factory.mktemp("repeating") / "model")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        text = tf.compat.v1.placeholder(tf.string, [None])
        times = tf.compat.v1.placeholder_with_default(1, [])
        outputs = {"texts": tf.repeat(text, times)}
        tf.compat.v1.saved_model.simple_save(session, path, {"x": text, "times": times}, outputs)
    with est.make_predictor(path) as predictor:
        yield predictor


def test_an_input_with_a_default_may_be_left_out(repeating):
    for given, expected in (({}, 1), ({"times": None}, 1), ({"times": 3}, 3), ({}, 1)):
        assert repeating({"x": ["a"], **given})["texts"].tolist() == [b"a"] * expected
    for inputs in ({"times": 2}, {"times": 2, "x": None}):
        with pytest.raises(ValueError, match=r"^`inputs` lacks 'x'.$"):
            repeating(inputs)


def test_strings_keep_the_zeros_at_their_ends(repeating):
    texts = [b"a\0", b"\0", b"abc", b""]
    for given in (texts, tuple(texts), np.array(texts, object), [text.decode() for text in texts]):
        assert repeating({"x": given})["texts"].tolist() == texts


def test_threads_share_it(predictor):
    def predict(i):
        return predictor({"x": [[i, i]], "word": ["a"]})["y"].tolist()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(predict, range(200))) == [[[10 + 3 * i] * 2] for i in range(200)]


def test_it_says_nothing_about_deprecated_functions_that_it_calls(exports, tmp_path):
    path = tmp_path / "program.py"
    path.write_text("import sys, estimator as est\nest.make_predictor(sys.argv[1]).close()\n")
    with Program(str(path), str(exports)) as program:
        assert (program.status(), program.err) == (0, "")


def test_it_is_closed_once_and_for_all(exports):
    predictor = est.make_predictor(str(exports))
    predictor.close()
    predictor.close()
    with pytest.raises(RuntimeError, match="This predictor is closed. Make another one."):
        predictor(INPUTS)


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ({"x": [[1, 2]]}, ValueError, "`inputs` lacks 'word'."),
        (
            {"x": [[1, 2]], "words": ["a"]},
            ValueError,
            "`inputs` has 'words', which is no input. Did you mean 'word'?",
        ),
        ([[1, 2]], TypeError, "`inputs` ([[1, 2]]) must be a dict: {'word', 'x'}."),
        (
            {"x": ["1"], "word": ["a"]},
            TypeError,
            "`inputs['x']` is <U1, where float32 is needed. Convert it: np.asarray(value, 'float3",
        ),
        (
            {"x": [[1j, 2j]], "word": ["a"]},
            TypeError,
            "`inputs['x']` is complex128, where float32 is needed.",
        ),
        (
            {"x": [[1, 2]], "word": [1]},
            TypeError,
            "`inputs['word']` is int64, where string is needed.",
        ),
        (
            {"x": [1, 2, 3], "word": ["a"]},
            ValueError,
            "`inputs['x']` has shape (3,), which does not fit (None, 2).",
        ),
    ],
)
def test_what_does_not_fit_the_signature_is_named(predictor, inputs, error, message):
    with pytest.raises(error) as caught:
        predictor(inputs)
    assert str(caught.value).startswith(message)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    """A predictor of inputs of 8 bits, which it returns as numbers of 64."""
    path = str(tmp_path_factory.mktemp("narrow") / "model")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        inputs = {t.name: tf.compat.v1.placeholder(t, [None]) for t in (tf.int8, tf.uint8)}
        outputs = {name: tf.cast(x, tf.int64) for name, x in inputs.items()}
        tf.compat.v1.saved_model.simple_save(session, path, inputs, outputs)
    with est.make_predictor(path) as predictor:
        yield predictor


def test_integers_of_other_types_are_converted_if_they_fit(narrow):
    for uint8 in ([0, 255], np.array([0, 255], "uint64"), np.array([], "int16")):
        found = narrow({"int8": [-128, 127], "uint8": uint8})
        assert (found["int8"].tolist(), found["uint8"].tolist()) == ([-128, 127], list(uint8))


@pytest.mark.parametrize(
    ("name", "value", "wrong", "rule"),
    [
        ("int8", [0, 128], 128, "int8: -128 to 127."),
        ("int8", [-129, 0], -129, "int8: -128 to 127."),
        ("uint8", [-1], -1, "uint8: 0 to 255."),
        ("uint8", np.array([2**64 - 1], "uint64"), 2**64 - 1, "uint8: 0 to 255."),
    ],
)
def test_an_integer_out_of_range_is_named(narrow, name, value, wrong, rule):
    message = f"`inputs.'{name}'.` has the value {wrong}, which is not in the range of {rule}"
    with pytest.raises(ValueError, match=message):
        narrow({"int8": [1], "uint8": [1], name: value})


def dense_input():
    return tf.compat.v1.placeholder(tf.float32, [None, 2])


def sparse_input():
    return tf.compat.v1.sparse_placeholder(tf.float32, [None, 2])


def saved(path, tag="serve", make=dense_input):
    """Writes a SavedModel without variables."""
    saved_model = tf.compat.v1.saved_model
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        info = saved_model.build_tensor_info(make())
        signature = saved_model.build_signature_def({"x": info}, {"y": info}, "predict")
        builder = saved_model.Builder(path)
        builder.add_meta_graph_and_variables(session, [tag], {"serving_default": signature})
        builder.save()
    return path


def test_a_directory_that_is_no_export_is_passed_over(exports, tmp_path):
    saved(str(tmp_path / "1"))
    (tmp_path / "2").mkdir()
    with est.make_predictor(tmp_path) as predictor:
        assert predictor({"x": [[1, 2]]})["y"].tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda m, e: est.make_predictor(3), TypeError, "`source` (3) must be the path of a Saved"),
        (
            lambda m, e: est.make_predictor(m),
            ValueError,
            "`serving_input_receiver_fn` is missing: it says what a predictor of an Estimator is",
        ),
        (
            lambda m, e: est.make_predictor(e, receiver_fn),
            ValueError,
            "`serving_input_receiver_fn` and `checkpoint_path` are for an Estimator; a SavedModel",
        ),
        (
            lambda m, e: est.make_predictor(m.model_dir),
            ValueError,
            "has no SavedModel: no saved_model.pb, and no directory of an export.",
        ),
        (
            lambda m, e: est.make_predictor(saved(f"{m.model_dir}/other", tag="train")),
            ValueError,
            "/other') has no SavedModel with the tag 'serve': MetaGraphDef associated with tags",
        ),
        (
            lambda m, e: est.make_predictor(saved(f"{m.model_dir}/sparse", make=sparse_input)),
            ValueError,
            "The signature has the sparse tensor 'x', which cannot be an array. Export a signature",
        ),
        (
            lambda m, e: est.make_predictor(e, signature="twise"),
            ValueError,
            "Did you mean 'twice'?",
        ),
    ],
)
def test_what_is_no_source_is_named(model, exports, make, error, message):
    with pytest.raises(error) as caught:
        make(model, str(exports))
    assert message in str(caught.value)
