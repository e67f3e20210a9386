"""The default session config of a task of a cluster."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def default_session_config(cluster: Any) -> tf.compat.v1.ConfigProto | None:
    """Returns a config with the device filters of a cluster's task; None for a local process."""
    filters = getattr(cluster, "default_device_filters", None)
    if not filters:
        return None
    return tf.compat.v1.ConfigProto(allow_soft_placement=True, device_filters=filters)
