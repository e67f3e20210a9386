"""`tf.contrib.cluster_resolver`: what TensorFlow 1 took for a TPU's name."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class TPUClusterResolver(tf.compat.v1.distribute.cluster_resolver.TPUClusterResolver):
    """Takes an empty name for this machine, as programs pass that run without a TPU."""

    def __init__(self, tpu: Any = None, *args: Any, **kwargs: Any) -> None:
        """Takes the arguments of TensorFlow's class."""
        is_nameless = isinstance(tpu, str | bytes) and not tpu
        super().__init__("local" if is_nameless else tpu, *args, **kwargs)
