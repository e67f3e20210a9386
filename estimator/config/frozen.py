"""What frozen configs have in common: how they are shown, and the names they can replace."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from estimator.config.checks import did_you_mean


def check_fields(config: Any, names: Iterable[str]) -> None:
    """Raises unless every name is the name of a field of `config`."""
    known = [field.name for field in dataclasses.fields(config)]
    for name in names:
        if name not in known:
            raise ValueError(
                f"`{name}` is no field of {type(config).__name__}. {did_you_mean(name, known)}"
            )


def short_repr(config: Any, **defaults: Any) -> str:
    """The fields that differ from their defaults, or from those given here."""
    shown = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        default = defaults.get(field.name, field.default)
        if value is not default and value != default:
            shown.append(f"{field.name}={value!r}")
    return f"{type(config).__name__}({', '.join(shown)})"
