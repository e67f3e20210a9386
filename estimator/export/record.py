"""The record in an export: its exporter and its evaluation."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

RECORD_NAME = "exporter.json"


def scalars_of(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Returns the metrics that a record can hold: numbers."""
    return {
        name: float(value)
        for name, value in metrics.items()
        if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "fiub"
    }


def read_record(directory: str) -> dict[str, Any]:
    """Returns the record of an export; empty if no exporter has made it."""
    path = os.path.join(directory, "assets.extra", RECORD_NAME)
    if not tf.io.gfile.exists(path):
        return {}
    with tf.io.gfile.GFile(path) as file:
        return json.loads(file.read())
