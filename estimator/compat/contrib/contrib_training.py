"""`tf.contrib.training`: hyperparameters, and a hook that summarizes an evaluation."""

from __future__ import annotations

import contextlib
import json
import numbers
import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.config.checks import WrongTypeError, check_choice


class SummaryAtEndHook(tf.compat.v1.train.SessionRunHook):
    """Records summaries once, when the session ends: in an evaluation, those of its last batch."""

    def __init__(
        self,
        log_dir: str | None = None,
        summary_writer: tf.compat.v1.summary.FileWriter | None = None,
        summary_op: tf.Tensor | None = None,
        feed_dict: Any = None,
    ) -> None:
        """Makes the hook.

        Args:
          log_dir: the directory of the event file.
          summary_writer: writes the event file in its place.
          summary_op: a serialized summary; None for all of SUMMARIES.
          feed_dict: fed when it runs.

        Raises:
          ValueError: neither a `log_dir` nor a `summary_writer` is given.
        """
        if log_dir is None and summary_writer is None:
            raise ValueError("SummaryAtEndHook needs a `log_dir` or a `summary_writer`.")
        self._log_dir, self._given = log_dir, summary_writer
        self._summary_op, self._feed_dict = summary_op, feed_dict

    def begin(self) -> None:
        """Builds the summary, and finds the global step."""
        self._summary = self._summary_op
        if self._summary is None:
            self._summary = tf.compat.v1.summary.merge_all()
        self._global_step = tf.compat.v1.train.get_global_step()

    def end(self, session: tf.compat.v1.Session) -> None:
        """Runs and writes the summary."""
        step = session.run(self._global_step)
        given = self._given
        writer = given if given is not None else _tf.file_writer(str(self._log_dir))
        if self._summary is not None:
            writer.add_summary(session.run(self._summary, self._feed_dict), step)
        writer.flush()


class HParams:
    """Named values of fixed types, which a string or JSON can override."""

    def __init__(self, **kwargs: Any) -> None:
        """Takes the values by name; a list's first element says the type of all."""
        self._types: dict[str, tuple[type, bool]] = {}
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Adds a value.

        Raises:
          ValueError: the name is taken, or the value is an empty list.
        """
        if hasattr(self, name):
            raise ValueError(f"`name` ({name!r}) is taken. Use `set_hparam` to change a value.")
        is_list = isinstance(value, list | tuple)
        if is_list and not value:
            raise ValueError(f"`value` of {name!r} is an empty list, so its type is unknown.")
        self._types[name] = (type(value[0] if is_list else value), is_list)
        vars(self)[name] = list(value) if isinstance(value, tuple) else value

    def set_hparam(self, name: str, value: Any) -> None:
        """Changes a value, to one of the same type.

        Raises:
          ValueError: there is no such name, or a list is given for a number, or the reverse.
          TypeError: the value is of another type.
        """
        check_choice("name", name, self._types)
        kind, is_list = self._types[name]
        if isinstance(value, list | tuple) != is_list:
            rule = "a list" if is_list else "no list"
            raise ValueError(f"`value` ({value!r}) of {name!r} must be {rule}.")
        new = [_cast(name, one, kind) for one in value] if is_list else _cast(name, value, kind)
        vars(self)[name] = new

    def del_hparam(self, name: str) -> None:
        """Removes a value."""
        if self._types.pop(name, None) is not None:
            del vars(self)[name]

    def parse(self, values: str) -> HParams:
        """Changes values by a string like "rate=0.1,units=[8,4],name=x"; returns itself.

        Raises:
          ValueError: the string has another form, an unknown name, or an index that the list lacks.
          TypeError: a value is of another type.
        """
        position = 0
        while position < len(values):
            match = _ASSIGNMENT.match(values, position)
            if match is None:
                raise ValueError(
                    f"`values` ({values!r}) must be like 'a=1,b=[2,3]'; it is not from "
                    f"{values[position:]!r} on."
                )
            name, index, listed, single = match.group("name", "index", "list", "value")
            new = single if listed is None else [s for s in re.split("[ ,]", listed) if s]
            self.set_hparam(name, new if index is None else self._with(name, int(index), new))
            position = match.end()
        return self

    def _with(self, name: str, index: int, new: Any) -> list[Any]:
        """Returns a list of values with another one at an index.

        Raises:
          ValueError: there is no list of this name, or it is too short, or `new` is a list.
        """
        check_choice("name", name, self._types)
        old = getattr(self, name)
        if not isinstance(old, list) or isinstance(new, list):
            raise ValueError(
                f"`{name}[{index}]` is given, but `{name}` ({old!r}) must be a list for that, and "
                f"the value ({new!r}) none."
            )
        if index >= len(old):
            raise ValueError(
                f"`{name}[{index}]` is given, but `{name}` ({old!r}) has {len(old)} values. Give "
                f"the whole list: {name}=[...]."
            )
        return [*old[:index], new, *old[index + 1 :]]

    def parse_json(self, values_json: str) -> HParams:
        """Changes values by a JSON object; returns itself."""
        return self.override_from_dict(json.loads(values_json))

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """Changes values; returns itself."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def values(self) -> dict[str, Any]:
        """Returns the values by name."""
        return {name: getattr(self, name) for name in self._types}

    def get(self, key: str, default: Any = None) -> Any:
        """Returns a value, or the default."""
        return getattr(self, key) if key in self._types else default

    def to_json(
        self,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """Returns the values as JSON, without functions; see `json.dumps`."""
        plain = {name: value for name, value in self.values().items() if not callable(value)}
        return json.dumps(plain, indent=indent, separators=separators, sort_keys=sort_keys)

    def __contains__(self, key: str) -> bool:
        """Returns whether there is such a value."""
        return key in self._types

    def __repr__(self) -> str:
        """Returns the values as arguments."""
        return f"HParams({', '.join(f'{k}={v!r}' for k, v in sorted(self.values().items()))})"


_ASSIGNMENT = re.compile(
    r"(?P<name>[a-zA-Z][\w.]*)(\[\s*(?P<index>\d+)\s*\])?\s*=\s*"
    r"((?P<value>[^,\[]*)|\[(?P<list>[^\]]*)\])($|,\s*)"
)


def _cast(name: str, value: Any, kind: type) -> Any:
    """Returns the value as this type.

    Raises:
      TypeError: it is of another one.
    """
    if value is None or kind is type(None):
        return value
    is_number = kind is not bool and issubclass(kind, numbers.Real)
    if isinstance(value, str) and kind is bool:
        if value.lower() in ("true", "1"):
            return True
        if value.lower() in ("false", "0"):
            return False
    elif is_number:
        given = numbers.Integral if issubclass(kind, numbers.Integral) else numbers.Real
        if isinstance(value, str | given) and not isinstance(value, bool):
            with contextlib.suppress(ValueError):
                return kind(value)
    elif isinstance(value, kind):
        return value
    raise WrongTypeError(f"`value` ({value!r}) of {name!r} must be of type {kind.__name__}.")
