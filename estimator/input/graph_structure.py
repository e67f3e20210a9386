"""Digests of graphs that depend on what they compute, whatever their ops are called."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

# What fills a variable or a table; its first input is the handle.
_FILLS = {
    "AssignVariableOp",
    "InitializeTable",
    "InitializeTableV2",
    "InitializeTableFromDataset",
    "InitializeTableFromTextFile",
    "InitializeTableFromTextFileV2",
    "LookupTableImport",
    "LookupTableImportV2",
}


class GraphStructure:
    """The digests of a GraphDef's ops.

    An op's digest has its type, its attributes and the digests of its inputs; that of a handle has
    what fills the variable or table. It does not have names, which differ between equal graphs:
    TensorFlow numbers the functions of a process, Keras its layers, and a program may build the
    same ops in another order. Nor does it have devices: an input is always on the CPU.
    """

    def __init__(self, graph_def: Any) -> None:
        """Takes a GraphDef, whose ops lose their names and inputs."""
        self._functions = {f.signature.name: f for f in graph_def.library.function}
        _number_python_functions(graph_def)
        self._digests: dict[str, bytes] = {}
        self._nodes = _Nodes(graph_def.node, {}, self._digest_of_function)

    def digest(self) -> bytes:
        """Returns the digest of the whole graph."""
        return _hash(sorted(self._nodes.digest_of(name) for name in self._nodes.unused()))

    def digest_of(self, name: str) -> bytes:
        """Returns the digest of the op of this name."""
        return self._nodes.digest_of(name)

    def _digest_of_function(self, name: str) -> bytes | None:
        """Returns the digest of a function; None if the graph has none of this name."""
        function = self._functions.get(name)
        if function is None or name in self._digests:
            return self._digests.get(name)
        self._digests[name] = b"recursion"
        arguments = {
            argument.name: b"argument %d %d" % (place, argument.type)
            for place, argument in enumerate(function.signature.input_arg)
        }
        nodes = _Nodes(function.node_def, arguments, self._digest_of_function)
        results = [
            nodes.digest_of_tensor(function.ret[o.name]) for o in function.signature.output_arg
        ]
        effects = sorted(map(nodes.digest_of, function.control_ret.values()))
        self._digests[name] = _hash([*results, b"effects", *effects])
        return self._digests[name]


class _Nodes:
    """The digests of the nodes of a graph or a function. Changes the nodes."""

    def __init__(
        self,
        nodes: Iterable[Any],
        arguments: Mapping[str, bytes],
        digest_of_function: Callable[[str], bytes | None],
    ) -> None:
        self._inputs = {node.name: list(node.input) for node in nodes}
        self._nodes = {node.name: node for node in nodes}
        self._digests = dict(arguments)
        self._digest_of_function = digest_of_function
        self._fills: dict[str, list[str]] = {}  # By the name of the handle.
        for name, node in self._nodes.items():
            if node.op in _FILLS:
                self._fills.setdefault(_op_of(self._inputs[name][0]), []).append(name)

    def unused(self) -> list[str]:
        """Returns the names of the nodes that are no node's input."""
        used = {_op_of(tensor) for inputs in self._inputs.values() for tensor in inputs}
        return [name for name in self._nodes if name not in used]

    def digest_of_tensor(self, tensor: str) -> bytes:
        """Returns the digest of a node's output."""
        name, _, output = tensor.partition(":")
        return self.digest_of(name) + output.encode()

    def digest_of(self, name: str) -> bytes:
        """Returns the digest of a node; not by recursion, as chains of ops can be long."""
        begun, stack = set(), [name] if name not in self._digests else []
        while stack:
            current = stack[-1]
            if current in self._digests:
                stack.pop()
            elif current not in begun:
                begun.add(current)
                needed = map(_op_of, self._needed_by(current))
                new = [n for n in needed if n not in begun and n not in self._digests]
                stack += reversed(new)  # The first input first, which enters a loop.
            else:
                self._digests[current] = self._compute(current)
        return self._digests[name]

    def _needed_by(self, name: str) -> list[str]:
        needed = self._inputs.get(name, [])
        for fill in self._fills.get(name, ()):
            needed = [*needed, *self._inputs[fill][1:]]
        return needed

    def _compute(self, name: str) -> bytes:
        if name not in self._nodes:  # In the graph before the input.
            return name.encode()
        content = self._content(name, self._inputs[name])
        if name not in self._fills:
            return content
        fills = [self._content(fill, self._inputs[fill][1:]) for fill in self._fills[name]]
        return _hash([content, *sorted(fills)])

    def _content(self, name: str, inputs: Iterable[str]) -> bytes:
        """Returns the digest of a node's type and attributes and of some of its inputs."""
        node = self._nodes[name]
        self._remove_names(node)
        data = [self._known(tensor) for tensor in inputs if not tensor.startswith("^")]
        waits = sorted(self._known(tensor) for tensor in inputs if tensor.startswith("^"))
        return _hash([node.SerializeToString(deterministic=True), *data, b"after", *waits])

    def _remove_names(self, node: Any) -> None:
        """Leaves of a node its type and attributes, with functions called by their digests."""
        node.name = node.device = ""
        node.ClearField("experimental_debug_info")
        del node.input[:]
        node.op = self._called(node.op)
        for key in list(node.attr):
            if key == "shared_name" or key.startswith("_"):  # The latter are notes, as of shapes.
                del node.attr[key]
        for attr in node.attr.values():
            kind = attr.WhichOneof("value")
            called = [attr.func] if kind == "func" else attr.list.func if kind == "list" else ()
            for function in called:
                function.name = self._called(function.name)

    def _known(self, tensor: str) -> bytes:
        """Returns the digest of an input; where ops form a cycle, what is known of it."""
        name, _, output = tensor.lstrip("^").partition(":")
        digest = self._digests.get(name)
        if digest is None:
            inputs = map(_op_of, self._inputs[name])
            digest = _hash([b"cycle", *(self._digests.get(n, b"") for n in inputs)])
        return digest + output.encode()

    def _called(self, op: str) -> str:
        digest = self._digest_of_function(op)
        return op if digest is None else digest.hex()


def _number_python_functions(graph_def: Any) -> None:
    """Gives the functions of Python the numbers of their order in the graph, not in the process.

    By them two arrays differ, for example, that such functions pass to datasets.
    """
    called = [
        node
        for nodes in (graph_def.node, *(f.node_def for f in graph_def.library.function))
        for node in nodes
        if "token" in node.attr
    ]
    tokens = {node.attr["token"].s for node in called}
    order = sorted(tokens, key=lambda token: (len(token), token))  # They end with a number.
    numbers = {token: b"%d" % number for number, token in enumerate(order)}
    for node in called:
        node.attr["token"].s = numbers[node.attr["token"].s]


def _op_of(tensor: str) -> str:
    return tensor.lstrip("^").partition(":")[0]


def _hash(parts: Iterable[bytes]) -> bytes:
    content = hashlib.sha256()
    for part in parts:
        content.update(b"%d " % len(part))
        content.update(part)
    return content.digest()
