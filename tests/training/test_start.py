"""What a training leaves before its first step."""

import glob
import os

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

import estimator as est
from tests.conformance.cases import STRATEGIES
from tests.toy import Model, checkpoint_steps, numbers, weight_after

v1 = tf.compat.v1


class Notes(est.CheckpointSaverListener):
    """Keeps the calls that it gets."""

    def __init__(self, calls):
        self.calls = calls

    def begin(self):
        self.calls.append("begin of listener")

    def before_save(self, session, global_step_value):
        self.calls.append(("before_save", int(global_step_value)))

    def after_save(self, session, global_step_value):
        self.calls.append(("after_save", int(global_step_value)))
        return True  # Before the first step nobody can ask to stop.


class NotesOfHook(est.SessionRunHook):
    def __init__(self, calls):
        self.calls = calls

    def begin(self):
        self.calls.append("begin of hook")

    def after_create_session(self, session, coord):
        self.calls.append("after_create_session")


@pytest.mark.parametrize(
    ("strategy", "loop"),
    [("no_strategy", 1), ("one_device", 10), ("mirrored_x2", 10), ("central_storage_x2", 1)],
)
def test_the_start_is_saved_before_hooks_see_the_session(strategy, loop, tmp_path):
    calls = []
    config = est.RunConfig(iterations_per_loop=loop, **STRATEGIES[strategy])
    with est.Estimator(Model(), str(tmp_path), config) as model:
        model.train(
            numbers(), hooks=[NotesOfHook(calls)], max_steps=3, saving_listeners=[Notes(calls)]
        )
        assert calls[:5] == [
            "begin of listener",
            "begin of hook",
            ("before_save", 0),
            ("after_save", 0),
            "after_create_session",
        ]
        assert model.train_result.global_step == 3
        calls.clear()
        model.train(numbers(), max_steps=4, saving_listeners=[Notes(calls)])
        assert calls[1:] == [("before_save", 4), ("after_save", 4)]  # A resume starts from a save.
    assert checkpoint_steps(tmp_path) == [0, 3, 4]
    assert tf.train.load_variable(str(tmp_path / "model.ckpt-0"), "w") == 0


def test_a_warm_start_is_in_the_checkpoint_of_the_start(tmp_path):
    with est.Estimator(Model(), str(tmp_path / "old")) as old:
        old.train(numbers(), max_steps=5)
    old_dir, new_dir = str(tmp_path / "old"), str(tmp_path / "new")
    with est.Estimator(Model(), new_dir, warm_start_from=old_dir) as new:
        new.train(numbers(), max_steps=2)
    start = tf.train.load_variable(f"{new_dir}/model.ckpt-0", "w")
    assert start == weight_after([[i] for i in range(5)])


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"keep_checkpoint_max": 2, "save_checkpoints_steps": 2}, [2, 3]),
        ({"keep_checkpoint_max": 3, "save_checkpoints_steps": 2}, [0, 2, 3]),
        ({"save_checkpoints_secs": None}, [3]),
    ],
)
def test_the_start_counts_as_a_checkpoint_and_is_saved_if_others_are(fields, kept, tmp_path):
    with est.Estimator(Model(), str(tmp_path), est.RunConfig(**fields)) as model:
        model.train(numbers(), max_steps=3)
    assert checkpoint_steps(tmp_path) == kept
    assert (tmp_path / "graph.pbtxt").exists() == (0 in kept or 2 in kept)


@pytest.mark.parametrize("listeners", [[], [est.CheckpointSaverListener()]])
@pytest.mark.parametrize("is_async", [False, True])
def test_weights_that_are_not_finite_are_not_saved_as_a_start(is_async, listeners, tmp_path):
    def model_fn(features, mode):
        w = v1.get_variable("w", [], initializer=v1.constant_initializer(np.nan))
        step = v1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=w, train_op=step)

    with (
        est.Estimator(model_fn, str(tmp_path), est.RunConfig(async_checkpoints=is_async)) as model,
        pytest.raises(est.NanLossDuringTrainingError),
    ):
        model.train(numbers(), max_steps=3, saving_listeners=listeners)
    assert not glob.glob(f"{tmp_path}/*ckpt*")
    assert tf.train.latest_checkpoint(str(tmp_path)) is None


@pytest.mark.parametrize("nan_policy", ["raise", "ignore"])
def test_a_start_at_another_step_than_0_is_saved_as_that(nan_policy, tmp_path):
    def model_fn(features, labels, mode):
        start = v1.train.get_global_step().assign(7)
        scaffold = v1.train.Scaffold(init_fn=lambda scaffold, session: session.run(start))
        return Model()(features, labels, mode)._replace(scaffold=scaffold)

    with est.Estimator(model_fn, str(tmp_path), est.RunConfig(nan_policy=nan_policy)) as model:
        model.train(numbers(), max_steps=9)
    assert checkpoint_steps(tmp_path) == [7, 9]
    state = tf.train.get_checkpoint_state(str(tmp_path))
    names = [os.path.basename(path) for path in state.all_model_checkpoint_paths]
    assert names == ["model.ckpt-7", "model.ckpt-9"]
    assert not glob.glob(f"{tmp_path}/*ckpt-0*")


@pytest.mark.parametrize("is_wanted", [True, False])
def test_the_graph_is_written_as_text_if_graphs_are_wanted(is_wanted, tmp_path):
    graphs = []

    def model_fn(features, labels, mode):
        graphs.append(v1.get_default_graph())
        return Model()(features, labels, mode)

    config = est.RunConfig(checkpoint_save_graph_def=is_wanted)
    with est.Estimator(model_fn, str(tmp_path), config) as model:
        model.train(numbers(), max_steps=1)
    assert (tmp_path / "graph.pbtxt").exists() == is_wanted
    if is_wanted:
        graph = text_format.Parse((tmp_path / "graph.pbtxt").read_text(), v1.GraphDef())
        assert {node.name for node in graph.node} == {o.name for o in graphs[0].get_operations()}


def test_the_event_file_says_where_runs_begin_and_what_they_save(tmp_path):
    config = est.RunConfig(save_summary_steps=3, save_checkpoints_steps=4)
    for max_steps in (5, 7):
        with est.Estimator(Model(), str(tmp_path), config) as model:
            model.train(numbers(), max_steps=max_steps)
    found = []
    for path in sorted(glob.glob(str(tmp_path / "events*")), key=os.path.getmtime):
        for event in v1.train.summary_iterator(path):
            if event.HasField("session_log"):
                status = v1.SessionLog.SessionStatus.Name(event.session_log.status)
                found.append((status, event.step))
            found += [(value.tag, event.step) for value in event.summary.value]
    assert found == [
        *[("CHECKPOINT", 0), ("START", 1), ("loss", 1), ("loss", 3), ("CHECKPOINT", 4)],
        *[("CHECKPOINT", 5), ("START", 6), ("loss", 6), ("CHECKPOINT", 7)],
    ]
