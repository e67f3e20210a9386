"""`WarmStartSettings` and `VocabInfo`: which variables start with another model's values."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import tensorflow as tf

from estimator.config.checks import WrongTypeError, check_instance, check_int, check_type
from estimator.config.frozen import TupleFields, short_repr, write_fields

# The type of paths in both classes.
_Path: TypeAlias = str | os.PathLike


@dataclass(frozen=True, repr=False)
class VocabInfo(TupleFields):
    """Describes how the rows or columns of a variable correspond to a vocabulary.

    A vocabulary is a text file with one entry per line. The row of an entry of the new vocabulary
    is copied from the row of the same entry of the old one. New entries and the out-of-vocabulary
    buckets, which come last, get values from the `backup_initializer`.

    Attributes:
      new_vocab: the path of the new model's vocabulary.
      new_vocab_size: how many of its entries, from the first, the new model uses.
      num_oov_buckets: the number of rows of the new variable after those of the vocabulary.
      old_vocab: the path of the vocabulary that the old model was trained with.
      old_vocab_size: how many of its entries, from the first, the old model used; -1 for all.
      backup_initializer: makes a value of the new variable's shape and dtype, from which the new
        rows are taken; zeros if None.
      axis: the variable's dimension that follows the vocabulary: 0 for rows, as in an embedding; 1
        for columns, as in the kernel of a layer with an output for each entry.

    Raises:
      TypeError, ValueError: a field is wrong. The files are read only when training starts.
    """

    new_vocab: _Path
    new_vocab_size: int
    num_oov_buckets: int
    old_vocab: _Path
    old_vocab_size: int = -1
    backup_initializer: Callable | None = None
    axis: int = 0

    def __post_init__(self) -> None:
        """Checks every field."""
        for name in ("new_vocab", "old_vocab"):
            path = checked_path(name, getattr(self, name), "of a vocabulary file")
            write_fields(self, **{name: path})
        check_int("new_vocab_size", self.new_vocab_size)
        check_int("num_oov_buckets", self.num_oov_buckets, minimum=0)
        check_int("old_vocab_size", self.old_vocab_size, minimum=None)
        if self.old_vocab_size < 1 and self.old_vocab_size != -1:
            raise ValueError(
                f"`old_vocab_size` ({self.old_vocab_size}) must be at least 1, or -1 for all of "
                f"`old_vocab` ({self.old_vocab!r})."
            )
        if self.backup_initializer is not None and not callable(self.backup_initializer):
            raise WrongTypeError(
                f"`backup_initializer` ({self.backup_initializer!r}) must be an initializer, such "
                "as tf.compat.v1.truncated_normal_initializer(), or None for zeros."
            )
        if self.axis not in (0, 1) or isinstance(self.axis, bool):
            raise ValueError(
                f"`axis` ({self.axis!r}) must be 0, if the rows of the variable follow the "
                "vocabulary, or 1, if its columns do."
            )

    def __repr__(self) -> str:
        """Shows only the fields that differ from their defaults."""
        return short_repr(self)


@dataclass(frozen=True, repr=False)
class WarmStartSettings(TupleFields):
    """Configures a warm start: the source of an untrained model's initial values.

    Names of variables are those in a checkpoint: without ":0", and with one name for a partitioned
    variable.

    Attributes:
      ckpt_to_initialize_from: a checkpoint's path, a directory of checkpoints (the newest is used),
        or the directory of a SavedModel.
      vars_to_warm_start: the variables to load. A regular expression, which must match the
        beginning of the name, selects trainable variables; a list of expressions selects from all
        variables, including moving statistics, slots and the global step. A list of `tf.Variable`s
        selects those of the same names. None selects the trainable ones in
        `var_name_to_vocab_info`.
      var_name_to_vocab_info: maps names to a `VocabInfo`, for variables whose vocabulary has
        changed.
      var_name_to_prev_var_name: maps names to the names in the checkpoint, where they differ.
        Several variables may have the same old name. It adds nothing to `vars_to_warm_start`.

    Raises:
      TypeError, ValueError: a field is wrong. Files are read only when training starts.
    """

    ckpt_to_initialize_from: _Path
    vars_to_warm_start: str | Sequence[str] | Sequence[tf.Variable] | None = ".*"
    var_name_to_vocab_info: Mapping[str, VocabInfo] | None = None
    var_name_to_prev_var_name: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Checks every field; copies mappings and lists."""
        path = checked_path(
            "ckpt_to_initialize_from", self.ckpt_to_initialize_from, "of a checkpoint"
        )
        vocabularies = {
            name: _checked_vocabulary(name, info)
            for name, info in _checked_names(self, "var_name_to_vocab_info").items()
        }
        old_names = _checked_names(self, "var_name_to_prev_var_name")
        for name, old_name in old_names.items():
            argument = f"var_name_to_prev_var_name[{name!r}]"
            check_instance(argument, old_name, str, "the name of a variable in the checkpoint")
        if self.vars_to_warm_start is None and not vocabularies:
            raise ValueError(
                "`vars_to_warm_start` (None) chooses the variables in `var_name_to_vocab_info`, "
                'which is empty. Name some there, or pass ".*" for all that are trainable.'
            )
        write_fields(
            self,
            ckpt_to_initialize_from=path,
            vars_to_warm_start=_checked_choice(self.vars_to_warm_start),
            var_name_to_vocab_info=vocabularies,
            var_name_to_prev_var_name=old_names,
        )

    def __repr__(self) -> str:
        """Shows only the fields that differ from their defaults."""
        return short_repr(self, var_name_to_vocab_info={}, var_name_to_prev_var_name={})


def checked_warm_start(warm_start_from: Any) -> WarmStartSettings | None:
    """Returns the settings of an Estimator's `warm_start_from`; None if it is None.

    Raises:
      TypeError: `warm_start_from` is neither a path nor settings.
      ValueError: `warm_start_from` is an empty path.
    """
    if warm_start_from is None or isinstance(warm_start_from, WarmStartSettings):
        return warm_start_from
    return WarmStartSettings(
        checked_path("warm_start_from", warm_start_from, "or WarmStartSettings")
    )


def checked_path(argument: str, path: Any, rule: str) -> str:
    """Returns the path as a string, even from bytes, which `export_saved_model` returns."""
    check_type(argument, path, str | bytes | os.PathLike, f"a path, {rule}")
    if not path:
        raise ValueError(f"`{argument}` ({path!r}) must not be empty: it must be a path, {rule}.")
    return os.fsdecode(path)


def _checked_names(settings: WarmStartSettings, argument: str) -> dict[str, Any]:
    named = getattr(settings, argument)
    if named is None:
        return {}
    if not isinstance(named, Mapping) or not all(isinstance(name, str) for name in named):
        raise WrongTypeError(
            f"`{argument}` ({named!r}) must be a dict from variables' names, or None."
        )
    return dict(named)


def _checked_vocabulary(name: str, info: Any) -> VocabInfo:
    """Returns a VocabInfo, converting TensorFlow's own class."""
    if isinstance(info, tf.compat.v1.train.VocabInfo):
        return VocabInfo(*info)
    check_instance(f"var_name_to_vocab_info[{name!r}]", info, VocabInfo, "a VocabInfo")
    return info


def _checked_choice(choice: Any) -> Any:
    """Returns `vars_to_warm_start`, with a list as a tuple; raises an error if it is not valid."""
    way_out = 'Pass ".*" for all that are trainable, [".*"] for all'
    if choice is None:
        return None
    if isinstance(choice, str):
        _check_expression(choice, way_out)
        return choice
    is_list = isinstance(choice, list | tuple)
    are_names = is_list and all(isinstance(one, str) for one in choice)
    if not are_names and not (is_list and all(isinstance(one, tf.Variable) for one in choice)):
        raise WrongTypeError(
            f"`vars_to_warm_start` ({choice!r}) must be a regular expression, a list of them, a "
            f"list of tf.Variables, or None. {way_out}."
        )
    if not choice:
        raise ValueError(
            f"`vars_to_warm_start` ({choice!r}) is empty. {way_out}, None for those in "
            "`var_name_to_vocab_info`."
        )
    if are_names:
        for expression in choice:
            _check_expression(expression, way_out)
    return tuple(choice)


def _check_expression(expression: str, way_out: str) -> None:
    if not expression:
        raise ValueError(f"`vars_to_warm_start` has an empty regular expression. {way_out}.")
    try:
        re.compile(expression)
    except re.error as error:
        raise ValueError(
            f"`vars_to_warm_start` ({expression!r}) is not a regular expression: {error}. Put a "
            "backslash before literal special characters."
        ) from error
