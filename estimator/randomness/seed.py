"""Makes `tf_random_seed` determine every random op, whatever the loop's size."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from estimator import _tf


@contextlib.contextmanager
def python_seed(seed: int | None) -> Iterator[None]:
    """Seeds Python's `random`, from which Keras takes its default seeds, inside the block."""
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
    """Gives ops of a step at the top of `graph` the seeds that they would get in a loop's body.

    TensorFlow counts the ops that ask a graph for a seed. A loop's body is a separate graph, whose
    count starts at zero, while initial values belong to the graph around it. Without a loop, both
    would share one count, and a run with dropout would depend on the loop's size.
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
