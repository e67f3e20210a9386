"""Checks of arguments: errors name the argument, its value, the rule and the way out."""

from __future__ import annotations

import difflib
import functools
import inspect
import numbers
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

_OF_PATTERNS = "*?[\\"
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class WrongTypeError(TypeError, ValueError):
    """A value of the wrong type; tf.estimator raised ValueError for some and TypeError for others.

    A program that catches either of them still works.
    """


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Returns a sentence with the closest known name, or with all of them if none is close."""
    known = list(known)
    near = difflib.get_close_matches(str(name).lower(), known, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"Use one of {', '.join(map(repr, known))}."


def check_choice(argument: str, value: Any, choices: Iterable[str]) -> None:
    """Raises an error unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"`{argument}` ({value!r}) is unknown. {did_you_mean(value, choices)}")


def check_int(argument: str, value: Any, *, minimum: int | None = 1) -> None:
    """Raises an error unless `value` is an integer of at least `minimum`; a bool is not one."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise WrongTypeError(f"`{argument}` ({value!r}) must be an integer.")
    if minimum is not None and int(value) < minimum:
        raise ValueError(f"`{argument}` ({value}) must be at least {minimum}.")


def check_number(argument: str, value: Any, *, minimum: float | None = None) -> None:
    """Raises an error unless `value` is a number of at least `minimum`; a bool is not one."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise WrongTypeError(f"`{argument}` ({value!r}) must be a number.")
    if minimum is not None and not float(value) >= minimum:
        raise ValueError(f"`{argument}` ({value}) must be at least {minimum}.")


def check_positive(argument: str, value: Any) -> None:
    """Raises an error unless `value` is a number above zero; a bool is not one."""
    check_number(argument, value)
    if not float(value) > 0:
        raise ValueError(f"`{argument}` ({value}) must be positive.")


def check_limit(argument: str, value: Any, none: str = "leave it out for no limit") -> None:
    """Raises an error unless `value` is an integer of at least 1, or None.

    Args:
      argument: the name of the value in errors.
      value: the value.
      none: says what None stands for, or when to leave the argument out.
    """
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise WrongTypeError(f"`{argument}` ({value!r}) must be an integer, or None.")
    if int(value) < 1:
        raise ValueError(f"`{argument}` ({value}) must be at least 1; {none}.")


def checked_count(argument: str, value: Any, *, minimum: int = 1) -> int:
    """Returns a number of steps or examples as an int; raises an error as `check_int` does.

    As in tf.estimator, it may be a float such as 1e6, or an array without dimensions.
    """
    count = _whole(value)
    check_int(argument, count, minimum=minimum)
    return int(count)


def checked_limit(argument: str, value: Any, none: str = "leave it out for no limit") -> int | None:
    """Returns a number of steps as an int, or None; raises an error as `check_limit` does.

    As in tf.estimator, it may be a float such as 1e6, or an array without dimensions.
    """
    limit = _whole(value)
    check_limit(argument, limit, none)
    return None if limit is None else int(limit)


def _whole(value: Any) -> Any:
    """Returns a whole float as an int, and what an array without dimensions holds; else `value`."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()  # Of NumPy, which `import estimator` leaves to its users to import.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_bool(argument: str, value: Any) -> None:
    """Raises an error unless `value` is True or False."""
    check_instance(argument, value, bool, "True or False")


def check_instance(argument: str, value: Any, types: Any, rule: str) -> None:
    """Raises an error unless `value` is one of `types`; `rule` says what it must be."""
    if not isinstance(value, types):
        raise WrongTypeError(f"`{argument}` ({value!r}) must be {rule}.")


def check_type(argument: str, value: Any, types: Any, rule: str) -> None:
    """Raises an error unless `value` is None or one of `types`; `rule` says what it must be."""
    if value is not None:
        check_instance(argument, value, types, rule)


def check_callable(argument: str, value: Any) -> None:
    """Raises an error unless `value` is None or can be called."""
    check_type(argument, value, Callable, "a function, or None")


def checked_list(argument: str, value: Any) -> tuple[Any, ...]:
    """Returns a list or array as a tuple, None as an empty one; raises an error for others."""
    if value is None:
        return ()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise WrongTypeError(
            f"`{argument}` ({value!r}) must be a list. Put a single value in brackets."
        )
    return tuple(value)


def checked_window(argument: str, value: Any) -> tuple[int, int] | None:
    """Returns two steps as a tuple; raises an error unless they are nonnegative and in order."""
    if value is None:
        return None
    rule = "must be two global steps, the first below the second, as in (100, 110)"
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise WrongTypeError(f"`{argument}` ({value!r}) {rule}.")
    for step in value:
        if isinstance(step, bool) or not isinstance(step, numbers.Integral):
            raise WrongTypeError(f"`{argument}` ({value!r}) {rule}; {step!r} is not an integer.")
    first, last = map(int, value)
    if not 0 <= first < last:
        raise ValueError(f"`{argument}` ({value!r}) {rule}.")
    return first, last


def parameters_of(argument: str, function: Callable) -> Mapping[str, inspect.Parameter]:
    """Returns a function's parameters by name; raises an error if Python cannot determine them.

    A decorated function takes what its decorator's function names, and by that one's `**kwargs`
    what the function inside names.
    """
    try:
        return _parameters(function)
    except ValueError as error:
        raise WrongTypeError(
            f"`{argument}` ({function!r}) is compiled code, of which Python cannot tell the "
            "arguments. Wrap it in a function or a lambda of your own."
        ) from error


def _parameters(function: Callable) -> Mapping[str, inspect.Parameter]:
    method = getattr(function, "__call__", None)  # noqa: B004
    if isinstance(method, types.MethodType) and not hasattr(function, "__wrapped__"):
        function = method  # An object's, which may be decorated.
    outer = inspect.signature(function, follow_wrapped=False).parameters
    if not _passes_on(function):
        return outer
    if isinstance(function, functools.partial):
        return inspect.signature(function).parameters
    inner = function.__wrapped__  # type: ignore[attr-defined]
    if isinstance(function, types.MethodType):
        inner = types.MethodType(inner, function.__self__)
    return {**_parameters(inner), **{n: p for n, p in outer.items() if p.kind not in _VARIABLE}}


def _passes_on(function: Callable) -> bool:
    """Returns whether a function has `**kwargs`, and wraps one that may name what is in them."""
    if not hasattr(function, "__wrapped__") and not isinstance(function, functools.partial):
        return False
    parameters = inspect.signature(function, follow_wrapped=False).parameters
    return any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def arguments_named(argument: str, function: Callable, offered: Sequence[str]) -> tuple[str, ...]:
    """Returns which of the offered arguments a function takes by name.

    As in tf.estimator, `**kwargs` takes none of them. Arguments that a functools.partial has bound
    do not count: they stay as they are.
    """
    parameters, bound = parameters_of(argument, function), _bound_by_name(function)
    return tuple(name for name in offered if name in parameters and name not in bound)


def _bound_by_name(function: Callable) -> Mapping[str, Any]:
    """Returns what a functools.partial binds, also under decorators that pass on `**kwargs`."""
    inner = inspect.unwrap(function, stop=lambda wrapper: not _passes_on(wrapper))
    return inner.keywords if isinstance(inner, functools.partial) else {}


def arguments_needed(argument: str, function: Callable, offered: Sequence[str] = ()) -> list[str]:
    """Returns the arguments that a function requires besides the offered ones."""
    return [
        name
        for name, p in parameters_of(argument, function).items()
        if name not in offered and p.default is p.empty and p.kind not in _VARIABLE
    ]


def check_needs_only(argument: str, function: Callable, offered: Sequence[str]) -> None:
    """Raises an error if a function requires arguments that are not offered."""
    unknown = arguments_needed(argument, function, offered)
    if unknown:
        raise WrongTypeError(
            f"`{argument}` takes unknown arguments ({', '.join(unknown)}). It may take any of "
            f"{', '.join(offered)}; bind others with functools.partial."
        )


def check_takes_nothing(argument: str, function: Callable) -> None:
    """Raises an error unless a function can be called without arguments."""
    needed = arguments_needed(argument, function)
    if needed:
        raise WrongTypeError(
            f"`{argument}` takes arguments ({', '.join(needed)}), but it is called with none. Bind "
            "them with functools.partial."
        )


def check_no_pattern(argument: str, path: str) -> None:
    """Raises an error if TensorFlow would interpret a path as a glob pattern.

    TensorFlow finds the files of a checkpoint by patterns: it would miss those in `run[1]`, and
    with an old checkpoint in `run*` it would also remove the files of that step in `run1`.
    """
    found = [letter for letter in _OF_PATTERNS if letter in path and letter != os.sep]
    if found:
        raise ValueError(
            f"`{argument}` ({path!r}) must not contain {' or '.join(found)}: TensorFlow takes "
            "the paths of checkpoints for patterns of names. Use another name, or a symbolic link "
            "to it."
        )


def check_name(name: Any) -> None:
    """Raises an error unless `name` can be the name of an evaluation directory in `model_dir`."""
    check_type("name", name, str, "a string, or None")
    if name is None:
        return
    if leads_out(name):
        raise ValueError(f"`name` ({name!r}) must not lead out of `model_dir`.")


def leads_out(name: str) -> bool:
    """Returns whether a name, as part of a path, leads out of the directory before it."""
    return os.path.isabs(name) or ".." in name.replace("\\", "/").split("/")
