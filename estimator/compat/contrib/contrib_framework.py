"""`tf.contrib.framework`."""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator.checkpoint import files

_V1 = tf.compat.v1
# `tf.nest`, with the old name of `is_nested`.
nest = types.SimpleNamespace(
    **{name: getattr(tf.nest, name) for name in dir(tf.nest) if not name.startswith("_")},
    is_sequence=tf.nest.is_nested,
)


def get_variables(
    scope: Any = None, suffix: str | None = None, collection: str = _V1.GraphKeys.GLOBAL_VARIABLES
) -> list[Any]:
    """Returns the variables of a collection, those of a scope and with a suffix.

    Both are regular expressions, of the beginning and of the end of the variables' names.
    """
    name = getattr(scope, "name", scope)
    if suffix is not None:
        name = f"{name or ''}.*{suffix}{'' if ':' in suffix else ':'}"
    return _V1.get_collection(collection, name)


get_trainable_variables = functools.partial(
    get_variables, collection=_V1.GraphKeys.TRAINABLE_VARIABLES
)
# The variables of layers, moving statistics included.
get_model_variables = functools.partial(get_variables, collection=_V1.GraphKeys.MODEL_VARIABLES)


def get_variables_to_restore(
    include: Sequence[str] | None = None, exclude: Sequence[str] | None = None
) -> list[Any]:
    """Returns all variables in the scopes `include` and not in `exclude`."""
    scopes: Sequence[str | None] = include or [None]
    found = [v for scope in scopes for v in get_variables(scope)]
    left_out = {v.name for scope in exclude or [] for v in get_variables(scope)}
    return [v for v in found if v.name not in left_out]


def filter_variables(
    var_list: Sequence[Any],
    include_patterns: Sequence[str] | None = None,
    exclude_patterns: Sequence[str] | None = None,
    reg_search: bool = True,
) -> list[Any]:
    """Returns the variables whose names fit a regular expression to include and none to exclude.

    Args:
      var_list: the variables.
      include_patterns: the expressions to include; None or an empty list for all variables.
      exclude_patterns: the expressions to exclude.
      reg_search: whether they are looked for anywhere in a name, or else at its beginning.
    """
    find = re.search if reg_search else re.match

    def fits(variable: Any, patterns: Sequence[str] | None) -> bool:
        return any(find(pattern, variable.op.name) for pattern in patterns or ())

    included = [v for v in var_list if not include_patterns or fits(v, include_patterns)]
    return [v for v in included if not fits(v, exclude_patterns)]


def assign_from_checkpoint_fn(
    model_path: str,
    var_list: Any,
    ignore_missing_vars: bool = False,
    reshape_variables: bool = False,
) -> Callable[[Any], None]:
    """Returns a function of a session that loads variables, as for a Scaffold's `init_fn`.

    Args:
      model_path: a checkpoint.
      var_list: the variables, or a dict from names in the checkpoint to them.
      ignore_missing_vars: whether to leave out those that the checkpoint lacks.
      reshape_variables: whether a value may have another shape of the same size.
    """
    if not isinstance(var_list, Mapping):
        var_list = {v.name.removesuffix(":0"): v for v in var_list}
    var_list = dict(var_list)
    if ignore_missing_vars:
        reader = files.open_checkpoint(model_path)
        var_list = {name: v for name, v in var_list.items() if reader.has_tensor(name)}
    saver = _V1.train.Saver(var_list, reshape=reshape_variables) if var_list else None

    def load(session: Any) -> None:
        if saver is not None:
            saver.restore(session, model_path)

    return load
