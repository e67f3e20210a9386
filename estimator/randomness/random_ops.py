"""Makes random ops a function of the seed and the step, so that a resumed run repeats its draws.

TensorFlow's random ops draw from a stream and keep their position in the kernel, which no
checkpoint can save: a resumed run starts the streams again. Here an op with a seed, either its own
or `tf_random_seed`, becomes a stateless op: a function of its seeds and of the global step before
the step. An op without any seed stays stateful, and a resumed run continues with other numbers.

Ops in a `tf.cond` or a `tf.while_loop` are covered too: each iteration of a loop draws anew.
TensorFlow counts op seeds from 0 in every such body; here each body has its own streams, so that no
two bodies draw the same numbers.

No two replicas draw the same numbers either. Where they would, because they are in processes that
build the same graph or because an op names its seed, the replica's number is part of the seed. The
first replica's number is 0 and has no effect: a single replica draws what it would draw alone.
Outside of replicas, where all must do the same, all draw the same numbers.

These ops stay stateful: ops in a `tf.function`, a dataset or a `tf.vectorized_map` of `model_fn`;
ops in a loop after `tf.compat.v1.disable_control_flow_v2()` at one step per loop; ops of
`tf.raw_ops`; and candidate sampling (`tf.nn.nce_loss`), random bounding boxes and fractional
pooling.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.cluster.collectives import num_local_replicas, replica_id
from estimator.randomness.stateless_twins import COMPILED_TWINS, TWINS, RngKey, build_counter
from estimator.rewrite.graph_walk import ops_before

_PRIME = 2654435761  # 2^32 / golden ratio: iteration i in step s has the key s * _PRIME + i.


@contextlib.contextmanager
def drawing_by_step(step: tf.Tensor, model_fn: Callable) -> Iterator[Callable]:
    """Makes random ops built in the default graph depend on `step`, except in initial values.

    Args:
      step: scalar, int64: the global step before the step.
      model_fn: the user's `model_fn`.

    Yields:
      The `model_fn` to call instead, whose variables start with the same values.
    """
    draws = _Draws(step)
    with (
        _tf.random_ops_replaced(draws.draw, TWINS),
        _tf.keras_seeds_replaced(draws.seed_of_replica),
    ):
        yield draws.keep_initial_values(model_fn)


_SMALL_PRIME = 1_000_003  # Keras seeds have 32 bits.


def _replica() -> int | None:
    """Returns the global index of the replica being built; None for none, or for all at once."""
    is_inside = tf.distribute.get_replica_context() is not None
    return replica_id() if is_inside and _replica_of_program() is None else None


class _Draws:
    """The random ops of one step."""

    def __init__(self, step: tf.Tensor) -> None:
        self._num_local_replicas = num_local_replicas(tf.distribute.get_strategy())
        self._graph = tf.compat.v1.get_default_graph()
        self._step = step
        self._counter = build_counter(step)
        self._is_initial_value = False
        self._bodies = {self._graph: 0}
        # The first replica of this process that drew from a stream; the next would draw the same
        # numbers.
        self._owners: dict[tuple[int, int, int], int] = {}
        # Maps each new op to the call that it replaces.
        self._calls: dict[tf.Operation, tuple[Callable, tuple, dict[str, Any]]] = {}

    def draw(self, name: str, original: Callable, /, *args: Any, **kwargs: Any) -> tf.Tensor:
        """Builds a stateless op, not `original`, if it has a seed and its iteration is known."""
        seeds = kwargs.get("seed") or 0, kwargs.get("seed2") or 0
        turns = None if self._is_initial_value else _tf.loop_counters(self._graph)
        if turns is None or seeds == (0, 0):
            return original(*args, **self._seeded_for_replica(kwargs))
        step_key, replica = self._step, _replica_of_program()
        if replica is not None:
            turns = [replica, *turns]
        for turn in turns:
            step_key = step_key * _PRIME + tf.cast(turn, step_key.dtype)
        body = self._bodies.setdefault(tf.compat.v1.get_default_graph(), len(self._bodies))
        stream = (*seeds, body)
        counter = build_counter(step_key) if turns else self._counter
        key = RngKey(stream, self._number_in(stream), step_key, counter)
        rest = {key: value for key, value in kwargs.items() if key not in ("seed", "seed2")}
        # The default name is the op's type: "random_uniform" becomes "RandomUniform".
        rest["name"] = kwargs.get("name") or "".join(map(str.capitalize, name.split("_")))
        twins = TWINS if replica is None else COMPILED_TWINS
        tensor = twins[name](key, *args, **rest)
        self._calls[tensor.op] = original, args, kwargs
        return tensor

    def _seeded_for_replica(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Gives an op that stays stateful, as in a function, a seed of this replica's own.

        TensorFlow traces the function once for each replica, and counts its op seeds from 0.
        """
        seeds = kwargs.get("seed") or 0, kwargs.get("seed2") or 0
        replica = None if self._is_initial_value or seeds == (0, 0) else _replica()
        if not replica:
            return kwargs
        return {**kwargs, "seed2": (seeds[1] + replica * _SMALL_PRIME) % 2**31}

    def seed_of_replica(self, seed: Any) -> Any:
        """Returns a seed, [2], of a stateless random op that no other replica uses."""
        replica = _replica()
        if self._is_initial_value or not replica:
            return seed
        seed = tf.convert_to_tensor(seed)
        return seed + tf.cast([replica * _SMALL_PRIME, 0], seed.dtype)

    def _number_in(self, stream: tuple[int, int, int]) -> int:
        """Returns what sets this replica's stream apart from other replicas'; 0 for the first."""
        replica = _replica()
        if replica is None:
            return 0
        first = replica - replica % self._num_local_replicas
        return replica if self._owners.setdefault(stream, replica) != replica else first

    def keep_initial_values(self, model_fn: Callable) -> Callable:
        """Wraps `model_fn` so that initial values of its variables do not depend on the step."""

        @functools.wraps(model_fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with tf.variable_creator_scope(self._create_variable):
                return model_fn(*args, **kwargs)

        return wrapped

    def _create_variable(self, next_creator: Callable, **kwargs: Any) -> tf.Variable:
        value = kwargs.get("initial_value")
        if callable(value):
            kwargs["initial_value"] = lambda: self._build_initial_value(value)
        elif hasattr(value, "op") and self._calls.keys() & ops_before([value], lambda op: True):
            with tf.init_scope():
                kwargs["initial_value"] = self._as_asked_for(value, {})
        return next_creator(**kwargs)

    def _build_initial_value(self, value: Callable) -> Any:
        before, self._is_initial_value = self._is_initial_value, True
        try:
            return value()
        finally:
            self._is_initial_value = before

    def _as_asked_for(self, tensor: Any, made: dict[tf.Operation, list[tf.Tensor]]) -> Any:
        """Rebuilds `tensor` in the default graph from the ops that were originally requested."""
        if not tf.is_tensor(tensor):
            return tensor
        op, source = tensor.op, _tf.capture_source(tensor)
        if source is not tensor:
            return source
        if op not in made:
            original, inputs, kwargs = self._calls.get(op, (None, op.inputs, {}))
            again = [self._as_asked_for(value, made) for value in inputs]
            made[op] = [original(*again, **kwargs)] if original else _tf.copy_op(op, again).outputs
        return made[op][tensor.value_index]


def _replica_of_program() -> tf.Tensor | None:
    """Returns the replica's index, scalar, if one program serves all replicas, as on a TPU.

    Otherwise each replica builds its own ops, with its own seeds.
    """
    context = tf.distribute.get_replica_context()
    number = None if context is None else context.replica_id_in_sync_group
    is_known = not tf.is_tensor(number) or tf.get_static_value(number) is not None
    return None if is_known else number
