"""A Keras model as an Estimator, in the idiom of TensorFlow 1.14."""
from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import json

import numpy as np
import tensorflow as tf

tf.flags.DEFINE_string("model_dir", None, "Where checkpoints are written.")
FLAGS = tf.flags.FLAGS

random = np.random.RandomState(0)
INPUTS = random.normal(size=[64, 3]).astype("float32")
LABELS = INPUTS[:, :1] - INPUTS[:, 1:2]


def build_model():
    model = tf.keras.Sequential([
        tf.keras.layers.Dense(8, activation="relu", input_shape=(3,)),
        tf.keras.layers.BatchNormalization(),
        tf.keras.layers.Dense(1),
    ])
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    return model


def input_fn():
    return tf.data.Dataset.from_tensor_slices((INPUTS, LABELS)).repeat(5).batch(16)


def main(unused_argv):
    model = build_model()
    loss, mae = model.evaluate(INPUTS, LABELS, batch_size=16, verbose=0)
    estimator = tf.keras.estimator.model_to_estimator(model, model_dir=FLAGS.model_dir)
    before = estimator.evaluate(input_fn, steps=4)
    estimator.train(input_fn, steps=20)
    after = estimator.evaluate(input_fn, steps=4)
    print(json.dumps({"keras": [float(loss), float(mae)],
                      "before": [float(before["loss"]), float(before["mean_absolute_error"])],
                      "after": [float(after["loss"]), float(after["mean_absolute_error"])],
                      "steps": int(after["global_step"])}))


if __name__ == "__main__":
    tf.app.run()
