"""Which reads and writes of a variable only luck orders, in a graph that is built."""

import collections
import functools
import operator

import tensorflow as tf

from estimator import _tf

WRITES = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter", "ResourceStrided")
READS = ("ReadVariableOp", "ResourceGather")


def unordered_accesses(graph, fetches):
    """Pairs of ops that access a variable, at least one of which writes, in no certain order.

    Args:
      graph: a graph, or the body of a function.
      fetches: the tensors and ops that a session runs together, or that the function returns.

    Returns:
      (variable, one op, the other) by their names.
    """
    ops = _run_by(fetches)
    before, place = _befores(ops)
    accesses = collections.defaultdict(list)
    found = []
    for op in ops:
        for handle, is_write in _accesses_of(op).items():
            accesses[handle].append((op, is_write))
        for inner in _functions_of(op):
            found += unordered_accesses(inner, [*inner.outputs, *inner.control_outputs])
    for handle, ones in accesses.items():
        for i, (one, one_writes) in enumerate(ones):
            for other, other_writes in ones[i + 1 :]:
                is_ordered = before[other] >> place[one] & 1 or before[one] >> place[other] & 1
                if (one_writes or other_writes) and not is_ordered:
                    found.append((handle.name, one.name, other.name))
    return found


def _run_by(fetches):
    """The ops that run, each after those that it waits for."""
    done, stack = {}, [(getattr(fetch, "op", fetch), False) for fetch in fetches]
    while stack:
        op, are_inputs_done = stack.pop()
        if op in done:
            continue
        if are_inputs_done:
            done[op] = None
            continue
        stack.append((op, True))
        waits = [*(tensor.op for tensor in _inputs_of(op)), *op.control_inputs]
        stack.extend((other, False) for other in waits if other not in done)
    return list(done)


def _inputs_of(op):
    """Its inputs, except that an exit of a loop of v1 control flow waits for the last iteration."""
    inputs = [tensor for tensor in op.inputs if tensor.op.type != "NextIteration"]
    if op.type == "Exit":
        merge = op.inputs[0].op.inputs[0].op
        ends = [tensor.op for tensor in merge.inputs if tensor.op.type == "NextIteration"]
        inputs += [tensor for end in ends for tensor in end.inputs]
    return inputs


def _befores(ops):
    """For each op, as a set of bits: the ops that have surely ended when it starts; each op's bit.

    TensorFlow inlines a branch, a loop and a call. What waits for it and takes nothing waits only
    for its start. What takes an output of a branch or a call waits only for what this output needs,
    and what waits for each of its outputs waits for all of it. It drops an IdentityN as well.
    """
    place, before, inlined = {}, {}, []

    def after_all(ends):
        return functools.reduce(operator.or_, map(after, ends), 0)

    def after(end):
        """What has ended when a tensor is there, or when a control input is."""
        if isinstance(end, tf.Operation):
            is_start = bool(_functions_of(end)) and end.outputs
            return before[end] if is_start else before[end] | 1 << place[end]
        if end.op.type == "IdentityN":
            return after(end.op.inputs[end.value_index])
        bit = place[end.ref()] if end.op in inlined else place[end.op]
        return before[end.op] | 1 << bit

    for op in ops:
        place[op] = len(place)
        inputs = _inputs_of(op)
        if _functions_of(op) and not op.type.endswith("While"):
            inputs = op.inputs[:1] if op.type.endswith(("If", "Case")) else []
            inlined.append(op)
            for output in op.outputs:
                place[output.ref()] = len(place)
        before[op] = after_all([*inputs, *op.control_inputs])
        for other in reversed(inlined):
            outputs = other.outputs
            if outputs and all(before[op] >> place[output.ref()] & 1 for output in outputs):
                before[op] |= 1 << place[other] | after_all(other.inputs)
    return before, place


def _accesses_of(op):
    """By the handle of a variable: whether `op` writes it."""
    functions = _functions_of(op)
    if functions:
        found = {}
        for inner in functions:
            for deeper in _run_by([*inner.outputs, *inner.control_outputs]):
                for handle, is_write in _accesses_of(deeper).items():
                    found[handle] = found.get(handle, False) or is_write
        return found
    is_write = op.type.startswith(WRITES)
    is_used = any(output.consumers() for output in op.outputs)  # Or somebody waits for it alone.
    if not is_write and not (op.type.startswith(READS) and is_used):
        return {}
    handles = [tensor for tensor in op.inputs if tensor.dtype == tf.resource]
    sources = (_tf.variable_source(tensor) for tensor in handles)
    return {source.op: is_write for source in sources}


def _functions_of(op):
    """The bodies of a branch, a loop or a call."""
    names = [a.func.name for a in op.node_def.attr.values() if a.HasField("func")]
    if not names or op.type.endswith("Dataset"):
        return []
    return [_body(op, name) for name in names]


def _body(op, name):
    graph = op.graph
    while graph is not None:
        function = graph._get_function(name)
        if function is not None:
            return function.graph
        graph = getattr(graph, "outer_graph", None)
    raise AssertionError(name)
