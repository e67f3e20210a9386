"""The length of a training session call: a number of steps, or a time."""

from __future__ import annotations

import numbers
import re
from typing import Any

from estimator.config.checks import WrongTypeError

AUTO = "auto"
AUTO_SECS = 1.0
_SECS = {"s": 1, "m": 60, "h": 3600}
_TEXT = re.compile(r"([1-9][0-9]*)([smh]?)")
_RULE = "an integer, a time such as '30s', '2m' or '1h', or 'auto'"


def loop_steps(value: int | str) -> int | None:
    """Returns the number of steps in each loop; None if `iterations_per_loop` is a time."""
    return None if isinstance(value, str) else value


def loop_secs(value: str) -> float:
    """Returns how long a loop should last, for an `iterations_per_loop` that is a time."""
    return AUTO_SECS if value == AUTO else int(value[:-1]) * _SECS[value[-1]]


def loop_in_words(value: int | str) -> str:
    """Describes the length of a session call: "100 steps", "about 2 m"."""
    if isinstance(value, str):
        return f"about {AUTO_SECS:g} s" if value == AUTO else f"about {value[:-1]} {value[-1]}"
    return f"{value:,} step{'s' * (value > 1)}"


def checked_loop_length(argument: str, value: Any) -> int | str:
    """Returns the validated value, with a string of digits converted to an integer.

    Raises:
      TypeError: `value` is neither an integer nor a string.
      ValueError: `value` is below 1, or a string of another form.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral | str):
        raise WrongTypeError(f"`{argument}` ({value!r}) must be {_RULE}.")
    if isinstance(value, str):
        match = _TEXT.fullmatch(value)
        if match is None and value != AUTO:
            raise ValueError(f"`{argument}` ({value!r}) must be {_RULE}.")
        return int(value) if match is not None and not match[2] else value
    if int(value) < 1:
        raise ValueError(
            f"`{argument}` ({value}) must be at least 1: a loop has one step or more. It may be "
            f"{_RULE}."
        )
    return int(value)
