"""A script with parameter servers: TF_CONFIG, a master that evaluates, and learn_runner."""
from __future__ import print_function

import json
import os

import numpy as np
import tensorflow as tf
from tensorflow.contrib.learn.python.learn import learn_runner
from tensorflow.contrib.learn.python.learn.experiment import Experiment

tf.app.flags.DEFINE_string("job_dir", "", "The directory of the model.")
tf.app.flags.DEFINE_string("hparams", "", "Changed hyperparameters.")
tf.app.flags.DEFINE_integer("train_steps", 30, "Steps over all workers.")
FLAGS = tf.app.flags.FLAGS


def model_fn(features, labels, mode, params):
  with tf.variable_scope("net", partitioner=tf.fixed_size_partitioner(2)):
    hidden = tf.contrib.layers.fully_connected(
        features["x"], params.hidden_units, weights_regularizer=tf.contrib.layers.l2_regularizer(
            params.l2))
  values = tf.contrib.layers.fully_connected(hidden, 1, activation_fn=None, scope="values")
  predictions = {"values": tf.squeeze(values, axis=1)}
  if mode == tf.estimator.ModeKeys.PREDICT:
    return tf.estimator.EstimatorSpec(mode, predictions=predictions)
  loss = tf.losses.mean_squared_error(labels, predictions["values"])
  loss += tf.losses.get_regularization_loss()
  train_op = tf.contrib.layers.optimize_loss(
      loss, tf.contrib.framework.get_global_step(), params.learning_rate, "Adagrad",
      clip_gradients=5.0)
  metrics = {"rmse": tf.metrics.root_mean_squared_error(labels, predictions["values"])}
  return tf.estimator.EstimatorSpec(
      mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


def make_input_fn(seed, num_epochs):
  random = np.random.RandomState(seed)
  x = random.uniform(-1, 1, size=(200, 3)).astype(np.float32)
  y = x.dot(np.float32([1, 2, 3])) + 1
  return tf.estimator.inputs.numpy_input_fn(
      {"x": x}, y, batch_size=20, num_epochs=num_epochs, shuffle=num_epochs is None)


def experiment_fn(run_config, hparams):
  return Experiment(
      tf.estimator.Estimator(model_fn, config=run_config, params=hparams),
      train_input_fn=make_input_fn(1, None),
      eval_input_fn=make_input_fn(2, 1),
      train_steps=FLAGS.train_steps,
      eval_steps=None,
      eval_delay_secs=0,
      continuous_eval_throttle_secs=0)


def main(unused_argv):
  hparams = tf.contrib.training.HParams(hidden_units=8, learning_rate=0.5, l2=1e-4)
  hparams.parse(FLAGS.hparams)
  task = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task", {})
  run_config = tf.contrib.learn.RunConfig(model_dir=FLAGS.job_dir, save_checkpoints_steps=10)
  tf.logging.info("Task %s with %s", task, hparams.to_json(sort_keys=True))
  result = learn_runner.run(
      experiment_fn, run_config=run_config, schedule="train_and_evaluate", hparams=hparams)
  if task.get("type", "master") == "master":
    metrics = result[0]
    print("master: rmse %.4f at step %d" % (metrics["rmse"], metrics["global_step"]))
  else:
    print("%s done" % task["type"])


if __name__ == "__main__":
  tf.logging.set_verbosity(tf.logging.INFO)
  tf.app.run(main)
