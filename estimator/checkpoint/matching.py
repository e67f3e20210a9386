"""Matches the variables of a new model with those of an old one, strictly."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from estimator.checkpoint.old_model import OldModel, near, some
from estimator.checkpoint.variables import SavedVariable, saved_variables


def match(
    old: OldModel, everything: Mapping[str, SavedVariable], trainable: Collection[str]
) -> list[tuple[SavedVariable, str]]:
    """Returns the selected variables, each with the key of its value in the checkpoint.

    Args:
      old: the checkpoint and the settings.
      everything: the new model's variables, by name.
      trainable: the names of the trainable variables.

    Raises:
      ValueError: the settings select nothing or name variables that the model lacks, unless it is a
        part of the model; they name variables that they do not select; or the checkpoint lacks a
        selected variable or holds it with another shape.
    """
    chosen = _choose(old, everything, [name for name in everything if name in trainable])
    _check_named(old, chosen, everything)
    _check_values(old, chosen)
    return [(variable, str(old.key_of(variable.name))) for variable in chosen]


def _choose(
    old: OldModel, everything: Mapping[str, SavedVariable], trainable: Sequence[str]
) -> list[SavedVariable]:
    """Returns the variables that `vars_to_warm_start` selects, in the model's order."""
    choice = old.settings.vars_to_warm_start
    names: Collection[str]
    if choice is None:
        names = set(old.vocab_infos) & set(trainable)
    elif isinstance(choice, str):
        names = set(_matches(old, choice, trainable, everything))
    elif isinstance(choice[0], str):
        names = {name for c in choice for name in _matches(old, c, list(everything), everything)}
    else:
        names = saved_variables(choice)
        for name in names:
            if name not in everything and not old.is_for_part:
                raise ValueError(
                    f"`vars_to_warm_start` has the variable {name!r}, which the model lacks. "
                    f"{near(name, everything)}"
                )
    return [variable for name, variable in everything.items() if name in names]


def _matches(
    old: OldModel,
    expression: str,
    candidates: Sequence[str],
    everything: Mapping[str, SavedVariable],
) -> list[str]:
    """Returns the names whose beginning matches, with or without ":0"; a part's for a partition.

    A partitioned variable's name in the checkpoint may begin like that of its slot, whose parts
    have another scope.
    """
    pattern = re.compile(expression)
    found = [
        name
        for name in candidates
        if any(
            pattern.match(part.name) or pattern.match(part.name.removesuffix(":0"))
            for part in everything[name].parts
        )
    ]
    if found or old.is_for_part:
        return found
    others = [name for name in everything if name not in candidates and pattern.match(name)]
    if others:
        raise ValueError(
            f"`vars_to_warm_start` ({expression!r}) matches no variable that is trainable. For "
            f"those that are not ({some(others)}) pass a list: [{expression!r}]."
        )
    plain = re.sub(r"[^\w/]+", "", expression)
    raise ValueError(
        f"`vars_to_warm_start` ({expression!r}) matches the beginning of no variable's name. "
        f"{near(plain, candidates)} To match inside of names, begin it with '.*'."
    )


def _check_named(
    old: OldModel, chosen: Sequence[SavedVariable], everything: Collection[str]
) -> None:
    """Raises an error if the settings name a variable that is not selected."""
    names = [variable.name for variable in chosen]
    for argument in ("var_name_to_vocab_info", "var_name_to_prev_var_name"):
        for name in getattr(old.settings, argument) or ():
            if name in names or (old.is_for_part and name not in everything):
                continue
            if name in everything:
                raise ValueError(
                    f"`{argument}` names {name!r}, which `vars_to_warm_start` "
                    f"({old.settings.vars_to_warm_start!r}) does not select. Select it too, with a "
                    "list if it is not trainable, or leave it out."
                )
            raise ValueError(
                f"`{argument}` names {name!r}, which the model lacks. "
                f"{near(name, names or everything)}"
            )


def _check_values(old: OldModel, chosen: Sequence[SavedVariable]) -> None:
    """Raises an error unless the checkpoint has fitting values for every selected variable."""
    missing, differing = [], []
    for variable in chosen:
        key = old.key_of(variable.name)
        if key is None:
            missing.append(variable.name)
        elif (difference := _difference(old, variable, key)) is not None:
            differing.append(f"{variable.name}: {difference}")
    if not missing and not differing:
        return
    lines = [
        f"`warm_start_from`: {len(missing + differing)} of the {len(chosen)} variables that "
        f"`vars_to_warm_start` ({old.settings.vars_to_warm_start!r}) chooses cannot be loaded from "
        f"the checkpoint {old.path}. Choose fewer, name the old ones in "
        "`var_name_to_prev_var_name`, or give a `VocabInfo` in `var_name_to_vocab_info` where rows "
        "follow a vocabulary."
    ]
    lines += [f"  not in the checkpoint: {name}" for name in missing]
    lines += [f"  differs: {line}" for line in differing]
    unused = set(old.names) - {variable.name for variable in chosen}
    lines += [f"  only in the checkpoint: {some(sorted(unused))}"] if unused else []
    raise ValueError("\n".join(lines))


def _difference(old: OldModel, variable: SavedVariable, key: str) -> str | None:
    """Explains why the value at `key` does not fit the variable; None if it does."""
    shape, dtype = old.shapes[key], old.dtypes[key]
    if dtype != variable.dtype:
        return f"{variable.dtype.name} in the model, {dtype.name} in the checkpoint"
    info = old.vocab_infos.get(variable.name)
    if info is None:
        if variable.shape.is_compatible_with(shape):
            return None
        return f"shape {variable.shape} in the model, {shape} in the checkpoint"
    axis, size = info.axis, info.new_vocab_size + info.num_oov_buckets
    new_shape = variable.shape.as_list()
    if len(new_shape) != len(shape) or len(shape) <= axis:
        return f"axis {axis} of shape {new_shape} in the model, {shape} in the checkpoint"
    if new_shape[axis] != size:
        return (
            f"axis {axis} of its shape {new_shape} must be `new_vocab_size` + `num_oov_buckets` "
            f"({info.new_vocab_size} + {info.num_oov_buckets})"
        )
    if shape[axis] < old.old_vocab_sizes[variable.name]:
        return (
            f"axis {axis} of shape {shape} in the checkpoint is smaller than the old vocabulary "
            f"({old.old_vocab_sizes[variable.name]} entries; see `old_vocab_size`)"
        )
    if [*new_shape[:axis], *new_shape[axis + 1 :]] != [*shape[:axis], *shape[axis + 1 :]]:
        return f"shape {new_shape} in the model, {shape} in the checkpoint, beside axis {axis}"
    return None
