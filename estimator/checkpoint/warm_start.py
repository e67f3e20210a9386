"""Warm start: variables of a model that was not trained yet get an old model's values.

All of it is one op beside the program, as a saver's are: it knows neither loops nor strategies,
only variables and their copies. It runs before the initializers of the other variables, whose
values may depend on those that are loaded, as the averages of an ExponentialMovingAverage do.
"""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.checkpoint.files import restore_error
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
    """The op that loads values of an old model, and what to log of it.

    Attributes:
      old: where the values come from.
      op: assigns all of them.
      sources: the variables that it assigns, and the keys of their values.
      num_moved: the variables that have a vocabulary, by name: how many of its entries the old
        vocabulary has, as an int32 scalar.
      fresh: names of the variables that it leaves to their initializers.
      trainable: names of the variables that are trainable.
    """

    old: OldModel
    op: tf.Operation
    sources: list[tuple[SavedVariable, str]]
    num_moved: dict[str, tf.Tensor]
    fresh: list[str]
    trainable: Collection[str]

    def without_loaded(self, variables: Iterable[tf.Variable]) -> list[tf.Variable]:
        """Those of the variables that are left to their initializers."""
        loaded = {id(part) for variable, _ in self.sources for part in variable.parts}
        return [variable for variable in variables if id(variable) not in loaded]

    def run(self, session: tf.compat.v1.Session) -> None:
        """Assigns the values and logs which.

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
        skipped = [name for name in self.old.names if self.old.keys.get(name, name) not in used]
        others = [name for name in self.fresh if name not in self.trainable]
        return [
            f"Warm start from {self.old.path}: {len(self.sources)} variables loaded "
            f"({sum(sizes) / 1e6:.3g} MB in {seconds:.2g} s)",
            *(f"  {kind:7} {name:{width}} {a} {b}".rstrip() for kind, name, a, b in rows),
            f"  fresh, not trainable ({len(others)}): {some(others)}",
            f"  skipped, only in the checkpoint ({len(skipped)}): {some(skipped)}",
        ]


def build_warm_start(old: OldModel) -> WarmStart:
    """Adds the op to the default graph, which holds all variables of the new model.

    Raises:
      ValueError: the settings choose nothing, name variables that the model lacks or does not
        choose, or the checkpoint lacks a variable that is chosen or holds another shape.
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
    """For each variable its value, and for each with a vocabulary how many rows are moved.

    Each tensor of the checkpoint is read once, all of them by one op, which reads in parallel.
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
    """The old value's rows where the new vocabulary has them; and how many of them there are."""
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
    """Values for rows that the old model lacks, as for a variable that is all new."""
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
    """Assigns the value to the parts of the variable, and to each replica's copy of them."""
    assignments = []
    for part, offset in zip(variable.parts, variable.offsets, strict=True):
        part_value = value if offset is None else tf.slice(value, offset, part.shape)
        copies = _tf.copies(part)
        if _is_sum_of_copies(part):
            part_value = tf.cast(part_value / len(copies), variable.dtype)
        assignments += [copy.assign(part_value, read_value=False) for copy in copies]
    return assignments


def _is_sum_of_copies(variable: tf.Variable) -> bool:
    """Whether what a checkpoint holds of the variable is the sum of its copies."""
    return (
        variable.synchronization == tf.VariableSynchronization.ON_READ
        and variable.aggregation == tf.VariableAggregation.SUM
    )
