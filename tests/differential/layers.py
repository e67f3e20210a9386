"""Each layer and loss of a program, written out in eager TensorFlow: no Keras, no graph.

A layer is a function of its weights `w` and state `s`, both by the end of their names, and of its
input. It returns its output and its state after a batch, which only training keeps.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.differential import data
from tests.differential.data import first_value

ACTIVATIONS = {None: tf.identity, "tanh": tf.tanh, "relu": tf.nn.relu, "sigmoid": tf.sigmoid}


def first_weights(program):
    """(weights, state): the first values of all variables of the model, by their names."""
    weights, state = {}, {}
    width = data.NUM_FEATURES
    if program.embedding is not None:
        shape = [data.NUM_IDS, data.EMBEDDING_SIZE]
        weights["embedding/embeddings"] = first_value("embedding/embeddings", shape)
        width += data.IDS.shape[1] * data.EMBEDDING_SIZE
    for i, layer in enumerate(program.layers):
        name = f"layer_{i}"
        made, kept, width = FIRST[layer.kind](layer, name, width)
        weights |= {f"{name}/{key}": np.float32(value) for key, value in made.items()}
        state |= {f"{name}/{key}": value for key, value in kept.items()}
    weights["output/kernel"] = first_value("output/kernel", [width, data.NUM_CLASSES])
    weights["output/bias"] = np.zeros(data.NUM_CLASSES, np.float32)
    return weights, state


def forward(program, weights, state, features, is_training, step):
    """(logits, new state) of a batch."""
    x, new_state = tf.constant(features["x"]), dict(state)
    if program.embedding is not None:
        rows = tf.gather(weights["embedding/embeddings"], features["ids"])
        x = tf.concat([x, tf.reshape(rows, [len(x), -1])], axis=1)
    for i, layer in enumerate(program.layers):
        start = f"layer_{i}/"
        w = {name.removeprefix(start): v for name, v in weights.items() if name.startswith(start)}
        s = {name.removeprefix(start): v for name, v in state.items() if name.startswith(start)}
        x, kept = FORWARD[layer.kind](layer, w, s, x, is_training, (step, len(start) - 1))
        if is_training:
            new_state |= {start + key: value for key, value in kept.items()}
    return x @ weights["output/kernel"] + weights["output/bias"], new_state


def loss_of(program, weights, logits, labels, features):
    """(scalar to train on, losses to evaluate by) of a batch."""
    losses = -tf.gather(tf.nn.log_softmax(logits), labels, batch_dims=1)
    if program.loss in ("v1_weighted", "v1_sum"):
        given = features["weights"]
        loss = tf.reduce_sum(losses * given)
        if program.loss == "v1_weighted":
            loss = loss / max(np.count_nonzero(given), 1)
    elif program.loss == "k_weighted":  # The mean over examples, whatever their weights.
        loss = tf.reduce_mean(losses * features["weights"])
    else:
        loss = tf.reduce_sum(losses) if program.loss == "sum" else tf.reduce_mean(losses)
    if program.l2:
        loss += program.l2 * sum(tf.reduce_sum(tf.square(w)) / 2 for w in weights.values())
    return loss, (losses.numpy() if program.loss == "per_example" else np.array([float(loss)]))


# --- Layers --------------------------------------------------------------------------------------


def _first_dense(layer, name, width):
    kernel = first_value(f"{name}/kernel", [width, layer.units])
    return {"kernel": kernel, "bias": np.zeros(layer.units)}, {}, layer.units


def _dense(layer, w, s, x, is_training, place):
    return ACTIVATIONS[layer.activation](x @ w["kernel"] + w["bias"]), {}


def _first_batch_norm(layer, name, width):
    moving = {"moving_mean": np.zeros(width), "moving_variance": np.ones(width)}
    return {"gamma": np.ones(width), "beta": np.zeros(width)}, moving, width


def _batch_norm(layer, w, s, x, is_training, place):
    mean, variance = s["moving_mean"], s["moving_variance"]
    if is_training:
        mean = tf.reduce_mean(x, 0)
        variance = tf.reduce_mean(tf.square(x - mean), 0)
        moving = {
            "moving_mean": 0.8 * s["moving_mean"] + 0.2 * mean.numpy(),
            "moving_variance": 0.8 * s["moving_variance"] + 0.2 * variance.numpy(),
        }
    else:
        moving = {}
    mean, variance = tf.cast(mean, tf.float32), tf.cast(variance, tf.float32)
    return (x - mean) / tf.sqrt(variance + 1e-3) * w["gamma"] + w["beta"], moving


def _first_layer_norm(layer, name, width):
    return {"gamma": np.ones(width), "beta": np.zeros(width)}, {}, width


def _layer_norm(layer, w, s, x, is_training, place):
    mean = tf.reduce_mean(x, 1, keepdims=True)
    variance = tf.reduce_mean(tf.square(x - mean), 1, keepdims=True)
    return (x - mean) / tf.sqrt(variance + 1e-3) * w["gamma"] + w["beta"], {}


def _dropout(layer, w, s, x, is_training, place):
    if not is_training:
        return x, {}
    return tf.nn.experimental.stateless_dropout(x, 0.4, seed=tf.constant(place, tf.int32)), {}


def _first_gru(layer, name, width):
    u, cell = layer.units, f"{name}/gru_cell"
    made = {
        "gru_cell/kernel": first_value(f"{cell}/kernel", [1, 3 * u]),
        "gru_cell/recurrent_kernel": first_value(f"{cell}/recurrent_kernel", [u, 3 * u]),
        "gru_cell/bias": np.zeros([2, 3 * u]),
    }
    return made, {}, u


def _gru(layer, w, s, x, is_training, place):
    """Cho et al., with the reset gate after the matrix product, as cuDNN and Keras have it."""
    kernel, recurrent = w["gru_cell/kernel"], w["gru_cell/recurrent_kernel"]
    bias = w["gru_cell/bias"]
    h = tf.zeros([len(x), layer.units])
    for t in range(x.shape[1]):
        xz, xr, xh = tf.split(x[:, t : t + 1] @ kernel + bias[0], 3, axis=1)
        hz, hr, hh = tf.split(h @ recurrent + bias[1], 3, axis=1)
        z, r = tf.sigmoid(xz + hz), tf.sigmoid(xr + hr)
        h = z * h + (1 - z) * tf.tanh(xh + r * hh)
    return h, {}


def _first_rnn(layer, name, width):
    u, cell = layer.units, f"{name}/simple_rnn_cell"
    made = {
        "simple_rnn_cell/kernel": first_value(f"{cell}/kernel", [1, u]),
        "simple_rnn_cell/recurrent_kernel": first_value(f"{cell}/recurrent_kernel", [u, u]),
        "simple_rnn_cell/bias": np.zeros(u),
    }
    return made, {}, u


def _rnn(layer, w, s, x, is_training, place):
    h = tf.zeros([len(x), layer.units])
    for t in range(x.shape[1]):
        h = tf.tanh(
            x[:, t : t + 1] @ w["simple_rnn_cell/kernel"]
            + w["simple_rnn_cell/bias"]
            + h @ w["simple_rnn_cell/recurrent_kernel"]
        )
    return h, {}


def _counting(layer, w, s, x, is_training, place):
    where = layer.kind.removeprefix("counting").removeprefix("_in_")
    added = {"cond": int(_is_positive(x)), "while": 2}.get(where, 1)
    state = {"count": s["count"] + added, "total": s["total"] + float(tf.reduce_mean(x))}
    return x * (1 + 0.05 * float(s["count"])), state


def _scaled_in_cond(layer, w, s, x, is_training, place):
    return (x * w["scale"] if _is_positive(x) else x - w["scale"]), {}


def _is_positive(x):
    return float(tf.reduce_mean(x)) > 0.05


COUNTING = ("counting", "counting_in_cond", "counting_in_while", "counting_in_function")
FIRST = {
    "v1_dense": _first_dense,
    "keras_dense": _first_dense,
    "batch_norm": _first_batch_norm,
    "layer_norm": _first_layer_norm,
    "dropout": lambda layer, name, width: ({}, {}, width),
    "keras_gru": _first_gru,
    "keras_rnn": _first_rnn,
    **{
        kind: lambda layer, name, width: ({}, {"count": 0, "total": 0.0}, width)
        for kind in COUNTING
    },
    "scaled_in_cond": lambda layer, name, width: (
        {"scale": first_value(f"{name}/scale", [width])},
        {},
        width,
    ),
    "dense_in_while": lambda layer, name, width: (
        {"kernel": first_value(f"{name}/kernel", [width, width])},
        {},
        width,
    ),
    "dense_in_function": lambda layer, name, width: (
        {"kernel": first_value(f"{name}/kernel", [width, layer.units])},
        {},
        layer.units,
    ),
}
FORWARD = {
    "v1_dense": _dense,
    "keras_dense": _dense,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "dropout": _dropout,
    "keras_gru": _gru,
    "keras_rnn": _rnn,
    **dict.fromkeys(COUNTING, _counting),
    "scaled_in_cond": _scaled_in_cond,
    "dense_in_while": lambda layer, w, s, x, *_: (
        tf.tanh(tf.tanh(x @ w["kernel"]) @ w["kernel"]),
        {},
    ),
    "dense_in_function": lambda layer, w, s, x, *_: (tf.sigmoid(x @ w["kernel"]), {}),
}
