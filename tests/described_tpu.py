"""A TPU that is described and not there, and a way to run what is built for it on CPUs.

There is no TPU to test on. This module stands in for the hardware, and only for it:

- `make_strategy` makes TensorFlow's own TPUStrategy with a resolver that says which cores there
  are. All ops of a program are then made as they are for a TPU.
- `running_on_cpus` rewrites a finished graph as TensorFlow does for a TPU, but for CPUs: the ops of
  a TPU's program are made once for each core, each with its inputs and its copies of the variables,
  and a cross-replica sum adds up those of all cores. `running_with_xla` has XLA compile the program
  of a single core as a whole, for the CPU; the compiler's front half is that of a TPU.
- `open_session` opens sessions that do the former by themselves, for all that the library runs.

What they cannot tell is what only a TPU can: docs/tpu.md lists it.
"""

import contextlib
import re

import tensorflow as tf
from tensorflow.python.client import session as client

_PROGRAM = "_tpu_replicate"
_PLACE = re.compile(r"^(\^?)([^:]+)(.*)$")


class DescribedTPU(tf.distribute.cluster_resolver.TPUClusterResolver):
    """A resolver of a TPU on this machine with so many cores, whether it has one or not."""

    def __init__(self, num_cores):
        super().__init__(tpu="local")
        self.num_cores = num_cores
        self.num_questions = 0

    def get_tpu_system_metadata(self):
        self.num_questions += 1
        devices = [
            client._DeviceAttributes(f"/job:localhost/replica:0/task:0/device:TPU:{i}", "TPU", 0, 0)
            for i in range(self.num_cores)
        ]
        return tf.tpu.experimental.TPUSystemMetadata(
            self.num_cores, 1, self.num_cores, None, tuple(devices)
        )


def make_strategy(num_cores=2, kind=tf.distribute.TPUStrategy):
    """A TPUStrategy on a described TPU."""
    with tf.Graph().as_default():
        return kind(DescribedTPU(num_cores))


def program_nodes(graph):
    """The nodes of a TPU's program, in whatever function of the graph they are."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return [node for node in nodes if _PROGRAM in node.attr]


@contextlib.contextmanager
def running_on_cpus(graph):
    """A session on a copy of the graph in which each core of the TPU is a part of the CPU.

    Yields the session and a function from a tensor or an op of the graph to that of the copy.
    """
    yield from _running(graph, _with_cores)


@contextlib.contextmanager
def running_with_xla(graph):
    """Likewise, for one core, whose program XLA compiles as a whole."""
    yield from _running(graph, _with_xla)


def open_session(target="", graph=None, config=None):
    """A `tf.compat.v1.Session`; of a graph with programs of a TPU, with CPUs for its cores."""
    graph = graph or tf.compat.v1.get_default_graph()
    if not program_nodes(graph):
        return tf.compat.v1.Session(target, graph=graph, config=config)
    assert target == ""
    return _CPUSession(graph)


class _CPUSession(client.SessionInterface):
    def __init__(self, graph):
        self._graph = graph
        self._stack = contextlib.ExitStack()
        self._session, self._place = self._stack.enter_context(running_on_cpus(self._graph))

    @property
    def graph(self):
        return self._graph

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        fetches = self._placed(fetches)
        feeds = {self._placed(key): value for key, value in (feed_dict or {}).items()}
        return self._session.run(fetches, feeds, options, run_metadata)

    def _placed(self, one):
        if isinstance(one, dict):  # The library's have hooks among their keys.
            return {key: self._placed(value) for key, value in one.items()}
        if isinstance(one, list | tuple):
            return [self._placed(value) for value in one]
        one = getattr(one, "_graph_element", one)  # Of a variable.
        return one if isinstance(one, str) else self._place(one)

    def close(self):
        self._stack.close()

    def __getattr__(self, name):  # What goes by names: callables.
        return getattr(self._session, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def _running(graph, rewrite):
    definition = graph.as_graph_def(add_shapes=False)
    for nodes in (definition.node, *(f.node_def for f in definition.library.function)):
        is_function = nodes is not definition.node
        new = rewrite(list(nodes), is_function)
        for node in new:
            node.device = ""
            node.attr.pop("_class", None)  # What it stands beside.
        del nodes[:]
        nodes.extend(new)
    copy = tf.Graph()
    with copy.as_default():
        tf.graph_util.import_graph_def(definition, name="")
    session = tf.compat.v1.Session(
        graph=copy
    )  # Not entered: several may be open, and end in any order.
    with contextlib.closing(session):
        yield session, lambda one: copy.as_graph_element(one.name)


def _with_cores(nodes, is_function):
    """Each node of a program once a core, as the TPU's own rewrite makes them."""
    num_cores = max((n.attr["num_replicas"].i for n in nodes if _is_metadata(n)), default=0)
    if not num_cores:
        return nodes
    inside = {n.name for n in nodes if _PROGRAM in n.attr}
    handed_in = {n.name: n for n in nodes if n.op == "TPUReplicatedInput"}
    given_out = {n.name: n for n in nodes if n.op == "TPUReplicatedOutput"}
    summed = {n.name for n in nodes if n.op == "CrossReplicaSum"}
    for node in handed_in.values():
        # What only the program uses and TensorFlow would take out of it again is no part of it.
        assert not any(name.lstrip("^") in inside for name in node.input), node

    def of_core(name, core):
        caret, base, rest = _PLACE.match(name).groups()
        if base in handed_in:
            return f"^{handed_in[base].input[core]}" if caret else handed_in[base].input[core]
        if base not in inside:
            return name
        rest = ":sum:0" if base in summed and is_function else rest
        return f"{caret}{base}/core_{core}{rest}"

    made = []
    for node in nodes:
        if node.name in inside:
            made.extend(_of_all_cores(node, num_cores, of_core, is_function))
        elif (
            node.op == "TPUReplicatedOutput"
            or node.op == "TPUReplicatedInput"
            or node.op == "TPUCompilationResult"
        ):
            continue
        else:
            made.append(_outside(node, inside, given_out, of_core, num_cores))
    return made


def _of_all_cores(node, num_cores, of_core, is_function):
    if node.op == "AllToAll":
        yield from _all_to_all(node, num_cores, of_core, is_function)
        return
    for core in range(num_cores):
        copy = tf.compat.v1.NodeDef()
        copy.CopyFrom(node)
        copy.name = f"{node.name}/core_{core}"
        del copy.attr[_PROGRAM]
        inputs = [of_core(name, core) for name in node.input]
        if _is_metadata(node):
            copy.op, inputs = "NoOp", [name for name in inputs if name.startswith("^")]
            copy.ClearField("attr")
        elif node.op == "CrossReplicaSum":
            copy.op = "AddN"
            dtype = node.attr["T"]
            copy.ClearField("attr")
            copy.attr["T"].CopyFrom(dtype)
            copy.attr["N"].i = num_cores
            control = [name for name in inputs if name.startswith("^")]
            inputs = [of_core(node.input[0], other) for other in range(num_cores)] + control
        del copy.input[:]
        copy.input.extend(inputs)
        yield copy


def _all_to_all(node, num_cores, of_core, is_function):
    """Core k gets the k-th part of every core's value, along the first dimension."""
    axis, dtype = f"{node.name}/axis", node.attr["T"].type
    if num_cores == 1:
        yield _node(f"{node.name}/core_0", "Identity", [of_core(node.input[0], 0)], T=dtype)
        return
    yield _node(axis, "Const", [], dtype=tf.int32, value=0)
    axis_tensor = f"{axis}:output:0" if is_function else axis
    for core in range(num_cores):
        inputs = [axis_tensor, of_core(node.input[0], core)]
        yield _node(f"{node.name}/split_{core}", "Split", inputs, T=dtype, num_split=num_cores)
    for core in range(num_cores):
        port = f":output:{core}" if is_function else f":{core}"
        parts = [f"{node.name}/split_{other}{port}" for other in range(num_cores)]
        attributes = {"T": dtype, "N": num_cores, "Tidx": tf.int32.as_datatype_enum}
        yield _node(f"{node.name}/core_{core}", "ConcatV2", [*parts, axis_tensor], **attributes)


def _node(name, op, inputs, dtype=None, value=None, **attributes):
    node = tf.compat.v1.NodeDef(name=name, op=op, input=inputs)
    if dtype is not None:
        node.attr["dtype"].type = dtype.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, dtype))
    for key, attribute in attributes.items():
        is_type = key.startswith("T")
        setattr(node.attr[key], "type" if is_type else "i", attribute)
    return node


def _outside(node, inside, given_out, of_core, num_cores):
    """A node around the program, with the cores' outputs for the program's."""
    inputs = []
    for name in node.input:
        caret, base, rest = _PLACE.match(name).groups()
        if base in given_out:
            core = int(rest.rsplit(":", 1)[1]) if rest else 0
            inputs.append(of_core(given_out[base].input[0], core))
        elif caret and base in inside:
            inputs.extend(of_core(name, core) for core in range(num_cores))
        else:
            inputs.append(name)
    del node.input[:]
    node.input.extend(sorted(inputs, key=lambda name: name.startswith("^")))
    return node


def _with_xla(nodes, is_function):
    """The program of one core as a cluster that XLA compiles as a whole."""
    if not any(map(_is_metadata, nodes)):
        return nodes
    inside = {n.name for n in nodes if _PROGRAM in n.attr}
    made = []
    for node in nodes:
        if node.op == "TPUCompilationResult":
            continue
        if node.op == "TPUReplicatedInput":
            assert len([name for name in node.input if name[0] != "^"]) == 1
            _become(node, "Identity", {"T": node.attr["T"]})
        elif node.op == "TPUReplicatedOutput":
            _become(node, "XlaClusterOutput", {"T": node.attr["T"]})
        elif _is_metadata(node):
            _become(node, "NoOp", {})
            _mark(node)
        elif node.op in ("CrossReplicaSum", "AllToAll"):
            _become(node, "Identity", {"T": node.attr["T"]})
            del node.input[1]  # Which cores, where there is one.
            _mark(node)
        elif node.name in inside:
            del node.attr[_PROGRAM]
            _mark(node)
        made.append(node)
    return made


def _become(node, op, attributes):
    kept = {key: tf.compat.v1.AttrValue() for key in attributes}
    for key, value in attributes.items():
        kept[key].CopyFrom(value)
    node.op = op
    node.ClearField("attr")
    for key, value in kept.items():
        node.attr[key].CopyFrom(value)


def _mark(node):
    node.attr["_xla_compile_id"].s = b"program"


def _is_metadata(node):
    return node.op == "TPUReplicateMetadata"
