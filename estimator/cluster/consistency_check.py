"""Checks, before workers train together, that they train the same model in the same way.

Workers that differ would wait for each other forever. So each describes its model, all compare the
descriptions, and all raise the same error.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from estimator.cluster.collectives import Workers, build_gather
from estimator.rewrite.graph_walk import all_nodes

OpenSession: TypeAlias = Callable[[tf.Graph], tf.compat.v1.Session]

_MAX_LINES = 10
_ID_LENGTH = 32


def describe_variables(graph: tf.Graph, has_devices: bool = False) -> dict[str, str]:
    """Describes the variables of a graph for messages; with their devices if `has_devices`."""
    with graph.as_default():
        variables = tf.compat.v1.global_variables()
    return {
        f"the variable {variable.name.partition(':')[0]}": " ".join(
            [variable.dtype.name, str(variable.shape), *([variable.device] if has_devices else [])]
        )
        for variable in variables
    }


def describe_model(graph: tf.Graph) -> dict[str, str]:
    """Describes the variables of a graph and its number of collectives, for messages."""
    described = describe_variables(graph)
    nodes = all_nodes(graph.as_graph_def())
    count = sum(node.op.startswith("Collective") for node in nodes)
    return {**described, "the number of collectives": str(count)}


def check_consistency(
    mine: Mapping[str, Any], workers: Workers, open_session: OpenSession
) -> bytes:
    """Raises an error on all workers if any worker's description differs from the chief's.

    Args:
      mine: this worker's description, by name.
      workers: all workers; every one must make this call.
      open_session: opens a session on this worker's server.

    Returns:
      An id that is the same on all workers, and that no other call returns.

    Raises:
      ValueError: the descriptions differ; the message says where.
    """
    text = uuid.uuid4().hex.encode() + encode(mine)
    with tf.Graph().as_default() as graph, tf.device("/cpu:0"):
        given = tf.compat.v1.placeholder(tf.int32, [None])
        gathered = build_gather(workers, given)
        with open_session(graph) as session:
            texts = session.run(gathered, {given: np.frombuffer(text, np.uint8)})
    rows = [bytes(row.astype(np.uint8)).rstrip(b"\0") for row in texts]
    chiefs, *others = (json.loads(row[_ID_LENGTH:]) for row in rows)
    chief, *names = workers.names
    differences = []
    for name, theirs in zip(names, others, strict=True):
        differences += _compare(chiefs | theirs, chiefs, chief, theirs, name)
    _check_none(differences)
    return rows[0][:_ID_LENGTH]


def encode(described: Mapping[str, Any]) -> bytes:
    """Serializes a description."""
    return json.dumps({name: str(value) for name, value in described.items()}).encode()


def check_like_chief(chiefs: bytes, chief: str, mine: Mapping[str, Any], own_name: str) -> None:
    """Raises an error if this task differs from the chief; the chief may have more entries.

    Args:
      chiefs: the chief's description, encoded.
      chief: the chief's name in messages.
      mine: this task's description, by name.
      own_name: this task's name in messages.

    Raises:
      ValueError: the descriptions differ; the message says where.
    """
    theirs = json.loads(encode(mine))
    _check_none(_compare(theirs, json.loads(chiefs), chief, theirs, own_name))


def _check_none(differences: list[str]) -> None:
    if not differences:
        return
    shown, count = differences[:_MAX_LINES], len(differences)
    more = f"\n  and {count - _MAX_LINES} more" if count > _MAX_LINES else ""
    raise ValueError(
        "The workers of a cluster must run the same program: the same model and the same config. "
        "They differ:\n  " + "\n  ".join(shown) + more
    )


def _compare(
    names: Iterable[str], ones: dict[str, str], one: str, others: dict[str, str], other: str
) -> list[str]:
    missing = "missing"
    return [
        f"{name} is {ones.get(name, missing)} on {one} and {others.get(name, missing)} on {other}"
        for name in names
        if ones.get(name) != others.get(name)
    ]
