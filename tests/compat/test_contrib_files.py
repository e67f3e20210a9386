"""What tf.contrib reads and writes: checkpoints, summaries, exports."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.compat.contrib import make_contrib
from tests.old_versions import writes_texts
from tests.toy import Model, numbers

contrib = make_contrib(has_slim=False)

V1 = tf.compat.v1


@pytest.mark.usefixtures("graph")
def test_variables_are_assigned_from_a_checkpoint(tmp_path):
    kept, renamed = V1.get_variable("kept", [2]), V1.get_variable("new", [2, 2])
    missing = V1.get_variable("missing", initializer=7.0)
    with tf.Graph().as_default(), V1.Session() as session:
        values = V1.get_variable("kept", initializer=[1.0, 2.0])
        old = V1.get_variable("old", initializer=[3.0, 4.0, 5.0, 6.0])
        session.run(V1.global_variables_initializer())
        path = V1.train.Saver([values, old]).save(session, str(tmp_path / "model"))
    framework = contrib.framework
    assign = framework.assign_from_checkpoint_fn
    with V1.Session() as session:
        session.run(V1.global_variables_initializer())
        assign(path, [kept, missing], ignore_missing_vars=True)(session)
        assign(path, {"old": renamed}, reshape_variables=True)(session)
        assign(path, [missing], ignore_missing_vars=True)(session)
        found = session.run([kept, renamed, missing])
        assert [x.tolist() for x in found] == [[1, 2], [[3, 4], [5, 6]], 7]
        with pytest.raises(tf.errors.NotFoundError, match="missing"):
            assign(path, [missing])(session)
    assert framework.get_variables_to_restore() == [kept, renamed, missing]
    assert framework.get_variables_to_restore(["kept", "new"], ["new"]) == [kept]


@pytest.mark.usefixtures("graph")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ["box/w", "box/b", "class/w"]),
        ({"include_patterns": ["box", "nothing"]}, ["box/w", "box/b"]),
        ({"exclude_patterns": ["/b$"]}, ["box/w", "class/w"]),
        ({"include_patterns": ["w"], "exclude_patterns": ["^class"]}, ["box/w"]),
        ({"include_patterns": ["w"], "reg_search": False}, []),
    ],
    ids=str,
)
def test_variables_are_filtered_by_their_names(arguments, expected):
    variables = [V1.get_variable(name, []) for name in ("box/w", "box/b", "class/w")]
    found = contrib.framework.filter_variables(variables, **arguments)
    assert [variable.op.name for variable in found] == expected


@pytest.mark.usefixtures("graph")
def test_summaries_are_written_at_some_steps(tmp_path):
    summary, step = contrib.summary, V1.train.create_global_step()
    writer = summary.create_file_writer(str(tmp_path))
    with writer.as_default():
        with summary.record_summaries_every_n_global_steps(2):
            summary.scalar("a", tf.constant([3.0]), family="f")
        with summary.always_record_summaries():
            summary.histogram("h", tf.constant([1.0, 2.0]))
            summary.image("i", tf.zeros([5, 2, 2, 1]), max_images=2)
            with tf.name_scope("scope"):
                summary.histogram("h", tf.constant([1.0, 2.0]), family="f")
            summary.audio("s", tf.zeros([2, 4, 1]), sample_rate=100, max_outputs=1)
        with summary.never_record_summaries():
            summary.scalar("never", 1.0)
    ops, close = summary.all_summary_ops(), writer.close()
    with V1.Session() as session:
        session.run([V1.global_variables_initializer(), writer.init()])
        for _ in range(4):
            session.run(ops)
            session.run(step.assign_add(1))
        session.run(close)
    (path,) = tmp_path.iterdir()
    steps, counts = {}, {}
    for event in V1.train.summary_iterator(str(path)):
        for value in event.summary.value:
            steps.setdefault(value.tag, []).append(event.step)
            counts[value.tag] = tf.make_ndarray(value.tensor).shape
    every = [0, 1, 2, 3]
    assert steps == {"f/f/a": [0, 2], "h": every, "i": every, "s": every, "f/scope/f/h": every}
    assert counts["f/f/a"] == ()
    assert counts["i"] == (2 + 2,)  # Width and height come first.
    assert counts["s"] == (1, 2)  # Each with a label.


def receive():
    x = V1.placeholder(tf.float32, [None], "x")
    return est.export.TensorServingInputReceiver(x, {"x": x})


@writes_texts
def test_an_experiment_exports_and_predictors_read_that(tmp_path):
    config = est.RunConfig(model_dir=str(tmp_path))
    learn, predictor = contrib.learn, contrib.predictor
    exports = [learn.make_export_strategy(receive, as_text=True), receive]
    experiment = learn.Experiment(
        est.Estimator(Model(), config=config),
        numbers(),
        numbers(2),
        train_steps=2,
        eval_delay_secs=0,
        export_strategies=exports,
    )
    experiment.train_and_evaluate()
    (text,) = (tmp_path / "export" / "Servo").glob("*/saved_model.pbtxt")
    (binary,) = (tmp_path / "export" / "export_1").glob("*/saved_model.pb")
    inputs = {"x": np.array([1.0, 2.0], "float32")}
    with predictor.from_estimator(experiment.estimator, receive) as predict:
        expected = predict(inputs)
    for path in (text, binary):
        with predictor.from_saved_model(str(path.parent)) as predict:
            found = predict(inputs)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value)
    with pytest.raises(NotImplementedError, match="takes `signature_def_key` and `config` here"):
        predictor.from_saved_model(str(binary.parent), tags=["serve"])
    with pytest.raises(NotImplementedError, match="from_estimator takes no `graph`"):
        predictor.from_estimator(experiment.estimator, receive, graph=tf.Graph())
