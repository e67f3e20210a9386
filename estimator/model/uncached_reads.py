"""Variables without a `caching_device`, which would read each once a session call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def without_cached_reads() -> contextlib.AbstractContextManager[Any]:
    """Inside, variables are created without a cache, so a read after an update gets the new value.

    A cache is filled once a session call: a constraint or a moving average would get the weight of
    before the update, and all steps of a loop that of before the loop.
    """
    return tf.variable_creator_scope(_create_uncached)


def _create_uncached(next_creator: Callable, **kwargs: Any) -> tf.Variable:
    return next_creator(**{**kwargs, "caching_device": None})
