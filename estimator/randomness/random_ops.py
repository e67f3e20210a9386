"""Random ops that belong to their step, so that a resumed run draws what it would have drawn.

TensorFlow's random ops go along a stream of numbers and keep their place in their kernel, where no
checkpoint reaches: a resumed run starts the streams again. Here an op with a seed, be it its own or
`tf_random_seed`, becomes a stateless one: a function of its seeds and of the global step before
the step. An op without any seed stays as it is: a resumed run goes on with other numbers.

Ops in a `tf.cond` or a `tf.while_loop` are reached too: each turn of a loop draws anew. TensorFlow
counts op seeds from 0 in every such body; here each body has streams of its own, so that no two
bodies draw the same.

Nor do two replicas. Where they would, because they are in processes that build the same graph, or
because an op names its seed, the number of the replica is a part of the seed. The first replica's
is 0 and changes nothing: one replica draws what it would draw alone. Outside of replicas, where all
must do the same, all draw the same.

Others keep a place of their own: ops in a `tf.function`, a dataset or a `tf.vectorized_map` of
`model_fn`, in a loop after `tf.compat.v1.disable_control_flow_v2()` at one step a loop, those of
`tf.raw_ops`, and candidate sampling (`tf.nn.nce_loss`), random bounding boxes and fractional
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

_PRIME = 2654435761  # 2^32 over the golden ratio: turn i of a loop in step s is s * _PRIME + i.


@contextlib.contextmanager
def drawing_by_step(step: tf.Tensor, model_fn: Callable) -> Iterator[Callable]:
    """Inside, what is built in the default graph draws by `step`, but for initial values.

    Args:
      step: scalar, int64: the global step before the step.
      model_fn: of what is trained.

    Yields:
      The `model_fn` to call in its place, whose variables start as its own would.
    """
    draws = _Draws(step)
    with (
        _tf.random_ops_replaced(draws.draw, TWINS),
        _tf.keras_seeds_replaced(draws.seed_of_replica),
    ):
        yield draws.keep_initial_values(model_fn)


_SMALL_PRIME = 1_000_003  # Seeds of Keras are 32 bits.


def _replica() -> int | None:
    """The number of the replica that is built, among all; None if none is, or all are at once."""
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
        # The first replica of this process that drew from a stream; the next would draw the same.
        self._owners: dict[tuple[int, int, int], int] = {}
        # By an op that was made: the call that asked for another.
        self._calls: dict[tf.Operation, tuple[Callable, tuple, dict[str, Any]]] = {}

    def draw(self, name: str, original: Callable, /, *args: Any, **kwargs: Any) -> tf.Tensor:
        """Makes an op of this step, not `original`, if it has a seed and its turn is known."""
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
        key = RngKey(
            stream,
            self._number_in(stream),
            step_key,
            build_counter(step_key) if turns else self._counter,
        )
        rest = {key: value for key, value in kwargs.items() if key not in ("seed", "seed2")}
        # A name that the caller leaves open is that of the op: "random_uniform" is "RandomUniform".
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
        """A seed of a random op without state, [2], that no other replica has."""
        replica = _replica()
        if self._is_initial_value or not replica:
            return seed
        seed = tf.convert_to_tensor(seed)
        return seed + tf.cast([replica * _SMALL_PRIME, 0], seed.dtype)

    def _number_in(self, stream: tuple[int, int, int]) -> int:
        """What tells this replica's stream from the same one of other replicas; 0 for the first."""
        replica = _replica()
        if replica is None:
            return 0
        first = replica - replica % self._num_local_replicas
        return replica if self._owners.setdefault(stream, replica) != replica else first

    def keep_initial_values(self, model_fn: Callable) -> Callable:
        """The same `model_fn`, but initial values that it creates variables with know no step."""

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
        """Builds `tensor` once more, in the default graph, of the ops that were asked for."""
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
    """The replica's number, scalar, where one program is built for all of them, as for a TPU.

    Elsewhere each replica builds its ops, which have seeds of their own.
    """
    context = tf.distribute.get_replica_context()
    number = None if context is None else context.replica_id_in_sync_group
    is_known = not tf.is_tensor(number) or tf.get_static_value(number) is not None
    return None if is_known else number
