"""Before workers train together: do they train the same model in the same way?

Workers that differ would wait for each other for ever. So each says what it has, all compare, and
all raise the same error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from estimator.graph.workers import Workers, build_gather

_MAX_LINES = 10


def describe_model(graph: tf.Graph) -> dict[str, str]:
    """The variables of a graph, and how many collectives it has, as they are to be shown."""
    with graph.as_default():
        variables = tf.compat.v1.global_variables()
    described = {
        f"the variable {variable.name.partition(':')[0]}": f"{variable.dtype.name} {variable.shape}"
        for variable in variables
    }
    functions = graph.as_graph_def().library.function
    nodes = [*graph.get_operations(), *(node for f in functions for node in f.node_def)]
    kinds = [getattr(node, "type", None) or node.op for node in nodes]
    described["the number of collectives"] = str(
        sum(kind.startswith("Collective") for kind in kinds)
    )
    return described


def check_alike(
    mine: Mapping[str, Any],
    workers: Workers,
    open_session: Callable[[tf.Graph], tf.compat.v1.Session],
) -> None:
    """Raises, on all workers, if some worker's description differs from the chief's.

    Args:
      mine: what this worker has, by name.
      workers: all of them; every one must make this call.
      open_session: on this worker's server.

    Raises:
      ValueError: says what differs, and on which worker.
    """
    if workers.count == 1:
        return
    text = json.dumps({name: str(value) for name, value in mine.items()}).encode()
    with tf.Graph().as_default() as graph, tf.device("/cpu:0"):
        given = tf.compat.v1.placeholder(tf.int32, [None])
        gathered = build_gather(workers, given)
        with open_session(graph) as session:
            texts = session.run(gathered, {given: np.frombuffer(text, np.uint8)})
    everyone = [json.loads(bytes(row.astype(np.uint8)).rstrip(b"\0")) for row in texts]
    lines = [
        line for other in range(1, workers.count) for line in _compare(everyone, other, workers)
    ]
    if lines:
        more = f"\n  and {len(lines) - _MAX_LINES} more" if len(lines) > _MAX_LINES else ""
        raise ValueError(
            "The workers of a cluster must run the same program: the same model and the same "
            "config. They differ:\n  " + "\n  ".join(lines[:_MAX_LINES]) + more
        )


def _compare(everyone: list[dict[str, str]], other: int, workers: Workers) -> list[str]:
    chiefs, theirs = everyone[0], everyone[other]
    missing = "not there"
    return [
        f"{name} is {chiefs.get(name, missing)} on {workers.names[0]} and "
        f"{theirs.get(name, missing)} on {workers.names[other]}"
        for name in dict.fromkeys([*chiefs, *theirs])
        if chiefs.get(name) != theirs.get(name)
    ]
