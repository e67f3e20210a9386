"""Wide and deep on CSV files: feature columns, train_and_evaluate, exporters, a SessionRunHook."""
from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import argparse
import os
import sys

import numpy as np
import tensorflow as tf
from tensorflow.python.estimator.export import export
from tensorflow.python.training import session_run_hook

_CSV_COLUMNS = ["age", "education_num", "gain", "hours", "workclass", "education", "weight", "income"]
_CSV_COLUMN_DEFAULTS = [[0.0], [0.0], [0.0], [0.0], [""], [""], [1.0], [""]]
_WORK = ["Private", "Self-emp", "Gov"]
_EDUCATION = ["Bachelors", "HS-grad", "Masters", "11th"]

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", type=str, default="/tmp/census_model")
parser.add_argument("--model_type", type=str, default="wide_deep",
                    help="Valid model types: {'wide', 'deep', 'wide_deep'}.")
parser.add_argument("--train_steps", type=int, default=20)
parser.add_argument("--batch_size", type=int, default=40)
parser.add_argument("--data_dir", type=str, required=True)


class ExamplesHook(session_run_hook.SessionRunHook):
  """Counts calls, and remembers the last global step."""

  def begin(self):
    self.calls = 0
    self._global_step_tensor = tf.train.get_global_step()

  def after_create_session(self, session, coord):
    self.first = session.run(self._global_step_tensor)

  def before_run(self, run_context):
    return tf.train.SessionRunArgs(self._global_step_tensor)

  def after_run(self, run_context, run_values):
    self.calls += 1
    self.last = run_values.results

  def end(self, session):
    print("hook saw %d calls from %d to %d" % (self.calls, self.first,
                                               session.run(self._global_step_tensor)))


def write_csv(path, count, seed):
  random = np.random.RandomState(seed)
  with tf.gfile.Open(path, "w") as csv:
    for _ in range(count):
      age, gain = random.randint(18, 80), random.randint(0, 3000)
      number, hours = random.randint(1, 16), random.randint(10, 60)
      work = _WORK[random.randint(3)] if random.rand() < 0.9 else "?"
      education = _EDUCATION[random.randint(4)]
      rich = age + 4 * number + (20 if education == "Masters" else 0) > 90
      csv.write("%d,%d,%d,%d,%s,%s,%.1f,%s\n" % (
          age, number, gain, hours, work, education, 1.0, ">50K" if rich else "<=50K"))


def build_model_columns():
  age = tf.feature_column.numeric_column("age")
  education_num = tf.feature_column.numeric_column("education_num")
  hours = tf.feature_column.numeric_column("hours", normalizer_fn=lambda x: x / 40.0)
  workclass = tf.feature_column.categorical_column_with_vocabulary_list("workclass", _WORK)
  education = tf.feature_column.categorical_column_with_hash_bucket(
      "education", hash_bucket_size=100)
  age_buckets = tf.feature_column.bucketized_column(
      age, boundaries=[25, 30, 35, 40, 45, 50, 55, 60])
  base_columns = [workclass, education, age_buckets]
  crossed_columns = [
      tf.feature_column.crossed_column([age_buckets, "education"], hash_bucket_size=200)]
  deep_columns = [
      age, education_num, hours,
      tf.feature_column.indicator_column(workclass),
      tf.feature_column.embedding_column(education, dimension=4),
  ]
  return base_columns + crossed_columns, deep_columns


def build_estimator(model_dir, model_type):
  wide_columns, deep_columns = build_model_columns()
  hidden_units = [16, 8]
  run_config = tf.estimator.RunConfig(tf_random_seed=1, keep_checkpoint_max=3).replace(
      session_config=tf.ConfigProto(device_count={"GPU": 0}), save_checkpoints_steps=10)
  if model_type == "wide":
    return tf.estimator.LinearClassifier(
        model_dir=model_dir, feature_columns=wide_columns, config=run_config)
  if model_type == "deep":
    return tf.estimator.DNNClassifier(
        model_dir=model_dir, feature_columns=deep_columns, hidden_units=hidden_units,
        config=run_config)
  return tf.estimator.DNNLinearCombinedClassifier(
      model_dir=model_dir,
      linear_feature_columns=wide_columns,
      dnn_feature_columns=deep_columns,
      dnn_hidden_units=hidden_units,
      dnn_optimizer=tf.train.ProximalAdagradOptimizer(
          learning_rate=0.05, l1_regularization_strength=0.001),
      weight_column="weight",
      config=run_config)


def input_fn(data_file, num_epochs, shuffle, batch_size):
  assert tf.gfile.Exists(data_file), "%s not found." % data_file

  def parse_csv(value):
    columns = tf.decode_csv(value, record_defaults=_CSV_COLUMN_DEFAULTS)
    features = dict(zip(_CSV_COLUMNS, columns))
    labels = features.pop("income")
    return features, tf.equal(labels, ">50K")

  dataset = tf.data.TextLineDataset(data_file)
  if shuffle:
    dataset = dataset.shuffle(buffer_size=200, seed=3)
  dataset = dataset.map(parse_csv, num_parallel_calls=2)
  dataset = dataset.repeat(num_epochs).batch(batch_size)
  iterator = dataset.make_one_shot_iterator()
  features, labels = iterator.get_next()
  return features, labels


def add_rate(labels, predictions):
  return {"rate": tf.metrics.mean(predictions["logistic"])}


def main(unused_argv):
  train_file = os.path.join(FLAGS.data_dir, "adult.data")
  test_file = os.path.join(FLAGS.data_dir, "adult.test")
  write_csv(train_file, 400, 1)
  write_csv(test_file, 100, 2)
  model = build_estimator(FLAGS.model_dir, FLAGS.model_type)
  model = tf.contrib.estimator.add_metrics(model, add_rate)
  hook = ExamplesHook()
  feature_spec = tf.feature_column.make_parse_example_spec(sum(build_model_columns(), []))
  feature_spec["weight"] = tf.FixedLenFeature([1], tf.float32, default_value=[1.0])
  serving_fn = export.build_parsing_serving_input_receiver_fn(feature_spec)
  train_spec = tf.estimator.TrainSpec(
      input_fn=lambda: input_fn(train_file, None, True, FLAGS.batch_size),
      max_steps=FLAGS.train_steps, hooks=[hook])
  eval_spec = tf.estimator.EvalSpec(
      input_fn=lambda: input_fn(test_file, 1, False, FLAGS.batch_size),
      steps=None,
      exporters=[
          tf.estimator.LatestExporter("latest", serving_fn, exports_to_keep=1),
          tf.estimator.BestExporter("best", serving_fn, exports_to_keep=1),
      ],
      start_delay_secs=0, throttle_secs=0)
  tf.estimator.train_and_evaluate(model, train_spec, eval_spec)
  results = model.evaluate(lambda: input_fn(test_file, 1, False, FLAGS.batch_size))
  for key in sorted(results):
    print("%s: %s" % (key, results[key]))
  for path in sorted(tf.gfile.Glob(os.path.join(FLAGS.model_dir, "export/*/*/saved_model.pb"))):
    print("export " + path.split("/")[-3])


if __name__ == "__main__":
  tf.logging.set_verbosity(tf.logging.INFO)
  FLAGS, unparsed = parser.parse_known_args()
  tf.app.run(main=main, argv=[sys.argv[0]] + unparsed)
