"""Console output: on stderr by default, or through logging once the program has configured it.

All messages use the logger "estimator", and warnings always go through it. Progress messages have
the level INFO, which Python hides by default, so as long as nobody has configured logging, they are
written to stderr directly. Handlers that a program attaches to the logger "tensorflow", which
tf.estimator used, get all messages too.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import tensorflow as tf
from absl import flags
from absl import logging as absl_logging

log = logging.getLogger("estimator")
_tensorflow = logging.getLogger("tensorflow")


class Line(Protocol):
    """A terminal line that is rewritten repeatedly, such as a progress bar."""

    def clear(self) -> None:
        """Removes the line from the terminal until it is written again."""


_lines: weakref.WeakSet[Line] = weakref.WeakSet()


def say(message: str, *args: Any, brief: str | None = None) -> None:
    """Reports progress.

    Args:
      message: a format string, as for `logging`.
      args: the values for the format string.
      brief: a shorter message for programs that have not configured logging.
    """
    way = _way()
    if way == "stderr" and sys.stderr is not None:  # A daemon may have none.
        _clear_lines()
        text = message % args if brief is None else brief
        # A closed stderr, as after `| head`, must not end a training.
        with contextlib.suppress(OSError, ValueError):
            print(text, file=sys.stderr)
            if hasattr(sys.stderr, "flush"):  # A program's own may only write.
                sys.stderr.flush()
    _log_info(way, message, args)


def note(message: str, *args: Any) -> None:
    """Logs a detail, which is shown only if the program has configured logging."""
    _log_info(_way(), message, args)


def _log_info(way: str | None, message: str, args: tuple[Any, ...]) -> None:
    if _is_silenced():
        return
    path, line, function, _ = log.findCaller(stacklevel=3)
    record = log.makeRecord(log.name, logging.INFO, path, line, message, args, None, function)
    if way == "logging":
        # Ignores the loggers' levels, because `_way` has checked that INFO is wanted.
        log.handle(record)
    else:
        _tell_tensorflow(record)


def _tell_tensorflow(record: logging.LogRecord) -> bool:
    """Passes a record to the program's handlers on the logger "tensorflow"; used as a filter."""
    if _tensorflow.isEnabledFor(record.levelno):
        reached = _handlers()
        for handler in filter(_is_of_program, _tensorflow.handlers):
            if handler not in reached and record.levelno >= handler.level:
                handler.handle(record)
    return True


def _is_of_program(handler: logging.Handler) -> bool:
    """Returns whether a handler on the logger "tensorflow" is not TensorFlow's own."""
    own = getattr(handler.formatter, "_fmt", None) == logging.BASIC_FORMAT
    return not (type(handler) is logging.StreamHandler and own)


def is_terminal() -> bool:
    """Returns whether `say` writes to a terminal on which a line can be rewritten.

    Containers and CI have terminals without a size, which are really log files.
    """
    if _way() != "stderr" or sys.stderr is None:
        return False
    try:
        return sys.stderr.isatty() and min(os.get_terminal_size(sys.stderr.fileno())) > 1
    # A ValueError if it is closed; a program's own may only write.
    except (AttributeError, OSError, ValueError):
        return False


def _way() -> str | None:
    """Returns how INFO is output: "logging", "stderr" if nobody has configured logging, or None.

    This depends on the level of the logger "estimator"; else on the program's handlers and their
    level, unless it asks TensorFlow or absl for INFO; else on absl's verbosity. `absl.app.run`
    installs a handler in every program, and INFO as the verbosity unless a flag overrides it, so
    its handler does not show what the program wants. Neither does the handler at WARNING that a
    single call of `absl.logging` installs: it looks like a program's own, so INFO must be requested
    explicitly.
    """
    if _is_silenced():
        return None
    verbosity = flags.FLAGS["verbosity"]
    level_of_absl: Any = None if verbosity.using_default_value else verbosity.value
    if any(map(_is_set_up_by_program, _handlers())):
        is_asked = logging.NOTSET < _tensorflow.level <= logging.INFO or (
            level_of_absl is not None and level_of_absl >= absl_logging.INFO
        )
        return "logging" if is_asked or log.isEnabledFor(logging.INFO) else None
    is_quiet = level_of_absl is not None and level_of_absl < absl_logging.INFO
    return None if is_quiet and log.level == logging.NOTSET else "stderr"


def _is_silenced() -> bool:
    """Returns whether a program has silenced this library's logger, or all logging."""
    is_off = log.disabled or log.manager.disable >= logging.INFO
    return is_off or log.level > logging.INFO


def _is_set_up_by_program(handler: logging.Handler) -> bool:
    absl_handler = absl_logging.get_absl_handler()
    stderr = (sys.stderr, sys.__stderr__)
    return handler is not absl_handler or absl_handler.python_handler.stream not in stderr


def _handlers() -> list[logging.Handler]:
    """Returns the handlers that a record of our logger reaches."""
    found: list[logging.Handler] = []
    logger: logging.Logger | None = log
    while logger is not None:
        found += logger.handlers
        logger = logger.parent if logger.propagate else None
    return found


def _clear_lines() -> None:
    for line in list(_lines):
        line.clear()


def _clear_lines_before(record: logging.LogRecord) -> bool:
    _clear_lines()
    return True


@contextlib.contextmanager
def _filtering(accept: Callable[[logging.LogRecord], bool], *names: str) -> Iterator[None]:
    """Filters the records of these loggers inside the block; other threads' blocks keep theirs."""

    def own(record: logging.LogRecord) -> bool:
        return accept(record)

    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addFilter(own)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(own)


# A filter runs before all handlers, and leaves warnings without handlers to Python's default.
log.addFilter(_tell_tensorflow)


@contextlib.contextmanager
def rewriting(line: Line) -> Iterator[None]:
    """Clears `line` whenever a message is written or logged inside the block."""
    with _filtering(_clear_lines_before, "", "estimator", "tensorflow", "absl"):
        _lines.add(line)
        try:
            yield
        finally:
            _lines.discard(line)


_PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(tf.__file__)))
_TENSORFLOW = os.path.join(_PACKAGES, "tensorflow", "")
_OURS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
# Packages whose calls of deprecated functions do not concern the program.
_INSIDE = (
    *(os.path.join(_PACKAGES, name, "") for name in ("tensorflow", "keras", "tf_keras")),
    _OURS,
)
_LOGGING = (os.path.join(os.path.dirname(logging.__file__), ""), __file__)
# TensorFlow's files that log details of what this library does itself. What hooks log is for the
# program.
_DETAILS = tuple(
    os.path.join(_TENSORFLOW, "python", name)
    for name in ("distribute", "saved_model", os.path.join("training", "saver.py"))
)


def _is_for_the_program(record: logging.LogRecord) -> bool:
    """Returns whether a record of TensorFlow is about what the program itself calls.

    It is not if it warns of a deprecated function that TensorFlow or this library calls, or if it
    tells a detail of what this library calls: INFO, which TensorFlow shows in notebooks.
    """
    message = str(record.msg)
    if message.startswith("From %s: ") and "deprecated" in message:
        place = str(record.args[0]) if isinstance(record.args, tuple) and record.args else ""
        return not place.startswith(_INSIDE)
    is_detail = record.levelno == logging.INFO and record.pathname.startswith(_DETAILS)
    return not (is_detail and _caller_of_tensorflow().startswith(_OURS))


def _caller_of_tensorflow() -> str:
    """Returns the file of the code that has called TensorFlow, which logs something now."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith((*_LOGGING, _TENSORFLOW)):
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename


@contextlib.contextmanager
def no_internal_messages() -> Iterator[None]:
    """Suppresses what TensorFlow logs inside the block about its own calls and about ours.

    These are warnings about deprecated functions, and details such as restored files. What it logs
    about the program's own calls is logged as usual. Can be used as a decorator.
    """
    with _filtering(_is_for_the_program, "tensorflow"):
        yield
