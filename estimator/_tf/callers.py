"""Finds out from the Python stack which code made an op, or is calling."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_ESTIMATOR = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TENSORFLOW = os.path.dirname(os.path.abspath(tf.__file__)) + os.sep
_REPLICAS = os.path.join(_TENSORFLOW, "python", "distribute", "mirrored_run.py")
_V1_OPTIMIZERS = os.path.join(_TENSORFLOW, "python", "training", "optimizer.py")
_LEGACY_OPTIMIZERS = os.path.join("", "tf_keras", "src", "optimizers", "legacy", "")
_V1_LAYERS = os.path.join("", "tf_keras", "src", "legacy_tf_layers", "")
_TF_DATA = os.path.join(_TENSORFLOW, "python", "data") + os.sep


def is_made_by_keras(op: tf.Operation) -> bool:
    """Returns whether Keras 3 or tf-keras code made `op`, by the op's traceback."""
    folders = _keras_folders()
    return any(frame.filename.startswith(folders) for frame in _traceback(op))


def is_made_by_v1_layer(op: tf.Operation) -> bool:
    """Returns whether a layer of `tf.compat.v1.layers` made `op`, by the op's traceback.

    Such a layer puts its updates into UPDATE_OPS. 2.16 to 2.21.
    """
    return any(_V1_LAYERS in frame.filename for frame in _traceback(op))


def is_left_to_step(op: tf.Operation) -> bool:
    """Returns whether Keras made `op` and returned nothing that runs it, by the op's traceback.

    The optimizers of tf.compat.v1.train and of tf_keras.optimizers.legacy return an op; the code
    that is nearest to `op` counts. It is also true where the maker cannot be seen: an imported op
    has no traceback, and what replicas make in a `merge_call` is made by the main thread while
    theirs wait. 2.16 to 2.21.
    """
    keras, frames = _keras_folders(), _traceback(op)
    for name in reversed([frame.filename for frame in frames]):
        if name == _V1_OPTIMIZERS or _LEGACY_OPTIMIZERS in name:
            return False
        if name.startswith(keras):
            return True
    merging = (_REPLICAS, "_call_for_each_replica")
    return not frames or merging in [(frame.filename, frame.name) for frame in frames]


def line_of(op: tf.Operation) -> str:
    """Returns the line of user code that made `op`, as "file:number"; "" if there is none."""
    inside = (_TENSORFLOW, _ESTIMATOR, *_keras_folders())
    for frame in reversed(_traceback(op)):
        if not frame.filename.startswith(inside):
            return f"{frame.filename}:{frame.lineno}"
    return ""


def _traceback(op: tf.Operation) -> list[Any]:
    """Returns the frames of the stack that made `op`; [] if it comes from an imported graph."""
    return list(op.traceback or ())


def is_called_by_keras(*parts: str) -> bool:
    """Returns whether Keras 3 or tf-keras code is on this thread's stack.

    Args:
      *parts: if given, only code in these folders of theirs counts.
    """
    folders = _keras_folders()
    if parts:
        folders = tuple(os.path.join(f, "src", part) + os.sep for f in folders for part in parts)
    return is_on_stack(folders)


def is_line_of_keras(*names: str) -> bool:
    """Returns whether Keras code calls the function that calls this one, without any code between.

    Args:
      *names: "keras" or "tf_keras", to ask for one of them only.
    """
    return sys._getframe(2).f_code.co_filename.startswith(_keras_folders(*names))


def asks_keras() -> bool:
    """Returns whether Keras itself calls TensorFlow here, and not user code that Keras calls."""
    inside = (_TENSORFLOW, _ESTIMATOR)
    caller = next((name for name in _files(sys._getframe()) if not name.startswith(inside)), "")
    return caller.startswith(_keras_folders())


def _keras_folders(*names: str) -> tuple[str, ...]:
    return tuple(
        os.path.dirname(sys.modules[name].__file__ or "") + os.sep
        for name in names or ("keras", "tf_keras")
        if name in sys.modules
    )


def is_made_by_tf_data() -> bool:
    """Returns whether tf.data is on the stack, nearer than any code outside of TensorFlow."""
    # Name scopes are context managers, so `contextlib` is on the stack, too.
    inside = (_TENSORFLOW, contextlib.__file__)
    files = itertools.takewhile(lambda name: name.startswith(inside), _files(sys._getframe(2)))
    return any(name.startswith(_TF_DATA) for name in files)


def is_on_stack(folders: tuple[str, ...]) -> bool:
    """Returns whether code in one of these folders is on this thread's stack."""
    return any(name.startswith(folders) for name in _files(sys._getframe()))


def _files(frame: types.FrameType | None) -> Iterator[str]:
    """Yields the files of the code of a frame, of its caller, and so on."""
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back
