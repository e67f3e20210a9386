"""A ResNet on small images with TPUEstimator: host_call summaries, bfloat16_scope, momentum."""
from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import time

from absl import app
from absl import flags
import numpy as np
import tensorflow as tf

from tensorflow.contrib import summary
from tensorflow.contrib.tpu.python.tpu import bfloat16
from tensorflow.contrib.tpu.python.tpu import tpu_config
from tensorflow.contrib.tpu.python.tpu import tpu_estimator
from tensorflow.contrib.tpu.python.tpu import tpu_optimizer

FLAGS = flags.FLAGS

flags.DEFINE_bool("use_tpu", default=False, help="Use TPU to execute the model.")
flags.DEFINE_string("data", default=None, help="An .npz file with the digits.")
flags.DEFINE_string("model_dir", default=None, help="The directory of the model.")
flags.DEFINE_string("export_dir", default=None, help="Where to export.")
flags.DEFINE_integer("train_steps", default=8, help="The number of steps to train.")
flags.DEFINE_integer("train_batch_size", default=32, help="Batch size for training.")
flags.DEFINE_integer("eval_batch_size", default=50, help="Batch size for evaluation.")
flags.DEFINE_integer("steps_per_eval", default=4, help="Steps between evaluations.")
flags.DEFINE_integer("iterations_per_loop", default=4, help="Steps a call.")
flags.DEFINE_integer("num_cores", default=8, help="Number of TPU cores.")
flags.DEFINE_bool("skip_host_call", default=False, help="Skip the host_call.")
flags.DEFINE_string("precision", default="bfloat16", help="One of {bfloat16, float32}.")
flags.DEFINE_float("base_learning_rate", default=0.05, help="The rate at batch size 256.")
flags.DEFINE_float("weight_decay", default=1e-4, help="Weight decay coefficient.")
flags.DEFINE_float("label_smoothing", default=0.1, help="Label smoothing.")

BATCH_NORM_DECAY = 0.9


def batch_norm_relu(inputs, is_training, relu=True, init_zero=False):
  gamma = tf.zeros_initializer() if init_zero else tf.ones_initializer()
  inputs = tf.layers.batch_normalization(
      inputs=inputs, axis=3, momentum=BATCH_NORM_DECAY, epsilon=1e-5, center=True, scale=True,
      training=is_training, fused=True, gamma_initializer=gamma)
  return tf.nn.relu(inputs) if relu else inputs


def conv2d_fixed_padding(inputs, filters, kernel_size, strides):
  return tf.layers.conv2d(
      inputs=inputs, filters=filters, kernel_size=kernel_size, strides=strides, padding="SAME",
      use_bias=False, kernel_initializer=tf.variance_scaling_initializer())


def residual_block(inputs, filters, is_training, strides):
  shortcut = inputs
  if strides != 1 or inputs.shape[3].value != filters:
    shortcut = conv2d_fixed_padding(inputs, filters, 1, strides)
    shortcut = batch_norm_relu(shortcut, is_training, relu=False)
  inputs = conv2d_fixed_padding(inputs, filters, 3, strides)
  inputs = batch_norm_relu(inputs, is_training)
  inputs = conv2d_fixed_padding(inputs, filters, 3, 1)
  inputs = batch_norm_relu(inputs, is_training, relu=False, init_zero=True)
  return tf.nn.relu(inputs + shortcut)


def network(inputs, is_training):
  inputs = conv2d_fixed_padding(inputs, 8, 3, 1)
  inputs = tf.identity(inputs, "initial_conv")
  inputs = batch_norm_relu(inputs, is_training)
  inputs = residual_block(inputs, 8, is_training, 1)
  inputs = residual_block(inputs, 16, is_training, 2)
  inputs = tf.reduce_mean(inputs, [1, 2])
  inputs = tf.identity(inputs, "final_avg_pool")
  inputs = tf.layers.dense(
      inputs=inputs, units=10, kernel_initializer=tf.random_normal_initializer(stddev=.01))
  return tf.identity(inputs, "final_dense")


def model_fn(features, labels, mode, params):
  if isinstance(features, dict):
    features = features["feature"]
  is_training = mode == tf.estimator.ModeKeys.TRAIN
  if FLAGS.precision == "bfloat16":
    with bfloat16.bfloat16_scope():
      logits = network(tf.cast(features, tf.bfloat16), is_training)
    logits = tf.cast(logits, tf.float32)
  else:
    logits = network(features, is_training)

  if mode == tf.estimator.ModeKeys.PREDICT:
    predictions = {
        "classes": tf.argmax(logits, axis=1),
        "probabilities": tf.nn.softmax(logits, name="softmax_tensor"),
    }
    return tf.estimator.EstimatorSpec(
        mode=mode, predictions=predictions,
        export_outputs={"classify": tf.estimator.export.PredictOutput(predictions)})

  batch_size = params["batch_size"]
  assert logits.shape[0].value in (batch_size, None)
  one_hot_labels = tf.one_hot(labels, 10)
  cross_entropy = tf.losses.softmax_cross_entropy(
      logits=logits, onehot_labels=one_hot_labels, label_smoothing=FLAGS.label_smoothing)
  loss = cross_entropy + FLAGS.weight_decay * tf.add_n(
      [tf.nn.l2_loss(v) for v in tf.trainable_variables() if "batch_normalization" not in v.name])

  host_call = None
  train_op = None
  if is_training:
    global_step = tf.train.get_global_step()
    learning_rate = tf.train.cosine_decay(FLAGS.base_learning_rate, global_step, 100)
    optimizer = tf.train.MomentumOptimizer(
        learning_rate=learning_rate, momentum=0.9, use_nesterov=True)
    if FLAGS.use_tpu:
      optimizer = tpu_optimizer.CrossShardOptimizer(optimizer)
    update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    with tf.control_dependencies(update_ops):
      train_op = optimizer.minimize(loss, global_step)

    if not FLAGS.skip_host_call:
      def host_call_fn(gs, loss, lr, ce):
        gs = gs[0]
        with summary.create_file_writer(FLAGS.model_dir,
                                        max_queue=FLAGS.iterations_per_loop).as_default():
          with summary.always_record_summaries():
            summary.scalar("host/loss", loss[0], step=gs)
            summary.scalar("host/learning_rate", lr[0], step=gs)
            tf.contrib.summary.scalar("host/entropy", tf.reduce_mean(ce), step=gs)
            return summary.all_summary_ops()

      gs_t = tf.reshape(global_step, [1])
      loss_t = tf.reshape(loss, [1])
      lr_t = tf.reshape(learning_rate, [1])
      ce_t = tf.reshape(cross_entropy, [1])
      host_call = (host_call_fn, [gs_t, loss_t, lr_t, ce_t])

  eval_metrics = None
  if mode == tf.estimator.ModeKeys.EVAL:
    def metric_fn(labels, logits):
      predictions = tf.argmax(logits, axis=1)
      top_5 = tf.cast(tf.nn.in_top_k(logits, labels, 5), tf.float32)
      return {"top_1_accuracy": tf.metrics.accuracy(labels, predictions),
              "top_5_accuracy": tf.metrics.mean(top_5)}
    eval_metrics = (metric_fn, [labels, logits])

  return tpu_estimator.TPUEstimatorSpec(
      mode=mode, loss=loss, train_op=train_op, host_call=host_call, eval_metrics=eval_metrics)


class ImageInput(object):
  """The input of a subset, whose batches have their shapes set."""

  def __init__(self, is_training):
    self.is_training = is_training

  def set_shapes(self, batch_size, images, labels):
    images.set_shape(images.get_shape().merge_with(
        tf.TensorShape([batch_size, None, None, None])))
    labels.set_shape(labels.get_shape().merge_with(tf.TensorShape([batch_size])))
    return images, labels

  def parse(self, image, label):
    image = tf.image.convert_image_dtype(image, dtype=tf.float32)
    image = tf.reshape(image, [28, 28, 1])
    if self.is_training:
      image = tf.random_crop(tf.image.resize_image_with_crop_or_pad(image, 30, 30), [28, 28, 1])
    return image, tf.cast(label, tf.int32)

  def input_fn(self, params):
    batch_size = params["batch_size"]
    with np.load(FLAGS.data) as arrays:
      name = "train" if self.is_training else "test"
      data = arrays[name + "_images"][:200], arrays[name + "_labels"][:200]
    dataset = tf.data.Dataset.from_tensor_slices(data)
    if self.is_training:
      dataset = dataset.apply(tf.contrib.data.shuffle_and_repeat(200))
    dataset = dataset.apply(tf.contrib.data.map_and_batch(
        self.parse, batch_size=batch_size, num_parallel_batches=2, drop_remainder=True))
    dataset = dataset.map(lambda x, y: self.set_shapes(batch_size, x, y))
    return dataset.prefetch(tf.contrib.data.AUTOTUNE)


def image_serving_input_fn():
  images = tf.placeholder(shape=[None, 28, 28, 1], dtype=tf.float32, name="images")
  return tf.estimator.export.ServingInputReceiver(images, {"images": images})


def main(unused_argv):
  config = tpu_config.RunConfig(
      model_dir=FLAGS.model_dir,
      save_checkpoints_steps=max(100, FLAGS.iterations_per_loop),
      tpu_config=tpu_config.TPUConfig(
          iterations_per_loop=FLAGS.iterations_per_loop,
          num_shards=FLAGS.num_cores,
          per_host_input_for_training=tpu_config.InputPipelineConfig.PER_HOST_V2))
  resnet = tpu_estimator.TPUEstimator(
      use_tpu=FLAGS.use_tpu,
      model_fn=model_fn,
      config=config,
      train_batch_size=FLAGS.train_batch_size,
      eval_batch_size=FLAGS.eval_batch_size,
      export_to_tpu=False)
  train, test = ImageInput(True), ImageInput(False)
  current_step = 0
  start = time.time()
  while current_step < FLAGS.train_steps:
    next_checkpoint = min(current_step + FLAGS.steps_per_eval, FLAGS.train_steps)
    resnet.train(input_fn=train.input_fn, max_steps=next_checkpoint)
    current_step = int(tf.train.load_variable(FLAGS.model_dir, tf.GraphKeys.GLOBAL_STEP))
    results = resnet.evaluate(input_fn=test.input_fn, steps=200 // FLAGS.eval_batch_size)
    tf.logging.info("Eval results at step %d: %s", next_checkpoint, results)
    print("step %d top_5 %.3f" % (results["global_step"], results["top_5_accuracy"]))
  tf.logging.info("Trained in %d seconds.", time.time() - start)
  if FLAGS.export_dir is not None:
    path = resnet.export_savedmodel(
        export_dir_base=FLAGS.export_dir, serving_input_receiver_fn=image_serving_input_fn)
    print("exported %s" % tf.compat.as_str(path))


if __name__ == "__main__":
  tf.logging.set_verbosity(tf.logging.INFO)
  app.run(main)
