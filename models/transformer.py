"""A Transformer encoder (Vaswani et al., 2017) that classifies texts, small enough for a CPU.

Texts are rows of tokens, padded with 0. A mask keeps padding out of the attention and out of the
mean that is classified, so how far a text is padded does not change its logits.
"""

import re
from typing import Any

import tensorflow as tf

import estimator as est
from models import classification, host_summaries, schedules
from models.layerwise_adamw import LayerwiseAdamW

PADDING = 0
MAX_LENGTH = 128
DEFAULTS = {
    "num_tokens": 4000,
    "num_classes": 4,
    "size": 64,
    "num_layers": 2,
    "num_heads": 4,
    "dropout": 0.3,
    "learning_rate": 3e-3,
    "warmup_steps": 50,
    "train_steps": 500,
    "layer_decay": 0.9,
    "weight_decay": 0.1,
    "clip_norm": 1.0,
    "summary_dir": None,
    "summary_steps": 100,
}


def model_fn(
    features: dict[str, tf.Tensor], labels: tf.Tensor | None, mode: str, params: dict[str, Any]
) -> est.tpu.TPUEstimatorSpec:
    """Classifies texts.

    Args:
      features: "tokens", int32 [batch, length], at least 0 and less than "num_tokens"; the length
        is at most `MAX_LENGTH`.
      labels: int32 [batch]; None in prediction.
      mode: an `est.ModeKeys`.
      params: any of `DEFAULTS`: "size" is that of a token's vector, which "num_heads" divides,
        "learning_rate" the last layer's highest, which each layer below multiplies by
        "layer_decay", and "summary_dir" a folder for a `host_call`.

    Returns:
      The spec; see `classification.build_spec` for its predictions and metrics.

    Raises:
      ValueError: "num_heads" does not divide "size", or the texts are too long.
    """
    params = {**DEFAULTS, **params}
    logits = build_logits(features["tokens"], params, is_training=mode == est.ModeKeys.TRAIN)
    if mode != est.ModeKeys.TRAIN:
        return classification.build_spec(logits, labels, mode, params)

    step = tf.compat.v1.train.get_or_create_global_step()
    learning_rate = schedules.build_linear(
        step,
        peak=params["learning_rate"],
        warmup_steps=params["warmup_steps"],
        train_steps=params["train_steps"],
    )
    host_call = host_summaries.make_host_call(
        params["summary_dir"], step, params["summary_steps"], learning_rate=learning_rate
    )
    loss = classification.build_smoothed_loss(labels, logits)
    adamw = LayerwiseAdamW(
        learning_rate, params["weight_decay"], lambda name: find_rate_factor(name, params)
    )
    optimizer = est.CrossShardOptimizer(adamw, clip_norm=params["clip_norm"])
    train_op = optimizer.minimize(loss, global_step=step)
    return est.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, host_call=host_call)


def build_logits(tokens: tf.Tensor, params: dict[str, Any], is_training: bool) -> tf.Tensor:
    """Maps tokens [batch, length] to logits [batch, classes]."""
    _check_sizes(tokens.shape[1], params)
    dropout = params["dropout"] if is_training else 0.0
    is_word = tf.cast(tf.not_equal(tokens, PADDING), tf.float32)
    outputs = _drop(_build_embedding(tokens, params), dropout)
    for layer in range(params["num_layers"]):
        with tf.compat.v1.variable_scope(f"layer_{layer}"):
            attended = _build_attention(_build_norm("attention_norm", outputs), is_word, params)
            outputs += _drop(attended, dropout)
            hidden = _build_norm("hidden_norm", outputs)
            hidden = tf.nn.gelu(build_dense("hidden", hidden, 4 * params["size"]))
            outputs += _drop(build_dense("outputs", hidden, params["size"]), dropout)
    outputs = _build_norm("norm", outputs)
    num_words = tf.maximum(tf.reduce_sum(is_word, axis=1, keepdims=True), 1.0)
    mean = tf.einsum("bl,bls->bs", is_word, outputs) / num_words
    return classification.build_dense("logits", mean, params["num_classes"])


def find_rate_factor(name: str, params: dict[str, Any]) -> float:
    """Returns what a variable's rate is multiplied by: 1 at the top, least for the embedding."""
    if name.startswith("embedding"):
        return params["layer_decay"] ** (params["num_layers"] + 1)
    layer = re.match(r"layer_(\d+)/", name)
    return params["layer_decay"] ** (params["num_layers"] - int(layer[1])) if layer else 1.0


def build_dense(name: str, inputs: tf.Tensor, units: int) -> tf.Tensor:
    """Builds a dense layer for each word: [batch, length, n] to [batch, length, units]."""
    with tf.compat.v1.variable_scope(name):
        kernel = tf.compat.v1.get_variable("kernel", [inputs.shape[-1], units])
        bias = tf.compat.v1.get_variable("bias", [units], initializer=tf.zeros_initializer())
    return tf.einsum("bln,nu->blu", inputs, kernel) + bias


def _check_sizes(length: int | None, params: dict[str, Any]) -> None:
    size, num_heads = params["size"], params["num_heads"]
    divisors = [number for number in range(1, size + 1) if size % number == 0]
    if num_heads not in divisors:
        raise ValueError(
            f'`params["num_heads"]` ({num_heads}) must divide `params["size"]` ({size}), since '
            f"each head takes an equal part of it. Choose from {divisors}."
        )
    if length is None or length > MAX_LENGTH:
        raise ValueError(
            f'The length of `features["tokens"]` ({length}) must be known and at most '
            f"{MAX_LENGTH}. Cut longer texts, or raise `transformer.MAX_LENGTH`."
        )


def _build_embedding(tokens: tf.Tensor, params: dict[str, Any]) -> tf.Tensor:
    """Adds each word's vector to that of its place: [batch, length] to [batch, length, size]."""
    normal = tf.compat.v1.initializers.truncated_normal(stddev=0.05)
    size, length = params["size"], tokens.shape[1]
    with tf.compat.v1.variable_scope("embedding", initializer=normal):
        words = tf.compat.v1.get_variable("words", [params["num_tokens"], size])
        places = tf.compat.v1.get_variable("places", [MAX_LENGTH, size])
    return tf.gather(words, tokens) + places[:length]


def _build_attention(inputs: tf.Tensor, is_word: tf.Tensor, params: dict[str, Any]) -> tf.Tensor:
    """Builds attention of each word to all words: [batch, length, size] to the same shape."""
    num_heads, size = params["num_heads"], params["size"]
    shape = [-1, inputs.shape[1], num_heads, 3 * size // num_heads]
    joined = tf.reshape(build_dense("attention", inputs, 3 * size), shape)
    queries, keys, values = tf.split(joined, 3, axis=-1)
    scores = tf.einsum("bqhs,bkhs->bhqk", queries, keys) * (size // num_heads) ** -0.5
    scores += -1e9 * (1.0 - is_word[:, tf.newaxis, tf.newaxis, :])
    heads = tf.einsum("bhqk,bkhs->bqhs", tf.nn.softmax(scores), values)
    return build_dense("attended", tf.reshape(heads, [-1, inputs.shape[1], size]), size)


def _build_norm(name: str, inputs: tf.Tensor) -> tf.Tensor:
    """Layer normalization of each word's vector."""
    size = [inputs.shape[-1]]
    with tf.compat.v1.variable_scope(name):
        scale = tf.compat.v1.get_variable("scale", size, initializer=tf.ones_initializer())
        offset = tf.compat.v1.get_variable("offset", size, initializer=tf.zeros_initializer())
    mean, variance = tf.nn.moments(inputs, [-1], keepdims=True)
    return tf.nn.batch_normalization(inputs, mean, variance, offset, scale, 1e-6)


def _drop(inputs: tf.Tensor, rate: float) -> tf.Tensor:
    return tf.nn.dropout(inputs, rate) if rate else inputs
