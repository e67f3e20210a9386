"""Writes the public names of TensorFlow 2.15's estimators to the file beside this one.

Run it where TensorFlow 2.15 is installed: python write_tensorflow_2_15.py
"""

import json
import pathlib

import tensorflow as tf

SPACES = {
    "tf.estimator": tf.estimator,
    "tf.estimator.experimental": tf.estimator.experimental,
    "tf.estimator.export": tf.estimator.export,
    "tf.compat.v1.estimator": tf.compat.v1.estimator,
    "tf.compat.v1.estimator.experimental": tf.compat.v1.estimator.experimental,
    "tf.compat.v1.estimator.export": tf.compat.v1.estimator.export,
    "tf.compat.v1.estimator.inputs": tf.compat.v1.estimator.inputs,
    "tf.compat.v1.estimator.tpu": tf.compat.v1.estimator.tpu,
    "tf.compat.v1.estimator.tpu.experimental": tf.compat.v1.estimator.tpu.experimental,
}


def main() -> None:
    """Writes them, sorted."""
    assert tf.__version__.startswith("2.15."), tf.__version__
    names = {
        space: sorted(name for name in dir(module) if not name.startswith("_"))
        for space, module in SPACES.items()
    }
    path = pathlib.Path(__file__).with_name("tensorflow_2_15.json")
    path.write_text(json.dumps(names, indent=1) + "\n")


if __name__ == "__main__":
    main()
