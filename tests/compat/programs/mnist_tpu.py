"""MNIST with TPUEstimator, as its programs of 2018 looked: tf.layers, tf.flags, tf.contrib.tpu."""
from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import numpy as np
import tensorflow as tf

tf.flags.DEFINE_string("tpu", None, "The Cloud TPU to use for training.")
tf.flags.DEFINE_string("tpu_zone", None, "GCE zone of the TPU.")
tf.flags.DEFINE_string("gcp_project", None, "Project of the TPU.")
tf.flags.DEFINE_string("data", "", "An .npz file with the digits.")
tf.flags.DEFINE_string("predict_file", None, "Where to write predictions.")
tf.flags.DEFINE_string("model_dir", None, "Estimator model_dir")
tf.flags.DEFINE_integer("batch_size", 128, "Mini-batch size over all shards.")
tf.flags.DEFINE_integer("train_steps", 1000, "Total number of training steps.")
tf.flags.DEFINE_integer("eval_steps", 0, "Total number of evaluation steps.")
tf.flags.DEFINE_float("learning_rate", 0.05, "Learning rate.")
tf.flags.DEFINE_bool("use_tpu", False, "Use TPUs rather than plain CPUs")
tf.flags.DEFINE_bool("enable_predict", True, "Predict some digits at the end")
tf.flags.DEFINE_integer("iterations", 50, "Number of iterations per TPU loop.")
tf.flags.DEFINE_integer("num_shards", 8, "Number of shards (TPU cores).")

FLAGS = tf.flags.FLAGS


def metric_fn(labels, logits):
  predictions = tf.argmax(logits, 1)
  return {"accuracy": tf.metrics.precision(labels=tf.equal(labels, predictions),
                                           predictions=tf.ones_like(predictions)),
          "hits": tf.metrics.accuracy(labels=labels, predictions=predictions)}


def build_model(image, is_training):
  net = tf.reshape(image, [-1, 28, 28, 1])
  net = tf.layers.conv2d(net, 8, 5, padding="same", activation=tf.nn.relu)
  net = tf.layers.max_pooling2d(net, (2, 2), (2, 2), padding="same")
  net = tf.layers.flatten(net)
  assert net.shape[1].value == 14 * 14 * 8
  net = tf.layers.dense(net, 64, activation=tf.nn.relu)
  net = tf.layers.dropout(net, rate=0.4, training=is_training)
  return tf.layers.dense(net, 10)


def model_fn(features, labels, mode, params):
  del params
  image = features
  if isinstance(image, dict):
    image = features["image"]
  logits = build_model(image, mode == tf.estimator.ModeKeys.TRAIN)

  if mode == tf.estimator.ModeKeys.PREDICT:
    predictions = {
        "class_ids": tf.argmax(logits, axis=1),
        "probabilities": tf.nn.softmax(logits),
    }
    return tf.contrib.tpu.TPUEstimatorSpec(mode, predictions=predictions)

  loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)

  if mode == tf.estimator.ModeKeys.TRAIN:
    learning_rate = tf.train.exponential_decay(
        FLAGS.learning_rate, tf.train.get_global_step(), decay_steps=100000, decay_rate=0.96)
    optimizer = tf.train.GradientDescentOptimizer(learning_rate=learning_rate)
    if FLAGS.use_tpu:
      optimizer = tf.contrib.tpu.CrossShardOptimizer(optimizer)
    return tf.contrib.tpu.TPUEstimatorSpec(
        mode=mode, loss=loss,
        train_op=optimizer.minimize(loss, tf.train.get_global_step()))

  if mode == tf.estimator.ModeKeys.EVAL:
    return tf.contrib.tpu.TPUEstimatorSpec(
        mode=mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))


def digits(subset):
  with np.load(FLAGS.data) as arrays:
    images, labels = arrays[subset + "_images"], arrays[subset + "_labels"]
  images = images.reshape(-1, 784).astype(np.float32) / 255.0
  return tf.data.Dataset.from_tensor_slices((images, labels.astype(np.int64)))


def train_input_fn(params):
  ds = digits("train").cache().repeat().shuffle(buffer_size=5000)
  return ds.apply(tf.contrib.data.batch_and_drop_remainder(params["batch_size"]))


def eval_input_fn(params):
  return digits("test").apply(
      tf.contrib.data.batch_and_drop_remainder(params["batch_size"]))


def predict_input_fn(params):
  dataset = digits("test").take(10).map(lambda image, label: image)
  return dataset.batch(params["batch_size"])


def main(argv):
  del argv
  tf.logging.set_verbosity(tf.logging.INFO)
  cluster = None
  if FLAGS.use_tpu:
    cluster = tf.contrib.cluster_resolver.TPUClusterResolver(
        FLAGS.tpu, zone=FLAGS.tpu_zone, project=FLAGS.gcp_project)
  run_config = tf.contrib.tpu.RunConfig(
      cluster=cluster,
      model_dir=FLAGS.model_dir,
      session_config=tf.ConfigProto(allow_soft_placement=True, log_device_placement=False),
      tpu_config=tf.contrib.tpu.TPUConfig(FLAGS.iterations, FLAGS.num_shards),
  )
  estimator = tf.contrib.tpu.TPUEstimator(
      model_fn=model_fn,
      use_tpu=FLAGS.use_tpu,
      train_batch_size=FLAGS.batch_size,
      eval_batch_size=FLAGS.batch_size,
      predict_batch_size=FLAGS.batch_size,
      params={"data": FLAGS.data},
      config=run_config)
  estimator.train(input_fn=train_input_fn, max_steps=FLAGS.train_steps)
  if FLAGS.eval_steps:
    result = estimator.evaluate(input_fn=eval_input_fn, steps=FLAGS.eval_steps)
    for key in sorted(result):
      print("%s = %s" % (key, result[key]))
  if FLAGS.enable_predict:
    with tf.gfile.GFile(FLAGS.predict_file, "w") as writer:
      for pred in estimator.predict(input_fn=predict_input_fn):
        writer.write("%d %.4f\n" % (pred["class_ids"], pred["probabilities"].max()))


if __name__ == "__main__":
  tf.app.run()
