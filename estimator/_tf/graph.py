"""Graphs and ops: loops, the graphs around them, and changes to ops that exist already."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.ops import cond_v2, while_v2
from tensorflow.python.ops import control_flow_util as _control_flow

from estimator._tf.patches import Patch, patched
from estimator._tf.tpu import TPU_PROGRAM
from estimator._tf.v1_branches import after_v1_branches, starts_of_v1_loop

# After `tf.disable_v2_behavior()`, which old scripts call, `tf.while_loop` and `tf.cond` build
# Switch and Merge ops. These always build one functional op. 2.16 to 2.21.
while_loop = while_v2.while_loop


def note_devices() -> Callable[[], Patch]:
    """Returns a context in which new ops get the devices that they would get now.

    The body of a loop inherits the devices of the loop's own ops, and `tf.device(None)` drops the
    device functions as well. `_device_function_stack` 2.16 to 2.21.
    """
    around = tf.compat.v1.get_default_graph()
    noted = around._device_function_stack.copy()

    @contextlib.contextmanager
    def devices() -> Iterator[None]:
        graphs = [around, tf.compat.v1.get_default_graph()]
        before = [graph._device_function_stack for graph in graphs]
        for graph in graphs:
            graph._device_function_stack = noted.copy()
        try:
            yield
        finally:
            for graph, stack in zip(graphs, before, strict=True):
                graph._device_function_stack = stack

    return devices


def set_device(op: tf.Operation, device: str) -> None:
    """Moves the existing `op` to a device (2.16 to 2.21)."""
    op._set_device(device)


def cond(predicate: tf.Tensor, true_fn: Callable, false_fn: Callable, name: str) -> Any:
    """Builds a `tf.cond` as one functional op, even if v2 behavior is disabled (2.16 to 2.21)."""
    return cond_v2.cond_v2(predicate, true_fn, false_fn, name=name)


def initialized_value(variable: tf.Variable) -> tf.Tensor:
    """Builds a variable's value, or its initial value if it is not initialized yet.

    For use in initial values: one session call initializes all variables, in any order. It waits
    for nothing, since what a train step waits for must not be run by that call.
    """
    with tf.control_dependencies(None):
        is_there = tf.compat.v1.is_variable_initialized(variable)
        return cond(is_there, variable.read_value, lambda: variable.initial_value, "initialized")


def copy_op(
    op: tf.Operation, inputs: Sequence[tf.Tensor], waits: Sequence[tf.Operation] = ()
) -> tf.Operation:
    """Makes an op like `op` in the default graph, with other inputs.

    The public `Graph.create_op` does not let a function body capture its inputs. 2.16 to 2.21.

    Args:
      op: the op to copy.
      inputs: the inputs of the copy.
      waits: control inputs of the copy, beside those of `tf.control_dependencies`. For these,
        TensorFlow does not warn that a session has run them before.
    """
    # The op to colocate with, and the TPU program, may not exist in the default graph.
    attrs = {k: v for k, v in op.node_def.attr.items() if k not in ("_class", TPU_PROGRAM)}
    copy = tf.compat.v1.get_default_graph()._create_op_internal(
        op.type,
        list(inputs),
        [output.dtype for output in op.outputs],
        name=op.name,
        attrs=attrs,
        op_def=op.op_def,
    )
    copy._add_control_inputs(waits)
    return copy


def add_control_inputs(
    op: tf.Operation, inputs: Iterable[tf.Operation]
) -> list[tuple[tf.Operation, tf.Operation]]:
    """Makes the existing `op` wait for `inputs`, which may be in branches that are not taken.

    `tf.control_dependencies` affects new ops only. 2.16 to 2.21.

    Returns:
      Pairs of an op and another that it did not wait for directly, and now does.
    """
    added = []
    for other in inputs:
        end = after_v1_branches(other, op)
        for start in starts_of_v1_loop(op, end):
            if end not in start.control_inputs:
                start._add_control_inputs([end])
                added.append((start, end))
    return added


def name_resources(ops: Iterable[tf.Operation]) -> None:
    """Names the resources, such as queues and tables, that ops make without a name.

    Copies of an op then find the same resource instead of one that is called like the copy. The
    public way is an argument when the op is made. 2.16 to 2.21.
    """
    takes_name = {"OneShotIterator": False}  # It has the argument, but takes no name.
    for op in ops:
        if op.type not in takes_name:
            takes_name[op.type] = any(attr.name == "shared_name" for attr in op.op_def.attr)
        if takes_name[op.type] and not op.get_attr("shared_name"):
            name = attr_value_pb2.AttrValue(s=tf.compat.as_bytes(op.name))
            op._set_attr("shared_name", name)


def set_input(op: tf.Operation, tensor: tf.Tensor, index: int = 0) -> None:
    """Replaces an input of the existing `op` by another tensor of its graph (2.16 to 2.21)."""
    op._update_input(index, tensor)


def is_ref(tensor: tf.Tensor) -> bool:
    """Returns whether `tensor` refers to a v1 variable's or queue's buffer (2.16 to 2.21)."""
    return tensor.dtype._is_ref_dtype


def is_loop_body(graph: tf.Graph) -> bool:
    """Returns whether `graph` is a function body; its tensors cannot be fetched (2.16 to 2.21)."""
    return bool(graph.building_function)


def outer_graphs(graph: tf.Graph) -> list[tf.Graph]:
    """Returns `graph` and the graphs around it, innermost first (FuncGraph.outer_graph, 2.16)."""
    graphs = [graph]
    while (graph := getattr(graph, "outer_graph", None)) is not None:
        graphs.append(graph)
    return graphs


def can_be_read_in(graph: tf.Graph, tensor: tf.Tensor) -> bool:
    """Returns whether an op that is now added to `graph` may have `tensor` as an input.

    A tensor inside a loop, a branch or a function cannot be used outside. The ops of a v1 loop are
    in the same graph and have a control flow context. `_get_control_flow_context` 2.16 to 2.21.
    """
    if tensor.graph not in outer_graphs(graph):
        return False
    loop = _control_flow.GetContainingWhileContext(tensor.op._get_control_flow_context())
    here = _control_flow.GetContainingWhileContext(graph._get_control_flow_context())
    return loop is None or loop is here


def capture_source(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor of the outermost graph that `tensor` captures; else `tensor` itself.

    For an input of a TPU program, which has one tensor per core, it is the first core's.
    """
    while True:
        outside = _captured(tensor.graph).get(id(tensor))
        if outside is None and tensor.op.type == "TPUReplicatedInput":
            outside = tensor.op.inputs[0]
        if outside is None:
            return tensor
        tensor = outside


def foreign_captures(graph: tf.Graph) -> list[tf.Tensor]:
    """Returns the tensors that a function body reads and that are in no graph around it.

    TensorFlow raises an error for them only when the function is called. 2.16 to 2.21.
    """
    around = outer_graphs(graph)
    captured = _captured(graph).values()
    return [t for t in captured if not (tf.is_symbolic_tensor(t) and t.graph in around)]


# The attribute of a function body that caches the result of `_captured`. A WeakKeyDictionary would
# never release a body: its values, tensors around the body, refer to a graph that refers to it.
_CAPTURED = "_estimator_captured"


def _captured(graph: tf.Graph) -> dict[int, tf.Tensor]:
    """Returns the captured outer tensors by the `id` of the inner tensor; cached, as it is hot.

    FuncGraph.captures is public, but builds a list each time. `function_captures` 2.16 to 2.21.
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


def names_in_use(graph: tf.Graph) -> dict[str, int]:
    """Returns the names that new ops of a graph cannot have, with the number to append next.

    `_names_in_use` 2.16 to 2.21.
    """
    return dict(graph._names_in_use)


def take_names(graph: tf.Graph, names: Mapping[str, int]) -> None:
    """Has ops of a new graph get names as if others were there already (2.16 to 2.21)."""
    graph._names_in_use.update(names)


def names_shared(body: tf.Graph) -> Patch:
    """Inside, new ops of a loop's body get the names that they would get around it.

    What is named after an earlier op in use, such as a variable or the tag of a v1 summary, does
    not depend on the loop then. Captures, which are named after their sources, get names of their
    own. `_names_in_use` and `_capture_helper` 2.16 to 2.21.
    """
    names = body.outer_graph._names_in_use
    for name, count in body._names_in_use.items():
        names.setdefault(name, count)
    body._names_in_use = names
    numbers = itertools.count()

    def make(original: Callable) -> Callable:
        return lambda tensor, name: original(tensor, f"captured_{next(numbers)}/{name}/")

    return patched(body, "_capture_helper", make)


@contextlib.contextmanager
def noting_waits(body: tf.Graph) -> Iterator[dict[tf.Operation, list[tf.Operation]]]:
    """Inside, records which outer ops each new op of a loop's body is to wait for.

    The body itself keeps only the set of all of them, for which the whole loop waits. 2.16 to 2.21.

    Yields:
      A dict from each op of the body to the outer ops that it is to wait for.
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
    """Removes outer ops that no step waits for from what the loop waits for (2.16 to 2.21)."""
    unwanted = set(ops)
    control = body.function_captures.control
    control -= {value for value in control if getattr(value, "op", value) in unwanted}


def hashable_tensors() -> Patch:
    """Inside, tensors of a loop's body can be dict keys, as tensors of any v1 graph can.

    Otherwise `init_feed_dict={placeholder: value}` is an error there. 2.16 to 2.21.
    """

    def make(original: Callable) -> Callable:
        return lambda self: original(self) if getattr(self, "graph", None) is None else id(self)

    return patched(tf.Tensor, "__hash__", make)
