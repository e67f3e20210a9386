"""Checks that a checkpoint was written by the same model: its variables, their names and shapes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

import tensorflow as tf

from estimator.checkpoint.errors import CheckpointError, restore_error
from estimator.checkpoint.files import OBJECT_GRAPH, data_files, exists, main_file, open_checkpoint
from estimator.checkpoint.variables import saved_variables

_DATA = re.compile(r"\.data-\d{5}-of-(\d{5})$")


def check_matches(path: str, variables: Iterable[tf.Variable]) -> None:
    """Raises an error unless the checkpoint holds every variable with its shape.

    Raises:
      ValueError: variables are missing or have another shape; the message names them.
    """
    there = open_checkpoint(path).get_variable_to_shape_map()
    model = saved_variables(variables)
    differing = [
        f"  other shape: {name}: {variable.shape} in the model, {there[name]} in the file"
        for name, variable in model.items()
        if name in there and not variable.shape.is_compatible_with(there[name])
    ]
    if differing or not set(model) <= set(there):
        raise _of_another_model(path, model, there, differing)


def check_names(path: str, names: Collection[str]) -> None:
    """Raises an error unless the checkpoint holds everything that the model's saver restores.

    An object-based checkpoint is accepted, because the saver maps its names.

    Raises:
      ValueError: names are missing; the message lists them.
    """
    there = open_checkpoint(path).get_variable_to_shape_map()
    if not set(names) <= set(there) and OBJECT_GRAPH not in there:
        raise _of_another_model(path, names, there)


def check_complete(path: str, error: tf.errors.NotFoundError) -> None:
    """Raises an error if a restore failed with `error` although no file is missing.

    Raises:
      ValueError: the restore did not find a variable; the message names it.
    """
    data = [match for name in data_files(path) if (match := _DATA.search(name))]
    is_whole = data and len(data) == int(data[0].group(1))
    if (is_whole or main_file(path) == path) and exists(path):
        raise _of_another_model(path, (), (), [f"  {restore_error(error)}"]) from error


def _of_another_model(
    path: str, model: Iterable[str], there: Iterable[str], lines: Sequence[str] = ()
) -> CheckpointError:
    """Returns an error that names what only the model has, and only the checkpoint; and lines."""
    missing, unused = (
        ", ".join(sorted(only)) for only in (set(model) - set(there), set(there) - set(model))
    )
    parts = [
        f"The checkpoint {path} is another model's. Use another `model_dir`, or the model that "
        "wrote it, with an `input_fn` that yields features of the same shapes.",
        f"  not in the checkpoint: {missing}" if missing else "",
        *lines,
        f"  only in the checkpoint: {unused}" if unused else "",
    ]
    return CheckpointError("\n".join(filter(None, parts)))


def missing_variables(path: str, variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """Returns the variables that a checkpoint does not hold."""
    if not variables:
        return []
    there = open_checkpoint(path).get_variable_to_shape_map()
    return [variable for variable in variables if variable.name.partition(":")[0] not in there]
