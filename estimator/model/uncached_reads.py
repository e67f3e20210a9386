"""Variables without a `caching_device`, by which a session call would read each once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def without_cached_reads() -> contextlib.AbstractContextManager[Any]:
    """Inside, what reads a variable after an update gets the new value, whatever device caches it.

    A cached value is from the start of the session call. So are, for example, the weights that a
    constraint or a moving average reads; in a loop, those of all its steps.
    """
    return tf.variable_creator_scope(_create_uncached)


def _create_uncached(next_creator: Callable, **kwargs: Any) -> tf.Variable:
    return next_creator(**{**kwargs, "caching_device": None})
