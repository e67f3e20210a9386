"""Graphs and their ops: loops, what is around them, and changing what is built already."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import lift_to_graph as _lift_to_graph
from tensorflow.python.ops import cond_v2, while_v2
from tensorflow.python.ops import control_flow_util as _control_flow

from estimator._tf.patches import patched
from estimator._tf.tpu import TPU_PROGRAM
from estimator._tf.v1_branches import after_v1_branches

# `tf.while_loop` and `tf.cond` build Switch and Merge by hand after `tf.disable_v2_behavior()`,
# which old scripts call. These build one functional op whatever was called. 2.16 to 2.21.
while_loop = while_v2.while_loop


def cond(predicate: tf.Tensor, true_fn: Callable, false_fn: Callable, name: str) -> Any:
    """`tf.cond` as one functional op, whatever v1 switches are set (2.16 to 2.21)."""
    return cond_v2.cond_v2(predicate, true_fn, false_fn, name=name)


def initialized_value(variable: tf.Variable) -> tf.Tensor:
    """What a variable holds, or what it is to hold if it is not initialized yet.

    For initial values: all variables are initialized in one session call, in any order.
    """
    is_there = tf.compat.v1.is_variable_initialized(variable)
    return cond(is_there, variable.read_value, lambda: variable.initial_value, "initialized")


def lift_to_graph(tensor: tf.Tensor, graph: tf.Graph) -> tf.Tensor:
    """Rebuilds `tensor`, an initial value made inside a loop body, in the graph around the loop.

    There is no public way; `tf.function` itself lifts initial values with it. What was made for a
    TPU is no part of its program where it is rebuilt. 2.16 to 2.21.
    """
    num_ops = len(graph.get_operations())
    lifted = _lift_to_graph.lift_to_graph([tensor], graph)[tensor]
    for op in graph.get_operations()[num_ops:]:
        if TPU_PROGRAM in op.node_def.attr:
            op._clear_attr(TPU_PROGRAM)
    return lifted


def copy_op(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> tf.Operation:
    """Makes an op like `op` in the default graph, with other inputs.

    The public `Graph.create_op` does not let a function body capture its inputs. 2.16 to 2.21.
    """
    # What an op stands beside, by name, may not be there; nor the program that it is part of.
    attrs = {k: v for k, v in op.node_def.attr.items() if k not in ("_class", TPU_PROGRAM)}
    return tf.compat.v1.get_default_graph()._create_op_internal(
        op.type,
        list(inputs),
        [output.dtype for output in op.outputs],
        name=op.name,
        attrs=attrs,
        op_def=op.op_def,
    )


def add_control_inputs(op: tf.Operation, inputs: Sequence[tf.Operation]) -> None:
    """Makes the existing `op` wait for `inputs`, which may be in branches that are not taken.

    `tf.control_dependencies` reaches only ops that are yet to be made. 2.16 to 2.21.
    """
    op._add_control_inputs([after_v1_branches(other, op) for other in inputs])


def set_input(op: tf.Operation, tensor: tf.Tensor, index: int = 0) -> None:
    """Makes an input of the existing `op` another tensor of its graph (2.16 to 2.21)."""
    op._update_input(index, tensor)


def control_outputs(op: tf.Operation) -> Sequence[tf.Operation]:
    """The ops that wait for `op` without reading it (2.16 to 2.21)."""
    return op._control_outputs


def is_ref(tensor: tf.Tensor) -> bool:
    """Whether `tensor` is a reference to a v1 variable's or queue's buffer (2.16 to 2.21)."""
    return tensor.dtype._is_ref_dtype


def is_loop_body(graph: tf.Graph) -> bool:
    """Whether `graph` is a function body: its tensors cannot be fetched (2.16 to 2.21)."""
    return bool(graph.building_function)


def outer_graphs(graph: tf.Graph) -> list[tf.Graph]:
    """`graph` and the graphs around it, the innermost first (FuncGraph.outer_graph, 2.16)."""
    graphs = [graph]
    while (graph := getattr(graph, "outer_graph", None)) is not None:
        graphs.append(graph)
    return graphs


def can_be_read_in(graph: tf.Graph, tensor: tf.Tensor) -> bool:
    """Whether an op that is added to `graph` now may take `tensor`.

    None may take what is inside a loop, a branch or a function from around it. A loop of v1 control
    flow is in the same graph: its ops have a context. `_get_control_flow_context` 2.16 to 2.21.
    """
    if tensor.graph not in outer_graphs(graph):
        return False
    loop = _control_flow.GetContainingWhileContext(tensor.op._get_control_flow_context())
    here = _control_flow.GetContainingWhileContext(graph._get_control_flow_context())
    return loop is None or loop is here


def capture_source(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor of the outermost graph that `tensor`, inside function bodies, stands for.

    Of what a TPU's program takes in, one for each core, it is the first core's.
    """
    while True:
        outside = _captured(tensor.graph).get(id(tensor))
        if outside is None and tensor.op.type == "TPUReplicatedInput":
            outside = tensor.op.inputs[0]
        if outside is None:
            return tensor
        tensor = outside


# The attribute of a function body that keeps what `_captured` found. A WeakKeyDictionary would keep
# the bodies for ever: the tensors around a body keep the graph that keeps the body.
_CAPTURED = "_estimator_captured"


def _captured(graph: tf.Graph) -> dict[int, tf.Tensor]:
    """The outer tensor by the id of the inner one; a body of many variables is asked very often.

    FuncGraph.captures is public and makes a list each time; `function_captures` 2.16 to 2.21.
    """
    captures = getattr(graph, "function_captures", None)
    if captures is None:
        return {}
    count = len(captures.by_val_internal)
    known_count, known = getattr(graph, _CAPTURED, (None, {}))
    if known_count != count:
        known = {id(inner): outer for outer, inner in graph.captures}
        setattr(graph, _CAPTURED, (count, known))
    return known


@contextlib.contextmanager
def noting_waits(body: tf.Graph) -> Iterator[dict[tf.Operation, list[tf.Operation]]]:
    """Inside, notes which ops around a loop the new ops of its body were told to wait for.

    The body itself only knows them all together: the whole loop waits for them. 2.16 to 2.21.

    Yields:
      By op of the body: those around it.
    """
    waits: dict[tf.Operation, list[tf.Operation]] = {}

    def make(original: Callable) -> Callable:
        @contextlib.contextmanager
        def noting(inputs: Any) -> Iterator[None]:
            inputs = None if inputs is None else list(inputs)
            ops = [getattr(value, "op", value) for value in inputs or ()]
            outer = [op for op in ops if getattr(op, "graph", body) is not body]
            num_ops_before = len(body.get_operations()) if outer else 0
            with original(inputs):
                yield
            if outer:
                for op in body.get_operations()[num_ops_before:]:
                    waits.setdefault(op, []).extend(outer)

        return noting

    with patched(body, "control_dependencies", make):
        yield waits


def forget_waits(body: tf.Graph, ops: Iterable[tf.Operation]) -> None:
    """The loop does not wait for these ops around it: no step does (2.16 to 2.21)."""
    unwanted = set(ops)
    control = body.function_captures.control
    control -= {value for value in control if getattr(value, "op", value) in unwanted}


@contextlib.contextmanager
def hashable_tensors() -> Iterator[None]:
    """Inside, tensors of a loop's body can be keys of a dict, as those of any v1 graph can.

    Without, `init_feed_dict={placeholder: value}` is an error there. 2.16 to 2.21.
    """

    def make(original: Callable) -> Callable:
        return lambda self: original(self) if getattr(self, "graph", None) is None else id(self)

    with patched(tf.Tensor, "__hash__", make):
        yield
