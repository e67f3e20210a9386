"""Every patch of TensorFlow and Keras is undone, whoever entered it how often (patches.md)."""

import ast
import contextlib
import functools
import gc
import pathlib
import queue
import random
import threading
import types

import keras
import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from estimator import _tf
from estimator._tf import patches, replica_updates
from estimator._tf.patches import patched
from estimator.model.replicas import BUILD_LOCK
from estimator.program.graph_scope import building
from estimator.randomness.seed import python_seed
from estimator.runtime.strategy import make_runtime
from tests._tf.canary.strategies import multi_worker

GRAPH = tf.Graph()
with GRAPH.as_default():
    BODY = tf.__internal__.FuncGraph("body")
HOOK = tf.compat.v1.train.CheckpointSaverHook("/nowhere", save_steps=1)


@functools.cache
def mirrored():
    return tf.distribute.MirroredStrategy(["/cpu:0"])


@functools.cache
def central():
    return tf.distribute.experimental.CentralStorageStrategy(["/cpu:0"])


@functools.cache
def workers():
    with tf.Graph().as_default():
        return multi_worker()


@functools.cache
def keras_model():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def patches_in_force():
    """The owners and names of all attributes that are replaced now."""
    return [(attribute.owner, attribute.name) for attribute in patches._patched.values()]


def unused(*args, **kwargs):
    raise AssertionError("a patch called it, but nothing was built")


@contextlib.contextmanager
def ops_of_datasets_in_graph():
    with GRAPH.as_default(), _tf.ops_of_datasets_in("input"):
        yield


@contextlib.contextmanager
def components_replaced_in_graph():
    with GRAPH.as_default(), _tf.components_replaced(unused):
        yield


@contextlib.contextmanager
def after_disable_v2_behavior(patch):
    """With v1's variables and control flow, as after `tf.compat.v1.disable_v2_behavior()`."""
    tf.compat.v1.disable_resource_variables()
    tf.compat.v1.disable_control_flow_v2()
    try:
        with patch():
            yield
    finally:
        tf.compat.v1.enable_resource_variables()
        tf.compat.v1.enable_control_flow_v2()


# By name, the context manager of each patch.
PATCHES = {
    "branches_noted": lambda: _tf.branches_noted(unused),
    "checkpoint_initializers_outside_loops": _tf.checkpoint_initializers_outside_loops,
    "clones_uncompiled": lambda: _tf.clones_uncompiled(keras_model()),
    "collectives_in_sessions": _tf.collectives_in_sessions,
    "components_replaced": components_replaced_in_graph,
    "first_replica_updates": lambda: replica_updates.first_replica_updates(
        central().extended, unused
    ),
    "replicas_apart": lambda: replica_updates.replicas_apart(mirrored(), unused),
    "gradients_not_gated": _tf.gradients_not_gated,
    "hashable_tensors": _tf.hashable_tensors,
    "initializers_without_broadcast": lambda: _tf.initializers_without_broadcast(workers()),
    "keras_additions_in_one_op": _tf.keras_additions_in_one_op,
    "keras_compares_values": _tf.keras_compares_values,
    "keras_constraints_shared": _tf.keras_constraints_shared,
    "keras_control_flow_v2": _tf.keras_control_flow_v2,
    "keras_loss_reductions_noted": _tf.keras_loss_reductions_noted,
    "keras_names_as_in_tf_keras": lambda: _tf.keras_names_as_in_tf_keras(tf.Graph()),
    "keras_optimizers_in_graphs": _tf.keras_optimizers_in_graphs,
    "keras_sums_over_replicas": lambda: _tf.keras_sums_over_replicas(2),
    "keras_variables_in_v1": _tf.keras_variables_in_v1,
    "keras_seeds_replaced": lambda: _tf.keras_seeds_replaced(unused),
    "layer_regularizers_by_replica": _tf.layer_regularizers_by_replica,
    "listening": lambda: _tf.listening(HOOK, [tf.compat.v1.train.CheckpointSaverListener()], []),
    "mean_gradients": lambda: _tf.mean_gradients(mirrored()),
    "meta_graphs_refused": lambda: _tf.meta_graphs_refused(GRAPH, ValueError()),
    "name_scopes_in_branches": lambda: after_disable_v2_behavior(_tf.name_scopes_in_branches),
    "names_shared": lambda: _tf.names_shared(BODY),
    "non_slots_in_loops": _tf.non_slots_in_loops,
    "optimizers_as_in_v1": lambda: after_disable_v2_behavior(_tf.optimizers_as_in_v1),
    "noting_waits": lambda: _tf.noting_waits(GRAPH),
    "ops_of_datasets_in": ops_of_datasets_in_graph,
    "own_copies_noted": lambda: replica_updates.own_copies_noted(unused),
    "random_ops_replaced": lambda: _tf.random_ops_replaced(unused, ["random_uniform"]),
    "savers_apart": _tf.savers_apart,
    "piggyback_slots": lambda: _tf.piggyback_slots(2),
    "summary_ops_replaced": lambda: _tf.summary_ops_replaced(unused),
    "sync_replicas_in_line": _tf.sync_replicas_in_line,
    "sync_replicas_refused": lambda: _tf.sync_replicas_refused("no"),
    "synchronization_in_branches_explained": replica_updates.synchronization_in_branches_explained,
    "tf_keras_classes_kept": _tf.tf_keras_classes_kept,
    "tf_keras_constants_in_graph": _tf.tf_keras_constants_in_graph,
    "tf_keras_means_over_replicas": lambda: _tf.tf_keras_means_over_replicas(2),
    "tf_keras_names_by_thread": _tf.tf_keras_names_by_thread,
    "tf_keras_updates_of_trained": _tf.tf_keras_updates_of_trained,
    "unique_event_files": _tf.unique_event_files,
    "unscaled_keras_losses": lambda: _tf.unscaled_keras_losses(mirrored()),
    "variables_as_in_v1": lambda: after_disable_v2_behavior(_tf.variables_as_in_v1),
}
ABSENT = object()


class SomeError(Exception):
    pass


def values(places):
    # Not `getattr` alone, which does not tell what an owner inherits. A graph hides its attributes.
    return [
        vars(owner).get(name, ABSENT) if hasattr(owner, "__dict__") else getattr(owner, name)
        for owner, name in places
    ]


@pytest.fixture(params=PATCHES)
def patch(request):
    """The patch, the attributes that it replaces, and what they are; they are that at the end."""
    patch = PATCHES[request.param]
    with patch():
        places = patches_in_force()
        inside = values(places)
    assert places
    outside = values(places)
    assert all(new != old for new, old in zip(inside, outside, strict=True))
    yield patch, places
    assert patches_in_force() == []
    assert values(places) == outside


def test_a_patch_is_undone_after_an_error(patch):
    enter, places = patch
    with contextlib.suppress(SomeError), enter():
        assert patches_in_force() == places
        raise SomeError


def test_a_patch_holds_until_the_outermost_block_ends(patch):
    enter, places = patch
    with enter():
        with contextlib.suppress(SomeError), enter():
            raise SomeError
        assert patches_in_force() == places


def test_a_patch_holds_until_the_last_of_two_threads_has_left(patch):
    enter, places = patch
    entered, leave = threading.Event(), threading.Event()

    def first():
        with enter():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait()
    with enter():
        leave.set()
        thread.join()  # The first to enter is the first to leave.
        assert patches_in_force() == places


def test_each_patch_has_a_row_in_this_table_and_in_the_docs():
    folder = pathlib.Path(_tf.__file__).parent
    found = {
        function.name
        for path in folder.glob("*.py")
        for function in ast.parse(path.read_text()).body
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "patched"
    }
    # One returns before its caller goes on, and one is for old programs, with tests in
    # tests/compat.
    others = {"make_multi_worker_mirrored", "supplied"}
    assert found == {*PATCHES, *others}
    page = (folder.parents[1] / "docs" / "decisions" / "patches.md").read_text()
    assert [name for name in found if f"`{name}`" not in page] == []


class Owner:
    def method(self):
        return "method"

    @classmethod
    def class_method(cls):
        return cls.__name__


def test_replacements_of_one_attribute_are_inside_each_other_and_leave_in_any_order():
    def add(letter):
        return patched(Owner, "method", lambda original: lambda self: original(self) + letter)

    original, first, second, third = Owner.method, add("1"), add("2"), add("3")
    for block in (first, second, third):
        block.__enter__()
    assert Owner().method() == "method123"
    second.__exit__(None, None, None)
    assert Owner().method() == "method13"
    first.__exit__(None, None, None)
    assert Owner().method() == "method3"
    third.__exit__(None, None, None)
    assert Owner.method is original


def test_an_attribute_goes_back_as_what_it_was():
    owner = Owner()
    with patched(owner, "method", lambda original: lambda: "of the object"):
        assert owner.method() == "of the object"
    assert vars(owner) == {}
    before = vars(Owner)["class_method"]
    with patched(Owner, "class_method", lambda original: lambda: f"not {original()}"):
        assert Owner.class_method() == "not Owner"
    assert vars(Owner)["class_method"] is before
    assert isinstance(before, classmethod)


def test_a_replacement_that_cannot_be_made_changes_nothing():
    def fail(original):
        raise SomeError

    owner = types.SimpleNamespace(value=1)
    with patched(owner, "value", lambda value: value + 1):
        with pytest.raises(SomeError), patched(owner, "value", fail):
            pass
        assert owner.value == 2
    with pytest.raises(AttributeError), patched(owner, "no_such_name", fail):
        pass
    assert (owner.value, patches_in_force()) == (1, [])


# --- State of the process that is no attribute: only builds change it, one at a time -------------


def keras_policies():
    return [library.mixed_precision.global_policy().name for library in (tf.keras, tf_keras)]


@pytest.mark.parametrize(
    ("block", "state"),
    [
        (lambda: _tf.keras_policy("mixed_bfloat16"), keras_policies),
        (lambda: python_seed(7), random.getstate),
    ],
    ids=["keras_policy", "python_seed"],
)
def test_state_that_builds_change_is_restored_after_an_error_and_when_nested(block, state):
    before = state()
    with contextlib.suppress(SomeError), block():
        assert state() != before
        within = state()
        with block():
            pass
        assert state() == within
        raise SomeError
    assert state() == before


def test_one_build_at_a_time_changes_the_process():
    answers = queue.SimpleQueue()
    with building(make_runtime(est.RunConfig(), est.ModeKeys.TRAIN)):
        assert not gc.isenabled()
        thread = threading.Thread(target=lambda: answers.put(BUILD_LOCK.acquire(blocking=False)))
        thread.start()
        thread.join()
    assert answers.get() is False
    assert gc.isenabled()
