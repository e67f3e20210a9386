"""Finds the checkpoint and vocabularies of a warm start, before anything is built."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf

from estimator import _tf
from estimator.checkpoint import files
from estimator.checkpoint.errors import CheckpointError, restore_error
from estimator.config.checks import check_no_pattern
from estimator.config.warm_start_settings import VocabInfo, WarmStartSettings

_SAVED_MODEL_VARIABLES = os.path.join("variables", "variables")
_SHOWN = 12  # The maximum number of names in a message.


@dataclasses.dataclass(frozen=True)
class OldModel:
    """A checkpoint to warm-start from.

    Attributes:
      path: the checkpoint's path.
      settings: map its variables to those of the new model.
      shapes: the shapes of the checkpoint's values, by key, which is a variable's name.
      dtypes: the dtypes of the values, by key.
      keys: maps variables' names to other keys, in an object-based checkpoint. Several variables
        may have one name.
      vocab_infos: the vocabularies of variables, by the new variable's name.
      old_vocab_sizes: the number of entries used of their old vocabularies, by the same names.
      is_for_part: whether the new model may lack variables that the settings name, because it
        evaluates or predicts and has no optimizer.
    """

    path: str
    settings: WarmStartSettings
    shapes: dict[str, list[int]]
    dtypes: dict[str, tf.DType]
    keys: dict[str, list[str]]
    vocab_infos: Mapping[str, VocabInfo]
    old_vocab_sizes: dict[str, int]
    is_for_part: bool = False

    def key_of(self, name: str) -> str | None:
        """Returns the checkpoint's key for the new model's variable; None if there is none.

        Raises:
          CheckpointError: the checkpoint has several variables of that name.
        """
        old_name = (self.settings.var_name_to_prev_var_name or {}).get(name, name)
        if old_name in self.shapes:
            return old_name
        keys = self.keys.get(old_name, [])
        if len(keys) > 1:
            raise CheckpointError(
                f"`warm_start_from`: in the checkpoint {self.path}, {len(keys)} variables have the "
                f"name {old_name!r}: {', '.join(keys)}. Name the one to load: "
                f"`var_name_to_prev_var_name={ {name: keys[0]} }`."
            )
        return keys[0] if keys else None

    @property
    def names(self) -> list[str]:
        """The sorted names of its variables, as used in `var_name_to_prev_var_name`."""
        hidden = {*itertools.chain(*self.keys.values()), files.OBJECT_GRAPH}
        return sorted({*self.keys, *(key for key in self.shapes if key not in hidden)})


def find_old_model(settings: WarmStartSettings, is_for_part: bool = False) -> OldModel:
    """Finds the checkpoint and the vocabularies of a warm start.

    Args:
      settings: the user's settings.
      is_for_part: see `OldModel`.

    Raises:
      ValueError: there is no checkpoint, it is damaged, it lacks a name in
        `var_name_to_prev_var_name`, or a vocabulary does not exist or has too few entries.
    """
    path = find_checkpoint(str(settings.ckpt_to_initialize_from))
    try:
        reader = files.open_checkpoint(path)
        shapes = reader.get_variable_to_shape_map()
        key = files.OBJECT_GRAPH
        object_graph = files.read_tensor(reader, key) if key in shapes else b""
    except (tf.errors.OpError, ValueError) as error:
        raise CheckpointError(
            f"`warm_start_from`: the checkpoint {path} is damaged ({restore_error(error)}). "
            "Pass another."
        ) from error
    old = OldModel(
        path=path,
        settings=settings,
        shapes={key: list(shape) for key, shape in shapes.items()},
        dtypes=reader.get_variable_to_dtype_map(),
        keys=_tf.object_graph_keys(object_graph),
        vocab_infos=settings.var_name_to_vocab_info or {},
        old_vocab_sizes=_old_vocab_sizes(settings.var_name_to_vocab_info or {}),
        is_for_part=is_for_part,
    )
    for name, old_name in (settings.var_name_to_prev_var_name or {}).items():
        if old.key_of(name) is None:
            raise CheckpointError(
                f"`var_name_to_prev_var_name[{name!r}]` ({old_name!r}) is not in the checkpoint "
                f"{path}. {near(old_name, old.names)}"
            )
    return old


def find_checkpoint(path: str) -> str:
    """Returns the checkpoint at `path`, the newest in that directory, or the SavedModel's there.

    Raises:
      ValueError: there is no checkpoint.
    """
    check_no_pattern("warm_start_from", path)
    for prefix in (path, os.path.join(path, _SAVED_MODEL_VARIABLES)):
        if files.exists(prefix):
            return prefix
    if tf.io.gfile.isdir(path):
        newest = files.latest_checkpoint(path)
        if newest is None:
            raise CheckpointError(
                f"`warm_start_from` ({path!r}) holds no checkpoint.{_inside(path)}"
            )
        return newest
    files.check_is_no_part(path, "warm_start_from")
    raise CheckpointError(
        f"`warm_start_from` ({path!r}) does not exist: there is no such directory, and no "
        f"checkpoint with the index {path}.index. Pass a checkpoint's path, as in "
        f".../{files.PREFIX}-1000, a directory of checkpoints, or that of a SavedModel."
    )


def _inside(directory: str) -> str:
    """Suggests, in a sentence, what may be meant in a directory without a `checkpoint` file."""
    names = sorted(name.rstrip("/") for name in tf.io.gfile.listdir(directory))
    prefixes = [name.removesuffix(".index") for name in names if name.endswith(".index")]
    exports = [
        name
        for name in names
        if tf.io.gfile.exists(os.path.join(directory, name, _SAVED_MODEL_VARIABLES) + ".index")
    ]
    found = prefixes or exports
    if not found:
        return " Pass a checkpoint's path, a directory of checkpoints, or that of a SavedModel."
    paths = [os.path.join(directory, name) for name in found]
    kind = "the checkpoint" if prefixes else "the SavedModel"
    return f" Name {kind} in it that is meant: {', '.join(map(repr, paths))}."


def near(name: str, known: Iterable[str]) -> str:
    """Returns a sentence with the known names closest to this one, or with some of all."""
    known = list(known)
    nearest = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    if nearest:
        return f"Near names are {', '.join(map(repr, nearest))}."
    return f"There are {some(known) or 'none'}."


def some(names: Sequence[str]) -> str:
    """Returns the names, or only the first ones if there are many."""
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _old_vocab_sizes(infos: Mapping[str, VocabInfo]) -> dict[str, int]:
    """Returns how many entries of its old vocabulary each variable uses; checks the sizes."""
    counts: dict[str, int] = {}
    sizes = {}
    for name, info in infos.items():
        for argument in ("new_vocab", "old_vocab"):
            path = getattr(info, argument)
            if path not in counts:
                counts[path] = _count_lines(path, f"var_name_to_vocab_info[{name!r}].{argument}")
            wanted = getattr(info, argument + "_size")
            if wanted > counts[path]:
                raise ValueError(
                    f"`var_name_to_vocab_info[{name!r}].{argument}_size` ({wanted}) must be at "
                    f"most the number of lines of {path}, which is {counts[path]}."
                )
        sizes[name] = (
            info.old_vocab_size if info.old_vocab_size > 0 else counts[str(info.old_vocab)]
        )
    return sizes


def _count_lines(path: str, argument: str) -> int:
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise ValueError(f"`{argument}` ({path!r}) must be a text file, with an entry a line.")
    count, last = 0, b"\n"
    with tf.io.gfile.GFile(path, "rb") as file:
        while chunk := file.read(1 << 24):
            count, last = count + chunk.count(b"\n"), chunk[-1:]
    return count + (last != b"\n")
