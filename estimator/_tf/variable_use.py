"""Finds the variables that an op reads and writes, also inside functions that it runs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps_utils as _control_deps
from tensorflow.python.framework import func_graph as _func_graph
from tensorflow.python.framework import op_def_registry as _op_defs
from tensorflow.python.ops import control_flow_util as _control_flow
from tensorflow.python.ops import control_flow_v2_func_graphs as _func_graphs

from estimator._tf.callers import is_called_by_keras
from estimator._tf.graph import capture_source
from estimator._tf.patches import Patch, patched

# Ops that do not write to a variable whose handle they take, and are not on TensorFlow's list.
_NO_WRITES = {"VarIsInitializedOp", "DestroyResourceOp"}

# The ops through which v1 control flow passes a handle.
_PASS_ON = {"Switch", "RefSwitch", "Enter", "Identity"}


def written_resources(op: tf.Operation) -> list[tf.Tensor]:
    """Returns the resource inputs that `op`, or a function that it runs, may write to.

    TensorFlow's automatic control dependencies list the ops that only read, and record on each
    cond, loop and call which inputs its functions only read; anything else counts as a write.
    `auto_control_deps_utils` 2.16 to 2.21.
    """
    if not _may_write(op.type):
        return []
    handles = [tensor for tensor in op.inputs if tensor.dtype == tf.resource]
    if not handles:
        return []
    _, writes = _control_deps.get_read_write_resource_inputs(op)
    return [handle for handle in handles if handle in writes]


def written_handles(op: tf.Operation) -> list[tf.Tensor]:
    """Returns the handles of variables among `written_resources(op)`."""
    written = written_resources(op)
    return [handle for handle in written if variable_source(handle).op.type == "VarHandleOp"]


@functools.cache
def _may_write(op_type: str) -> bool:
    """Returns whether ops of this type may write to a variable; a cheap first check."""
    reads = _control_deps.RESOURCE_READ_OPS | _NO_WRITES
    return is_stateful(op_type) and op_type not in reads


def is_stateful(op_type: str) -> bool:
    """Returns whether ops of this type have state or effects; True for a function's name.

    The registry of op definitions has no public name. 2.16 to 2.21.
    """
    definition = _op_defs.get(op_type)
    return definition is None or definition.is_stateful


@functools.cache
def _has_function(op_type: str) -> bool:
    definition = _op_defs.get(op_type)
    return definition is None or any(a.type in ("func", "list(func)") for a in definition.attr)


def runs_a_function(op: tf.Operation) -> bool:
    """Returns whether `op` is a cond, a loop or a call, which may read and write variables inside.

    The registry of op definitions has no public name. 2.16 to 2.21.
    """
    return _has_function(op.type)


def ops_inside(op: tf.Operation) -> list[tf.Operation]:
    """Returns the ops of the functions that `op` runs, and of those that these run, in turn.

    Graph._get_function, AtomicFunction.graph 2.16 to 2.21.
    """
    found: list[tf.Operation] = []
    if not runs_a_function(op):
        return found
    for attr in op.node_def.attr.values():
        for function in [attr.func, *attr.list.func]:
            body = getattr(op.graph._get_function(function.name), "graph", None)
            for inner in [] if body is None else body.get_operations():
                found += [inner, *ops_inside(inner)]
    return found


def ends_of(op: tf.Operation) -> list[tf.Operation]:
    """Returns the ops to wait for to be sure that all of `op` has run; may add ops to its graph.

    Once a session has lowered a cond, a loop or a call, a control input from it alone may wait only
    for its start, but an op that takes an output waits for its end. Graph._set_control_flow_context
    2.16 to 2.21.
    """
    if not runs_a_function(op):
        return [op]
    graph = op.graph
    with graph.as_default(), graph.control_dependencies(None), tf.device(op.device):
        graph._set_control_flow_context(op._get_control_flow_context())
        return [op, *(tf.identity(output, "end").op for output in op.outputs)]


def variable_source(handle: tf.Tensor) -> tf.Tensor:
    """Returns the handle in the outermost graph that `handle` captures in branches and loops."""
    source = capture_source(handle)
    while source.op.type in _PASS_ON:
        source = capture_source(source.op.inputs[0])
    return source


def branches_noted(note: Callable[[Any], None]) -> Patch:
    """Inside, `note` is called with the graph of each branch and loop when its ops are complete.

    The graph is not a function yet: ops that `note` adds to its `control_outputs` run whenever the
    function does. Branches and loops inside a `tf.function` are left out, because there all ops
    that write run anyway. Builds hold a lock. func_graph_from_py_func, FuncGraph.control_outputs
    2.16 to 2.21.
    """
    kinds = (
        _func_graphs.CondBranchFuncGraph,
        _func_graphs.WhileBodyFuncGraph,
        _func_graphs.WhileCondFuncGraph,
    )

    def make(original: Callable) -> Callable:
        def build(*args: Any, **kwargs: Any) -> Any:
            graph = original(*args, **kwargs)
            if isinstance(graph, kinds) and not kwargs.get("add_control_dependencies"):
                note(graph)
            return graph

        return build

    return patched(_func_graph, "func_graph_from_py_func", make)


def keras_control_flow_v2() -> Patch:
    """Inside, a cond or loop that Keras makes is one functional op, even if v2 is disabled.

    After `tf.compat.v1.disable_v2_behavior()` it would consist of Switch and Merge ops, and a cond
    without outputs, which Keras uses, would be an error. Builds hold a lock.
    control_flow_util.EnableControlFlowV2 2.16 to 2.21.
    """

    def make(original: Callable) -> Callable:
        return lambda graph: original(graph) or is_called_by_keras()

    return patched(_control_flow, "EnableControlFlowV2", make)


def name_scopes_in_branches() -> Patch:
    """Inside, branches and loops in a loop's body keep name scopes if v2 control flow is disabled.

    In the body they are functions, where names begin anew: what Adam makes in a cond would be
    called "beta1_power", and not "cond/beta1_power" as without a loop of steps. Builds hold a lock.
    func_graph_from_py_func, override_func_graph_name_scope, ENABLE_CONTROL_FLOW_V2 2.16 to 2.21.
    """
    if _control_flow.ENABLE_CONTROL_FLOW_V2:  # The public function is True in any function's body.
        return contextlib.nullcontext()

    def make(original: Callable) -> Callable:
        def build(*args: Any, **kwargs: Any) -> Any:
            graph = kwargs.get("func_graph")
            if isinstance(graph, _func_graphs.ControlFlowFuncGraph):
                scope = tf.compat.v1.get_default_graph().get_name_scope()
                _func_graph.override_func_graph_name_scope(graph, scope)
            return original(*args, **kwargs)

        return build

    return patched(_func_graph, "func_graph_from_py_func", make)
