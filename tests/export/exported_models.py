"""Models to export, each with what it is fed. `test_served_models` compares their answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras

import estimator as est
from tests.conformance.cases import STRATEGIES

V1 = tf.compat.v1
PREDICT = est.ModeKeys.PREDICT
X = np.random.RandomState(0).randn(5, 3).astype(np.float32)
WORDS = ["zero", "one", "two", "three", "four"]


def example(**features):
    """A serialized tf.Example of lists of floats or of strings."""
    message = tf.train.Example()
    for name, values in features.items():
        feature = message.features.feature[name]
        if isinstance(values[0], bytes):
            feature.bytes_list.value.extend(values)
        else:
            feature.float_list.value.extend(values)
    return message.SerializeToString()


EXAMPLES = [example(x=row.tolist()) for row in X]


@dataclasses.dataclass
class Case:
    """A model that is trained for two steps, exported, and asked.

    Attributes:
      model_fn: of the model; it takes `params["vocabulary"]`, a file that will be gone.
      receiver_fn: of the export.
      feeds: by signature, what it is fed.
      features: for `predict`, what the feeds stand for; a function makes it in a graph.
      outputs: by signature and output, which prediction it is; None if the names are the same.
      strategy: that trains.
      make: the estimator, of `model_fn, model_dir, config, params`.
      is_warm_started: whether another estimator exports, which is only to start from this one.
    """

    model_fn: Callable
    receiver_fn: Callable
    feeds: Mapping[str, Mapping[str, Any]]
    features: Any = dataclasses.field(default_factory=lambda: {"x": X})
    outputs: Mapping[str, Mapping[str, str]] | None = None
    strategy: str = "no_strategy"
    make: Callable | None = None
    is_warm_started: bool = False


def raw_receiver(**specs):
    specs = specs or {"x": tf.TensorSpec([None, 3])}
    return est.export.build_raw_serving_input_receiver_fn(specs)


def parsing_receiver():
    spec = {"x": tf.io.FixedLenFeature([3], tf.float32)}
    return est.export.build_parsing_serving_input_receiver_fn(spec)


def default(**fed):
    return {"serving_default": fed}


def spec_of(mode, predictions, of_loss, optimizer=None, **arguments):
    """The spec of a model whose loss is the mean square of `of_loss`."""
    if mode == PREDICT:
        return est.EstimatorSpec(mode, predictions=predictions, **arguments)
    loss = tf.reduce_mean(tf.square(of_loss))
    optimizer = optimizer or V1.train.GradientDescentOptimizer(0.1)
    train_op = optimizer.minimize(loss, V1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def build_dense(x, units=2):
    kernel = V1.get_variable("kernel", [x.shape[-1], units])
    bias = V1.get_variable("bias", [units], initializer=V1.ones_initializer())
    return x @ kernel + bias


def plain(features, mode, params):
    y = build_dense(features["x"])
    return spec_of(mode, {"y": y, "class": tf.argmax(y, 1)}, y)


def single_tensor(features, mode, params):
    y = build_dense(features)
    return spec_of(mode, y, y)


def placed(features, mode, params):
    """On devices that a server may not have, and this machine neither, with a loop inside."""

    def double(x):
        V1.summary.scalar("inside", tf.reduce_sum(x))
        return x * 2.0

    with tf.device("/gpu:3"):
        y = tf.map_fn(double, build_dense(features["x"]))
    return spec_of(mode, {"y": y}, y)


def partitioned(features, mode, params):
    with V1.variable_scope("", partitioner=V1.fixed_size_partitioner(2)):
        kernel = V1.get_variable("kernel", [3, 2])
    y = tf.matmul(features["x"], kernel)
    return spec_of(mode, {"y": y}, y)


def layered(layers):
    def model_fn(features, mode, params):
        is_training = mode == est.ModeKeys.TRAIN
        y = layers.Dense(8, "relu")(features["x"])
        y = layers.BatchNormalization(momentum=0.5)(y, training=is_training)
        y = layers.Dropout(0.5)(y, training=is_training)
        y = layers.Dense(2)(y)
        return spec_of(mode, {"y": y}, y)

    return model_fn


def read_table(path, index, value, default):
    types = {tf.lookup.TextFileIndex.WHOLE_LINE: tf.string}
    initializer = tf.lookup.TextFileInitializer(
        path, types.get(index, tf.int64), index, types.get(value, tf.int64), value
    )
    return tf.lookup.StaticHashTable(initializer, default)


def worded(features, mode, params):
    """The word whose embedding is the largest, and the longest word of the vocabulary."""
    line, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
    ids = read_table(params["vocabulary"], line, number, 0).lookup(features["word"])
    words = read_table(params["vocabulary"], number, line, "?")
    rows = tf.nn.embedding_lookup(V1.get_variable("embedding", [len(WORDS), 4]), ids)
    best = tf.argmax(rows, axis=1)
    predictions = {"word": words.lookup(best), "again": features["word"], "id": ids}
    return spec_of(mode, predictions, rows)


def columned(features, mode, params):
    column = tf.feature_column.categorical_column_with_vocabulary_file("word", params["vocabulary"])
    bucket = tf.feature_column.bucketized_column(tf.feature_column.numeric_column("age"), [3.0])
    columns = [tf.feature_column.indicator_column(column), bucket]
    y = build_dense(V1.feature_column.input_layer(features, columns))
    return spec_of(mode, {"y": y}, y)


def with_outputs(change):
    """A classifier with an output of each kind, in a dict that is changed after all."""

    def model_fn(features, mode, params):
        logits = build_dense(features["x"])
        scores = tf.nn.softmax(logits)
        names = tf.tile([["no", "yes"]], [tf.shape(scores)[0], 1])
        predictions = {"scores": scores, "names": names, "first": scores[:, 0]}
        outputs = {
            "serving_default": est.export.ClassificationOutput(scores, names),
            "regress": est.export.RegressionOutput(scores[:, 0]),
            "predict": est.export.PredictOutput(predictions),
        }
        spec = spec_of(mode, predictions, logits)
        if mode == PREDICT:
            spec = spec._replace(export_outputs=outputs)
            change(spec.export_outputs, predictions)
        return spec

    return model_fn


def averaged(features, mode, params):
    """Its averages are what predicts: the saver reads them into the variables."""
    y = build_dense(features["x"])
    averages = tf.train.ExponentialMovingAverage(0.5)
    if mode != PREDICT:
        spec = spec_of(mode, None, y)
        with tf.control_dependencies([spec.train_op]):
            return spec.replace(train_op=averages.apply(V1.trainable_variables()))
    names = averages.variables_to_restore(V1.trainable_variables())
    names["global_step"] = V1.train.get_global_step()
    scaffold = V1.train.Scaffold(saver=V1.train.Saver(names))
    return spec_of(mode, {"y": y}, y, scaffold=scaffold)


def saved_by_object(features, mode, params):
    y = build_dense(features["x"])
    variables = {v.op.name: v for v in V1.trainable_variables()}
    checkpoint = tf.train.Checkpoint(step=V1.train.get_global_step(), **variables)
    return spec_of(mode, {"y": y}, y).replace(scaffold=V1.train.Scaffold(saver=checkpoint))


def decoding(features, mode, params):
    """Takes images as strings of bytes, an example at a time."""

    def decode(image):
        return tf.cast(tf.io.decode_raw(image, tf.uint8), tf.float32) / 255.0

    x = tf.ensure_shape(tf.map_fn(decode, features["image"], tf.float32), [None, 6])
    y = build_dense(x)
    return spec_of(
        mode, {"y": y, "digest": tf.strings.to_hash_bucket_fast(features["image"], 9)}, y
    )


def sparse(features, mode, params):
    ids = tf.sparse.SparseTensor(
        features["words"].indices,
        tf.strings.to_hash_bucket_fast(features["words"].values, 10),
        features["words"].dense_shape,
    )
    embedding = V1.get_variable("embedding", [10, 2])
    y = tf.nn.embedding_lookup_sparse(embedding, ids, None, combiner="sum")
    return spec_of(mode, {"y": y}, y)


def sparse_receiver():
    spec = {"words": tf.io.VarLenFeature(tf.string)}
    return est.export.build_parsing_serving_input_receiver_fn(spec)()


SENTENCES = [[b"a", b"b"], [b"c"], [b"a", b"b", b"c"], [b"d"], [b"b"]]


def with_alternatives():
    """Parsed examples, or else the feature itself, under a name and as the only tensor."""
    parsed = parsing_receiver()()
    x = parsed.features["x"]
    alternatives = {"raw": {"x": x}, "alone": x}
    return est.export.ServingInputReceiver(parsed.features, parsed.receiver_tensors, alternatives)


def tensor_receiver():
    x = V1.placeholder(tf.float32, [None, 3], "x")
    return est.export.TensorServingInputReceiver(x, x)


def tpu_model_fn(features, mode, params):
    """Takes the batch size where there is one, as model functions for a TPU do."""
    assert not params["use_tpu"]
    y = build_dense(features["x"])
    if "batch_size" in params:
        y = tf.reshape(y, [-1, 2])
    spec = spec_of(mode, {"y": y}, y)
    return est.tpu.TPUEstimatorSpec(
        mode, predictions=spec.predictions, loss=spec.loss, train_op=spec.train_op
    )


def make_tpu(model_fn, model_dir, config, params):
    config = est.tpu.RunConfig(
        est.tpu.TPUConfig(iterations_per_loop=100), strategy="mirrored", num_replicas=2
    )
    sizes = {"train_batch_size": 2, "predict_batch_size": 4}
    return est.tpu.TPUEstimator(model_fn, model_dir, config, params, **sizes)


def make_half(model_fn, model_dir, config, params):
    config = config.replace(compute_dtype="bfloat16", jit_compile=True)
    return est.Estimator(model_fn, model_dir, config, params)


def also_under_another_name(outputs, predictions):
    outputs["added"] = est.export.PredictOutput({"first": predictions["first"]})
    del outputs["regress"]


ALL_OUTPUTS = {
    "serving_default": {"scores": "scores", "classes": "names"},
    "predict": {"scores": "scores", "names": "names", "first": "first"},
}
WORD_INPUT = {"word": np.array([word.encode() for word in [*WORDS[1:], "nowhere"]])}
IMAGES = np.array([bytes(range(i, i + 6)) for i in range(5)], object)

CASES = {
    **{
        f"plain under {name}": Case(plain, raw_receiver(), default(x=X), strategy=name)
        for name in STRATEGIES
    },
    "a single tensor": Case(
        single_tensor,
        tensor_receiver,
        default(input=X),
        X,
        {"serving_default": {"output": None}},
        "mirrored_x2",
    ),
    "devices": Case(placed, raw_receiver(), default(x=X)),
    "partitioned": Case(partitioned, raw_receiver(), default(x=X)),
    "Keras 3": Case(layered(keras.layers), raw_receiver(), default(x=X), strategy="mirrored_x2"),
    "in bfloat16 by XLA": Case(layered(keras.layers), raw_receiver(), default(x=X), make=make_half),
    "tf-keras": Case(
        layered(tf_keras.layers), raw_receiver(), default(x=X), strategy="mirrored_x2"
    ),
    "a vocabulary": Case(
        worded,
        raw_receiver(word=tf.TensorSpec([None], tf.string)),
        default(word=WORD_INPUT["word"]),
        WORD_INPUT,
        strategy="mirrored_x2",
    ),
    "feature columns": Case(
        columned,
        raw_receiver(word=tf.TensorSpec([None], tf.string), age=tf.TensorSpec([None, 1])),
        default(word=WORD_INPUT["word"], age=X[:, :1]),
        {**WORD_INPUT, "age": X[:, :1]},
    ),
    "several signatures": Case(
        with_outputs(lambda outputs, predictions: None),
        parsing_receiver(),
        {
            "serving_default": {"inputs": EXAMPLES},
            "predict": {"examples": EXAMPLES},
            "regress": {"inputs": EXAMPLES},
        },
        outputs={**ALL_OUTPUTS, "regress": {"outputs": "first"}},
        strategy="central_storage_x2",
    ),
    "changed outputs": Case(
        with_outputs(also_under_another_name),
        parsing_receiver(),
        {
            "serving_default": {"inputs": EXAMPLES},
            "predict": {"examples": EXAMPLES},
            "added": {"examples": EXAMPLES},
        },
        outputs={**ALL_OUTPUTS, "added": {"first": "first"}},
    ),
    "no signature but predict without examples": Case(
        with_outputs(
            lambda outputs, predictions: outputs.update(serving_default=outputs["predict"])
        ),
        raw_receiver(),
        {"serving_default": {"x": X}, "predict": {"x": X}},
        outputs=dict.fromkeys(("serving_default", "predict"), ALL_OUTPUTS["predict"]),
    ),
    "alternatives": Case(
        with_outputs(lambda outputs, predictions: None),
        with_alternatives,
        {
            "serving_default": {"inputs": EXAMPLES},
            "predict": {"examples": EXAMPLES},
            "regress": {"inputs": EXAMPLES},
            "raw:predict": {"x": X},
            "alone:predict": {"input": X},
        },
        outputs={
            **ALL_OUTPUTS,
            "regress": {"outputs": "first"},
            "raw:predict": ALL_OUTPUTS["predict"],
            "alone:predict": ALL_OUTPUTS["predict"],
        },
    ),
    "averages": Case(averaged, raw_receiver(), default(x=X), strategy="one_device"),
    "saved by object": Case(saved_by_object, raw_receiver(), default(x=X)),
    "decoding": Case(
        decoding,
        raw_receiver(image=tf.TensorSpec([None], tf.string)),
        default(image=IMAGES),
        {"image": IMAGES},
        strategy="one_device",
    ),
    "sparse": Case(
        sparse,
        sparse_receiver,
        default(examples=[example(words=words) for words in SENTENCES]),
        lambda: {"words": tf.sparse.from_dense([[*row, b"", b""][:3] for row in SENTENCES])},
    ),
    "warm-started": Case(plain, raw_receiver(), default(x=X), is_warm_started=True),
    "TPUEstimator": Case(tpu_model_fn, raw_receiver(), default(x=X), make=make_tpu),
}
