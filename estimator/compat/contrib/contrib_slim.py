"""tf-slim, if it is installed: `tf.contrib.slim`, and the names that other packages lack."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any

# By package, the modules of tf-slim whose names it had.
MODULES = {
    "framework": "ops.arg_scope ops.framework_ops ops.variables",
    "layers": "layers.initializers layers.layers layers.normalization layers.optimizers "
    "layers.regularizers layers.rev_block_lib layers.summaries",
    "losses": "losses.loss_ops losses.metric_learning",
    "metrics": "metrics",
    "slim": "",
    "training": "training.evaluation training.training",
}
_Sources = dict[str, Callable[[], Any]]


def is_installed() -> bool:
    """Returns whether tf-slim is installed."""
    return importlib.util.find_spec("tf_slim") is not None


def modules_of(package: str) -> set[str]:
    """Returns the names of the modules that were inside a package."""
    return {path.rpartition(".")[2] for path in MODULES.get(package, "").split()}


def completed(package: str, own: Mapping[str, Callable[[], Any]]) -> _Sources:
    """Returns how to get each name of a package: our own, or else tf-slim's."""
    if package not in MODULES:
        return dict(own)
    _keep_arg_scopes_of_threads_apart()
    if package == "slim":
        names = dir(importlib.import_module("tf_slim"))
        found = {name: functools.partial(_find, "tf_slim", name) for name in names}
        return {**found, "nets": _import_nets}
    theirs: _Sources = {}
    for path in MODULES[package].split():
        module = f"tf_slim.{path}"
        for name in _names(importlib.import_module(module)):
            theirs[name] = functools.partial(_find, module, name)
    if package == "layers":
        theirs["utils"] = functools.partial(importlib.import_module, "tf_slim.layers.utils")
    scoped = {
        name: functools.partial(_scoped, own[name], theirs[name]) for name in own if name in theirs
    }
    return {**theirs, **own, **scoped}


@functools.cache
def _keep_arg_scopes_of_threads_apart() -> None:
    """Gives each thread a stack of scopes: `MirroredStrategy` builds replicas in turns, in threads.

    Outside of its own scopes, a thread has the one that is current in the main thread.
    """
    arg_scope = importlib.import_module("tf_slim.ops.arg_scope")
    of_main, own = vars(arg_scope)["_ARGSTACK"], threading.local()

    def get_arg_stack() -> list[Any]:
        if threading.current_thread() is threading.main_thread():
            return of_main
        if len(getattr(own, "stack", ())) < 2:
            own.stack = of_main[-1:]
        return own.stack

    vars(arg_scope)["_get_arg_stack"] = get_arg_stack


def _names(module: types.ModuleType) -> list[str]:
    return getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")])


def _find(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _import_nets() -> Any:
    nets = importlib.import_module("tf_slim.nets")
    for module in pkgutil.iter_modules(nets.__path__, "tf_slim.nets."):
        if not module.name.endswith("_test"):
            importlib.import_module(module.name)
    return nets


def _scoped(get_own: Callable[[], Any], get_theirs: Callable[[], Any]) -> Any:
    """Returns our value; if it is a layer, one that takes the arguments that `arg_scope` gives.

    These are those of tf-slim's layer of this name, so that a program may use either.
    """
    own, theirs = get_own(), get_theirs()
    key = getattr(getattr(theirs, "func", theirs), "_key_op", None)
    if key is None:
        return own
    current_scope = _find("tf_slim.ops.arg_scope", "current_arg_scope")
    function = getattr(own, "func", own)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{**current_scope().get(key, {}), **kwargs})

    is_partial = isinstance(own, functools.partial)
    layer: Any = functools.partial(call, *own.args, **own.keywords) if is_partial else call
    vars(layer)["_key_op"] = key
    if hasattr(theirs, "__name__"):  # After which `repeat` and `stack` call their scopes.
        vars(layer)["__name__"] = theirs.__name__
    return layer
