"""Assignments and reductions by replicas: without waiting for each other, and in branches."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import mirrored_run as _mirrored_run
from tensorflow.python.distribute import mirrored_strategy as _mirrored
from tensorflow.python.distribute import parameter_server_strategy as _ps
from tensorflow.python.distribute import ps_values as _ps_values
from tensorflow.python.distribute import values as _values

from estimator._tf.patches import Patch, patched, together
from estimator._tf.v1_branches import v1_branch_of

_STARTED_IN = "v1_branch_that_it_started_in"
_IS_ASSIGNED_ALONE = "_is_assigned_alone"


def replicas_apart(strategy: tf.distribute.Strategy, all_do_the_same: Callable[[], bool]) -> Patch:
    """Inside, replicas do not wait for each other to assign while `all_do_the_same()` is true.

    By default all replicas synchronize for each assignment, which is impossible in a branch.
    TensorFlow has a mode without that for XLA, and Keras's optimizers support it. With a
    MirroredStrategy, each replica then updates its own copies, and nothing is broadcast.

    `_use_merge_call` of the extended class and values.apply_aggregation_replica_context, 2.16 to
    2.21.

    Args:
      strategy: the strategy of the replicas.
      all_do_the_same: returns whether all replicas now assign the same values, on this thread.
    """
    extended = strategy.extended

    def merging(merges: Callable[[], bool]) -> Callable[[], bool]:
        return lambda: not all_do_the_same() and merges()

    def aggregating(broadcast: Callable) -> Callable:
        def aggregate(value: Any, *args: Any, **kwargs: Any) -> Any:
            return value if all_do_the_same() else broadcast(value, *args, **kwargs)

        return aggregate

    own: Patch
    if isinstance(extended, _mirrored.MirroredExtended):
        own = patched(_values, "apply_aggregation_replica_context", aggregating)
    elif isinstance(extended, _ps.ParameterServerStrategyExtended):
        own = first_replica_updates(extended, all_do_the_same)
    else:
        return contextlib.nullcontext()
    return together([patched(extended, "_use_merge_call", merging), own])


def first_replica_updates(extended: Any, all_do_the_same: Callable[[], bool]) -> Patch:
    """Inside, only the first replica assigns shared variables while `all_do_the_same()` is true.

    By default the values of all replicas are reduced as the variable's `aggregation` says, which
    Keras does not set for an optimizer's state. The replicas still meet, unless this is used
    beside a patch of `_use_merge_call`.

    `_replica_ctx_update` of the extended class, and `_assign_func` of AggregatingVariable, 2.16 to
    2.21.
    """

    def updating(update: Callable) -> Callable:
        def replica_update(
            var: Any, fn: Callable, args: Any = (), kwargs: Any = None, group: bool = True
        ) -> Any:
            if not all_do_the_same():
                return update(var, fn, args, kwargs, group)
            if not _is_first_replica():
                return tf.no_op()
            return extended._update(var, fn, args, kwargs or {}, group)

        return replica_update

    def assigning(assign: Callable) -> Callable:
        def replica_assign(self: Any, *args: Any, **kwargs: Any) -> Any:
            if tf.distribute.in_cross_replica_context() or not all_do_the_same():
                return assign(self, *args, **kwargs)
            if not _is_first_replica():
                return self._v.read_value()
            return kwargs.pop("f")(self._v, *args, **kwargs)

        return replica_assign

    return together(
        [
            patched(extended, "_replica_ctx_update", updating),
            patched(_ps_values.AggregatingVariable, "_assign_func", assigning),
        ]
    )


def own_copies_noted(all_do_the_same: Callable[[], bool]) -> Patch:
    """Inside, variables of which each replica assigns a copy of its own are noted.

    These are those of aggregation NONE, as `tf.Variable` and `get_variable` make them, that
    `model_fn` itself assigns. values._on_write_update_replica 2.16 to 2.21.

    Args:
      all_do_the_same: returns whether all replicas now assign the same values, on this thread, as
        in an optimizer of Keras.
    """

    def make(assign: Callable) -> Callable:
        @functools.wraps(assign)
        def noting(variable: Any, *args: Any, **kwargs: Any) -> Any:
            is_alone = variable.aggregation == tf.VariableAggregation.NONE
            if is_alone and not all_do_the_same():
                vars(variable)[_IS_ASSIGNED_ALONE] = True
            return assign(variable, *args, **kwargs)

        return noting

    return patched(_values, "_on_write_update_replica", make)


def keeps_own_copies(variable: tf.Variable) -> bool:
    """Returns whether the copies of a variable may differ, as each replica updates its own."""
    is_on_read = variable.synchronization == tf.VariableSynchronization.ON_READ
    return is_on_read or _IS_ASSIGNED_ALONE in vars(variable)


def synchronization_in_branches_explained() -> Patch:
    """Inside, an assignment or a reduction that replicas do in a branch raises a clear error.

    TensorFlow's error is about a `merge_call`, or, in a branch of v1, about another tensor, as it
    lets the replicas meet in the branch of one. `graph` and the constructor of a replica's thread,
    _MirroredReplicaContext._merge_call, values._on_write_update_replica and
    AggregatingVariable._assign_func, 2.16 to 2.21.
    """
    return together(
        [
            patched(_mirrored_run._MirroredReplicaThread, "__init__", _noting_branch),
            patched(_mirrored_run._MirroredReplicaContext, "_merge_call", _outside_of_branches),
            patched(_values, "_on_write_update_replica", _explained),
            patched(_ps_values.AggregatingVariable, "_assign_func", _explained),
        ]
    )


def _outside_of_branches(merge_call: Callable) -> Callable:
    def checked(*args: Any, **kwargs: Any) -> Any:
        if _is_in_branch():
            raise RuntimeError(
                "Replicas cannot meet in a branch, a loop or a tf.function of `model_fn`, as they "
                "do to reduce gradients. Call `apply_gradients` or `all_reduce` outside of it, or "
                "use one replica (`num_replicas=1`). To apply the gradients of several batches at "
                "once, use CrossShardOptimizer(optimizer, accumulate_steps=...)."
            )
        return merge_call(*args, **kwargs)

    return checked


def _is_in_branch() -> bool:
    """Returns whether a replica's thread is building a branch, a loop or a tf.function.

    All replicas may be in one, as in the apply method of a loss-scaling optimizer: they meet there.
    """
    graph, replica = tf.compat.v1.get_default_graph(), threading.current_thread()
    is_in_function = getattr(replica, "graph", None) not in (None, graph)
    return is_in_function or v1_branch_of(graph) is not vars(replica).get(_STARTED_IN)


def _noting_branch(start: Callable) -> Callable:
    """Has a replica's thread note the branch of v1 control flow that it starts in."""

    @functools.wraps(start)
    def noted(thread: Any, *args: Any, **kwargs: Any) -> None:
        start(thread, *args, **kwargs)
        vars(thread)[_STARTED_IN] = v1_branch_of(tf.compat.v1.get_default_graph())

    return noted


def _explained(assign: Callable) -> Callable:
    @functools.wraps(assign)
    def explained(variable: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return assign(variable, *args, **kwargs)
        except RuntimeError as error:
            if not _is_in_branch():
                raise
            raise ValueError(
                f"The variable {variable.name.partition(':')[0]!r} is assigned in a branch, a loop "
                "or a tf.function, where replicas cannot meet to reduce what each assigns. Assign "
                'outside of it, use one replica (`num_replicas=1`), or use `strategy="mirrored"` '
                'and make the variable with `aggregation="none"`, so that each replica updates a '
                "copy of its own."
            ) from error

    return explained


def _is_first_replica() -> bool:
    return tf.distribute.get_replica_context()._replica_id_in_sync_group == 0
