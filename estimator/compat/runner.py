"""Runs a program of TensorFlow 1 as it is: `python -m estimator.compat SCRIPT.py --its --flags`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import types
from collections.abc import Iterator, Sequence

from estimator.compat import script
from estimator.compat.tensorflow_import import import_tensorflow


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to run, and how.

    Attributes:
      target: the script's path, or a module's name.
      argv: the script's own arguments.
      is_module: whether `target` is a module's name.
      is_v1: whether `import tensorflow` gives version 1; otherwise only `tf.estimator` is supplied.
      old_numpy: whether removed names of NumPy and Python are supplied.
      v1_packages: installed packages that are programs of version 1, too.
    """

    target: str
    argv: Sequence[str] = ()
    is_module: bool = False
    is_v1: bool = True
    old_numpy: bool = False
    v1_packages: Sequence[str] = ()


def run(settings: Settings) -> None:
    """Runs the program to its end, and exits with 1 if it raises an exception, which is shown.

    Raises:
      ScriptError: it is not there, or is Python 2.
    """
    sys.path[0] = os.getcwd()
    if not settings.is_module:
        path, package, code = _load(settings)
    with contextlib.ExitStack() as stack:
        own_builtins = _prepare(settings, stack)
        if settings.is_module:
            # To find it, Python imports its package, which is a part of the program.
            with _errors_shown(other_than=script.ScriptError):
                path, package, code = _load(settings)
        with _errors_shown():
            exec(code, vars(script.make_main(path, package, own_builtins)))


def _load(settings: Settings) -> tuple[str, str | None, types.CodeType]:
    """Returns the path, the package and the code of the program; sets its arguments and path."""
    path, package = script.find_script(settings.target, settings.is_module)
    if not settings.is_module:
        sys.path[0] = os.path.dirname(os.path.abspath(path))
    sys.argv = [path if settings.is_module else settings.target, *settings.argv]
    return path, package, compile(script.parse(path), path, "exec", dont_inherit=True)


def _prepare(settings: Settings, stack: contextlib.ExitStack) -> dict | None:
    """Sets TensorFlow up; returns the builtins for the program's modules, None for Python's."""
    import_tensorflow()
    if settings.old_numpy:
        from estimator.compat.old_aliases import old_aliases

        stack.enter_context(old_aliases())
    from estimator.compat.installation import install

    install()
    if not settings.is_v1:
        return None
    import tensorflow as tf

    from estimator._tf.api_modules import supplied
    from estimator.compat.v1_api import make_v1_api
    from estimator.compat.v1_imports import ProgramFinder, v1_builtins
    from estimator.console import no_internal_messages

    with no_internal_messages():
        tf.compat.v1.disable_v2_behavior()
    # What was a variable's reference to its buffer; the library's variables are resources.
    stack.enter_context(supplied(tf.Variable, "_ref", lambda variable: variable))
    own_builtins = v1_builtins(make_v1_api())
    sys.meta_path.insert(0, ProgramFinder(own_builtins, settings.v1_packages))
    return own_builtins


@contextlib.contextmanager
def _errors_shown(other_than: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Shows the program's exceptions and exits with 1."""
    try:
        yield
    except other_than:
        raise
    except Exception as error:
        _show(error)
        raise SystemExit(1) from None


def _show(error: Exception) -> None:
    """Shows an exception as Python does: the program's frames, without those of its imports."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    shown: types.TracebackType | None = None
    for frame in reversed(frames):
        name = frame.tb_frame.f_code.co_filename
        if not name.startswith("<frozen importlib") and name not in _NOT_SHOWN:
            shown = types.TracebackType(shown, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    sys.excepthook(type(error), error.with_traceback(shown), shown)


# The files that run the program, or are between a module of it and one that it imports.
_NOT_SHOWN = {
    os.path.join(os.path.dirname(__file__), name)
    for name in ("runner.py", "script.py", "v1_imports.py")
}
