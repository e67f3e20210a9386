"""The record in an export: its exporter and its evaluation."""

from __future__ import annotations

import json
import os
from typing import Any

import tensorflow as tf

RECORD_NAME = "exporter.json"


def read_record(directory: str) -> dict[str, Any]:
    """Returns the record of an export; empty if no exporter has made it."""
    path = os.path.join(directory, "assets.extra", RECORD_NAME)
    if not tf.io.gfile.exists(path):
        return {}
    with tf.io.gfile.GFile(path) as file:
        return json.loads(file.read())
