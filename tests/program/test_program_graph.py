"""The definition of a program's graph, which several files hold."""

import pytest
import tensorflow as tf

import estimator as est
from estimator.program import program_graph
from tests.toy import Model, numbers


@pytest.fixture
def definitions(monkeypatch):
    """How many nodes each definition with shapes has that TensorFlow makes."""
    made = []
    make = tf.Graph.as_graph_def

    def note(graph, from_version=None, add_shapes=False, **options):
        definition = make(graph, from_version, add_shapes, **options)
        if add_shapes:
            made.append(len(definition.node))
        return definition

    monkeypatch.setattr(tf.Graph, "as_graph_def", note)
    return made


def test_three_files_share_the_definition_of_a_trainings_graph(definitions, tmp_path):
    with est.Estimator(Model(), str(tmp_path), est.RunConfig(iterations_per_loop=2)) as model:
        model.train(numbers(), steps=4)
    assert len(definitions) == 1
    in_meta = tf.compat.v1.MetaGraphDef.FromString((tmp_path / "model.ckpt-0.meta").read_bytes())
    (event_file,) = tmp_path.glob("events.*")
    events = tf.compat.v1.train.summary_iterator(str(event_file))
    in_events = [event.graph_def for event in events if event.HasField("graph_def")]
    files = [in_meta.graph_def, *map(tf.compat.v1.GraphDef.FromString, in_events)]
    assert [len(definition.node) for definition in files] == 2 * definitions
    assert (tmp_path / "graph.pbtxt").read_text().count("\nnode {") == definitions[0] - 1


def make_graph():
    graph = program_graph.ProgramGraph()
    with graph.as_default():
        add_op()
    return graph


def add_op():
    return tf.compat.v1.placeholder(tf.float32, [2, None]) + 1


def plain(graph, **options):
    return tf.Graph.as_graph_def(graph, **options)


def test_it_is_that_of_the_graph_as_it_is_now():
    graph = make_graph()
    first = graph.as_graph_def(add_shapes=True)
    assert first == plain(graph, add_shapes=True)
    with graph.as_default():
        add_op()
    second = graph.as_graph_def(add_shapes=True)
    assert second == plain(graph, add_shapes=True) != first
    assert graph.as_graph_def() == plain(graph) != second
    since = graph.version
    assert graph.as_graph_def(since, True) == plain(graph, from_version=since, add_shapes=True)


def test_what_it_returns_may_be_changed(definitions):
    graph = make_graph()
    expected = plain(graph, add_shapes=True)
    for _ in range(3):
        definition = graph.as_graph_def(add_shapes=True)
        assert definition == expected
        del definition.node[:]
    assert len(definitions) == 2  # With `expected`.


def test_a_large_one_is_not_kept(definitions, monkeypatch):
    graph = make_graph()
    monkeypatch.setattr(program_graph, "_MAX_BYTES", 10)
    assert graph.as_graph_def(add_shapes=True) == graph.as_graph_def(add_shapes=True)
    assert len(definitions) == 2
