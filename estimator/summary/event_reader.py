"""Reads evaluations from event files."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator

import tensorflow as tf

from estimator.console import no_internal_messages


def read_evaluations(pattern: str) -> dict[int, dict[str, float]]:
    """Returns the scalars of every evaluation, by global step in ascending order.

    If a step was evaluated more than once, the last value of each metric counts.

    Args:
      pattern: a glob pattern of event files, such as `.../eval/*tfevents*`. If the part before the
        last `/` is the literal name of an existing directory, only that directory is searched,
        because the name of an evaluation may contain a `[`.

    Returns:
      A dict by step, which is empty without such files.
    """
    found: dict[int, dict[str, float]] = {}
    # A file's name contains its creation time, so this sorts by time.
    for path in sorted(_paths(pattern), key=os.path.basename):
        for event in _events(path):
            scalars = [v for v in event.summary.value if v.HasField("simple_value")]
            values = {v.tag: v.simple_value for v in scalars}
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
    """Yields the complete events of a file."""
    with no_internal_messages():
        events = tf.compat.v1.train.summary_iterator(path)
    try:
        yield from events
    except tf.errors.DataLossError:
        return  # A killed or still writing process may leave an incomplete event.
