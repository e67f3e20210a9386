"""Base classes and helpers of frozen configs: how they are made, shown and replaced."""

from __future__ import annotations

import dataclasses
import functools
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from estimator.config.checks import WrongTypeError, did_you_mean

_LINE_LENGTH = 100


def write_fields(config: Any, **values: Any) -> None:
    """Writes fields, only while `config` is being made; afterwards it is frozen.

    A subclass may have a property of the same name, which then takes precedence on reading.
    """
    vars(config).update(values)


class FrozenFields:
    """A base class of dataclasses whose fields are written once; other attributes may be added."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Writes a field that has no value yet, or any attribute that is not a field."""
        public = name.removeprefix("_")
        if public != name and _is_ours(type(self), public):
            raise dataclasses.FrozenInstanceError(
                f"`{name}` of a {_shown_name(self)} has no effect. `{public}` cannot be changed: "
                "make another one with `replace`, or, if it says what the task is, set TF_CONFIG."
            )
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
        """Deletes an attribute that is not a field."""
        if name in {field.name for field in dataclasses.fields(self)}:  # type: ignore[arg-type]
            raise dataclasses.FrozenInstanceError(f"`{name}` cannot be deleted.")
        object.__delattr__(self, name)


def _is_ours(cls: type, name: str) -> bool:
    """Returns whether a member of a class is this library's, and not of a subclass elsewhere."""
    owners = (
        c for c in cls.__mro__ if name in vars(c) or name in vars(c).get("__annotations__", {})
    )
    owner = next(owners, object)
    return owner.__module__.partition(".")[0] == __name__.partition(".")[0]


class _Fields:
    """The names of a dataclass's positional fields, like `_fields` of a named tuple."""

    def __get__(self, instance: Any, owner: Any) -> tuple[str, ...]:
        return tuple(field.name for field in dataclasses.fields(owner) if not field.kw_only)


class TupleFields:
    """A base class of dataclasses that can be iterated, indexed and unpacked like named tuples."""

    _fields = _Fields()

    def replace(self, **changes: Any) -> Any:
        """Returns a checked copy with other values of some fields."""
        check_fields(self, changes)
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    _replace = replace

    def _asdict(self) -> dict[str, Any]:
        """Returns the fields by name."""
        return {name: getattr(self, name) for name in self._fields}

    def __iter__(self) -> Iterator[Any]:
        """Iterates over the fields in order."""
        return iter(self._asdict().values())

    def __len__(self) -> int:
        """Returns the number of fields."""
        return len(self._fields)

    def __getitem__(self, index: Any) -> Any:
        """Returns a field by its position, or a slice of the fields."""
        return tuple(self)[index]


def check_fields(config: Any, names: Iterable[str]) -> None:
    """Raises an error unless every name is a field of `config`."""
    known = [field.name for field in dataclasses.fields(config)]
    for name in names:
        if name not in known:
            raise WrongTypeError(
                f"`{name}` is not a field of {_shown_name(config)}. {did_you_mean(name, known)}"
            )


def short_repr(config: Any, **defaults: Any) -> str:
    """Shows the fields that differ from their defaults, or from those given here."""
    shown = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        default = defaults.get(field.name, field.default)
        if value is not default and value != default:
            shown[field.name] = show(value)
    return call_in_words(_shown_name(config), shown)


def _shown_name(config: Any) -> str:
    """Returns the class's public name: `_shown_as` if it has one, else its own name."""
    return vars(type(config)).get("_shown_as", type(config).__name__)


def call_in_words(name: str, arguments: dict[str, str]) -> str:
    """Formats a call with keyword arguments: on one line if it is short, else one line each."""
    shown = [f"{key}={value}" for key, value in arguments.items()]
    line = f"{name}({', '.join(shown)})"
    if len(line) <= _LINE_LENGTH and "\n" not in line:
        return line
    inside = "".join(f"{argument},\n" for argument in shown)
    return f"{name}(\n{textwrap.indent(inside, '    ')})"


def show(value: Any) -> str:
    """Formats an argument's value, without memory addresses and line breaks if possible."""
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
