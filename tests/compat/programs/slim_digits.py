"""A network of tf.contrib.slim, with arg scopes, in the way of models/research/slim and DeepLab."""

from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import json

import numpy as np
import tensorflow as tf
from tensorflow.contrib import layers as contrib_layers
from tensorflow.contrib.framework import add_arg_scope
from tensorflow.contrib.slim.nets import resnet_v1
from tensorflow.python import pywrap_tensorflow
from tensorflow.python.framework import graph_util
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_ops

slim = tf.contrib.slim
flags = tf.app.flags
flags.DEFINE_string("data", None, "The digits, as .npz.")
flags.DEFINE_string("model_dir", None, "Where to write the model.")
flags.DEFINE_integer("steps", 60, "How many steps to train.")
FLAGS = flags.FLAGS


@add_arg_scope
def block(inputs, depth, rate=1, scope=None):
  """A bottleneck without one."""
  with tf.variable_scope(scope, "block", [inputs]):
    net = slim.conv2d(inputs, depth, [3, 3], rate=rate, scope="conv1")
    net = contrib_layers.conv2d(net, depth, [3, 3], scope="conv2")
    return net + slim.conv2d(inputs, depth, [1, 1], activation_fn=None, scope="shortcut")


def arg_scope(is_training, weight_decay=1e-4):
  """Defaults of all layers."""
  batch_norm = {"is_training": is_training, "decay": 0.9, "epsilon": 1e-5, "scale": True}
  with slim.arg_scope(
      [slim.conv2d],
      weights_regularizer=slim.l2_regularizer(weight_decay),
      weights_initializer=slim.variance_scaling_initializer(),
      normalizer_fn=slim.batch_norm,
      normalizer_params=batch_norm):
    with slim.arg_scope([slim.max_pool2d], padding="SAME") as scope:
      return scope


def model_fn(features, labels, mode):
  """Classifies digits."""
  is_training = mode == tf.estimator.ModeKeys.TRAIN
  with slim.arg_scope(arg_scope(is_training)):
    net = block(features, 8, scope="block1")
    net = slim.max_pool2d(net, [2, 2], stride=4, scope="pool")
    net = slim.repeat(net, 2, slim.conv2d, 8, [3, 3], scope="more")
  net = slim.dropout(slim.flatten(net), 0.9, is_training=is_training)
  logits = slim.fully_connected(net, 10, activation_fn=None, scope="logits")
  classes = tf.argmax(logits, 1)
  if mode == tf.estimator.ModeKeys.PREDICT:
    return tf.estimator.EstimatorSpec(mode, predictions={"class": classes})
  assert isinstance(logits, ops.Tensor)
  tf.losses.sparse_softmax_cross_entropy(labels, logits)
  loss = tf.losses.get_total_loss()
  if mode == tf.estimator.ModeKeys.EVAL:
    metrics = {"accuracy": tf.metrics.accuracy(labels, classes)}
    return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
  print(json.dumps({"regularized": sorted(t.op.name for t in tf.losses.get_regularization_losses())}))
  optimizer = tf.train.MomentumOptimizer(0.02, 0.9)
  train_op = slim.learning.create_train_op(
      loss, optimizer, global_step=tf.train.get_or_create_global_step(), clip_gradient_norm=4)
  train_op = control_flow_ops.with_dependencies([tf.group(train_op)], loss)
  slim.summaries.add_scalar_summary(loss, "total", "losses")
  return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def frozen_resnet():
  """Freezes a network of slim's."""
  with tf.Graph().as_default(), tf.Session() as session:
    with slim.arg_scope(resnet_v1.resnet_arg_scope()):
      net, _ = resnet_v1.resnet_v1_50(tf.zeros([1, 64, 64, 3]), 10, is_training=False)
    out = tf.squeeze(net)
    session.run(tf.global_variables_initializer())
    return graph_util.convert_variables_to_constants(session, session.graph_def, [out.op.name])


def main(_):
  with np.load(FLAGS.data) as arrays:
    images = (arrays["train_images"].reshape([-1, 28, 28, 1]) / 255.0).astype(np.float32)
    labels = arrays["train_labels"].astype(np.int64)

  def input_fn():
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    return dataset.shuffle(1000, seed=1).repeat().batch(50)

  estimator = tf.estimator.Estimator(model_fn, FLAGS.model_dir)
  estimator.train(input_fn, max_steps=FLAGS.steps)
  accuracy = estimator.evaluate(input_fn, steps=20)["accuracy"]
  reader = pywrap_tensorflow.NewCheckpointReader(estimator.latest_checkpoint())
  mean = reader.get_tensor("block1/conv1/BatchNorm/moving_mean")
  print(json.dumps({
      "accuracy": float(accuracy),
      "variables": sorted(reader.get_variable_to_shape_map()),
      "moving": float(np.abs(mean).max()),
      "frozen": sum(node.op == "Const" for node in frozen_resnet().node),
  }))


if __name__ == "__main__":
  tf.app.run()
