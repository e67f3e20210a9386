"""Reads evaluations back from event files."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator

import tensorflow as tf

from estimator.console import no_internal_deprecations


def read_evaluations(pattern: str) -> dict[int, dict[str, float]]:
    """The scalars of every evaluation, by global step, ascending.

    Where a step was evaluated more than once, the last value of each metric counts.

    Args:
      pattern: of the paths of event files, such as `.../eval/*tfevents*`. If there is a directory
        of the very name that comes before the last `/`, no other is looked into: the name of an
        evaluation may have a `[` in it.

    Returns:
      An empty dict if there is no such file.
    """
    found: dict[int, dict[str, float]] = {}
    # A file's name has the time it was made at, so these are in the order written.
    for path in sorted(_paths(pattern), key=os.path.basename):
        for event in _events(path):
            values = {v.tag: v.simple_value for v in event.summary.value if _is_scalar(v)}
            if values:
                found.setdefault(event.step, {}).update(values)
    return dict(sorted(found.items()))


def _paths(pattern: str) -> list[str]:
    directory, names = os.path.split(pattern)
    if not tf.io.gfile.isdir(directory):
        return tf.io.gfile.glob(pattern)
    found = fnmatch.filter(tf.io.gfile.listdir(directory), names)
    return [os.path.join(directory, name) for name in found]


def _events(path: str) -> Iterator[tf.compat.v1.Event]:
    """The whole events of a file."""
    with no_internal_deprecations():
        events = tf.compat.v1.train.summary_iterator(path)
    try:
        yield from events
    except tf.errors.DataLossError:
        return  # A process that was killed, or that writes just now, leaves half an event.


def _is_scalar(value: tf.compat.v1.Summary.Value) -> bool:
    return value.HasField("simple_value")
