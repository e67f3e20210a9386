"""What the checks of a config have in common: the argument, its value, the rule, the way out."""

from __future__ import annotations

import difflib
import functools
import inspect
import numbers
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

_OF_PATTERNS = "*?[\\"


class WrongTypeError(TypeError, ValueError):
    """A value of the wrong type; tf.estimator raised ValueError for some, TypeError for others.

    So a program that catches either still does.
    """


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A sentence with the nearest known name, or with all of them if none is near."""
    known = list(known)
    near = difflib.get_close_matches(str(name).lower(), known, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"Use one of {', '.join(map(repr, known))}."


def check_choice(argument: str, value: Any, choices: Iterable[str]) -> None:
    """Raises unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"`{argument}` ({value!r}) is unknown. {did_you_mean(value, choices)}")


def check_int(argument: str, value: Any, *, minimum: int | None = 1) -> None:
    """Raises unless `value` is an integer of at least `minimum`; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise WrongTypeError(f"`{argument}` ({value!r}) must be an integer.")
    if minimum is not None and int(value) < minimum:
        raise ValueError(f"`{argument}` ({value}) must be at least {minimum}.")


def check_number(argument: str, value: Any, *, minimum: float | None = None) -> None:
    """Raises unless `value` is a number, of at least `minimum`; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise WrongTypeError(f"`{argument}` ({value!r}) must be a number.")
    if minimum is not None and not float(value) >= minimum:
        raise ValueError(f"`{argument}` ({value}) must be at least {minimum}.")


def check_positive(argument: str, value: Any) -> None:
    """Raises unless `value` is a number above zero; a bool is none."""
    check_number(argument, value)
    if not float(value) > 0:
        raise ValueError(f"`{argument}` ({value}) must be positive.")


def check_bool(argument: str, value: Any) -> None:
    """Raises unless `value` is True or False."""
    if not isinstance(value, bool):
        raise WrongTypeError(f"`{argument}` ({value!r}) must be True or False.")


def check_type(argument: str, value: Any, types: Any, rule: str) -> None:
    """Raises unless `value` is None or one of `types`; `rule` says what it must be."""
    if value is not None and not isinstance(value, types):
        raise WrongTypeError(f"`{argument}` ({value!r}) must be {rule}.")


def checked_window(argument: str, value: Any) -> tuple[int, int] | None:
    """The two steps as a tuple; raises unless there are two, from 0 on and in order."""
    if value is None:
        return None
    rule = "must be two global steps, the first below the second, as in (100, 110)"
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise WrongTypeError(f"`{argument}` ({value!r}) {rule}.")
    for step in value:
        if isinstance(step, bool) or not isinstance(step, numbers.Integral):
            raise WrongTypeError(f"`{argument}` ({value!r}) {rule}; {step!r} is no integer.")
    first, last = map(int, value)
    if not 0 <= first < last:
        raise ValueError(f"`{argument}` ({value!r}) {rule}.")
    return first, last


def parameters_of(argument: str, function: Callable) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function by name; raises if Python cannot tell them."""
    try:
        return inspect.signature(function).parameters
    except ValueError as error:
        raise WrongTypeError(
            f"`{argument}` ({function!r}) is compiled code, of which Python cannot tell the "
            "arguments. Wrap it in a function or a lambda of your own."
        ) from error


def arguments_taken(argument: str, function: Callable, offered: Sequence[str]) -> tuple[str, ...]:
    """Which of the arguments that are offered a function takes, by name or by its `**kwargs`.

    What a functools.partial has bound is not taken: it stays as it is.
    """
    parameters = parameters_of(argument, function)
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return arguments_named(argument, function, offered)
    return tuple(name for name in offered if name not in _bound_by_name(function))


def arguments_named(argument: str, function: Callable, offered: Sequence[str]) -> tuple[str, ...]:
    """`arguments_taken` by name alone."""
    parameters, bound = parameters_of(argument, function), _bound_by_name(function)
    return tuple(name for name in offered if name in parameters and name not in bound)


def _bound_by_name(function: Callable) -> Mapping[str, Any]:
    """What a functools.partial binds, also under decorators that use functools.wraps."""
    inner = inspect.unwrap(function)
    return inner.keywords if isinstance(inner, functools.partial) else {}


def arguments_needed(argument: str, function: Callable, offered: Sequence[str] = ()) -> list[str]:
    """What a function must be given besides the arguments that are offered."""
    return [
        name
        for name, p in parameters_of(argument, function).items()
        if name not in offered
        and p.default is p.empty
        and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]


def check_needs_only(argument: str, function: Callable, offered: Sequence[str]) -> None:
    """Raises if a function must be given other arguments than those that are offered."""
    unknown = arguments_needed(argument, function, offered)
    if unknown:
        raise WrongTypeError(
            f"`{argument}` takes unknown arguments ({', '.join(unknown)}). It may take any of "
            f"{', '.join(offered)}; bind others with functools.partial."
        )


def check_takes_nothing(argument: str, function: Callable) -> None:
    """Raises unless a function can be called without arguments."""
    needed = arguments_needed(argument, function)
    if needed:
        raise WrongTypeError(
            f"`{argument}` takes arguments ({', '.join(needed)}), but it is called with none. Bind "
            "them with functools.partial."
        )


def check_no_pattern(argument: str, path: str) -> None:
    """Raises if TensorFlow would take a path for a pattern of names.

    It looks for the files of a checkpoint by patterns: it would not find those in `run[1]`, and of
    an old checkpoint in `run*` it would also remove the files of that step in `run1`.
    """
    found = [letter for letter in _OF_PATTERNS if letter in path and letter != os.sep]
    if found:
        raise ValueError(
            f"`{argument}` ({path!r}) must not contain {' or '.join(found)}: TensorFlow takes "
            "the paths of checkpoints for patterns of names. Use another name, or a symbolic link "
            "to it."
        )


def check_name(name: Any) -> None:
    """Raises unless `name` can name an evaluation's directory inside `model_dir`."""
    if name is None:
        return
    if not isinstance(name, str):
        raise WrongTypeError(f"`name` ({name!r}) must be a string, or None.")
    if os.path.isabs(name) or ".." in name.replace("\\", "/").split("/"):
        raise ValueError(f"`name` ({name!r}) must not lead out of `model_dir`.")
