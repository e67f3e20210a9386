"""One seed, one run: `tf_random_seed` reaches every random op, whatever the loop's size."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from estimator import _tf


@contextlib.contextmanager
def python_seed(seed: int | None) -> Iterator[None]:
    """Inside, Python's `random`, where Keras takes its default seeds from, starts at `seed`."""
    if seed is None:
        yield
        return
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


@contextlib.contextmanager
def separate_step_seeds(graph: tf.Graph) -> Iterator[None]:
    """Inside, ops of a step built at the top of `graph` get the seeds they get in a loop's body.

    TensorFlow counts the ops that ask a graph for a seed. A loop's body is a graph of its own,
    where the count starts at zero, and initial values belong to the graph around it. Without a
    loop both would share one count, and a run with dropout would depend on the loop's size.
    """
    outside = _tf.swap_seed_counter(graph, 0)

    def create(next_creator: Callable, **kwargs: Any) -> tf.Variable:
        value = kwargs.get("initial_value")
        if callable(value):
            kwargs["initial_value"] = lambda: build_outside(value)
        return next_creator(**kwargs)

    def build_outside(value: Callable) -> Any:
        nonlocal outside
        inside = _tf.swap_seed_counter(graph, outside)
        try:
            return value()
        finally:
            outside = _tf.swap_seed_counter(graph, inside)

    with tf.variable_creator_scope(create):
        yield
