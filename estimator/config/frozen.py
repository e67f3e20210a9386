"""What frozen configs have in common: how they are made, shown, and replaced."""

from __future__ import annotations

import dataclasses
import functools
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from estimator.config.checks import did_you_mean

_LINE_LENGTH = 100


def write_fields(config: Any, **values: Any) -> None:
    """Writes to fields; only while `config` is being made, after which it is frozen.

    Also where a subclass has a property of the same name, which is what is read then.
    """
    vars(config).update(values)


class FrozenFields:
    """A base of dataclasses whose fields are written once; other attributes may be added."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Writes a field that has no value yet, or any attribute that is no field."""
        if name not in {field.name for field in dataclasses.fields(self)}:  # type: ignore[arg-type]
            object.__setattr__(self, name, value)
        elif name in vars(self):
            raise dataclasses.FrozenInstanceError(
                f"`{name}` of a {_shown_name(self)} cannot be changed. Make another one with "
                f"`replace({name}=...)`."
            )
        else:
            write_fields(self, **{name: value})

    def __delattr__(self, name: str) -> None:
        """Deletes an attribute that is no field."""
        if name in {field.name for field in dataclasses.fields(self)}:  # type: ignore[arg-type]
            raise dataclasses.FrozenInstanceError(f"`{name}` cannot be deleted.")
        object.__delattr__(self, name)


class _Fields:
    """The names of the fields that a dataclass takes by position, as `_fields` of a named tuple."""

    def __get__(self, instance: Any, owner: Any) -> tuple[str, ...]:
        return tuple(field.name for field in dataclasses.fields(owner) if not field.kw_only)


class TupleFields:
    """A base of dataclasses that were named tuples: iterated, indexed and unpacked as such."""

    _fields = _Fields()

    def _asdict(self) -> dict[str, Any]:
        """The fields by name."""
        return {name: getattr(self, name) for name in self._fields}

    def __iter__(self) -> Iterator[Any]:
        """The fields in order."""
        return iter(self._asdict().values())

    def __len__(self) -> int:
        """How many fields there are."""
        return len(self._fields)

    def __getitem__(self, index: Any) -> Any:
        """A field by its place, or a slice of them."""
        return tuple(self)[index]


def check_fields(config: Any, names: Iterable[str]) -> None:
    """Raises unless every name is the name of a field of `config`."""
    known = [field.name for field in dataclasses.fields(config)]
    for name in names:
        if name not in known:
            raise ValueError(
                f"`{name}` is no field of {_shown_name(config)}. {did_you_mean(name, known)}"
            )


def short_repr(config: Any, **defaults: Any) -> str:
    """The fields that differ from their defaults, or from those given here."""
    shown = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        default = defaults.get(field.name, field.default)
        if value is not default and value != default:
            shown[field.name] = show(value)
    return call_in_words(_shown_name(config), shown)


def _shown_name(config: Any) -> str:
    """What a program calls the class: its name, or the `_shown_as` that it says of itself."""
    return vars(type(config)).get("_shown_as", type(config).__name__)


def call_in_words(name: str, arguments: dict[str, str]) -> str:
    """A call with these arguments by name: in one line if it is short, else in one line each."""
    shown = [f"{key}={value}" for key, value in arguments.items()]
    line = f"{name}({', '.join(shown)})"
    if len(line) <= _LINE_LENGTH and "\n" not in line:
        return line
    inside = "".join(f"{argument},\n" for argument in shown)
    return f"{name}(\n{textwrap.indent(inside, '    ')})"


def show(value: Any) -> str:
    """A value of an argument, without memory addresses and line breaks where it can be."""
    if isinstance(value, tf.distribute.Strategy | tf.compat.v1.distribute.Strategy):
        return f"<{type(value).__name__} of {value.num_replicas_in_sync}>"
    if isinstance(value, functools.partial):
        return f"partial of {show(value.func)}"
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, tf.compat.v1.ConfigProto):
        return f"<ConfigProto {' '.join(str(value).split())}>"
    if type(value).__repr__ is object.__repr__:
        return f"<{type(value).__name__}>"
    return repr(value)
