"""`install` and `uninstall`: puts the library where programs look for `tf.estimator`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import threading
import types

from estimator.compat.modules import TableFinder, TableModule, old_modules_loaded
from estimator.console import log

_lock = threading.RLock()
# What `uninstall` has to undo; nothing as long as it is not installed.
_installed: list[contextlib.ExitStack] = []


def install() -> None:
    """Makes old imports of `tf.estimator` and `tensorflow_estimator` find this library.

    That is `tf.estimator`, also of `tf.compat.v1` and `tf.compat.v2` at any depth;
    `tf.keras.estimator`; `tf.data.experimental.CheckpointInputPipelineHook`; and the modules of
    `tensorflow_estimator.python.estimator` and `tensorflow.python.estimator`. Names that TensorFlow
    has moved, such as `tensorflow.python.framework.ops.Tensor`, are there again. If
    `tensorflow_estimator` itself is there, it is hidden, with a warning; modules that have imported
    it before keep it. A second call does nothing.
    """
    with _lock:
        if _installed:
            return
        from estimator import keras
        from estimator._tf import api_modules
        from estimator.compat import private_names
        from estimator.hooks.input_pipeline import CheckpointInputPipelineHook

        with contextlib.ExitStack() as undo:
            _replace_modules(undo)
            for version, names in ((1, "estimator.compat.v1"), (2, "estimator")):
                for module in api_modules.api_modules(version):
                    ours = importlib.import_module(names)
                    undo.enter_context(api_modules.supplied(module, "estimator", ours))
                    hook = (CheckpointInputPipelineHook.__name__, CheckpointInputPipelineHook)
                    undo.enter_context(api_modules.supplied(module.data.experimental, *hook))
            for module in api_modules.keras_modules():
                undo.enter_context(api_modules.supplied(module, "estimator", keras))
            private_names.supply(undo)
            _installed.append(undo.pop_all())


def uninstall() -> None:
    """Undoes `install`; names that a program has imported stay as they are. Idempotent."""
    with _lock:
        if _installed:
            _installed.pop().close()


def _replace_modules(undo: contextlib.ExitStack) -> None:
    """Puts the modules of the old package, and ours as parts of TensorFlow, in their places."""
    real = importlib.util.find_spec("tensorflow_estimator")
    if real is not None:
        log.warning(
            "`install` hides the package tensorflow_estimator in %s. Call `uninstall` to get it "
            "back, or remove the package: without tf.estimator it has no use.",
            real.origin,
        )
    before = old_modules_loaded()
    for name in before:
        del sys.modules[name]
    finder = TableFinder()
    sys.meta_path.insert(0, finder)
    ours = _parts_of_tensorflow()
    sys.modules.update(ours)
    undo.callback(_restore_modules, finder, list(ours), before)


# Modules that optimizers of other packages import, and that TensorFlow has under another name now.
_MOVED = {
    f"tensorflow.python.training.{name}": "tensorflow.python.ops.gen_training_ops"
    for name in ("gen_training_ops", "training_ops")
}


def _parts_of_tensorflow() -> dict[str, types.ModuleType]:
    """Returns modules by the names under which they were imported as parts of TensorFlow."""
    found = {"tensorflow.keras.estimator": importlib.import_module("estimator.keras")}
    spaces = ("export", "experimental", "inputs", "tpu")
    for parent, ours in (
        ("tensorflow.estimator", "estimator"),
        ("tensorflow.compat.v1.estimator", "estimator.compat.v1"),
        ("tensorflow.compat.v2.estimator", "estimator"),
    ):
        found[parent] = importlib.import_module(ours)
        for name in spaces:
            found[f"{parent}.{name}"] = importlib.import_module(f"estimator.{name}")
    for old, new in _MOVED.items():
        if importlib.util.find_spec(old) is None:
            found[old] = importlib.import_module(new)
    return found


def _restore_modules(
    finder: TableFinder, ours: list[str], before: dict[str, types.ModuleType]
) -> None:
    sys.meta_path.remove(finder)
    for name in [*ours, *old_modules_loaded()]:
        sys.modules.pop(name, None)
        parent, _, last = name.rpartition(".")
        package = sys.modules.get(parent)
        if package is not None and isinstance(vars(package).get(last), TableModule):
            delattr(package, last)
    sys.modules.update(before)
