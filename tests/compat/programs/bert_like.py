"""A small Transformer that classifies pairs of sentences, in the shape of BERT's programs of 2019.

It makes its own data, pretrains nothing: a first run's checkpoint is what the second starts from.
"""
from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import collections
import math
import os
import re
import six

import numpy as np
import tensorflow as tf

flags = tf.flags
FLAGS = flags.FLAGS

flags.DEFINE_string("output_dir", None, "Where checkpoints and results are written.")
flags.DEFINE_string("init_checkpoint", None, "Initial checkpoint (usually from a pre-trained model).")
flags.DEFINE_bool("do_train", False, "Whether to run training.")
flags.DEFINE_bool("do_eval", False, "Whether to run eval on the dev set.")
flags.DEFINE_bool("do_predict", False, "Whether to run inference on the test set.")
flags.DEFINE_bool("do_extract", False, "Whether to write the features of sequences.")
flags.DEFINE_integer("train_batch_size", 16, "Total batch size for training.")
flags.DEFINE_integer("eval_batch_size", 8, "Total batch size for eval.")
flags.DEFINE_integer("predict_batch_size", 8, "Total batch size for predict.")
flags.DEFINE_float("learning_rate", 2e-3, "The initial learning rate for Adam.")
flags.DEFINE_integer("num_train_steps", 20, "Steps to train.")
flags.DEFINE_float("warmup_proportion", 0.1, "Proportion of training to warm up the rate in.")
flags.DEFINE_integer("save_checkpoints_steps", 10, "How often to save the model checkpoint.")
flags.DEFINE_integer("iterations_per_loop", 5, "How many steps to make in each estimator call.")
flags.DEFINE_integer("max_seq_length", 12, "Length of a sequence.")
flags.DEFINE_bool("use_tpu", False, "Whether to use TPU or GPU/CPU.")
flags.DEFINE_string("tpu_name", None, "The Cloud TPU to use for training.")
flags.DEFINE_integer("num_tpu_cores", 8, "Total number of TPU cores to use.")

VOCAB_SIZE = 50
NUM_LABELS = 2


class BertConfig(object):
  """The sizes of the model."""

  def __init__(self, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
               intermediate_size=32, hidden_dropout_prob=0.1, initializer_range=0.02):
    self.hidden_size = hidden_size
    self.num_hidden_layers = num_hidden_layers
    self.num_attention_heads = num_attention_heads
    self.intermediate_size = intermediate_size
    self.hidden_dropout_prob = hidden_dropout_prob
    self.initializer_range = initializer_range


def get_shape_list(tensor):
  shape = tensor.shape.as_list()
  non_static = [i for i, dim in enumerate(shape) if dim is None]
  if not non_static:
    return shape
  dyn_shape = tf.shape(tensor)
  for index in non_static:
    shape[index] = dyn_shape[index]
  return shape


def gelu(x):
  return x * 0.5 * (1.0 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * tf.pow(x, 3))))


def create_initializer(initializer_range=0.02):
  return tf.truncated_normal_initializer(stddev=initializer_range)


def dropout(input_tensor, dropout_prob):
  if dropout_prob is None or dropout_prob == 0.0:
    return input_tensor
  return tf.nn.dropout(input_tensor, 1.0 - dropout_prob)


def layer_norm(input_tensor, name=None):
  return tf.contrib.layers.layer_norm(
      inputs=input_tensor, begin_norm_axis=-1, begin_params_axis=-1, scope=name)


def attention_layer(x, mask, heads, size, initializer_range):
  batch_size, seq_length, _ = get_shape_list(x)

  def project(name):
    y = tf.layers.dense(x, heads * size, name=name,
                        kernel_initializer=create_initializer(initializer_range))
    return tf.transpose(tf.reshape(y, [batch_size, seq_length, heads, size]), [0, 2, 1, 3])

  scores = tf.matmul(project("query"), project("key"), transpose_b=True)
  scores = tf.multiply(scores, 1.0 / math.sqrt(float(size)))
  scores += (1.0 - tf.cast(tf.expand_dims(mask, axis=[1]), tf.float32)) * -10000.0
  context = tf.transpose(tf.matmul(tf.nn.softmax(scores), project("value")), [0, 2, 1, 3])
  return tf.reshape(context, [batch_size, seq_length, heads * size])


class BertModel(object):
  """Embeddings, layers of attention, and a pooled output."""

  def __init__(self, config, is_training, input_ids, input_mask, token_type_ids, scope=None):
    prob = config.hidden_dropout_prob if is_training else 0.0
    init = create_initializer(config.initializer_range)
    batch_size, seq_length = get_shape_list(input_ids)
    with tf.variable_scope(scope, default_name="bert"):
      with tf.variable_scope("embeddings"):
        table = tf.get_variable("word_embeddings", [VOCAB_SIZE, config.hidden_size],
                                initializer=init)
        output = tf.nn.embedding_lookup(table, input_ids)
        types = tf.get_variable("token_type_embeddings", [2, config.hidden_size],
                                initializer=init)
        output += tf.gather(types, token_type_ids)
        full = tf.get_variable("position_embeddings", [64, config.hidden_size], initializer=init)
        with tf.control_dependencies([tf.assert_less_equal(seq_length, 64)]):
          position = tf.slice(full, [0, 0], [seq_length, -1])
        output += tf.expand_dims(position, 0)
        output = dropout(layer_norm(output), prob)
      with tf.variable_scope("encoder"):
        mask = tf.cast(tf.reshape(input_mask, [batch_size, 1, seq_length]), tf.float32)
        mask = tf.ones([batch_size, seq_length, 1]) * mask
        size = int(config.hidden_size / config.num_attention_heads)
        for layer_idx in range(config.num_hidden_layers):
          with tf.variable_scope("layer_%d" % layer_idx):
            with tf.variable_scope("attention"):
              with tf.variable_scope("self"):
                context = attention_layer(output, mask, config.num_attention_heads, size,
                                          config.initializer_range)
              with tf.variable_scope("output"):
                attended = tf.layers.dense(context, config.hidden_size, kernel_initializer=init)
                attended = layer_norm(dropout(attended, prob) + output)
            with tf.variable_scope("intermediate"):
              middle = tf.layers.dense(attended, config.intermediate_size, activation=gelu,
                                       kernel_initializer=init)
            with tf.variable_scope("output"):
              output = tf.layers.dense(middle, config.hidden_size, kernel_initializer=init)
              output = layer_norm(dropout(output, prob) + attended)
        self.sequence_output = output
      with tf.variable_scope("pooler"):
        first = tf.squeeze(self.sequence_output[:, 0:1, :], axis=1)
        self.pooled_output = tf.layers.dense(
            first, config.hidden_size, activation=tf.tanh, kernel_initializer=init)


class AdamWeightDecayOptimizer(tf.train.Optimizer):
  """Adam with the weight decay outside of its moments."""

  def __init__(self, learning_rate, weight_decay_rate=0.0, beta_1=0.9, beta_2=0.999,
               epsilon=1e-6, exclude_from_weight_decay=None, name="AdamWeightDecayOptimizer"):
    super(AdamWeightDecayOptimizer, self).__init__(False, name)
    self.learning_rate = learning_rate
    self.weight_decay_rate = weight_decay_rate
    self.beta_1 = beta_1
    self.beta_2 = beta_2
    self.epsilon = epsilon
    self.exclude_from_weight_decay = exclude_from_weight_decay

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    assignments = []
    for (grad, param) in grads_and_vars:
      if grad is None or param is None:
        continue
      param_name = self._get_variable_name(param.name)
      m = tf.get_variable(name=param_name + "/adam_m", shape=param.shape.as_list(),
                          dtype=tf.float32, trainable=False, initializer=tf.zeros_initializer())
      v = tf.get_variable(name=param_name + "/adam_v", shape=param.shape.as_list(),
                          dtype=tf.float32, trainable=False, initializer=tf.zeros_initializer())
      next_m = tf.multiply(self.beta_1, m) + tf.multiply(1.0 - self.beta_1, grad)
      next_v = tf.multiply(self.beta_2, v) + tf.multiply(1.0 - self.beta_2, tf.square(grad))
      update = next_m / (tf.sqrt(next_v) + self.epsilon)
      if self._do_use_weight_decay(param_name):
        update += self.weight_decay_rate * param
      next_param = param - self.learning_rate * update
      assignments.extend([param.assign(next_param), m.assign(next_m), v.assign(next_v)])
    return tf.group(*assignments, name=name)

  def _do_use_weight_decay(self, param_name):
    if not self.weight_decay_rate:
      return False
    for r in self.exclude_from_weight_decay or []:
      if re.search(r, param_name) is not None:
        return False
    return True

  def _get_variable_name(self, param_name):
    m = re.match("^(.*):\\d+$", param_name)
    if m is not None:
      param_name = m.group(1)
    return param_name


def create_optimizer(loss, init_lr, num_train_steps, num_warmup_steps, use_tpu):
  global_step = tf.train.get_or_create_global_step()
  learning_rate = tf.constant(value=init_lr, shape=[], dtype=tf.float32)
  learning_rate = tf.train.polynomial_decay(
      learning_rate, global_step, num_train_steps, end_learning_rate=0.0, power=1.0, cycle=False)
  if num_warmup_steps:
    steps_float = tf.cast(tf.cast(global_step, tf.int32), tf.float32)
    warmup_float = tf.cast(tf.constant(num_warmup_steps, dtype=tf.int32), tf.float32)
    is_warmup = tf.cast(steps_float < warmup_float, tf.float32)
    learning_rate = ((1.0 - is_warmup) * learning_rate +
                     is_warmup * init_lr * (steps_float / warmup_float))
  optimizer = AdamWeightDecayOptimizer(
      learning_rate=learning_rate, weight_decay_rate=0.01,
      exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"])
  if use_tpu:
    optimizer = tf.contrib.tpu.CrossShardOptimizer(optimizer)
  tvars = tf.trainable_variables()
  grads = tf.gradients(loss, tvars)
  (grads, _) = tf.clip_by_global_norm(grads, clip_norm=1.0)
  train_op = optimizer.apply_gradients(zip(grads, tvars), global_step=global_step)
  return tf.group(train_op, [global_step.assign(global_step + 1)])


def get_assignment_map_from_checkpoint(tvars, init_checkpoint):
  initialized = {}
  name_to_variable = collections.OrderedDict()
  for var in tvars:
    name = re.match("^(.*):\\d+$", var.name).group(1)
    name_to_variable[name] = var
  assignment_map = collections.OrderedDict()
  for name, _ in tf.train.list_variables(init_checkpoint):
    if name not in name_to_variable or name.startswith("output_"):
      continue
    assignment_map[name] = name
    initialized[name] = 1
    initialized[name + ":0"] = 1
  return assignment_map, initialized


def initialize(init_checkpoint, use_tpu):
  tvars = tf.trainable_variables()
  scaffold_fn = None
  names = {}
  if init_checkpoint:
    assignment_map, names = get_assignment_map_from_checkpoint(tvars, init_checkpoint)
    if use_tpu:
      def tpu_scaffold():
        tf.train.init_from_checkpoint(init_checkpoint, assignment_map)
        return tf.train.Scaffold()
      scaffold_fn = tpu_scaffold
    else:
      tf.train.init_from_checkpoint(init_checkpoint, assignment_map)
  for var in tvars:
    tf.logging.info("  name = %s, shape = %s%s", var.name, var.shape,
                    ", *INIT_FROM_CKPT*" if var.name in names else "")
  return scaffold_fn


def model_fn_builder(bert_config, init_checkpoint, learning_rate, num_train_steps,
                     num_warmup_steps, use_tpu):

  def model_fn(features, labels, mode, params):
    for name in sorted(features.keys()):
      tf.logging.info("  name = %s, shape = %s" % (name, features[name].shape))
    label_ids = features["label_ids"]
    is_training = mode == tf.estimator.ModeKeys.TRAIN
    model = BertModel(bert_config, is_training, features["input_ids"], features["input_mask"],
                      features["segment_ids"])
    output_layer = model.pooled_output
    hidden_size = output_layer.shape[-1].value
    output_weights = tf.get_variable("output_weights", [NUM_LABELS, hidden_size],
                                     initializer=tf.truncated_normal_initializer(stddev=0.02))
    output_bias = tf.get_variable("output_bias", [NUM_LABELS], initializer=tf.zeros_initializer())
    with tf.variable_scope("loss"):
      if is_training:
        output_layer = tf.nn.dropout(output_layer, keep_prob=0.9)
      logits = tf.nn.bias_add(tf.matmul(output_layer, output_weights, transpose_b=True),
                              output_bias)
      probabilities = tf.nn.softmax(logits, axis=-1)
      one_hot_labels = tf.one_hot(label_ids, depth=NUM_LABELS, dtype=tf.float32)
      per_example_loss = -tf.reduce_sum(one_hot_labels * tf.nn.log_softmax(logits), axis=-1)
      loss = tf.reduce_mean(per_example_loss)
    scaffold_fn = initialize(init_checkpoint, use_tpu)

    if mode == tf.estimator.ModeKeys.TRAIN:
      train_op = create_optimizer(loss, learning_rate, num_train_steps, num_warmup_steps, use_tpu)
      return tf.contrib.tpu.TPUEstimatorSpec(
          mode=mode, loss=loss, train_op=train_op, scaffold_fn=scaffold_fn)
    if mode == tf.estimator.ModeKeys.EVAL:
      def metric_fn(per_example_loss, label_ids, logits, is_real_example):
        predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
        return {
            "eval_accuracy": tf.metrics.accuracy(
                labels=label_ids, predictions=predictions, weights=is_real_example),
            "eval_loss": tf.metrics.mean(values=per_example_loss, weights=is_real_example),
        }
      real = tf.cast(features["is_real_example"], dtype=tf.float32)
      return tf.contrib.tpu.TPUEstimatorSpec(
          mode=mode, loss=loss, scaffold_fn=scaffold_fn,
          eval_metrics=(metric_fn, [per_example_loss, label_ids, logits, real]))
    return tf.contrib.tpu.TPUEstimatorSpec(
        mode=mode, predictions={"probabilities": probabilities}, scaffold_fn=scaffold_fn)

  return model_fn


def extract_model_fn_builder(bert_config, init_checkpoint, use_tpu):

  def model_fn(features, labels, mode, params):
    if mode != tf.estimator.ModeKeys.PREDICT:
      raise ValueError("Only PREDICT modes are supported: %s" % (mode))
    model = BertModel(bert_config, False, features["input_ids"], features["input_mask"],
                      features["segment_ids"])
    scaffold_fn = initialize(init_checkpoint, use_tpu)
    return tf.contrib.tpu.TPUEstimatorSpec(
        mode=mode, scaffold_fn=scaffold_fn,
        predictions={"unique_id": features["unique_ids"], "layer": model.sequence_output})

  return model_fn


def write_examples(output_file, count, seed):
  """Sequences whose label says whether their first token is among the rest."""
  random = np.random.RandomState(seed)
  writer = tf.python_io.TFRecordWriter(output_file)
  for i in range(count):
    length = random.randint(6, FLAGS.max_seq_length + 1)
    ids = random.randint(5, VOCAB_SIZE, size=length)
    label = i % 2
    if label:
      ids[1:] = np.where(ids[1:] < 25, ids[1:] + 20, ids[1:])
    else:
      ids[1:] = np.where(ids[1:] >= 30, ids[1:] - 20, ids[1:])

    def feature(values):
      values = list(values) + [0] * (FLAGS.max_seq_length - len(values))
      return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    features = collections.OrderedDict()
    features["input_ids"] = feature(ids)
    features["input_mask"] = feature([1] * length)
    features["segment_ids"] = feature([0] * (length // 2) + [1] * (length - length // 2))
    for name, value in [("label_ids", label), ("is_real_example", 1), ("unique_ids", 1000 + i)]:
      features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
    writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
  writer.close()


def file_based_input_fn_builder(input_file, seq_length, is_training, drop_remainder):
  name_to_features = {
      "input_ids": tf.FixedLenFeature([seq_length], tf.int64),
      "input_mask": tf.FixedLenFeature([seq_length], tf.int64),
      "segment_ids": tf.FixedLenFeature([seq_length], tf.int64),
      "label_ids": tf.FixedLenFeature([], tf.int64),
      "is_real_example": tf.FixedLenFeature([], tf.int64),
      "unique_ids": tf.FixedLenFeature([], tf.int64),
  }

  def _decode_record(record, name_to_features):
    example = tf.parse_single_example(record, name_to_features)
    for name in list(example.keys()):
      t = example[name]
      if t.dtype == tf.int64:
        t = tf.to_int32(t)
      example[name] = t
    return example

  def input_fn(params):
    batch_size = params["batch_size"]
    d = tf.data.TFRecordDataset(input_file)
    if is_training:
      d = d.repeat()
      d = d.shuffle(buffer_size=100)
    return d.apply(
        tf.contrib.data.map_and_batch(
            lambda record: _decode_record(record, name_to_features),
            batch_size=batch_size,
            drop_remainder=drop_remainder))

  return input_fn


def main(_):
  tf.logging.set_verbosity(tf.logging.INFO)
  if not any([FLAGS.do_train, FLAGS.do_eval, FLAGS.do_predict, FLAGS.do_extract]):
    raise ValueError("At least one of `do_train`, `do_eval` or `do_predict' must be True.")
  tf.gfile.MakeDirs(FLAGS.output_dir)
  tpu_cluster_resolver = None
  if FLAGS.use_tpu and FLAGS.tpu_name:
    tpu_cluster_resolver = tf.contrib.cluster_resolver.TPUClusterResolver(FLAGS.tpu_name)
  is_per_host = tf.contrib.tpu.InputPipelineConfig.PER_HOST_V2
  run_config = tf.contrib.tpu.RunConfig(
      cluster=tpu_cluster_resolver,
      master=None,
      model_dir=FLAGS.output_dir,
      save_checkpoints_steps=FLAGS.save_checkpoints_steps,
      tpu_config=tf.contrib.tpu.TPUConfig(
          iterations_per_loop=FLAGS.iterations_per_loop,
          num_shards=FLAGS.num_tpu_cores,
          per_host_input_for_training=is_per_host))
  bert_config = BertConfig()
  warmup = int(FLAGS.num_train_steps * FLAGS.warmup_proportion)
  estimator = tf.contrib.tpu.TPUEstimator(
      use_tpu=FLAGS.use_tpu,
      model_fn=model_fn_builder(bert_config, FLAGS.init_checkpoint, FLAGS.learning_rate,
                                FLAGS.num_train_steps, warmup, FLAGS.use_tpu),
      config=run_config,
      train_batch_size=FLAGS.train_batch_size,
      eval_batch_size=FLAGS.eval_batch_size,
      predict_batch_size=FLAGS.predict_batch_size)

  if FLAGS.do_train:
    train_file = os.path.join(FLAGS.output_dir, "train.tf_record")
    write_examples(train_file, 128, seed=1)
    estimator.train(
        input_fn=file_based_input_fn_builder(train_file, FLAGS.max_seq_length, True, True),
        max_steps=FLAGS.num_train_steps)

  if FLAGS.do_eval:
    eval_file = os.path.join(FLAGS.output_dir, "eval.tf_record")
    write_examples(eval_file, 40, seed=2)
    result = estimator.evaluate(
        input_fn=file_based_input_fn_builder(eval_file, FLAGS.max_seq_length, False, False))
    output_eval_file = os.path.join(FLAGS.output_dir, "eval_results.txt")
    with tf.gfile.GFile(output_eval_file, "w") as writer:
      for key in sorted(result.keys()):
        writer.write("%s = %s\n" % (key, str(result[key])))

  if FLAGS.do_predict:
    predict_file = os.path.join(FLAGS.output_dir, "predict.tf_record")
    write_examples(predict_file, 13, seed=3)
    result = estimator.predict(
        input_fn=file_based_input_fn_builder(predict_file, FLAGS.max_seq_length, False, False))
    with tf.gfile.GFile(os.path.join(FLAGS.output_dir, "test_results.tsv"), "w") as writer:
      for prediction in result:
        probabilities = prediction["probabilities"]
        writer.write("\t".join(str(p) for p in probabilities) + "\n")

  if FLAGS.do_extract:
    predict_file = os.path.join(FLAGS.output_dir, "extract.tf_record")
    write_examples(predict_file, 5, seed=4)
    extractor = tf.contrib.tpu.TPUEstimator(
        use_tpu=FLAGS.use_tpu,
        model_fn=extract_model_fn_builder(bert_config, FLAGS.init_checkpoint, FLAGS.use_tpu),
        config=tf.contrib.tpu.RunConfig(
            master=None, tpu_config=tf.contrib.tpu.TPUConfig(num_shards=8,
                                                             per_host_input_for_training=3)),
        predict_batch_size=FLAGS.predict_batch_size,
        train_batch_size=FLAGS.train_batch_size)
    input_fn = file_based_input_fn_builder(predict_file, FLAGS.max_seq_length, False, False)
    with tf.gfile.Open(os.path.join(FLAGS.output_dir, "features.txt"), "w") as writer:
      for result in extractor.predict(input_fn, yield_single_examples=True):
        values = [round(float(x), 6) for x in result["layer"][0].flat]
        writer.write("%d %s\n" % (int(result["unique_id"]), " ".join(map(six.text_type, values))))


if __name__ == "__main__":
  flags.mark_flag_as_required("output_dir")
  tf.app.run()
