"""Which variables an op reads and writes, inside the functions that it runs, too."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps_utils as _control_deps
from tensorflow.python.framework import func_graph as _func_graph
from tensorflow.python.framework import op_def_registry as _op_defs
from tensorflow.python.ops import control_flow_util as _control_flow
from tensorflow.python.ops import control_flow_v2_func_graphs as _func_graphs

from estimator._tf.callers import is_called_by_keras
from estimator._tf.graph import capture_source
from estimator._tf.patches import patched

# They take a variable's handle and leave its value alone, and TensorFlow does not list them.
_NO_WRITES = {"VarIsInitializedOp", "DestroyResourceOp"}

# v1 control flow hands a handle on by these.
_PASS_ON = {"Switch", "RefSwitch", "Enter", "Identity"}


def written_resources(op: tf.Operation) -> list[tf.Tensor]:
    """The resources among the inputs of `op` that it may change, also inside a function.

    TensorFlow's automatic control dependencies keep a list of the ops that only read, and note on
    each cond, loop and call what its functions only read; whatever has no such note is taken to
    write. `auto_control_deps_utils` 2.16 to 2.21.
    """
    if not _may_write(op.type):
        return []
    handles = [tensor for tensor in op.inputs if tensor.dtype == tf.resource]
    if not handles:
        return []
    _, writes = _control_deps.get_read_write_resource_inputs(op)
    return [handle for handle in handles if handle in writes]


def written_handles(op: tf.Operation) -> list[tf.Tensor]:
    """Those of `written_resources` that are handles of variables."""
    return [handle for handle in written_resources(op) if _is_of_variable(handle)]


@functools.cache
def _may_write(op_type: str) -> bool:
    """Whether an op of this type may change a variable; only such are looked at closely."""
    definition = _op_defs.get(op_type)
    if definition is None:  # A function that is called by its name.
        return True
    reads = _control_deps.RESOURCE_READ_OPS | _NO_WRITES
    return definition.is_stateful and op_type not in reads


@functools.cache
def _has_function(op_type: str) -> bool:
    definition = _op_defs.get(op_type)
    return definition is None or any(a.type in ("func", "list(func)") for a in definition.attr)


def runs_a_function(op: tf.Operation) -> bool:
    """Whether `op` is a cond, a loop or a call, whose inside may read and write variables.

    The registry of op definitions has no public name; 2.16 to 2.21.
    """
    return _has_function(op.type)


def _is_of_variable(handle: tf.Tensor) -> bool:
    return variable_source(handle).op.type == "VarHandleOp"


def variable_source(handle: tf.Tensor) -> tf.Tensor:
    """The handle in the outermost graph that `handle`, in branches and loops, stands for."""
    source = capture_source(handle)
    while source.op.type in _PASS_ON:
        source = capture_source(source.op.inputs[0])
    return source


@contextlib.contextmanager
def branches_noted(note: Callable[[Any], None]) -> Iterator[None]:
    """Inside, `note` is given the graph of each branch and loop once its ops are made.

    They are not a function yet: ops that `note` adds to its `control_outputs` run whenever the
    function does. Not those inside a `tf.function`, where all that writes runs anyway. Builds hold
    a lock. func_graph_from_py_func, FuncGraph.control_outputs 2.16 to 2.21.
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

    with patched(_func_graph, "func_graph_from_py_func", make):
        yield


@contextlib.contextmanager
def keras_control_flow_v2() -> Iterator[None]:
    """Inside, a cond or a loop that Keras makes is one op, whatever v1 switches are set.

    After `tf.compat.v1.disable_v2_behavior()` it would be built of Switch and Merge by hand: a cond
    without outputs, as Keras has some, is an error there. Builds hold a lock.
    control_flow_util.EnableControlFlowV2 2.16 to 2.21.
    """

    def make(original: Callable) -> Callable:
        return lambda graph: original(graph) or is_called_by_keras()

    with patched(_control_flow, "EnableControlFlowV2", make):
        yield
