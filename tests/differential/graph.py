"""The program: a `model_fn` and an `input_fn` as a user of the library would write them."""

from __future__ import annotations

import keras
import tensorflow as tf

import estimator as est
from tests.differential import data
from tests.differential.data import first_value
from tests.differential.optimizers import make_in_graph

V1 = tf.compat.v1
RULES = {
    "first": tf.VariableAggregation.ONLY_FIRST_REPLICA,
    "sum": tf.VariableAggregation.SUM,
    "mean": tf.VariableAggregation.MEAN,
}


def make_model_fn(program):
    """The `model_fn` of a program."""

    def model_fn(features, labels, mode):
        is_training = mode == est.ModeKeys.TRAIN
        logits = build_logits(program, features, is_training)
        predictions = {"logits": logits, "class": tf.argmax(logits, -1)}
        if mode == est.ModeKeys.PREDICT:
            return est.EstimatorSpec(mode, predictions=predictions)
        loss = build_loss(program, logits, labels, features, mode)
        if mode == est.ModeKeys.EVAL:
            metrics = {
                name: METRICS[name](labels, logits, features) for name in program.check.metrics
            }
            for i, counter in enumerate(program.counters):  # A checkpoint has them.
                build_counter_variable(counter, i)
            return est.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
        V1.summary.scalar("seen", tf.reduce_mean(features["x"]))
        loss, updates = build_counters(program, features, loss)
        train_op = build_train_op(program, loss)
        return est.EstimatorSpec(mode, loss=loss, train_op=tf.group(train_op, *updates))

    return model_fn


def make_input_fn(source):
    """The `input_fn` of an Input: all of its examples, in batches."""
    if source.source == "numpy":
        rows = slice(source.num_examples)
        return est.inputs.numpy_input_fn(
            data.features_of(rows),
            data.LABELS[rows],
            batch_size=source.batch_size,
            num_epochs=source.epochs,
            shuffle=False,
        )

    def input_fn():
        def take(numbers):
            features = {
                "x": tf.gather(data.X, numbers),
                "ids": tf.gather(data.IDS, numbers),
                "weights": tf.gather(data.WEIGHTS, numbers),
            }
            return features, tf.gather(data.LABELS, numbers)

        examples = data.make_numbers(source).map(take)
        return examples.prefetch(source.prefetch) if source.prefetch else examples

    return input_fn


# --- The model -----------------------------------------------------------------------------------


def build_logits(program, features, is_training):
    x = features["x"]
    if program.embedding is not None:
        rows = build_embedding(program.embedding, features["ids"])
        width = data.IDS.shape[1] * data.EMBEDDING_SIZE
        x = tf.concat([x, tf.reshape(rows, [-1, width])], axis=1)
    for i, layer in enumerate(program.layers):
        x = LAYERS[layer.kind](layer, f"layer_{i}", x, is_training)
    return DENSE[program.output]("output", x, data.NUM_CLASSES, None)


def build_embedding(kind, ids):
    shape = [data.NUM_IDS, data.EMBEDDING_SIZE]
    table = first_value("embedding/embeddings", shape)
    if kind == "v1":
        with V1.variable_scope("embedding"):
            return tf.gather(V1.get_variable("embeddings", initializer=table), ids)
    return keras.layers.Embedding(*shape, constant(table), name="embedding")(ids)


def constant(value):
    return keras.initializers.Constant(value)


def get_kernel(name, width, units):
    with V1.variable_scope(name):
        return V1.get_variable("kernel", initializer=first_value(f"{name}/kernel", [width, units]))


def build_v1_dense(name, x, units, activation):
    kernel = get_kernel(name, x.shape[-1], units)
    with V1.variable_scope(name):
        bias = V1.get_variable("bias", [units], initializer=V1.zeros_initializer())
    return keras.activations.get(activation)(x @ kernel + bias)


def build_keras_dense(name, x, units, activation):
    kernel = first_value(f"{name}/kernel", [x.shape[-1], units])
    return keras.layers.Dense(units, activation, kernel_initializer=constant(kernel), name=name)(x)


DENSE = {"v1_dense": build_v1_dense, "keras_dense": build_keras_dense}


def build_recurrent(layer, name, x, is_training):
    """A recurrent layer over the features, one a time step."""
    kind, cell, gates = {
        "keras_gru": (keras.layers.GRU, "gru_cell", 3),
        "keras_rnn": (keras.layers.SimpleRNN, "simple_rnn_cell", 1),
    }[layer.kind]
    units, place = layer.units, f"{name}/{cell}"
    return kind(
        units,
        kernel_initializer=constant(first_value(f"{place}/kernel", [1, gates * units])),
        recurrent_initializer=constant(
            first_value(f"{place}/recurrent_kernel", [units, gates * units])
        ),
        name=name,
    )(tf.expand_dims(x, -1), training=is_training)


class Counting(keras.layers.Layer):
    """Scales by how many batches it has been trained on, and keeps the sum of their means."""

    def __init__(self, where, **kwargs):
        super().__init__(**kwargs)
        self._where = where

    def build(self, input_shape):
        state = {"shape": (), "initializer": "zeros", "trainable": False}
        self.count = self.add_weight(name="count", dtype="int32", **state)
        self.total = self.add_weight(name="total", **state)

    def call(self, inputs, training=False):
        outputs = inputs * (1 + 0.05 * tf.cast(self.count.value, tf.float32))
        if training:
            self._add_to_count(inputs)
            self.total.assign_add(tf.reduce_mean(inputs))
        return outputs

    def _add_to_count(self, inputs):
        def add():
            self.count.assign_add(1)
            return tf.constant(0)

        if self._where == "cond":
            tf.cond(is_positive(inputs), add, lambda: tf.constant(0))
        elif self._where == "while":
            tf.while_loop(lambda i: i < 2, lambda i: i + 1 + add(), [tf.constant(0)])
        elif self._where == "function":
            tf.function(add)()
        else:
            add()


def is_positive(x):
    """Whether the mean is clearly so: that of a normalized batch is zero, to rounding."""
    return tf.reduce_mean(x) > 0.05


def build_counting(layer, name, x, is_training):
    where = layer.kind.removeprefix("counting").removeprefix("_in_")
    return Counting(where, name=name)(x, training=is_training)


def build_dropout(layer, name, x, is_training):
    if not is_training:
        return x
    step = tf.cast(V1.train.get_global_step(), tf.int32)
    return tf.nn.experimental.stateless_dropout(x, 0.4, seed=tf.stack([step, len(name)]))


def build_scaled_in_cond(layer, name, x, is_training):
    with V1.variable_scope(name):
        scale = V1.get_variable("scale", initializer=first_value(f"{name}/scale", [x.shape[-1]]))
    return tf.cond(is_positive(x), lambda: x * scale, lambda: x - scale)


def build_dense_in_while(layer, name, x, is_training):
    kernel = get_kernel(name, x.shape[-1], x.shape[-1])
    return tf.while_loop(
        lambda i, x: i < 2, lambda i, x: (i + 1, tf.tanh(x @ kernel)), [tf.constant(0), x]
    )[1]


def build_dense_in_function(layer, name, x, is_training):
    kernel = get_kernel(name, x.shape[-1], layer.units)
    return tf.function(lambda x: tf.nn.sigmoid(x @ kernel))(x)


LAYERS = {
    **{
        kind: lambda layer, name, x, _: DENSE[layer.kind](name, x, layer.units, layer.activation)
        for kind in DENSE
    },
    "batch_norm": lambda layer, name, x, is_training: keras.layers.BatchNormalization(
        momentum=0.8, name=name
    )(x, training=is_training),
    "layer_norm": lambda layer, name, x, _: keras.layers.LayerNormalization(name=name)(x),
    "dropout": build_dropout,
    "keras_gru": build_recurrent,
    "keras_rnn": build_recurrent,
    "counting": build_counting,
    "counting_in_cond": build_counting,
    "counting_in_while": build_counting,
    "counting_in_function": build_counting,
    "scaled_in_cond": build_scaled_in_cond,
    "dense_in_while": build_dense_in_while,
    "dense_in_function": build_dense_in_function,
}


def build_loss(program, logits, labels, features, mode):
    kind = program.loss
    if kind in ("v1_weighted", "v1_sum"):
        reductions = V1.losses.Reduction
        loss = V1.losses.sparse_softmax_cross_entropy(
            labels,
            logits,
            features["weights"],
            reduction=reductions.SUM if kind == "v1_sum" else reductions.SUM_BY_NONZERO_WEIGHTS,
        )
    elif kind in ("k_mean", "k_weighted"):
        make_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        weights = features["weights"] if kind == "k_weighted" else None
        loss = make_loss(labels, logits, sample_weight=weights)
    else:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        if kind == "per_example" and mode == est.ModeKeys.EVAL:
            return losses
        loss = tf.reduce_sum(losses) if kind == "sum" else tf.reduce_mean(losses)
    if program.l2:
        loss += program.l2 * tf.add_n([tf.nn.l2_loss(v) for v in V1.trainable_variables()])
    return tf.reshape(loss, [1]) if kind == "shape_1" else loss


# --- What it changes -----------------------------------------------------------------------------


def build_train_op(program, loss):
    step = V1.train.get_global_step()
    optimizer = make_in_graph(program.optimizer, step)
    if program.cross is not None:
        optimizer = est.CrossShardOptimizer(
            optimizer,
            program.cross.reduction,
            accumulate_steps=program.cross.accumulate_steps,
            clip_norm=program.cross.clip_norm,
        )
    loss = tf.reshape(loss, [])
    variables = V1.trainable_variables()  # Before Nadam adds one of its own.
    if isinstance(optimizer, V1.train.Optimizer):
        train_op = optimizer.minimize(loss, global_step=step)
    else:
        optimizer.apply_gradients(zip(tf.gradients(loss, variables), variables, strict=True))
        train_op = step.assign_add(1).op
    if program.average_decay is None:
        return train_op
    averages = tf.train.ExponentialMovingAverage(program.average_decay)
    with tf.control_dependencies([train_op]):
        return averages.apply(variables)


def build_counter_variable(counter, i):
    rule = RULES[counter.aggregation.removesuffix("_on_read")]
    kinds = tf.VariableSynchronization
    is_own = counter.aggregation.endswith("_on_read")
    return V1.get_variable(
        f"counter_{i}",
        [],
        initializer=V1.zeros_initializer(),
        trainable=False,
        aggregation=rule,
        synchronization=kinds.ON_READ if is_own else kinds.AUTO,
    )


def build_counters(program, features, loss):
    """Returns the loss, and the updates that the train_op is to run."""
    updates = []
    for i, counter in enumerate(program.counters):
        variable = build_counter_variable(counter, i)
        amount = {
            "one": lambda: tf.constant(1.0),
            "rows": lambda: tf.cast(tf.shape(features["x"])[0], tf.float32),
            "mean": lambda: tf.reduce_mean(features["x"]),
        }[counter.amount]()
        if counter.wired == "loss":
            with tf.control_dependencies([variable.assign_add(amount)]):
                loss = loss * (1 + 0.01 * variable.read_value())
        elif counter.wired == "update_ops":
            update = variable.assign_add(amount)
            V1.add_to_collection(V1.GraphKeys.UPDATE_OPS, update)
        else:
            updates.append(UPDATES[counter.wired](variable, amount))
    return loss, updates


def build_cond_update(variable, amount):
    """Adds in every second step."""
    step = V1.train.get_global_step()
    with tf.control_dependencies([]):
        return tf.cond(
            tf.equal(step % 2, 0),
            lambda: tf.identity(variable.assign_add(amount)),
            lambda: tf.constant(0.0),
        )


def build_while_update(variable, amount):
    """Adds three times."""
    return tf.while_loop(
        lambda i: i < 3,
        lambda i: i + tf.cast(0 * variable.assign_add(amount), tf.int32) + 1,
        [tf.constant(0)],
    )


def build_function_update(variable, amount):
    return tf.function(variable.assign_add)(amount)


UPDATES = {
    "train_op": lambda variable, amount: variable.assign_add(amount),
    "cond": build_cond_update,
    "while": build_while_update,
    "function": build_function_update,
}


def _updated(metric, *args, **kwargs):
    metric.update_state(*args, **kwargs)
    return metric


METRICS = {
    "v1_mean": lambda labels, logits, features: V1.metrics.mean(logits[:, 0]),
    "v1_weighted": lambda labels, logits, features: V1.metrics.mean(
        logits[:, 0], features["weights"] + 0.1
    ),
    "v1_accuracy": lambda labels, logits, features: V1.metrics.accuracy(
        labels, tf.argmax(logits, -1)
    ),
    "v1_mse": lambda labels, logits, features: V1.metrics.mean_squared_error(
        tf.one_hot(labels, data.NUM_CLASSES), logits
    ),
    "k_mean": lambda labels, logits, features: _updated(keras.metrics.Mean(), logits[:, 0]),
    "k_accuracy": lambda labels, logits, features: _updated(
        keras.metrics.SparseCategoricalAccuracy(), labels, logits
    ),
    "k_mse": lambda labels, logits, features: _updated(
        keras.metrics.MeanSquaredError(), tf.one_hot(labels, data.NUM_CLASSES), logits
    ),
}
