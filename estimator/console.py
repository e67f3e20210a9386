"""What people are told: on stderr by default, through their own logging once they set that up.

Only the logger "estimator" speaks for this library, and warnings always go by it. What says how
things go is INFO, which Python hides unless a program asks for it; so as long as nobody has set
logging up, it is written to stderr without it. Handlers that a program attaches to the logger
"tensorflow", by which tf.estimator spoke, get all of it too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import tensorflow as tf
from absl import flags
from absl import logging as absl_logging

_log = logging.getLogger("estimator")
_tensorflow = logging.getLogger("tensorflow")


class Line(Protocol):
    """A line of a terminal that is written again and again."""

    def clear(self) -> None:
        """Takes it off the terminal, until it is written again."""


_lines: weakref.WeakSet[Line] = weakref.WeakSet()


def say(message: str, *args: Any, brief: str | None = None) -> None:
    """Tells how things go.

    Args:
      message: as for `logging`.
      args: what is filled in.
      brief: enough for those who have not set logging up.
    """
    way = _way()
    if way == "stderr":
        _clear_lines()
        # That nobody reads any more, as after `| head`, is no reason to end a training.
        with contextlib.suppress(OSError):
            print(message % args if brief is None else brief, file=sys.stderr, flush=True)
    _log_info(way, message, args)


def note(message: str, *args: Any) -> None:
    """Tells a detail: only those who have set logging up see it."""
    _log_info(_way(), message, args)


def _log_info(way: str | None, message: str, args: tuple[Any, ...]) -> None:
    if _is_silenced():
        return
    path, line, function, _ = _log.findCaller(stacklevel=3)
    record = _log.makeRecord(_log.name, logging.INFO, path, line, message, args, None, function)
    if way == "logging":
        # Whatever the levels of loggers: `_way` has seen that INFO is wanted.
        _log.handle(record)
    else:
        _tell_tensorflow(record)


def _tell_tensorflow(record: logging.LogRecord) -> bool:
    """Hands a record to what the program has attached to the logger "tensorflow"; a filter."""
    if _tensorflow.isEnabledFor(record.levelno):
        reached = _handlers()
        for handler in filter(_is_of_program, _tensorflow.handlers):
            if handler not in reached and record.levelno >= handler.level:
                handler.handle(record)
    return True


def _is_of_program(handler: logging.Handler) -> bool:
    """Whether a handler of the logger "tensorflow" is not the one that TensorFlow attaches."""
    own = getattr(handler.formatter, "_fmt", None) == logging.BASIC_FORMAT
    return not (type(handler) is logging.StreamHandler and own)


def is_terminal() -> bool:
    """Whether what `say` says is seen on a terminal, where a line can be written again.

    Containers and CI have terminals without a size, which are files of a log.
    """
    if _way() != "stderr" or not sys.stderr.isatty():
        return False
    try:
        return min(os.get_terminal_size(sys.stderr.fileno())) > 1
    except OSError:
        return False


def _way() -> str | None:
    """How INFO goes out: by "logging", to "stderr" as nobody has set logging up, or not at all.

    What counts: the level of the logger "estimator"; handlers that the program has set up, with
    their level, unless it asks TensorFlow or absl for INFO; else the verbosity of absl.
    `absl.app.run` sets up a handler for any program, and INFO as the verbosity if no flag says
    otherwise, so the handler says nothing of what is wanted. Nor does the one at WARNING that a
    single call of `absl.logging` sets up: it looks like a program's own, so INFO must be asked for.
    """
    if _is_silenced():
        return None
    verbosity = flags.FLAGS["verbosity"]
    level_of_absl: Any = None if verbosity.using_default_value else verbosity.value
    if any(map(_is_set_up_by_program, _handlers())):
        is_asked = logging.NOTSET < _tensorflow.level <= logging.INFO or (
            level_of_absl is not None and level_of_absl >= absl_logging.INFO
        )
        return "logging" if is_asked or _log.isEnabledFor(logging.INFO) else None
    is_quiet = level_of_absl is not None and level_of_absl < absl_logging.INFO
    return None if is_quiet and _log.level == logging.NOTSET else "stderr"


def _is_silenced() -> bool:
    """Whether a program has told this library's logger, or all, to be quiet."""
    is_off = _log.disabled or _log.manager.disable >= logging.INFO
    return is_off or _log.level > logging.INFO


def _is_set_up_by_program(handler: logging.Handler) -> bool:
    absl_handler = absl_logging.get_absl_handler()
    stderr = (sys.stderr, sys.__stderr__)
    return handler is not absl_handler or absl_handler.python_handler.stream not in stderr


def _handlers() -> list[logging.Handler]:
    """Those that a record of ours reaches."""
    found: list[logging.Handler] = []
    logger: logging.Logger | None = _log
    while logger is not None:
        found += logger.handlers
        logger = logger.parent if logger.propagate else None
    return found


def _clear_lines() -> None:
    for line in list(_lines):
        line.clear()


def _clear_lines_before(record: logging.LogRecord) -> bool:
    del record
    _clear_lines()
    return True


class _WhileInUse:
    """Puts a filter on loggers while somebody needs it."""

    def __init__(self, accept: Callable[[logging.LogRecord], bool], names: Sequence[str]) -> None:
        self._accept = accept
        self._names = names
        self._lock = threading.Lock()
        self._num_users = 0

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        loggers = [logging.getLogger(name) for name in self._names]
        with self._lock:
            self._num_users += 1
            for logger in loggers:
                logger.addFilter(self._accept)
        try:
            yield
        finally:
            with self._lock:
                self._num_users -= 1
                for logger in loggers if self._num_users == 0 else ():
                    logger.removeFilter(self._accept)


# A filter comes before all handlers, and where there are none it leaves warnings to Python's own.
_log.addFilter(_tell_tensorflow)
_clearing = _WhileInUse(_clear_lines_before, ["", "estimator", "tensorflow", "absl"])


@contextlib.contextmanager
def rewriting(line: Line) -> Iterator[None]:
    """Inside, `line` gives way to what is said and to what is logged."""
    with _clearing.used():
        _lines.add(line)
        try:
            yield
        finally:
            _lines.discard(line)


_PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(tf.__file__)))
# Whose calls of deprecated functions are no business of the program's.
_INSIDE = (
    *(os.path.join(_PACKAGES, name, "") for name in ("tensorflow", "keras", "tf_keras")),
    os.path.join(os.path.dirname(os.path.abspath(__file__)), ""),
)


def _is_for_the_program(record: logging.LogRecord) -> bool:
    """False for a record that says that TensorFlow itself calls what it has deprecated."""
    message = str(record.msg)
    is_deprecation = message.startswith("From %s: ") and "deprecated" in message
    place = str(record.args[0]) if isinstance(record.args, tuple) and record.args else ""
    return not (is_deprecation and place.startswith(_INSIDE))


_quieting = _WhileInUse(_is_for_the_program, ["tensorflow"])


@contextlib.contextmanager
def no_internal_deprecations() -> Iterator[None]:
    """Inside, TensorFlow does not log that it, Keras or this library call deprecated functions.

    What the program itself calls is logged, as ever. Can be used as a decorator.
    """
    with _quieting.used():
        yield
