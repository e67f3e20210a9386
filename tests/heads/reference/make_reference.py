"""Writes `heads.json` beside it: what the heads of tf.estimator 2.15 make of the cases.

Run it from the repository's root, with the Python of an environment that has TensorFlow 2.15:

    python -m tests.heads.reference.make_reference
"""

from __future__ import annotations

import json
import pathlib

import tensorflow as tf

from tests.heads import head_cases


def main() -> None:
    """Runs all cases."""
    lines = [
        f"{json.dumps(name)}: {json.dumps(head_cases.record(name, tf.estimator))}"
        for name in head_cases.CASES
    ]
    path = pathlib.Path(__file__).with_name("heads.json")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
