"""Checks of `_tf`: checkpoints, hooks, sessions, summaries, SyncReplicasOptimizer."""

import collections
import os
import pathlib
import tempfile
import threading

import numpy as np
import pytest
import tensorflow as tf

from estimator import _tf
from estimator._tf import session as _session
from estimator.runtime.local import count_gpus
from tests._tf.canary.rows import V1, checks, in_loop

# --- checkpoint.py ------------------------------------------------------------------------------


@checks("slice_of")
def a_part_of_a_partitioned_variable_knows_its_place():
    with tf.Graph().as_default():
        parts = V1.get_variable("v", [4], partitioner=V1.fixed_size_partitioner(2))
        _, second = parts
        slice_ = _tf.slice_of(second)
        assert (slice_.full_name, slice_.full_shape, slice_.var_offset) == ("v", [4], [2])
        assert _tf.slice_of(tf.Variable(1.0)) is None


def save(folder):
    """A checkpoint of `tf.train.Checkpoint` and one of a Saver, with "w" of 3."""
    with tf.Graph().as_default(), V1.Session() as session:
        variable = V1.get_variable("w", initializer=3.0)
        session.run(variable.initializer)
        objects = tf.train.Checkpoint(v=variable).save(f"{folder}/objects")
        return objects, V1.train.Saver([variable]).save(session, f"{folder}/names")


@checks("object_graph_keys")
def the_keys_of_variables_are_read_off_a_checkpoint():
    with tempfile.TemporaryDirectory() as folder:
        path, _ = save(folder)
        reader = tf.train.load_checkpoint(path)
        keys = _tf.object_graph_keys(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
        assert [reader.get_tensor(key) for key in keys["w"]] == [3]


@checks("ConstantSaveable")
def a_saver_writes_a_string():
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default() as graph:
        saver = V1.train.Saver({"s": _tf.ConstantSaveable("s", b"one")})
        with V1.Session(graph=graph) as session:
            path = saver.save(session, f"{folder}/saved")
            assert tf.train.load_checkpoint(path).get_tensor("s") == b"one"
            saver.restore(session, path)


@checks("object_saveables")
def a_saver_saves_what_a_checkpoint_object_has():
    with tf.Graph().as_default():
        saveables = _tf.object_saveables(tf.train.Checkpoint(v=V1.get_variable("w", [])))
        names = {spec.name for saveable in saveables for spec in saveable.specs}
        assert names == {"v/.ATTRIBUTES/VARIABLE_VALUE", "_CHECKPOINTABLE_OBJECT_GRAPH"}
        V1.train.Saver(saveables)


@checks("initializer_before_checkpoint")
@checks("checkpoint_initializers_outside_loops")
def an_initializer_from_a_checkpoint_is_made_around_the_loop():
    with tempfile.TemporaryDirectory() as folder:
        _, path = save(folder)

        befores = []

        def initialize(count):
            with tf.init_scope():
                variable = V1.get_variable("w", [], initializer=V1.ones_initializer())
            with _tf.checkpoint_initializers_outside_loops():
                V1.train.init_from_checkpoint(path, {"w": variable})
            befores.append(_tf.initializer_before_checkpoint(variable))
            return variable

        variable, graph = in_loop(initialize)
        with V1.Session(graph=graph) as session:
            session.run(variable.initializer)
            assert session.run(variable) == 3
            session.run(befores)
            assert session.run(variable) == 1


@checks("savers_apart")
def a_saver_that_is_made_in_a_loop_is_around_it():
    def make_saver(count):
        with tf.init_scope():
            variable = V1.get_variable("w", [])
        with _tf.savers_apart() as ops:
            saver = V1.train.Saver([variable])
        return ops, saver.saver_def.restore_op_name

    (ops, name), graph = in_loop(make_saver)
    assert graph.get_operation_by_name(name) in ops


@checks("meta_graphs_refused")
def a_meta_graph_is_refused_in_one_graph_only():
    with tf.Graph().as_default():
        V1.get_variable("w", [])
        meta = V1.train.export_meta_graph()
    with tf.Graph().as_default() as graph, _tf.meta_graphs_refused(graph, ValueError("no")):
        with pytest.raises(ValueError, match="no"):
            V1.train.import_meta_graph(meta)
        with tf.Graph().as_default():
            V1.train.import_meta_graph(meta)


# --- hooks.py -----------------------------------------------------------------------------------

HOOKS = V1.train


@checks("logging_hook_tensors")
def a_logging_hook_has_its_tensors():
    assert _tf.logging_hook_tensors(HOOKS.LoggingTensorHook({"a": "b:0"}, 1)) == {"a": "b:0"}


@checks("replace_logging_hook_tensors")
def a_logging_hook_fetches_what_it_is_pointed_at():
    with tf.Graph().as_default():
        hook, other = HOOKS.LoggingTensorHook({"a": "b:0"}, 1), tf.constant(2)
        _tf.replace_logging_hook_tensors(hook, {"a": other})
        hook.begin()
        assert hook.before_run(None).fetches == {"a": other}
        hook = HOOKS.LoggingTensorHook([tf.constant(1, name="one"), other], 1)
        _tf.replace_logging_hook_tensors(hook, {str(other): tf.constant(3)})
        assert all(isinstance(tag, str) for tag in hook._tag_order)
        assert "one" in hook._tag_order[0]
        assert list(hook._tensors) == list(hook._tag_order)


@checks("tell_steps_so_far")
def a_logging_hook_counts_steps_instead_of_calls():
    with tf.Graph().as_default():
        hook = HOOKS.LoggingTensorHook({"a": tf.constant(2)}, every_n_iter=10)
        hook.begin()
        asked = []
        for steps in (0, 5, 10):
            _tf.tell_steps_so_far(hook, steps)
            asked.append(hook.before_run(None) is not None)
            hook._timer.update_last_triggered_step(steps) if asked[-1] else None
        assert asked == [True, False, True]


def summary_hook(op=None):
    return HOOKS.SummarySaverHook(save_steps=1, output_dir="/nowhere", summary_op=op)


@checks("summary_tensors")
def a_summary_hook_has_its_tensors():
    with tf.Graph().as_default():
        op = V1.summary.scalar("a", 1.0)
        assert _tf.summary_tensors(summary_hook(op)) == [op]


@checks("set_summary_tensors")
def a_summary_hook_fetches_what_it_is_pointed_at():
    with tf.Graph().as_default():
        hook, other = summary_hook(V1.summary.scalar("a", 1.0)), V1.summary.scalar("b", 1.0)
        _tf.set_summary_tensors(hook, [other])
        assert _tf.summary_tensors(hook) == [other]


@checks("forget_request")
def a_summary_hook_forgets_that_it_asked():
    hook = summary_hook(tf.constant(""))
    hook._request_summary = True
    _tf.forget_request(hook)
    assert hook._request_summary is False


@checks("final_ops")
def a_final_ops_hook_has_its_ops():
    assert _tf.final_ops(HOOKS.FinalOpsHook({"a": "b:0"})) == {"a": "b:0"}


@checks("last_step_of")
def a_hook_that_stops_knows_the_step():
    assert _tf.last_step_of(HOOKS.StopAtStepHook(last_step=7)) == 7
    assert _tf.last_step_of(HOOKS.StopAtStepHook(num_steps=7)) is None


@checks("planned_stop")
def a_hook_that_stops_knows_its_argument():
    assert _tf.planned_stop(HOOKS.StopAtStepHook(last_step=7)) == "last_step=7"
    assert _tf.planned_stop(HOOKS.StopAtStepHook(num_steps=7)) == "num_steps=7"


@checks("stops_at_last_step")
def a_hook_that_stops_may_have_its_own_after_run():
    class Own(HOOKS.StopAtStepHook):
        def after_run(self, run_context, run_values):
            pass

    assert _tf.stops_at_last_step(HOOKS.StopAtStepHook(last_step=7))
    assert not _tf.stops_at_last_step(Own(last_step=7))


@checks("set_steps_per_run")
def a_step_counter_is_told_how_many_steps_a_call_has():
    with tf.Graph().as_default():
        V1.train.create_global_step()
        hook = HOOKS.StepCounterHook(every_n_steps=10, output_dir="/nowhere")
        _tf.set_steps_per_run(hook, 5)
        assert hook._steps_per_run == 5


@checks("step_timer")
def a_hook_tells_its_interval_and_when_it_last_acted():
    hook = HOOKS.LoggingTensorHook({"a": "b:0"}, every_n_iter=3)
    hook._timer.update_last_triggered_step(6)
    assert _tf.step_timer(hook) == (3, 6)
    assert _tf.step_timer(HOOKS.FinalOpsHook([])) is None


@checks("tell_next_step")
def a_summary_hook_is_told_the_next_step():
    hook = summary_hook(tf.constant(""))
    hook._next_step = 4
    _tf.tell_next_step(hook, 9)
    assert hook._next_step == 9


@checks("listeners_of")
def a_saver_hook_has_its_listeners():
    listener = HOOKS.CheckpointSaverListener()
    hook = HOOKS.CheckpointSaverHook("/nowhere", save_steps=1, listeners=[listener])
    assert list(_tf.listeners_of(hook)) == [listener]


@checks("listening")
def a_saver_hook_has_more_listeners_for_a_while():
    own, first, last = (HOOKS.CheckpointSaverListener() for _ in range(3))
    hook = HOOKS.CheckpointSaverHook("/nowhere", save_steps=1, listeners=[own])
    with _tf.listening(hook, [first], [last]):
        assert list(_tf.listeners_of(hook)) == [first, own, last]
    assert list(_tf.listeners_of(hook)) == [own]


# --- session.py ---------------------------------------------------------------------------------


@checks("make_callable")
def a_callable_feeds_and_fetches():
    with tf.Graph().as_default(), V1.Session() as session:
        feed = V1.placeholder(tf.float32, [])
        call = _tf.make_callable(session, [feed * 2, tf.no_op(), feed * 3], [feed])
        assert call(np.float32(1)) == [2, None, 3]


@checks("settings_of_tf_config")
def what_tf_config_sets_is_in_the_config_of_a_session():
    settings = _tf.settings_of_tf_config()
    assert settings.device_count["CPU"] == 1
    assert settings.device_count["GPU"] == count_gpus()
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    assert settings.intra_op_parallelism_threads == threads


@checks("open_session")
def a_session_is_opened():
    with tf.Graph().as_default() as graph:
        with _tf.open_session("", graph, V1.ConfigProto(), wait=None) as session:
            w = V1.get_variable("w", [], initializer=V1.ones_initializer(), use_resource=True)
            session.run(w.initializer)
            assert session.run(["w:0", {"w": w.handle}]) == [1, {"w": 1}]
            V1.get_variable("v", initializer=2.0, use_resource=True)
            session.run(V1.global_variables_initializer())
            assert session.run(graph.get_tensor_by_name("v:0")) == 2
            assert session.run(["v/read:0", "w/read:0"]) == [2, 1]
        with _tf.open_session("", graph, V1.ConfigProto(), threading.Event.wait) as session:
            assert session.run(tf.constant(3)) == 3


@checks("FunctionSession")
def a_saver_saves_and_restores_in_calls_of_a_function():
    with tf.Graph().as_default() as graph, V1.Session() as session:
        w = V1.get_variable("w", [], initializer=V1.ones_initializer())
        saver, fetched = V1.train.Saver([w]), []

        def run(fetch, feeds):
            fetched.extend([fetch.op.type] if isinstance(fetch, tf.Tensor) else [])
            return session.run(fetch, feeds)

        by_function = _tf.FunctionSession(graph, run)
        assert by_function.graph is graph
        by_function.run(w.initializer)
        with tempfile.TemporaryDirectory() as folder:
            path = saver.save(by_function, f"{folder}/w", write_meta_graph=False)
            session.run(w.assign(5.0))
            saver.restore(by_function, path)
        assert session.run(w) == 1
        assert fetched == ["Identity"]


@checks("map_fetches")
def fetches_have_a_sessions_structures():
    with tf.Graph().as_default():
        a, b = tf.constant(1), tf.constant(2)
    point = collections.namedtuple("point", "x y")
    fetches = {b: a, a: point([b], (a, None))}  # Tensors have no order.
    named = _tf.map_fetches(lambda one: None if one is None else one.op.name, fetches)
    assert named == {b: a.op.name, a: point([b.op.name], (a.op.name, None))}


@checks("MappedSession")
def a_session_runs_and_feeds_copies():
    with tf.Graph().as_default() as graph, _tf.MappedSession(graph=graph) as session:
        w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
        asked, copy = V1.placeholder(tf.float32, []), V1.placeholder(tf.float32, [])
        assigned, assigned_copy = w.assign(asked), w.assign(copy)
        copies = {asked.op: copy, assigned.op: assigned_copy.op}
        session.run(w.initializer)
        seen = []

        def copies_for(fetched, fed):
            seen[:] = fetched, fed
            return lambda one: copies.get(one.op if one is asked else one, one)

        session.copies_for = copies_for
        session.run({"done": assigned.op}, {asked: 5.0})
        assert seen == [[assigned.op], [asked]]
        value = w.value()
        found, _ = session.run([tf.SparseTensor([[0]], [value], [1]), value.op.name])
        assert (found.values, len(seen[0]), seen[0][-1]) == (5, 4, value.op)
        assert session.run((w, [w + 1.0])) == (5, [6])
        with tempfile.TemporaryDirectory() as folder:
            saver = V1.train.Saver([w])
            path = saver.save(session, f"{folder}/w", write_meta_graph=False)
            session.run(w.initializer)
            saver.restore(session, path)
        assert session.run(w) == 5


class GoneError(Exception):
    pass


@checks("InterruptibleSession")
def a_session_is_given_up():
    def wait(is_done):
        if is_over:
            raise GoneError
        is_done.wait()

    is_over = []
    with tf.Graph().as_default() as graph:
        session = _tf.InterruptibleSession("", graph, V1.ConfigProto(), wait)
        assert session.run(tf.constant(3)) == 3
        feed = V1.placeholder(tf.float32, [])
        call = _tf.make_callable(session, [feed * 2], [feed])
        assert call(np.float32(1)) == [2]
        is_over.append(True)
        with pytest.raises(GoneError):
            call(np.float32(1))
        assert session._closed
        session.close()


@checks("set_scaffold_parts")
def a_scaffold_has_its_parts_without_being_finalized():
    with tf.Graph().as_default():
        op, scaffold = tf.no_op(), V1.train.Scaffold()
        _tf.set_scaffold_parts(scaffold, {"init_op": op})
        assert scaffold.init_op is op


@checks("stopped_at_exit")
def a_thread_is_noted_while_it_is_inside():
    with _tf.stopped_at_exit():
        assert threading.current_thread() in _session._threads_to_stop
    assert threading.current_thread() not in _session._threads_to_stop


# --- summary.py ---------------------------------------------------------------------------------


@checks("file_writer")
def the_cache_has_the_writer():
    with tempfile.TemporaryDirectory() as folder:
        writer = _tf.file_writer(folder)
        with tf.Graph().as_default():
            assert V1.summary.FileWriterCache.get(folder) is writer
        assert _tf.file_writer(folder) is writer
        _tf.close_file_writer(folder)


@checks("unique_event_files")
def a_writer_of_the_cache_has_a_file_of_its_own():
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default():
        for _ in range(2):
            with _tf.unique_event_files():
                V1.summary.FileWriterCache.get(folder)
            _tf.close_file_writer(folder)
        assert len(os.listdir(folder)) == 2


@checks("writer_initializers")
def the_op_that_opens_a_file_writer_takes_it():
    with tf.Graph().as_default() as graph, tempfile.TemporaryDirectory() as folder:
        writer = tf.summary.create_file_writer(folder)
        (initializer,) = _tf.writer_initializers(graph)
        assert initializer is writer.init()
        assert initializer.inputs[0].dtype == tf.resource


@checks("build_flush_of_writers")
def what_a_writer_holds_back_is_written():
    with tf.Graph().as_default() as graph, tempfile.TemporaryDirectory() as folder:
        with tf.summary.create_file_writer(folder).as_default(step=0):
            write = tf.summary.scalar("a", 1.0)
        flush = _tf.build_flush_of_writers(graph)
        with V1.Session() as session:
            session.run(_tf.writer_initializers(graph))
            session.run(write)
            (file,) = pathlib.Path(folder).iterdir()
            before = file.stat().st_size
            session.run(flush)
            assert file.stat().st_size > before
        assert _tf.build_flush_of_writers(tf.Graph()) is None


@checks("close_file_writer")
def the_cache_forgets_the_writer():
    with tempfile.TemporaryDirectory() as folder:
        writer = _tf.file_writer(folder)
        _tf.close_file_writer(folder)
        assert _tf.file_writer(folder) is not writer
        _tf.close_file_writer(folder)


@checks("is_file_writer_lost")
def the_writer_knows_its_file():
    with tempfile.TemporaryDirectory() as folder:
        assert not _tf.is_file_writer_lost(folder)
        _tf.file_writer(folder)
        assert not _tf.is_file_writer_lost(folder)
        (file,) = pathlib.Path(folder).iterdir()
        file.unlink()
        assert _tf.is_file_writer_lost(folder)
        _tf.close_file_writer(folder)


@checks("summary_ops_replaced")
def a_summary_calls_what_is_replaced():
    summaries = (
        lambda: V1.summary.scalar("a", 1.0),
        lambda: V1.summary.histogram("a", [1.0]),
        lambda: V1.summary.image("a", tf.zeros([1, 2, 2, 1])),
        lambda: V1.summary.audio("a", tf.zeros([1, 2, 1]), 1),
        lambda: V1.summary.text("a", tf.constant("")),
        lambda: V1.summary.tensor_summary("a", tf.constant(1)),
        lambda: V1.summary.merge([tf.constant("")]),
    )
    with (
        tf.Graph().as_default(),
        _tf.summary_ops_replaced(lambda original, *args, **kwargs: "replaced"),
    ):
        assert {summary() for summary in summaries} == {"replaced"}


# --- sync_replicas.py ---------------------------------------------------------------------------


def sync_optimizer():
    return V1.train.SyncReplicasOptimizer(V1.train.GradientDescentOptimizer(0.5), 1)


@checks("sync_replicas_refused")
def a_sync_replicas_optimizer_is_refused():
    with (
        tf.Graph().as_default(),
        _tf.sync_replicas_refused("no"),
        pytest.raises(ValueError, match="no"),
    ):
        sync_optimizer().apply_gradients([])


@checks("sync_replicas_in_line")
def a_sync_replicas_optimizer_applies_in_line():
    with tf.Graph().as_default(), V1.Session() as session:
        variable, step = tf.Variable(1.0), V1.train.create_global_step()
        optimizer = sync_optimizer()
        with _tf.sync_replicas_in_line():
            op = optimizer.apply_gradients([(tf.constant(1.0), variable)], step)
        optimizer.make_session_run_hook(is_chief=True).begin()
        session.run(V1.global_variables_initializer())
        session.run(op)
        assert session.run([variable, step]) == [0.5, 1]
