"""Runs a program of TensorFlow 1 as it is: `python -m estimator.compat SCRIPT.py --its --flags`."""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import functools
import multiprocessing.spawn
import os
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from estimator.compat import script
from estimator.compat.tensorflow_import import import_tensorflow

if TYPE_CHECKING:
    from estimator.compat.v1_imports import ProgramFinder

# What is replaced until the process ends: it belongs to the program.
_FOR_GOOD = contextlib.ExitStack()


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
        with _errors_shown(other_than=script.ScriptError):
            program, code = _load(settings)
    finder = _prepare(settings, sys.path[0])
    with _errors_shown(other_than=script.ScriptError):
        # To find a module, Python imports its package, which is a part of the program.
        if settings.is_module:
            target = finder.name_in_modules(settings.target)
            program, code = _load(dataclasses.replace(settings, target=target))
    with _errors_shown():
        exec(code, vars(script.make_main(program)))


def _load(settings: Settings) -> tuple[script.Script, types.CodeType]:
    """Returns the program and its code; sets its arguments and path."""
    found = script.find_script(settings.target, settings.is_module)
    if not settings.is_module:
        sys.path[0] = os.path.dirname(os.path.realpath(found.path))
    sys.argv = [found.path if settings.is_module else settings.target, *settings.argv]
    return found, compile(script.parse(found.path), found.path, "exec", dont_inherit=True)


def _prepare(settings: Settings, folder: str) -> ProgramFinder:
    """Sets up TensorFlow, and what the modules of the program in `folder` import, for good.

    Returns:
      What knows the modules of the program.
    """
    import_tensorflow()
    if settings.old_numpy:
        from estimator.compat.old_aliases import old_aliases

        _FOR_GOOD.enter_context(old_aliases())
    from estimator.compat.installation import install
    from estimator.compat.v1_imports import ProgramFinder, ProgramImports

    install()
    finder = ProgramFinder(folder, settings.v1_packages)
    api = _make_v1_api() if settings.is_v1 else None
    if api is not None or finder.has_own_estimator:
        sys.meta_path.insert(0, finder)
        imports: Any = ProgramImports(api, finder)
        builtins.__import__ = imports
    multiprocessing.spawn.get_preparation_data = functools.partial(
        _with_set_up, multiprocessing.spawn.get_preparation_data, settings, folder
    )
    # A fork server would import the program's module before that.
    multiprocessing.set_forkserver_preload([])
    return finder


def _make_v1_api() -> Any:
    """Returns the module `tensorflow` of version 1, and sets TensorFlow up for it."""
    import tensorflow as tf

    from estimator._tf.api_modules import supplied
    from estimator.compat.v1_api import make_v1_api
    from estimator.console import no_internal_messages

    with no_internal_messages():
        tf.compat.v1.disable_v2_behavior()
    # What was a variable's reference to its buffer; the library's variables are resources.
    _FOR_GOOD.enter_context(supplied(tf.Variable, "_ref", lambda variable: variable))
    return make_v1_api()


@dataclasses.dataclass(frozen=True)
class _Call:
    """A call that is made where this is unpickled: in a process of `multiprocessing`.

    One that is not forked imports the program's module after that, and before it runs anything.
    """

    function: Callable
    arguments: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """Returns the function to call there, and its arguments."""
        return self.function, self.arguments


def _with_set_up(
    original: Callable[[str], dict], settings: Settings, folder: str, name: str
) -> dict:
    """Returns what `multiprocessing` sends to a new process, with calls that set it up as this."""
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    # Its path begins with the working directory, which may have an `estimator` of the program; the
    # path of this process replaces it later.
    path = _Call(exec, (f"import sys; sys.path.insert(0, {ours!r})",))
    set_up = _Call(_prepare, (settings, folder))
    return {"estimator.path": path, "estimator.compat": set_up, **original(name)}


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
    shown: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and one not in shown:
            shown.append(one.with_traceback(_of_program(one.__traceback__)))
            left += [one.__cause__, one.__context__]
    sys.excepthook(type(error), error, error.__traceback__)


def _of_program(trace: types.TracebackType | None) -> types.TracebackType | None:
    """Returns a traceback without the frames of imports and of this package."""
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    shown: types.TracebackType | None = None
    for frame in reversed(frames):
        name = frame.tb_frame.f_code.co_filename
        if not name.startswith("<frozen importlib") and name not in _NOT_SHOWN:
            shown = types.TracebackType(shown, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return shown


# The files that run the program, or are between a module of it and one that it imports.
_NOT_SHOWN = {
    os.path.join(os.path.dirname(__file__), name)
    for name in ("runner.py", "script.py", "v1_imports.py")
}
