"""Checks of `_tf`: Keras, its optimizers, and what its code asks of TensorFlow."""

import inspect
import re

import keras
import tensorflow as tf
import tf_keras
from tf_keras.src.legacy_tf_layers import core

from estimator import _tf
from tests._tf.canary.rows import V1, called_by_keras, checks, in_loop

# --- callers.py ---------------------------------------------------------------------------------


@checks("is_made_by_keras")
def an_op_of_a_layer_is_made_by_keras():
    with tf.Graph().as_default():
        ours = tf.zeros([1, 1])
        assert not _tf.is_made_by_keras(ours.op)
        assert _tf.is_made_by_keras(keras.layers.Dense(1)(ours).op)
        assert _tf.is_made_by_keras(tf_keras.layers.Dense(1)(ours).op)


def on_replicas(build):
    """Calls a function on two replicas in a new graph, which is returned."""
    with tf.Graph().as_default() as graph:
        strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
        with strategy.scope():
            strategy.extended.call_for_each_replica(build)
    return graph


@checks("is_made_by_v1_layer")
def v1_layers_are_told_from_others():
    with tf.Graph().as_default():
        ours = tf.zeros([1, 1])
        legacy = core.Dense
        made = [legacy(1)(ours), tf_keras.layers.Dense(1)(ours), keras.layers.Dense(1)(ours), ours]
        assert [_tf.is_made_by_v1_layer(t.op) for t in made] == [True, False, False, False]


def updates_of(make_optimizer):
    def build():
        variable = V1.get_variable("w", [], use_resource=True)
        make_optimizer(0.1).apply_gradients([(tf.ones([]), variable)])

    with tf.Graph().as_default() as alone:
        build()
    ops = [*alone.get_operations(), *on_replicas(build).get_operations()]
    return [op for op in ops if "ApplyGradient" in op.type]


@checks("is_left_to_step")
def what_keras_does_not_return_is_left_to_the_step():
    made = {}

    def build():
        made["alone"] = tf.zeros([])
        made["layer"] = tf_keras.layers.Dense(1)(tf.zeros([1, 1]))
        together = lambda _: made.setdefault("together", tf.zeros([]))  # noqa: E731
        tf.distribute.get_replica_context().merge_call(together)

    on_replicas(build)
    found = {name: _tf.is_left_to_step(tensor.op) for name, tensor in made.items()}
    assert found == {"alone": False, "layer": True, "together": True}
    for make in (V1.train.GradientDescentOptimizer, tf_keras.optimizers.legacy.SGD):
        updates = updates_of(make)
        assert len(updates) == 3
        assert not any(map(_tf.is_left_to_step, updates))


@checks("is_called_by_keras")
def a_layers_call_is_called_by_keras():
    answers = []

    class Layer(keras.layers.Layer):
        def call(self, inputs):
            answers.append((_tf.is_called_by_keras(), _tf.is_called_by_keras("layers")))
            return inputs

    with tf.Graph().as_default():
        Layer()(tf.zeros([1, 1]))
    assert answers[-1] == (True, True)
    assert not _tf.is_called_by_keras()


@checks("line_of")
def an_op_knows_the_line_that_made_it():
    with tf.Graph().as_default():
        tensor, line = tf.add(1, 2), inspect.currentframe().f_lineno
        assert _tf.line_of(tensor.op) == f"{__file__}:{line}"


# --- keras.py -----------------------------------------------------------------------------------


@checks("tf_keras_constants_in_graph")
def a_functional_model_with_an_op_of_tensorflow_is_made_in_a_loop():
    def make_model(count):
        with _tf.tf_keras_classes_kept(), _tf.tf_keras_constants_in_graph():
            features = tf_keras.Input([2])
            tf_keras.Model(features, tf_keras.layers.Dense(1)(tf.reshape(features, [-1, 2])))

    in_loop(make_model)


@checks("keep_losses_apart")
def a_replica_finds_its_own_losses():
    found = []

    def build():
        _tf.keep_losses_apart(V1.get_default_graph())
        V1.losses.add_loss(tf.zeros([]))
        found.append(len(V1.losses.get_losses()))

    graph = on_replicas(build)
    assert found == [1, 1]
    assert len(graph.get_collection(V1.GraphKeys.LOSSES)) == 2


@checks("layer_regularizers_by_replica")
def a_regularizer_of_a_layer_reads_the_replicas_own_variable():
    computed = []

    def build():
        _tf.keep_losses_apart(V1.get_default_graph())
        core.dense(tf.ones([1, 1]), 1, kernel_regularizer=tf.reduce_sum, name="layer")
        computed.append(V1.losses.get_regularization_loss())

    with _tf.layer_regularizers_by_replica():
        on_replicas(build)
    assert computed[1].name.startswith("replica_1/")
    assert computed[0].op.inputs[0] is not computed[1].op.inputs[0]


@checks("tf_keras_updates_of_trained")
def a_frozen_layer_has_no_updates():
    with _tf.tf_keras_classes_kept(), tf.Graph().as_default():
        for trainable in (True, False):
            with _tf.tf_keras_updates_of_trained():
                layer = tf_keras.layers.BatchNormalization(trainable=trainable)
                layer(tf.ones([2, 1]), training=True)
            assert bool(layer._updates) == trainable


def old_model():
    return tf_keras.Sequential([tf_keras.layers.InputLayer([1]), tf_keras.layers.Dense(1)])


@checks("tf_keras_classes_kept")
def an_eager_model_works_after_a_graph():
    model = old_model()
    with _tf.tf_keras_classes_kept(), tf.Graph().as_default():
        old_model()
    assert model.predict([[0.0]], verbose=0).shape == (1, 1)


@checks("tf_keras_containers")
def losses_and_metrics_of_a_model_are_computed_in_a_graph():
    with _tf.tf_keras_classes_kept(), tf.Graph().as_default():
        given = {"loss": "mse", "loss_weights": 2.0, "metrics": ["AUC"], "weighted_metrics": None}
        losses, metrics = _tf.tf_keras_containers(old_model(), given)
        loss = losses(tf.ones([2, 1]), tf.zeros([2, 1]), None, regularization_losses=[])
        metrics.update_state(tf.ones([2, 1]), tf.zeros([2, 1]), None)
        assert [metric.name for metric in metrics.metrics] == ["AUC"]
        assert metrics.older_names == {"auc": "AUC"}
        with V1.Session() as session:
            session.run(V1.global_variables_initializer())
            assert session.run(loss) == 2


@checks("forget_tf_keras_losses")
def losses_of_placeholders_are_forgotten():
    class Adds(tf_keras.layers.Layer):
        def call(self, inputs):
            self.add_loss(tf.reduce_sum(inputs))
            return inputs

    with _tf.tf_keras_classes_kept(), _tf.hashable_tensors(), tf.Graph().as_default():
        regularized = tf_keras.layers.Dense(1, kernel_regularizer="l2")
        model = tf_keras.Sequential([tf_keras.layers.InputLayer([1]), regularized, Adds()])
        before = len(model.losses)
        _tf.forget_tf_keras_losses(model)
        assert (before, len(model.losses)) == (2, 1)
        model(tf.zeros([1, 1]))
        assert len(model.losses) == 2


@checks("keras_policy")
def layers_have_the_policy():
    with _tf.keras_policy("mixed_bfloat16"):
        made = keras.layers.Dense(1), tf_keras.layers.Dense(1)
    assert [layer.compute_dtype for layer in made] == ["bfloat16"] * 2
    assert keras.layers.Dense(1).compute_dtype == "float32"


@checks("unscaled_keras_losses")
def a_loss_is_that_of_the_replicas_batch():
    def compute():
        one = tf.ones([2, 1])
        return keras.losses.MeanSquaredError()(one, 3 * one), keras.losses.Huber()(one, 3 * one)

    with tf.Graph().as_default() as graph:
        strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
        with strategy.scope():
            scaled = strategy.run(compute)
            with _tf.unscaled_keras_losses(strategy):
                whole = strategy.run(compute)
    with V1.Session(graph=graph, config=V1.ConfigProto(device_count={"CPU": 2})) as session:
        parts = [strategy.experimental_local_results(part) for part in (*scaled, *whole)]
        assert session.run(parts) == [(2, 2), (0.75, 0.75), (4, 4), (1.5, 1.5)]


@checks("keras_sums_over_replicas")
def a_sum_is_times_the_replicas():
    class Nested(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return keras.losses.MeanSquaredError(reduction="sum")(y_true, y_pred) / 2

    losses = [
        keras.losses.MeanSquaredError(),
        keras.losses.MeanSquaredError(reduction="sum"),
        Nested(),
        Nested(reduction="sum"),
    ]
    values = [[], []]
    for num_replicas in (1, 2):
        with _tf.keras_sums_over_replicas(num_replicas):
            one = tf.ones([2, 1])
            values[num_replicas - 1] = [float(loss(one, 3 * one)) for loss in losses]
    assert values == [[4, 8, 4, 4], [4, 16, 4, 8]]


@checks("tf_keras_means_over_replicas")
def a_mean_is_divided_by_the_replicas():
    x = tf_keras.Input([2])
    model = tf_keras.Model(x, tf_keras.layers.Dense(1)(x))
    for reduction, expected in (("sum", 8), ("sum_over_batch_size", 2)):
        model.compile("sgd", tf_keras.losses.MeanSquaredError(reduction=reduction))
        losses, _ = _tf.tf_keras_containers(model, _tf.compile_arguments(model))
        one = tf.ones([2, 1])
        with _tf.tf_keras_means_over_replicas(2):
            assert float(losses(one, 3 * one, None)) == expected


def compiled_model():
    inputs = keras.Input([2])
    outputs = [keras.layers.Dense(1, name=name)(inputs) for name in ("a", "b")]
    model = keras.Model(inputs, outputs)
    model.compile("sgd", ["mse", "mse"], metrics=[["mae"], ["mae"]])
    return model


@checks("compile_arguments")
def a_model_keeps_what_it_was_compiled_with():
    arguments = _tf.compile_arguments(compiled_model())
    assert arguments["loss"] == ["mse", "mse"]
    assert arguments["metrics"] == [["mae"], ["mae"]]


@checks("names_without_weight_decay")
def an_optimizer_knows_what_it_does_not_decay():
    optimizer = keras.optimizers.AdamW()
    assert _tf.names_without_weight_decay(optimizer) == []
    optimizer.exclude_from_weight_decay(var_names=["bias", "scale"])
    (pattern,) = _tf.names_without_weight_decay(optimizer)
    assert re.search(pattern, "dense/bias")
    assert re.search(pattern, "norm/scale")
    assert not re.search(pattern, "dense/kernel")


@checks("keras_loss")
def a_model_computes_its_loss():
    model, x = compiled_model(), tf.ones([4, 2])
    outputs = model(x)
    labels = [outputs[0] + 1, outputs[1] - 2]
    batch = {"x": x, "y": labels, "y_pred": outputs, "sample_weight": None}
    assert round(float(_tf.keras_loss(model, batch, is_training=True)), 4) == 1 + 4


@checks("keras_layers")
def a_model_has_the_layers_inside_layers():
    layer = keras.layers.Bidirectional(keras.layers.LSTM(2))
    model = keras.Sequential([keras.Input([3, 1]), layer])
    assert [own.name for own in _tf.keras_layers(model) if "lstm" in own.name]


@checks("copied_lookup")
def a_copied_lookup_has_its_vocabulary_in_a_graph():
    layer = keras.layers.IntegerLookup(output_mode="one_hot")
    layer.adapt([3, 4, 4])
    layer = _tf.copied_lookup(layer)
    with tf.Graph().as_default():
        copy = _tf.copied_lookup(layer)
        assert copy(tf.ones([2, 1], tf.int64)).shape[-1] == 3
    layer = keras.layers.TextVectorization(output_mode="count")
    layer.adapt(["a", "b", "b"])
    layer = _tf.copied_lookup(layer)
    with tf.Graph().as_default():
        assert _tf.copied_lookup(layer)(tf.constant([["a"]])).shape[-1] == 3


@checks("keras_functions_trusted")
def a_lambda_is_copied():
    layer = keras.layers.Lambda(lambda x: 2 * x)
    with _tf.keras_functions_trusted():
        copy = keras.layers.Lambda.from_config(layer.get_config())
    assert copy(tf.constant(3.0)) == 6.0


@checks("copy_trainable")
def a_copy_is_frozen_where_the_model_is():
    model = compiled_model()
    copy = keras.models.clone_model(model)
    model.layers[1].trainable = False
    _tf.copy_trainable(model, copy)
    assert [layer.trainable for layer in copy.layers] == [True, False, True]


@checks("clones_uncompiled")
def a_clone_is_not_compiled():
    model = compiled_model()
    with _tf.clones_uncompiled(model):
        assert not keras.models.clone_model(model).compiled
    assert model.compiled


@checks("compiled_metrics")
def metrics_are_named_after_their_outputs():
    model = compiled_model()
    x, y = tf.ones([4, 2]), tf.ones([4, 1])
    outputs = model(x)
    model.compute_loss(x, [y, y], outputs)
    model.compute_metrics(x, [y, y], outputs)
    assert set(_tf.compiled_metrics(model)) == {"a_loss", "b_loss", "a_mae", "b_mae"}


@checks("metric_variables")
def a_metric_has_variables_of_tensorflow():
    with tf.Graph().as_default():
        for library in (keras, tf_keras):
            ((total,), (count,)) = _tf.metric_variables(library.metrics.Mean())
            assert isinstance(total, tf.Variable)
            assert isinstance(count, tf.Variable)


@checks("variable_of")
def a_variable_of_keras_wraps_one_of_tensorflow():
    with tf.Graph().as_default():
        for library in (keras, tf_keras):
            dense = library.layers.Dense(1)
            dense.build([None, 1])
            assert isinstance(_tf.variable_of(dense.kernel), tf.Variable)


@checks("keras_additions_in_one_op")
def a_variable_of_keras_is_added_to_in_one_op():
    with tf.Graph().as_default() as graph, _tf.keras_additions_in_one_op():
        variable = keras.Variable([1, 2], dtype="int64")
        added, subtracted = variable.assign_add(3), variable.assign_sub([1, 2])
        kinds = ("AssignAddVariableOp", "AssignSubVariableOp")
        updates = [op for op in graph.get_operations() if op.type in kinds]
        assert [op.type for op in updates] == list(kinds)
        assert all(map(_tf.is_made_by_keras, updates))
        with tf.compat.v1.Session() as session:
            session.run(variable.value.initializer)
            assert session.run([added, subtracted])[0].tolist() == [4, 5]
            for update in updates:
                session.run(update)
            assert session.run(variable.value).tolist() == [3, 3]

        class Count(keras.layers.Layer):
            def build(self, shape):
                self.count = self.add_weight(name="count")

            def call(self, x):
                self.count.assign_add(1.0)
                return x

        Count(dtype="mixed_bfloat16")(tf.ones([1]))  # Under it, `count.value` is a tensor.
        assert [op.type for op in graph.get_operations()].count(kinds[0]) == 2


@checks("keras_constraints_shared")
def what_a_variable_wraps_has_its_constraint():
    with tf.Graph().as_default(), _tf.keras_constraints_shared():
        layer = keras.layers.Dense(1, kernel_constraint="non_neg")
        layer.build([None, 1])
        assert layer.kernel.value.constraint is layer.kernel.constraint
        assert layer.bias.value.constraint is None
        late = keras.layers.Dense(1, kernel_constraint="non_neg")
        late(keras.Input([1]))
        assert late.kernel.value.constraint is late.kernel.constraint
        with keras.StatelessScope():
            inside = keras.layers.Dense(1, kernel_constraint="non_neg")
            inside.build([None, 1])
            assert inside.kernel._value is None
        assert inside.kernel.value.constraint is inside.kernel.constraint


@checks("keras_variables_in_v1")
def v1_optimizers_and_moving_averages_take_variables_of_keras():
    with tf.Graph().as_default(), _tf.keras_variables_in_v1():
        dense = keras.layers.Dense(1, use_bias=False)
        loss = tf.reduce_sum(dense(tf.ones([1, 1])))
        optimizer = V1.train.MomentumOptimizer(1.0, 0.9)
        assert optimizer.minimize(loss, var_list=dense.trainable_variables) is not None
        assert optimizer.get_slot(dense.kernel, "momentum") is not None
        average = tf.train.ExponentialMovingAverage(0.9)
        average.apply(dense.trainable_variables)
        assert average.average(dense.kernel) is not None


# --- keras_names.py -------------------------------------------------------------------------------


@checks("fresh_keras_names")
def keras_counts_names_anew():
    names = []
    for _ in range(2):
        with _tf.fresh_keras_names():
            names.append(keras.layers.Dense(1).name)
    assert names == ["dense", "dense"]


@checks("keras_names_as_in_tf_keras")
def variables_and_ops_of_keras_have_the_names_of_tf_keras():
    class Model(keras.Model):
        def __init__(self, sequential):
            super().__init__(name="model")
            self.dense = sequential([keras.layers.Dense(1), keras.layers.Dense(1, name="last")])

        def call(self, x):
            return self.dense(x)

    def inside(layers):
        return keras.Sequential(layers, name="inside")

    with (
        tf.Graph().as_default() as graph,
        _tf.fresh_keras_names(),
        _tf.keras_names_as_in_tf_keras(graph),
    ):
        built = inside([keras.Input([1]), keras.layers.Dense(1)])
        models = [built, Model(inside), keras.layers.Dense(1)]
        assert all(model(tf.ones([1, 1])).shape == [1, 1] for model in models)
        names = [v.value.name for model in models for v in model.weights if v.name == "kernel"]
        keras.layers.DepthwiseConv1D(1)(tf.ones([1, 1, 1]))
    inner = ["model/inside/dense_1/kernel:0", "model/inside/last/kernel:0"]
    assert names == ["dense/kernel:0", *inner, "dense_2/kernel:0"]
    assert graph.get_operation_by_name("dense_2/MatMul")
    assert graph.get_operation_by_name("depthwise_conv1d/depthwise_kernel")


@checks("tf_keras_names_by_thread")
def tf_keras_counts_names_anew():
    with tf.Graph().as_default():
        before = tf_keras.layers.Dense(1).name
        with _tf.tf_keras_names_by_thread():
            assert tf_keras.layers.Dense(1).name == before == "dense"


# --- optimizers.py ------------------------------------------------------------------------------


def build_step(make_optimizer):
    """Builds a step of a variable that is not Keras's; an error where an optimizer minds."""
    with tf.Graph().as_default(), _tf.keras_optimizers_in_graphs():
        optimizer = make_optimizer()
        variable = tf.Variable([[1.0, 1.0], [1.0, 1.0]], name="a/b")
        loss = optimizer.scale_loss(tf.reduce_sum(variable))
        grads = tf.gradients(loss, [variable])
        optimizer.apply(grads, [variable])
        return loss, optimizer


@checks("keras_optimizers_in_graphs")
def optimizers_of_keras_take_plain_variables_in_a_graph():
    cases = [
        lambda: keras.optimizers.Adafactor(0.1),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
        getattr(keras.optimizers, "Muon", None),
        getattr(keras.optimizers, "ScheduleFreeAdamW", None),
    ]
    for make in filter(None, cases):
        loss, optimizer = build_step(make)
        if hasattr(optimizer, "dynamic_scale"):
            scale = loss.op.inputs[1].op
            assert scale.inputs[0].op.type == "ReadVariableOp", "the scale is still a constant"
    with tf.Graph().as_default(), _tf.keras_optimizers_in_graphs():
        nadam = tf_keras.optimizers.Nadam(0.1)
        nadam.build([tf.Variable(1.0)])
        assert isinstance(nadam._u_product_counter == 0, tf.Tensor)


@checks("scaled_loss")
def a_loss_is_scaled_once():
    with tf.Graph().as_default(), V1.Session() as session, _tf.keras_optimizers_in_graphs():
        loss = tf.constant(2.0)
        assert _tf.scaled_loss(V1.train.AdamOptimizer(), loss) is loss
        optimizer = keras.optimizers.SGD(0.1, loss_scale_factor=8.0)
        for _ in range(2):
            assert session.run(_tf.scaled_loss(optimizer, loss)) == 16
        by_program = optimizer.scale_loss(loss)
        assert _tf.scaled_loss(optimizer, by_program) is by_program


@checks("loss_scale")
def a_loss_scale_is_known():
    with tf.Graph().as_default(), V1.Session() as session, _tf.keras_optimizers_in_graphs():
        assert _tf.loss_scale(V1.train.AdamOptimizer()) == 1
        optimizer = keras.optimizers.SGD(0.1, loss_scale_factor=8.0)
        assert session.run(_tf.loss_scale(optimizer)) == 8
        # It is no call of the program.
        assert session.run(_tf.scaled_loss(optimizer, tf.constant(2.0))) == 16


@checks("legacy_name")
def a_legacy_optimizer_has_a_name():
    assert _tf.legacy_name(tf_keras.optimizers.legacy.Adam()) == "Adam"
    assert _tf.legacy_name(V1.train.AdamOptimizer()) is None
    assert _tf.legacy_name(keras.optimizers.Adam()) is None


@checks("copied_legacy_optimizer")
def a_copied_legacy_optimizer_shares_no_variables():
    original = tf_keras.optimizers.legacy.Adam(lambda: 0.5)
    for _ in range(2):
        copied = _tf.copied_legacy_optimizer(original)
        with tf.Graph().as_default(), V1.Session() as session:
            variable = tf.Variable(1.0)
            step = copied.apply_gradients([(tf.constant(2.0), variable)])
            session.run(V1.global_variables_initializer())
            session.run(step)
            assert abs(session.run(variable) - 0.5) < 1e-3
    assert _tf.copied_legacy_optimizer(copied) is None
    assert original.get_weights() == []
    assert _tf.copied_legacy_optimizer(tf_keras.optimizers.Adam()) is None


# --- equality.py --------------------------------------------------------------------------------


@checks("keras_compares_values")
def keras_compares_the_values_of_tensors():
    with tf.Graph().as_default(), _tf.keras_compares_values():
        step = tf.constant(5)
        V1.disable_tensor_equality()
        try:
            assert tf.is_tensor(called_by_keras("step == 5", step=step))
            assert tf.is_tensor(called_by_keras("step != 5", step=step))
            assert (step == 5) is False
        finally:
            V1.enable_tensor_equality()


@checks("variables_as_in_v1")
def a_variable_is_true_and_initializes_others_without_resource_variables():
    V1.disable_resource_variables()
    try:
        with tf.Graph().as_default() as graph, _tf.variables_as_in_v1():
            one = V1.Variable(3.0, use_resource=True)
            assert bool(one) is True
            other = V1.Variable(one.initialized_value() * 2, use_resource=True)
        with V1.Session(graph=graph) as session:
            session.run(other.initializer)
            assert session.run(other) == 6
    finally:
        V1.enable_resource_variables()
