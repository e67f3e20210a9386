"""`make_predictor`: calls a SavedModel's signature again and again, in one session."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from estimator import _tf
from estimator.config.checks import WrongTypeError, check_instance, did_you_mean
from estimator.console import no_internal_messages
from estimator.export.directory import numbered_dirs

_V1 = tf.compat.v1
_DEFAULT = _V1.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
_SERVE = _V1.saved_model.tag_constants.SERVING


def make_predictor(
    source: Any,
    serving_input_receiver_fn: Callable | None = None,
    *,
    signature: str = _DEFAULT,
    checkpoint_path: str | None = None,
    session_config: tf.compat.v1.ConfigProto | None = None,
) -> Predictor:
    """Loads a model for many small predictions: a call takes and returns dicts of arrays.

    Args:
      source: the directory of a SavedModel, or one whose newest export it is to be; or an
        Estimator.
      serving_input_receiver_fn: for an Estimator, what the arrays are fed to.
      signature: the name of the signature to call.
      checkpoint_path: for an Estimator, the checkpoint; None for the newest.
      session_config: the configuration of the session.

    Returns:
      A `Predictor`, which threads may share.

    Raises:
      TypeError: `source` is neither a path nor an Estimator.
      ValueError: there is no SavedModel, no checkpoint, or no such signature, or there is a
        receiver function for a SavedModel, or none for an Estimator.
    """
    if callable(getattr(source, "export_saved_model", None)):
        if serving_input_receiver_fn is None:
            raise ValueError(
                "`serving_input_receiver_fn` is missing: it says what a predictor of an Estimator "
                "is fed with. Pass one, for example of "
                "estimator.export.build_raw_serving_input_receiver_fn."
            )
        with tempfile.TemporaryDirectory() as folder:
            exported = source.export_saved_model(
                folder, serving_input_receiver_fn, checkpoint_path=checkpoint_path
            )
            return Predictor(os.fsdecode(exported), signature, session_config)
    check_instance(
        "source", source, str | bytes | os.PathLike, "the path of a SavedModel, or an Estimator"
    )
    if serving_input_receiver_fn is not None or checkpoint_path is not None:
        raise ValueError(
            "`serving_input_receiver_fn` and `checkpoint_path` are for an Estimator; a SavedModel "
            "has its inputs and its variables. Leave them out."
        )
    return Predictor(_model_directory(os.fsdecode(source)), signature, session_config)


class Predictor:
    """A SavedModel in a session of its own; `make_predictor` makes it.

    Attributes:
      graph: the graph of the model.
      session: the session on it.
      feed_tensors: the inputs by name.
      fetch_tensors: the outputs by name.
    """

    def __init__(
        self,
        directory: str,
        signature: str = _DEFAULT,
        session_config: tf.compat.v1.ConfigProto | None = None,
    ) -> None:
        """Loads a SavedModel; see `make_predictor`."""
        self.graph = tf.Graph()
        self.session = _V1.Session(graph=self.graph, config=session_config)
        self._end = weakref.finalize(self, self.session.close)
        try:
            with self.graph.as_default(), no_internal_messages():
                meta_graph = _V1.saved_model.load(self.session, [_SERVE], directory)
        except (RuntimeError, OSError) as error:
            raise ValueError(
                f"`source` ({directory!r}) has no SavedModel with the tag {_SERVE!r}: {error}"
            ) from error
        signatures = meta_graph.signature_def
        if signature not in signatures:
            raise ValueError(
                f"`signature` ({signature!r}) is not in {directory}. "
                f"{did_you_mean(signature, sorted(signatures))}"
            )
        found = signatures[signature]
        self.feed_tensors = self._tensors(found.inputs)
        self.fetch_tensors = self._tensors(found.outputs)
        self._callables: dict[tuple[str, ...], Callable[..., list]] = {}
        self._callable(tuple(self.feed_tensors))

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Returns the outputs by name.

        Args:
          inputs: an array, or what makes one, for each input. One that has a default, such as that
            of a `placeholder_with_default`, may be None or left out.

        Raises:
          ValueError: a name is missing or unknown, or a shape does not fit.
          TypeError: a dtype does not fit, or `inputs` are not a dict.
          RuntimeError: it is closed.
        """
        if not self._end.alive:
            raise RuntimeError("This predictor is closed. Make another one.")
        names = self._names_to_feed(inputs)
        arrays = [_fitting(name, inputs[name], self.feed_tensors[name]) for name in names]
        return dict(zip(self.fetch_tensors, self._callable(names)(*arrays), strict=True))

    def close(self) -> None:
        """Frees the session."""
        self._end()

    def __enter__(self) -> Predictor:
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Calls `close`."""
        self.close()

    def __repr__(self) -> str:
        """Returns the inputs and outputs."""
        return f"Predictor of {sorted(self.fetch_tensors)} from {sorted(self.feed_tensors)}"

    def _tensors(self, infos: Any) -> dict[str, Any]:
        """Returns the tensors of a part of the signature.

        Raises:
          ValueError: one of them is sparse.
        """
        for name, info in infos.items():
            if not info.name:
                raise ValueError(
                    f"The signature has the sparse tensor {name!r}, which cannot be an array. "
                    "Export a signature of dense tensors."
                )
        return {name: self.graph.get_tensor_by_name(infos[name].name) for name in sorted(infos)}

    def _callable(self, names: tuple[str, ...]) -> Callable[..., list]:
        """Returns what takes the inputs of these names and returns the outputs."""
        if names not in self._callables:
            feeds = [self.feed_tensors[name] for name in names]
            outputs = list(self.fetch_tensors.values())
            self._callables[names] = _tf.make_callable(self.session, outputs, feeds)
        return self._callables[names]

    def _names_to_feed(self, inputs: Any) -> tuple[str, ...]:
        """Returns the names of the inputs that are given, in the signature's order.

        Raises:
          ValueError: a name is unknown, or an input without a default is missing.
          TypeError: `inputs` are not a dict.
        """
        if not isinstance(inputs, Mapping):
            names = ", ".join(map(repr, self.feed_tensors))
            check_instance("inputs", inputs, Mapping, f"a dict: {{{names}}}")
        given = tuple(name for name in self.feed_tensors if inputs.get(name) is not None)
        if len(given) == len(inputs) == len(self.feed_tensors):
            return given
        unknown = [name for name in inputs if name not in self.feed_tensors]
        if unknown:
            way_out = did_you_mean(unknown[0], self.feed_tensors)
            raise ValueError(f"`inputs` has {unknown[0]!r}, which is no input. {way_out}")
        needed = [name for name, one in self.feed_tensors.items() if one.op.type == "Placeholder"]
        missing = [repr(name) for name in needed if name not in given]
        if missing:
            raise ValueError(f"`inputs` lacks {', '.join(missing)}.")
        return given


def _fitting(name: str, value: Any, tensor: tf.Tensor) -> np.ndarray:
    """Returns a value as an array of the tensor's dtype.

    Raises:
      TypeError: its dtype cannot be converted without loss of meaning.
      ValueError: its shape does not fit, or an integer is out of the dtype's range.
    """
    wanted = tensor.dtype.as_numpy_dtype
    array = np.asarray(value)
    if tensor.dtype == tf.string and array.dtype.kind in "SU":
        array = np.asarray(value, object)  # NumPy's own strings lose zeros at their ends.
    if array.dtype != wanted:
        is_text = array.dtype.kind in "USO"
        if tensor.dtype == tf.string:
            fits = is_text
        elif tensor.dtype.is_integer and array.dtype.kind in "iu":
            _check_range(name, array, tensor.dtype)
            fits = True
        else:
            fits = not is_text and np.can_cast(array.dtype, wanted, "same_kind")
        if not fits:
            raise WrongTypeError(
                f"`inputs[{name!r}]` is {array.dtype}, where {tensor.dtype.name} is needed. "
                f"Convert it: np.asarray(value, {tensor.dtype.name!r})."
            )
        array = array.astype(wanted)
    shape = tensor.shape
    if not shape.is_compatible_with(array.shape):
        raise ValueError(f"`inputs[{name!r}]` has shape {array.shape}, which does not fit {shape}.")
    return array


def _check_range(name: str, array: np.ndarray, dtype: tf.DType) -> None:
    """Raises a ValueError for the first integer that is out of a dtype's range."""
    low, high = int(dtype.min), int(dtype.max)
    for number in (int(array.min()), int(array.max())) if array.size else ():
        if not low <= number <= high:
            raise ValueError(
                f"`inputs[{name!r}]` has the value {number}, which is not in the range of "
                f"{dtype.name}: {low} to {high}."
            )


def _model_directory(path: str) -> str:
    """Returns the SavedModel's directory: this one, or the newest export in it."""
    if tf.saved_model.contains_saved_model(path):
        return path
    for export in reversed(numbered_dirs(path)):
        if tf.saved_model.contains_saved_model(export):
            return export
    raise ValueError(
        f"`source` ({path!r}) has no SavedModel: no saved_model.pb, and no directory of an export. "
        "Pass what `export_saved_model` returned."
    )
