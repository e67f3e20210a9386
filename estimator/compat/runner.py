"""Runs a program of TensorFlow 1 as it is: `python -m estimator.compat SCRIPT.py --its --flags`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import types
from collections.abc import Sequence

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
    path, package = script.find_script(settings.target, settings.is_module)
    code = compile(script.parse(path), path, "exec", dont_inherit=True)
    if settings.is_module:
        sys.argv = [path, *settings.argv]
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(path))
        sys.argv = [settings.target, *settings.argv]
    with contextlib.ExitStack() as stack:
        own_builtins = _prepare(settings, stack)
        main = script.make_main(path, package, own_builtins)
        try:
            exec(code, vars(main))
        except Exception as error:
            _show(error, code)
            raise SystemExit(1) from None


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

    from estimator.compat.v1_api import make_v1_api
    from estimator.compat.v1_imports import ProgramFinder, V1Imports, finding
    from estimator.console import no_internal_deprecations

    with no_internal_deprecations():
        tf.compat.v1.disable_v2_behavior()
    imports = V1Imports(make_v1_api())
    stack.enter_context(finding(ProgramFinder(imports, settings.v1_packages)))
    return imports.builtins


def _show(error: Exception, code: types.CodeType) -> None:
    """Shows an exception as Python does: the program's frames, without those of its imports."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    codes = [frame.tb_frame.f_code for frame in frames]
    start = codes.index(code) if code in codes else 0
    shown: types.TracebackType | None = None
    for frame in reversed(frames[start:]):
        name = frame.tb_frame.f_code.co_filename
        if not name.startswith("<frozen importlib") and name not in _NOT_SHOWN:
            shown = types.TracebackType(shown, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    sys.excepthook(type(error), error.with_traceback(shown), shown)


# The files that are between a module of the program and one that it imports.
_NOT_SHOWN = {
    os.path.join(os.path.dirname(__file__), name) for name in ("script.py", "v1_imports.py")
}
