"""The weights of a Keras model: from it into an Estimator's graph, and from a checkpoint back."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator import _tf
from estimator.checkpoint import files
from estimator.cluster.collectives import replica_id
from estimator.config.run_config import RunConfig
from estimator.summary.whole_file import write_file

_V1 = tf.compat.v1
_FOLDER = "keras"
_NAMES = "weights.json"


class InitialWeights:
    """Values that variables start from, in a file of `model_dir`, so that no graph holds them.

    The file's name depends on the values, so that other models, and other tasks with other random
    weights, have files of their own. With several workers, the chief's values count.
    """

    def __init__(self, values: Sequence[np.ndarray]) -> None:
        """Keeps the values; the file is written when the first graph needs it."""
        self._values = values
        digest = hashlib.sha256()
        for value in values:
            digest.update(f"{value.dtype}{value.shape}".encode())
            digest.update(np.ascontiguousarray(value).view(np.uint8))  # Copies nothing.
        self._name = f"initial-{digest.hexdigest()[:16]}.ckpt"
        self._lock = threading.Lock()

    def load_into(self, variables: Sequence[Any], config: RunConfig) -> None:
        """Lets the variables of the default graph start from the values."""
        if len(variables) != len(self._values):
            raise ValueError(
                f"The copy of `keras_model` has {len(variables)} weights, and the model "
                f"{len(self._values)}. Its `get_config` must describe all of its layers."
            )
        model_dir = str(config.model_dir)
        path = os.path.join(model_dir, _FOLDER, self._name)
        with self._lock:
            if not tf.io.gfile.exists(path + ".index"):
                if files.latest_checkpoint(model_dir) is not None:
                    return  # Training goes on from there, whatever the weights are now.
                _write(path, self._values)
        _V1.train.init_from_checkpoint(
            path, {_key(i): _tf.variable_of(v) for i, v in enumerate(variables)}
        )


def write_weight_names(variables: Sequence[Any], config: RunConfig) -> None:
    """Writes, on the chief, the names that the weights have in checkpoints, in order."""
    if not config.is_chief or replica_id() != 0:
        return
    names = [_tf.variable_of(v).name.partition(":")[0] for v in variables]
    checkpoint = files.latest_checkpoint(str(config.model_dir))
    if checkpoint is not None:
        saved = files.open_checkpoint(checkpoint).get_variable_to_shape_map()
        if not set(names) <= set(saved):
            return  # Another model's, so training will fail: its names stay.
    path = os.path.join(str(config.model_dir), _FOLDER, _NAMES)
    tf.io.gfile.makedirs(os.path.dirname(path))
    write_file(path, json.dumps(names).encode())


def read_weights(model_dir: str) -> list[np.ndarray]:
    """Returns the weights in the newest checkpoint, in the model's order.

    Raises:
      ValueError: there is no checkpoint of a Keras model.
    """
    checkpoint = files.latest_checkpoint(model_dir)
    path = os.path.join(model_dir, _FOLDER, _NAMES)
    if checkpoint is None or not tf.io.gfile.exists(path):
        raise ValueError(
            f"`model_dir` ({model_dir!r}) holds no checkpoint that an Estimator of "
            "`model_to_estimator` has trained. Train one there first, or pass its directory."
        )
    with tf.io.gfile.GFile(path) as file:
        names = json.loads(file.read())
    reader = files.open_checkpoint(checkpoint)
    return [files.read_tensor(reader, name) for name in names]


def _write(path: str, values: Sequence[np.ndarray]) -> None:
    tf.io.gfile.makedirs(os.path.dirname(path))
    without_gpus = _V1.ConfigProto(device_count={"GPU": 0})
    with tf.Graph().as_default(), _V1.Session(config=without_gpus) as session:
        tensors = [_V1.placeholder(value.dtype, value.shape) for value in values]
        keys = [_key(i) for i in range(len(values))]
        save = tf.raw_ops.SaveV2(
            prefix=path, tensor_names=keys, shape_and_slices=[""] * len(keys), tensors=tensors
        )
        session.run(save, dict(zip(tensors, values, strict=True)))


def _key(index: int) -> str:
    return f"weight_{index}"
