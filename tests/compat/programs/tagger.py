"""A tagger of words: bidirectional LSTM, CRF, moving averages, vocabulary tables, and predictor."""
from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import functools
import json
import logging
import os
from pathlib import Path
import sys

import numpy as np
import tensorflow as tf
from tensorflow.contrib import predictor
from tensorflow.contrib.estimator import stop_if_no_increase_hook

_NOUNS = ["cat", "dog", "tree", "house", "river"]
_VERBS = ["sees", "climbs", "likes"]
_TAGS = ["O", "N", "V"]


def write_data(folder):
  """Sentences of a noun, a verb and a noun among other words, and their vocabularies."""
  random = np.random.RandomState(7)
  for name, count in [("train", 200), ("test", 40)]:
    with Path(folder, name + ".txt").open("w") as f:
      for _ in range(count):
        words = ["the", random.choice(_NOUNS), random.choice(_VERBS), "the", random.choice(_NOUNS)]
        words += ["now"] * random.randint(3)
        tags = ["O", "N", "V", "O", "N"] + ["O"] * (len(words) - 5)
        f.write(" ".join(words) + "\t" + " ".join(tags) + "\n")
  with Path(folder, "vocab.words.txt").open("w") as f:
    f.write("\n".join(["the", "now"] + _NOUNS[:4] + _VERBS) + "\n")
  with Path(folder, "vocab.tags.txt").open("w") as f:
    f.write("\n".join(_TAGS) + "\n")


def parse_fn(line):
  words, tags = (part.split() for part in line.rstrip("\n").split("\t"))
  assert len(words) == len(tags), "Words and tags lengths don't match"
  return ([w.encode() for w in words], len(words)), [t.encode() for t in tags]


def generator_fn(path):
  with Path(path).open("r") as f:
    for line in f:
      yield parse_fn(line)


def input_fn(path, params=None, shuffle_and_repeat=False):
  params = params if params is not None else {}
  shapes = (([None], ()), [None])
  types = ((tf.string, tf.int32), tf.string)
  defaults = (("<pad>", 0), "O")
  dataset = tf.data.Dataset.from_generator(
      functools.partial(generator_fn, path), output_shapes=shapes, output_types=types)
  if shuffle_and_repeat:
    dataset = dataset.shuffle(params["buffer"]).repeat(params["epochs"])
  dataset = (dataset
             .padded_batch(params.get("batch_size", 20), shapes, defaults)
             .prefetch(1))
  return dataset


def model_fn(features, labels, mode, params):
  if isinstance(features, dict):
    features = features["words"], features["nwords"]
  dropout = params["dropout"]
  words, nwords = features
  training = (mode == tf.estimator.ModeKeys.TRAIN)
  vocab_words = tf.contrib.lookup.index_table_from_file(
      params["words"], num_oov_buckets=params["num_oov_buckets"])
  with Path(params["tags"]).open() as f:
    indices = [idx for idx, tag in enumerate(f) if tag.strip() != "O"]
    num_tags = len(indices) + 1

  word_ids = vocab_words.lookup(words)
  embeddings = tf.get_variable(
      "embeddings", [params["size_vocab"] + params["num_oov_buckets"], params["dim"]],
      initializer=tf.contrib.layers.xavier_initializer())
  embeddings = tf.nn.embedding_lookup(embeddings, word_ids)
  embeddings = tf.layers.dropout(embeddings, rate=dropout, training=training)

  by_time = tf.transpose(embeddings, perm=[1, 0, 2])
  lstm_cell_fw = tf.contrib.rnn.LSTMBlockFusedCell(params["lstm_size"])
  lstm_cell_bw = tf.contrib.rnn.LSTMBlockFusedCell(params["lstm_size"])
  lstm_cell_bw = tf.contrib.rnn.TimeReversedFusedRNN(lstm_cell_bw)
  output_fw, _ = lstm_cell_fw(by_time, dtype=tf.float32, sequence_length=nwords)
  output_bw, _ = lstm_cell_bw(by_time, dtype=tf.float32, sequence_length=nwords)
  output = tf.concat([output_fw, output_bw], axis=-1)
  output = tf.transpose(output, perm=[1, 0, 2])
  output = tf.layers.dropout(output, rate=dropout, training=training)

  logits = tf.layers.dense(output, num_tags)
  crf_params = tf.get_variable("crf", [num_tags, num_tags], dtype=tf.float32)
  pred_ids, _ = tf.contrib.crf.crf_decode(logits, crf_params, nwords)

  ema = tf.train.ExponentialMovingAverage(0.9)
  scaffold = None
  if not training:
    # Evaluates and exports with the averages.
    variables = tf.trainable_variables()
    saver = tf.train.Saver(dict({ema.average_name(v): v for v in variables},
                                global_step=tf.train.get_global_step()))
    scaffold = tf.train.Scaffold(saver=saver)

  if mode == tf.estimator.ModeKeys.PREDICT:
    reverse_vocab_tags = tf.contrib.lookup.index_to_string_table_from_file(params["tags"])
    pred_strings = reverse_vocab_tags.lookup(tf.to_int64(pred_ids))
    predictions = {"pred_ids": pred_ids, "tags": pred_strings}
    return tf.estimator.EstimatorSpec(mode, predictions=predictions, scaffold=scaffold)

  vocab_tags = tf.contrib.lookup.index_table_from_file(params["tags"])
  tags = vocab_tags.lookup(labels)
  log_likelihood, _ = tf.contrib.crf.crf_log_likelihood(logits, tags, nwords, crf_params)
  loss = tf.reduce_mean(-log_likelihood)
  weights = tf.sequence_mask(nwords)
  metrics = {
      "acc": tf.metrics.accuracy(tags, pred_ids, weights),
      "cells": tf.contrib.metrics.streaming_mean(tf.to_float(nwords)),
  }
  for metric_name, op in metrics.items():
    tf.summary.scalar(metric_name, op[1])
  if mode == tf.estimator.ModeKeys.EVAL:
    return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics, scaffold=scaffold)

  train_op = tf.train.AdamOptimizer(0.02).minimize(
      loss, global_step=tf.train.get_or_create_global_step())
  with tf.control_dependencies([train_op]):
    train_op = ema.apply(tf.trainable_variables())
  return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def serving_input_receiver_fn():
  words = tf.placeholder(dtype=tf.string, shape=[None, None], name="words")
  nwords = tf.placeholder(dtype=tf.int32, shape=[None], name="nwords")
  receiver_tensors = {"words": words, "nwords": nwords}
  return tf.estimator.export.ServingInputReceiver(receiver_tensors, receiver_tensors)


if __name__ == "__main__":
  folder = sys.argv[1]
  tf.logging.set_verbosity(logging.INFO)
  write_data(folder)
  params = {
      "dim": 8, "dropout": 0.2, "num_oov_buckets": 1, "epochs": 3, "batch_size": 20,
      "buffer": 100, "lstm_size": 8, "size_vocab": 9,
      "words": str(Path(folder, "vocab.words.txt")),
      "tags": str(Path(folder, "vocab.tags.txt")),
  }
  with Path(folder, "params.json").open("w") as f:
    json.dump(params, f, indent=4, sort_keys=True)

  train_inpf = functools.partial(input_fn, os.path.join(folder, "train.txt"), params, True)
  eval_inpf = functools.partial(input_fn, os.path.join(folder, "test.txt"))
  cfg = tf.estimator.RunConfig(save_checkpoints_steps=15)
  estimator = tf.estimator.Estimator(model_fn, os.path.join(folder, "model"), cfg, params)
  Path(estimator.eval_dir()).mkdir(parents=True, exist_ok=True)
  hook = stop_if_no_increase_hook(
      estimator, "acc", max_steps_without_increase=500, min_steps=10, run_every_secs=None,
      run_every_steps=10)
  train_spec = tf.estimator.TrainSpec(input_fn=train_inpf, hooks=[hook])
  eval_spec = tf.estimator.EvalSpec(input_fn=eval_inpf, throttle_secs=0)
  tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)

  golds = [tags for _, tags in generator_fn(os.path.join(folder, "test.txt"))]
  preds = estimator.predict(eval_inpf)
  right = total = 0
  for gold, pred in zip(golds, preds):
    right += sum(a == b for a, b in zip(gold, pred["tags"]))
    total += len(gold)
  print("accuracy %.3f" % (right / total))

  estimator.export_saved_model(os.path.join(folder, "saved_model"), serving_input_receiver_fn)
  subdirs = [x for x in Path(folder, "saved_model").iterdir() if "temp" not in str(x)]
  latest = str(sorted(subdirs)[-1])
  predict_fn = predictor.from_saved_model(latest)
  words = ["the", "dog", "likes", "the", "river"]
  outputs = predict_fn({"words": [words], "nwords": [len(words)]})
  print("tags " + " ".join(tag.decode() for tag in outputs["tags"][0]))
