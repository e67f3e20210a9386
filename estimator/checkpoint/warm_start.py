"""Warm start: variables of an untrained model get an old model's values.

It is a single op added to the program, like a saver's: it depends on neither loops nor strategies,
only on variables and their copies. It runs before the initializers of the other variables, whose
values may depend on the loaded ones, as the averages of an ExponentialMovingAverage do.
"""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.checkpoint.errors import restore_error
from estimator.checkpoint.matching import match
from estimator.checkpoint.old_model import OldModel, some
from estimator.checkpoint.variables import SavedVariable, saved_variables
from estimator.config.warm_start_settings import VocabInfo
from estimator.console import say

_DAMAGE = (
    tf.errors.DataLossError,
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.OutOfRangeError,
)


@dataclasses.dataclass(frozen=True)
class WarmStart:
    """The op that loads values of an old model, and what to log about it.

    Attributes:
      old: the source of the values.
      op: assigns all values.
      sources: the variables that it assigns, with the keys of their values.
      num_moved: for each variable with a vocabulary, by name, the number of its entries that the
        old vocabulary has, as an int32 scalar.
      fresh: the names of the variables that are left to their initializers.
      trainable: the names of the trainable variables.
    """

    old: OldModel
    op: tf.Operation
    sources: list[tuple[SavedVariable, str]]
    num_moved: dict[str, tf.Tensor]
    fresh: list[str]
    trainable: Collection[str]

    def without_loaded(self, variables: Iterable[tf.Variable]) -> list[tf.Variable]:
        """Returns the variables that are left to their initializers."""
        loaded = {id(part) for variable, _ in self.sources for part in variable.parts}
        return [variable for variable in variables if id(variable) not in loaded]

    def run(self, session: tf.compat.v1.Session) -> None:
        """Assigns the values, and logs which ones.

        Raises:
          ValueError: the checkpoint or a vocabulary cannot be read.
        """
        start = time.perf_counter()
        try:
            _, num_moved = session.run([self.op, self.num_moved])
        except _DAMAGE as error:
            raise ValueError(
                f"`warm_start_from`: the values in {self.old.path} cannot be loaded "
                f"({restore_error(error)})."
            ) from error
        seconds = time.perf_counter() - start
        table = self._table(seconds, num_moved)
        say("%s", "\n".join(table), brief=table[0])

    def _table(self, seconds: float, num_moved: dict[str, int]) -> list[str]:
        infos = self.old.vocab_infos
        sizes = [v.dtype.size * (v.shape.num_elements() or 0) for v, _ in self.sources]
        rows = []
        for variable, key in self.sources:
            note = f"from {key}" if key != variable.name else ""
            if variable.name in infos:
                size = infos[variable.name].new_vocab_size
                note += f" {num_moved[variable.name]} of {size} entries are in the old vocabulary"
            rows.append(("loaded", variable.name, str(variable.shape), note.strip()))
        rows += [("fresh", name, "", "") for name in self.fresh if name in self.trainable]
        width = max((len(name) for _, name, _, _ in rows), default=0)
        used = {key for _, key in self.sources}
        keys = self.old.keys
        skipped = [name for name in self.old.names if used.isdisjoint(keys.get(name, [name]))]
        others = [name for name in self.fresh if name not in self.trainable]
        return [
            f"Warm start from {self.old.path}: {len(self.sources)} variables loaded "
            f"({sum(sizes) / 1e6:.3g} MB in {seconds:.2g} s)",
            *(f"  {kind:7} {name:{width}} {a} {b}".rstrip() for kind, name, a, b in rows),
            f"  fresh, not trainable ({len(others)}): {some(others)}",
            f"  skipped, only in the checkpoint ({len(skipped)}): {some(skipped)}",
        ]


def build_warm_start(old: OldModel) -> WarmStart:
    """Adds the op to the default graph, which must hold all variables of the new model.

    Raises:
      ValueError: the settings select nothing, name variables that the model lacks or that they do
        not select, or the checkpoint lacks a selected variable or holds it with another shape.
    """
    everything = saved_variables(tf.compat.v1.global_variables())
    trainable = saved_variables(tf.compat.v1.trainable_variables())
    sources = match(old, everything, trainable)
    with tf.name_scope("warm_start"):
        values, num_moved = _build_values(old, sources)
        assignments = [
            assignment
            for (variable, _), value in zip(sources, values, strict=True)
            for assignment in _build_assignments(variable, value)
        ]
        op = tf.group(*assignments)
    loaded = {variable.name for variable, _ in sources}
    fresh = [name for name in everything if name not in loaded]
    return WarmStart(old, op, sources, num_moved, fresh, trainable)


def _build_values(
    old: OldModel, sources: Sequence[tuple[SavedVariable, str]]
) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
    """Returns each variable's value, and for those with a vocabulary the number of moved rows.

    Each tensor of the checkpoint is read once, all by one op, which reads in parallel.
    """
    keys = sorted({key for _, key in sources})
    values, num_moved = [], {}
    if not keys:
        return [], {}
    with tf.device("/cpu:0"):
        tensors = tf.raw_ops.RestoreV2(
            prefix=old.path,
            tensor_names=keys,
            shape_and_slices=[""] * len(keys),
            dtypes=[old.dtypes[key] for key in keys],
        )
        by_key = dict(zip(keys, tensors, strict=True))
        for variable, key in sources:
            value, info = by_key[key], old.vocab_infos.get(variable.name)
            if info is not None:
                value, num_moved[variable.name] = _build_moved(value, variable, info)
            values.append(value)
    return values, num_moved


def _build_moved(
    value: tf.Tensor, variable: SavedVariable, info: VocabInfo
) -> tuple[tf.Tensor, tf.Tensor]:
    """Moves the old value's rows to the new vocabulary's order; also returns their number."""
    remapping, num_moved = tf.raw_ops.GenerateVocabRemapping(
        new_vocab_file=info.new_vocab,
        old_vocab_file=info.old_vocab,
        new_vocab_offset=0,
        num_new_vocab=info.new_vocab_size,
        old_vocab_size=info.old_vocab_size,
    )
    rows = tf.pad(remapping, [[0, info.num_oov_buckets]], constant_values=-1)
    moved = tf.gather(value, tf.maximum(rows, 0), axis=info.axis)
    mask_shape = [1] * variable.shape.rank
    mask_shape[info.axis] = -1
    is_there = tf.reshape(rows >= 0, mask_shape)
    return tf.where(is_there, moved, _build_backup(variable, info)), num_moved


def _build_backup(variable: SavedVariable, info: VocabInfo) -> tf.Tensor:
    """Builds the values of rows that the old model lacks, as for an entirely new variable."""
    initializer: Any = info.backup_initializer
    if initializer is None:
        return tf.zeros(variable.shape, variable.dtype)
    if isinstance(initializer, type):
        initializer = initializer()
    takes = inspect.signature(initializer).parameters.values()
    takes_dtype = any(p.name == "dtype" or p.kind is p.VAR_KEYWORD for p in takes)
    dtype = {"dtype": variable.dtype} if takes_dtype else {}
    value = tf.convert_to_tensor(initializer(variable.shape.as_list(), **dtype))
    if value.dtype != variable.dtype or not value.shape.is_compatible_with(variable.shape):
        raise ValueError(
            f"`var_name_to_vocab_info[{variable.name!r}].backup_initializer` ({initializer!r}) "
            f"made {value.dtype.name}{value.shape}. It must make what it is asked for: "
            f"{variable.dtype.name}{variable.shape}."
        )
    return value


def _build_assignments(variable: SavedVariable, value: tf.Tensor) -> list[tf.Operation]:
    """Assigns the value to the variable's parts, and to each replica's copy of them."""
    assignments = []
    for part, offset in zip(variable.parts, variable.offsets, strict=True):
        part_value = value if offset is None else tf.slice(value, offset, part.shape)
        if _is_sum_of_copies(part):
            num_copies = part.distribute_strategy.num_replicas_in_sync  # Of all workers.
            part_value = tf.cast(part_value / num_copies, variable.dtype)
        assignments += [copy.assign(part_value, read_value=False) for copy in _tf.copies(part)]
    return assignments


def _is_sum_of_copies(variable: tf.Variable) -> bool:
    """Returns whether a checkpoint holds the sum of the variable's copies."""
    return (
        isinstance(variable, tf.distribute.DistributedValues)
        and variable.synchronization == tf.VariableSynchronization.ON_READ
        and variable.aggregation == tf.VariableAggregation.SUM
    )
