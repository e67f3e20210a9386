"""Builds a graph under a strategy, and places and creates things in it."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.model.replicas import BUILD_LOCK
from estimator.program.program_graph import ProgramGraph
from estimator.runtime.local import Runtime


@contextlib.contextmanager
def building(
    runtime: Runtime,
    device_fn: Callable[[tf.Operation], str] | None = None,
    names: Mapping[str, int] | None = None,
) -> Iterator[tuple[tf.Graph, tf.Variable]]:
    """Makes a new graph the default, under a strategy, with a global step.

    `device_fn` returns the device of each op; None if there is none. `names` are those that ops of
    an input in another graph have taken.
    """
    runtime.start_eager_context()
    graph = ProgramGraph()
    _tf.take_names(graph, names or {})
    with (
        BUILD_LOCK,
        _no_garbage_collection(),
        _tf.tf_keras_classes_kept(),
        graph.as_default(),
        tf.compat.v1.device(device_fn),
        runtime.scope(),
        _tf.hashable_tensors(),
        _tf.variables_as_in_v1(),
        _optimizers_in_graphs(),
        _tf.keras_compares_values(),
        _tf.keras_loss_reductions_noted(),
        _tf.keras_variables_in_v1(),
        _tf.keras_names_as_in_tf_keras(graph),
        _tf.keras_constraints_shared(),
        _tf.tf_keras_updates_of_trained(),
        _losses_apart(graph, runtime),
        tf.variable_creator_scope(create_resource),
    ):
        tf.compat.v1.set_random_seed(runtime.config.tf_random_seed)
        with _tf.checkpoint_initializers_outside_loops(), _tf.tf_keras_names_by_thread():
            yield graph, tf.compat.v1.train.get_or_create_global_step()


@contextlib.contextmanager
def _optimizers_in_graphs() -> Iterator[None]:
    """Lets v1 and Keras optimizers run in graphs, in loops and on resource variables."""
    with (
        _tf.optimizers_as_in_v1(),
        _tf.non_slots_in_loops(),
        _tf.gradients_not_gated(),
        _tf.keras_optimizers_in_graphs(),
    ):
        yield


def _losses_apart(graph: tf.Graph, runtime: Runtime) -> contextlib.AbstractContextManager[None]:
    if runtime.num_replicas == 1:
        return contextlib.nullcontext()
    _tf.keep_losses_apart(graph)
    return _tf.layer_regularizers_by_replica()


@contextlib.contextmanager
def extending(graph: tf.Graph, device_fn: Callable[[tf.Operation], str] | None) -> Iterator[None]:
    """Gives what is added to a built graph the devices and resource variables of its build.

    `device_fn` is the function that the graph was built with.
    """
    with (
        graph.as_default(),
        tf.compat.v1.device(device_fn),
        _tf.variables_as_in_v1(),
        tf.variable_creator_scope(create_resource),
    ):
        yield


def create_resource(next_creator: Callable, **kwargs: Any) -> tf.Variable:
    """Creates a resource variable, also after `tf.compat.v1.disable_v2_behavior()`."""
    return next_creator(**{**kwargs, "use_resource": True})


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disables garbage collection inside the block.

    Building a graph creates very many objects that all stay alive, and every full collection over
    those of TensorFlow and the graph takes 0.15 s or more.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def primary(variable: tf.Variable) -> tf.Variable:
    """Returns the variable's copy on the first replica."""
    return _tf.copies(variable)[0]


def build_step_before(global_step: tf.Variable) -> tf.Tensor:
    """Builds the read of the global step before a session call, as stock hooks fetch it.

    Stock hooks add such an op if there is none, which would change the graph of an evaluation.
    """
    with tf.name_scope("global_step/"):
        step_before = primary(global_step).read_value() + 0
    tf.compat.v1.add_to_collection("global_step_read_op_cache", step_before)
    return step_before
