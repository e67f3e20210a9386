"""The session config of a task of a cluster, where the program names none."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def default_session_config(cluster: Any) -> tf.compat.v1.ConfigProto | None:
    """What a task of a cluster may see; None for a process of its own."""
    filters = getattr(cluster, "default_device_filters", None)
    if not filters:
        return None
    return tf.compat.v1.ConfigProto(allow_soft_placement=True, device_filters=filters)
