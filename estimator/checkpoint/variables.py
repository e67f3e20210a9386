"""A graph's variables as a checkpoint holds them: by name, and partitioned ones as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import tensorflow as tf

from estimator import _tf


@dataclasses.dataclass(frozen=True)
class SavedVariable:
    """A variable that a checkpoint holds under one name.

    Attributes:
      name: the name in the checkpoint, without ":0".
      shape: the shape of the whole variable.
      dtype: the dtype of the whole variable.
      parts: the variables that hold it; several if it is partitioned.
      offsets: for each part, its offset in the whole variable.
    """

    name: str
    shape: tf.TensorShape
    dtype: tf.DType
    parts: list[tf.Variable]
    offsets: list[list[int] | None]


def saved_variables(variables: Iterable[tf.Variable]) -> dict[str, SavedVariable]:
    """Returns variables of a graph by their names in a checkpoint, in order."""
    saved: dict[str, SavedVariable] = {}
    for variable in variables:
        whole = _tf.slice_of(variable)
        # Not the `op`'s name: reading a variable that is reduced on read makes `op` the reduction.
        name = variable.name.partition(":")[0] if whole is None else whole.full_name
        if name not in saved:
            shape = variable.shape if whole is None else tf.TensorShape(whole.full_shape)
            saved[name] = SavedVariable(name, shape, variable.dtype.base_dtype, [], [])
        saved[name].parts.append(variable)
        saved[name].offsets.append(None if whole is None else list(whole.var_offset))
    return saved
