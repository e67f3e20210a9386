import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from estimator import export
from estimator.export.saved_model import GraphToSave, write_saved_models
from estimator.export.signatures import make_signatures


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def to_save(graph, signatures, tag="serve", *, saver=None, main_op=None, train_op=None):
    with graph.as_default():
        saver = saver or tf.compat.v1.train.Saver(sharded=True, allow_empty=True)
        main_op = main_op or tf.compat.v1.train.Scaffold.default_local_init_op()
    return GraphToSave(graph, signatures, tag, saver, main_op, train_op)


def write_saved_model(session, base, signatures, *, saver=None, main_op=None, **options):
    graph = to_save(session.graph, signatures, saver=saver, main_op=main_op)
    return write_saved_models(base, session, [graph], **options)


@pytest.fixture
def open_session(graph):
    """Opens sessions on the default graph with initialized variables; closes them after."""
    sessions = []

    def run():
        sessions.append(tf.compat.v1.Session())
        sessions[-1].run(tf.compat.v1.global_variables_initializer())
        return sessions[-1]

    yield run
    for session in sessions:
        session.close()


def raw_receiver():
    return export.build_raw_serving_input_receiver_fn({"x": tf.TensorSpec([None, 2])})()


def parsing_receiver():
    spec = {"x": tf.io.FixedLenFeature([2], tf.float32)}
    return export.build_parsing_serving_input_receiver_fn(spec)()


def serialized(*rows):
    examples = [tf.train.Example() for _ in rows]
    for example, row in zip(examples, rows, strict=True):
        example.features.feature["x"].float_list.value.extend(row)
    return tf.constant([example.SerializeToString() for example in examples])


def weighted_sum(x, weights=(1.0, 10.0)):
    """[batch size]: x0 + 10 * x1 by a variable."""
    w = tf.compat.v1.get_variable("w", initializer=tf.constant(weights))
    return tf.linalg.matvec(x, w)


def read_text(path):
    with open(os.path.join(path.decode(), "saved_model.pbtxt")) as file:
        return file.read()


@pytest.mark.parametrize("make_receiver", [raw_receiver, parsing_receiver])
def test_a_loaded_model_gives_the_sessions_numbers(tmp_path, make_receiver):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        receiver = make_receiver()
        y = weighted_sum(receiver.features["x"])
        session.run(tf.compat.v1.global_variables_initializer())
        signatures = make_signatures(receiver, {"y": y})
        path = write_saved_model(session, tmp_path, signatures)
        rows = [[3.0, 4.0], [5.0, 6.0]]
        expected = session.run(y, {receiver.features["x"]: rows}).tolist()
    assert isinstance(path, bytes)
    assert path.decode() == str(tmp_path / os.listdir(tmp_path)[0])
    loaded = tf.saved_model.load(path.decode())
    fed = {"x": tf.constant(rows), "examples": serialized(*rows)}
    name = next(iter(receiver.receiver_tensors))
    answer = loaded.signatures["serving_default"](**{name: fed[name]})
    assert answer["y"].numpy().tolist() == expected == [43.0, 65.0]


CLEAN_PROCESS = """
import json, sys
import numpy as np
import tensorflow as tf
assert "estimator" not in sys.modules
signatures = tf.saved_model.load(sys.argv[1]).signatures
example = tf.train.Example()
example.features.feature["x"].float_list.value.extend([3.0, 4.0])
examples = tf.constant([example.SerializeToString()] * 2)
answers = {}
for name, signature in signatures.items():
    (argument,) = signature.structured_input_signature[1]
    fed = tf.constant([[3.0, 4.0]] * 2) if argument == "x" else examples
    answer = signature(**{argument: fed})
    answers[name] = {key: value.numpy().tolist() for key, value in answer.items()}
print(json.dumps(answers))
"""


def test_a_clean_process_serves_every_signature(tmp_path, open_session):
    parsed = parsing_receiver()
    x = parsed.features["x"]
    receiver = export.ServingInputReceiver(
        parsed.features, parsed.receiver_tensors, {"raw": {"x": x}}
    )
    y = weighted_sum(x)
    outputs = {
        "serving_default": export.PredictOutput({"y": y, "twice": y * 2.0}),
        "regress": export.RegressionOutput(y),
        "classify": export.ClassificationOutput(scores=x),
    }
    signatures = make_signatures(receiver, None, outputs)
    path = write_saved_model(open_session(), str(tmp_path / "base"), signatures)
    done = subprocess.run(
        [sys.executable, "-c", CLEAN_PROCESS, path.decode()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "serving_default": {"y": [43.0] * 2, "twice": [86.0] * 2},
        "raw:serving_default": {"y": [43.0] * 2, "twice": [86.0] * 2},
        "regress": {"outputs": [43.0] * 2},
        "classify": {"scores": [[3.0, 4.0]] * 2},
    }


def vocabulary_model(path):
    words = tf.compat.v1.placeholder(tf.string, [None], name="words")
    initializer = tf.lookup.TextFileInitializer(
        str(path),
        tf.string,
        tf.lookup.TextFileIndex.WHOLE_LINE,
        tf.int64,
        tf.lookup.TextFileIndex.LINE_NUMBER,
    )
    table = tf.lookup.StaticHashTable(initializer, -1)
    receiver = export.ServingInputReceiver(words, {"words": words})
    return make_signatures(receiver, {"id": table.lookup(words)})


def test_vocabularies_and_extra_assets_travel_with_the_model(tmp_path, open_session):
    vocabulary = tmp_path / "words.txt"
    vocabulary.write_text("zero\none\n")
    signatures = vocabulary_model(vocabulary)
    path = write_saved_model(
        open_session(), tmp_path / "base", signatures, assets_extra={"more/a.txt": str(vocabulary)}
    ).decode()
    vocabulary.unlink()
    assert os.listdir(os.path.join(path, "assets")) == ["words.txt"]
    assert os.listdir(os.path.join(path, "assets.extra", "more")) == ["a.txt"]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.saved_model.load(session, ["serve"], path)
        name = signatures["serving_default"].outputs["id"].name
        assert session.run(name, {"words:0": [b"one", b"two"]}).tolist() == [1, -1]


def test_a_vocabulary_that_is_gone_is_named_and_nothing_is_left(tmp_path, open_session):
    vocabulary = tmp_path / "words.txt"
    vocabulary.write_text("zero\n")
    signatures = vocabulary_model(vocabulary)
    vocabulary.unlink()
    with pytest.raises(ValueError, match=r"words.txt.* no longer exists"):
        write_saved_model(open_session(), tmp_path / "base", signatures)
    assert os.listdir(tmp_path / "base") == []


def test_one_graph_is_exported_twice(tmp_path, open_session):
    receiver = raw_receiver()
    signatures = make_signatures(receiver, weighted_sum(receiver.features["x"]))
    session = open_session()
    saver = tf.compat.v1.train.Saver()
    main_op = tf.compat.v1.tables_initializer()
    num_ops = len(session.graph.get_operations())
    paths = {
        write_saved_model(session, tmp_path, signatures, saver=saver, main_op=main_op)
        for _ in range(3)
    }
    assert len(paths) == 3
    assert len(session.graph.get_operations()) == num_ops


def test_a_main_op_runs_at_loading(tmp_path, open_session):
    receiver = raw_receiver()
    w = tf.compat.v1.get_variable("w", initializer=1.0)
    signatures = make_signatures(receiver, receiver.features["x"] * w)
    session = open_session()
    main_op = tf.group(w.assign(5.0))
    path = write_saved_model(session, tmp_path, signatures, main_op=main_op)
    with tf.Graph().as_default(), tf.compat.v1.Session() as loaded:
        tf.compat.v1.saved_model.load(loaded, ["serve"], path.decode())
        name = signatures["serving_default"].outputs["output"].name
        assert loaded.run(name, {"x:0": [[1.0, 2.0]]}).tolist() == [[5.0, 10.0]]


def test_a_model_without_variables_is_exported(tmp_path, open_session):
    receiver = raw_receiver()
    signatures = make_signatures(receiver, {"y": receiver.features["x"] + 1.0})
    path = write_saved_model(open_session(), tmp_path, signatures)
    with tf.Graph().as_default(), tf.compat.v1.Session() as loaded:
        tf.compat.v1.saved_model.load(loaded, ["serve"], path.decode())


def test_no_device_is_left_at_any_depth(tmp_path, open_session):
    receiver = raw_receiver()

    @tf.function
    def doubled(x):
        with tf.device("/device:CPU:0"):
            return tf.map_fn(lambda row: row * 2.0, x)

    with tf.device("/device:CPU:0"):
        y = weighted_sum(doubled(receiver.features["x"]))
    signatures = make_signatures(receiver, y)
    assert "CPU:0" in str(tf.compat.v1.get_default_graph().as_graph_def().library)
    path = write_saved_model(open_session(), tmp_path, signatures, as_text=True)
    assert "CPU:0" not in read_text(path)
    assert os.path.exists(os.path.join(path.decode(), "saved_model.pbtxt"))


@pytest.mark.parametrize("strip", [True, False])
def test_default_attributes_are_stripped_if_asked(tmp_path, open_session, strip):
    receiver = raw_receiver()
    signatures = make_signatures(receiver, weighted_sum(receiver.features["x"]))
    path = write_saved_model(
        open_session(), tmp_path, signatures, as_text=True, strip_default_attrs=strip
    )
    assert ("stripped_default_attrs: true" in read_text(path)) is strip


def test_several_graphs_share_the_variables_of_the_first(tmp_path):
    graphs = []
    for tag, weights in (("train", (1.0, 10.0)), ("serve", (0.0, 0.0))):
        with tf.Graph().as_default() as graph:
            receiver = raw_receiver()
            y = weighted_sum(receiver.features["x"], weights)
            signatures = make_signatures(receiver, y)
            initializer = tf.compat.v1.global_variables_initializer()
            train_op = tf.group(y) if tag == "train" else None
            graphs.append((to_save(graph, signatures, tag, train_op=train_op), initializer))
    (first, initializer), (second, _) = graphs
    with tf.compat.v1.Session(graph=first.graph) as session:
        session.run(initializer)
        path = write_saved_models(tmp_path, session, [first, second]).decode()
    for tag, has_train_op in (("train", True), ("serve", False)):
        with tf.Graph().as_default() as loaded_graph, tf.compat.v1.Session() as loaded:
            meta_graph = tf.compat.v1.saved_model.load(loaded, [tag], path)
            name = meta_graph.signature_def["serving_default"].outputs["output"].name
            assert loaded.run(name, {"x:0": [[3.0, 4.0]]}).tolist() == [43.0]
            assert bool(loaded_graph.get_collection("saved_model_train_op")) is has_train_op


def failing_saver():
    class Failing(tf.compat.v1.train.Saver):
        def save(self, *args, **kwargs):
            super().save(*args, **kwargs)
            raise OSError("no space left on device")

    return Failing()


def test_a_failure_while_writing_leaves_nothing(tmp_path, open_session):
    receiver = raw_receiver()
    signatures = make_signatures(receiver, weighted_sum(receiver.features["x"]))
    session = open_session()
    with pytest.raises(OSError, match="no space"):
        write_saved_model(session, tmp_path, signatures, saver=failing_saver())
    assert os.listdir(tmp_path) == []
    write_saved_model(session, tmp_path, signatures)
    assert len(os.listdir(tmp_path)) == 1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"assets_extra": {"../a": __file__}}, ValueError, "stay inside"),
        ({"assets_extra": {"a": "/not/there"}}, ValueError, "a file that exists"),
        ({"saver": "saver"}, TypeError, r"`Scaffold.saver` \('saver'\)"),
        ({"saver": tf.train.Checkpoint()}, TypeError, "or left out to save all"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_left(
    tmp_path, open_session, options, error, message
):
    receiver = raw_receiver()
    signatures = make_signatures(receiver, weighted_sum(receiver.features["x"]))
    with pytest.raises(error, match=message):
        write_saved_model(open_session(), tmp_path, signatures, **options)
    assert os.listdir(tmp_path) == []
