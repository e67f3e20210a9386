"""What Keras assigns runs once a step wherever it stands; what nobody wired in v1 code does not."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tf_keras.src.legacy_tf_layers import normalization as legacy

import estimator as est

V1 = tf.compat.v1
NUM_STEPS = 7
REPLICAS = {
    "one": {},
    "loop": {"iterations_per_loop": 3},
    "mirrored": {"strategy": "mirrored", "num_replicas": 2, "iterations_per_loop": 3},
}
QUIET = {"save_summary_steps": None, "log_step_count_steps": None, "resume_input": False}


def input_fn():
    numbers = np.arange(1.0, 1 + 4 * NUM_STEPS, dtype=np.float32)[:, None]
    return tf.data.Dataset.from_tensor_slices((numbers, 2 * numbers)).repeat().batch(2)


def make_counter(library):
    class Counter(library.layers.Layer):
        """Counts its calls in each way that it can, and reads what it counted."""

        def __init__(self):
            super().__init__()
            names = ("plain", "in_cond", "in_loop", "in_function", "in_both")
            made = {
                name: self.add_weight(name=name, initializer="zeros", trainable=False)
                for name in names
            }
            self.counts = {k: v if library is tf_keras else v.value for k, v in made.items()}

        @tf.function
        def bump(self, name):
            self.counts[name].assign_add(1.0)
            return self.counts[name] * 1.0

        def call(self, x):
            counts = self.counts
            counts["plain"].assign_add(1.0)
            # Of each two numbers of a batch the sum is odd.
            is_odd = tf.equal(tf.math.floormod(tf.reduce_sum(x), 2.0), 1.0)

            def bump_and_read():
                counts["in_cond"].assign_add(1.0)
                return counts["in_cond"] * 1.0

            seen = tf.cond(is_odd, bump_and_read, lambda: 0.0)
            tf.while_loop(
                lambda i: i < 3, lambda i: (counts["in_loop"].assign_add(1.0), i + 1)[1:], [0]
            )
            seen += self.bump("in_function")
            tf.cond(is_odd, lambda: self.bump("in_both"), lambda: 0.0)
            # All that was read is what this step wrote: twice the number of the step.
            return x + 0.0 * seen, seen

    return Counter()


def make_model_fn(library, names):
    def model_fn(features, labels, mode):
        layer = make_counter(library)
        output, seen = layer(features)
        names.update({key: value.name.partition(":")[0] for key, value in layer.counts.items()})
        w = V1.get_variable("w", [], initializer=V1.ones_initializer())
        loss = tf.reduce_mean(tf.square(output * w - labels))
        unwired = V1.get_variable("unwired", [], initializer=V1.zeros_initializer())
        wired = V1.get_variable("wired", [], initializer=V1.zeros_initializer())

        @tf.function
        def forgotten():
            return unwired.assign_add(1.0)

        # As old code has it: in a v1 graph only what something waits for runs.
        unwired.assign_add(1.0)
        forgotten()
        tf.cond(w > -1e9, lambda: unwired.assign_add(1.0), lambda: 0.0)
        kept = tf.cond(w > -1e9, lambda: (unwired.assign_add(1.0), w * 2)[1], lambda: 0.0)
        step = V1.train.get_global_step()
        last = V1.get_variable("seen", [], initializer=V1.zeros_initializer())
        done = [wired.assign_add(1.0 + 0.0 * kept), last.assign(seen)]
        metrics = {"seen": (tf.identity(seen), tf.no_op())}
        train_op = tf.group(V1.train.GradientDescentOptimizer(1e-4).minimize(loss, step), *done)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)

    return model_fn


@pytest.mark.each_value
@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras", "tf_keras"])
@pytest.mark.parametrize("replicas", REPLICAS)
def test_a_layer_may_assign_in_a_cond_a_loop_and_a_function(replicas, library, tmp_path):
    names = {}
    config = est.RunConfig(str(tmp_path), **QUIET, **REPLICAS[replicas])
    model = est.Estimator(make_model_fn(library, names), config=config)
    model.train(input_fn, max_steps=NUM_STEPS)
    values = {key: float(model.get_variable_value(name)) for key, name in names.items()}
    times = {"plain": 1, "in_cond": 1, "in_loop": 3, "in_function": 1, "in_both": 1}
    assert values == {key: NUM_STEPS * count for key, count in times.items()}
    assert model.get_variable_value("seen") == 2 * NUM_STEPS
    assert model.get_variable_value("wired") == NUM_STEPS
    assert model.get_variable_value("unwired") == 0


class Now(V1.train.SessionRunHook):
    """Runs an op before each step but the first."""

    def __init__(self, op):
        self.op, self.is_first = op, True

    def before_run(self, run_context):
        if not self.is_first:
            run_context.session.run(self.op)
        self.is_first = False


RETURNING = {
    "v1": V1.train.GradientDescentOptimizer,
    "legacy": tf_keras.optimizers.legacy.SGD,
}


def make_hooked_model_fn(library, optimizer, hooked):
    """An optimizer and an assignment change a layer's weight, both only if a hook runs them."""

    def model_fn(features, labels, mode):
        layer = library.layers.Dense(1, use_bias=False, kernel_initializer="ones", name="dense")
        loss = tf.reduce_mean(layer(features))
        (kernel,) = V1.trainable_variables()
        gradient = tf.gradients(0.5 * loss, kernel)[0]
        ops = {"minimize": RETURNING[optimizer](1.0).apply_gradients([(gradient, kernel)])}
        if not tf.distribute.has_strategy():  # Replicas' weights cannot be assigned in a replica.
            ops["assign"] = kernel.assign(kernel - 3.0)
        hooks = [Now(ops[name]) for name in hooked]
        step = V1.train.get_global_step()
        return est.EstimatorSpec(mode, loss=loss, train_op=step.assign_add(1), training_hooks=hooks)

    return model_fn


@pytest.mark.pairwise
@pytest.mark.parametrize("hooked", [[], ["minimize"], ["assign"], ["minimize", "assign"]], ids=str)
@pytest.mark.parametrize("optimizer", RETURNING)
@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_only_a_hook_runs_what_the_train_op_leaves_to_it(library, optimizer, hooked, tmp_path):
    model = est.Estimator(make_hooked_model_fn(library, optimizer, hooked), str(tmp_path))
    model.train(lambda: tf.data.Dataset.from_tensors([[1.0]]).repeat(), steps=NUM_STEPS)
    by_one = {"minimize": 0.5, "assign": 3.0}
    change = sum(by_one[name] for name in hooked) * (NUM_STEPS - 1)
    assert model.get_variable_value("dense/kernel")[0, 0] == 1.0 - change


def loop_once(assign):
    def body(count):
        with tf.control_dependencies([assign()]):
            return count + 1

    return tf.while_loop(lambda count: count < 1, body, [0])


WAYS = {
    "function": lambda assign: tf.function(assign, autograph=False)(),
    "cond": lambda assign: tf.cond(tf.constant(True), assign, lambda: 0.0),
    "loop": loop_once,
}


@pytest.mark.pairwise
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("has_hook", [False, True])
@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_a_function_that_assigns_to_a_layers_weight_is_left_to_a_hook(
    library, has_hook, way, tmp_path
):
    def model_fn(features, labels, mode):
        layer = library.layers.Dense(1, use_bias=False, kernel_initializer="ones", name="dense")
        loss = tf.reduce_mean(layer(features))
        (kernel,) = V1.trainable_variables()

        def assign():
            with tf.control_dependencies([kernel.assign(kernel - 3.0)]):
                return tf.constant(0.0)

        op = WAYS[way](assign)
        hooks = [Now(op)] if has_hook else []
        step = V1.train.get_global_step()
        return est.EstimatorSpec(mode, loss=loss, train_op=step.assign_add(1), training_hooks=hooks)

    model = est.Estimator(model_fn, str(tmp_path))
    model.train(lambda: tf.data.Dataset.from_tensors([[1.0]]).repeat(), steps=NUM_STEPS)
    change = 3.0 * (NUM_STEPS - 1) * has_hook
    assert model.get_variable_value("dense/kernel")[0, 0] == 1.0 - change


@pytest.mark.pairwise
@pytest.mark.parametrize("loop", [1, 3])
@pytest.mark.parametrize("strategy", ["one_device", "mirrored", "central_storage"])
@pytest.mark.parametrize("optimizer", RETURNING)
@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_nothing_runs_an_optimizer_that_the_train_op_leaves_out(
    library, optimizer, strategy, loop, tmp_path
):
    replicas = {} if strategy == "one_device" else {"num_replicas": 2}
    config = est.RunConfig(
        str(tmp_path), strategy=strategy, iterations_per_loop=loop, **QUIET, **replicas
    )
    model = est.Estimator(make_hooked_model_fn(library, optimizer, []), config=config)
    model.train(lambda: tf.data.Dataset.from_tensors([[1.0]]).repeat(), steps=NUM_STEPS)
    assert model.get_variable_value("dense/kernel")[0, 0] == 1.0


class Once(V1.train.SessionRunHook):
    """Runs an op once, before the second step."""

    def __init__(self, op):
        self.op, self.num_calls = op, 0

    def before_run(self, run_context):
        self.num_calls += 1
        if self.num_calls == 2:
            run_context.session.run(self.op)


@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_what_a_hook_runs_of_a_weight_runs_no_step(library, tmp_path):
    """Made after the train_op: a target network's synchronization, and another optimizer's step."""

    def model_fn(features, labels, mode):
        layer = library.layers.Dense(1, use_bias=False, kernel_initializer="ones", name="dense")
        loss = tf.reduce_mean(layer(features))
        (kernel,) = V1.trainable_variables()
        target = V1.get_variable("target", [1, 1], trainable=False)
        optimizer = V1.train.GradientDescentOptimizer(0.1)
        train_op = optimizer.minimize(loss, V1.train.get_global_step())
        sync = target.assign(kernel)
        second = optimizer.minimize(tf.reduce_mean(layer(features) ** 2) / 2.0, var_list=[kernel])
        hooks = [Once(sync), Once(second)]
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=hooks)

    model = est.Estimator(model_fn, str(tmp_path))
    model.train(lambda: tf.data.Dataset.from_tensors([[1.0]]).repeat(), steps=3)
    assert model.get_variable_value("target")[0, 0] == pytest.approx(0.9)
    weight = 0.9 - 0.1 * 0.9 - 0.1 - 0.1
    assert model.get_variable_value("dense/kernel")[0, 0] == pytest.approx(weight)


def make_scale_model_fn(optimizer):
    def model_fn(features, labels, mode):
        w = V1.get_variable("w", [1, 1], initializer=V1.ones_initializer())
        loss = tf.reduce_mean(tf.square(features @ w - labels))
        optimizer().apply_gradients([(tf.gradients(loss, w)[0], w)])
        step = V1.train.get_global_step()
        return est.EstimatorSpec(mode, loss=loss, train_op=step.assign_add(1))

    return model_fn


@pytest.mark.parametrize("loop", [1, 3])
def test_a_step_that_is_skipped_takes_back_what_was_assigned_in_a_branch(loop, tmp_path):
    def nan_input_fn():
        numbers = np.ones([2 * NUM_STEPS, 1], np.float32)
        numbers[5] = np.nan  # In the third batch, which is the first that is applied.
        return tf.data.Dataset.from_tensor_slices((numbers, 2 * numbers)).batch(2)

    def optimizer():
        return keras.optimizers.SGD(0.1, gradient_accumulation_steps=3, name="sgd")

    config = est.RunConfig(str(tmp_path), nan_policy="skip", iterations_per_loop=loop, **QUIET)
    model = est.Estimator(make_scale_model_fn(optimizer), config=config)
    model.train(nan_input_fn)
    # The batches' gradients are all alike until the first update: -2 each. Two were added up.
    assert model.train_result.skipped_steps == 1
    assert model.get_variable_value("sgd/iteration") == NUM_STEPS - 1
    # Updates by the batches 1, 2, 4 and by 5, 6, 7.
    w = 1 + 0.1 * 2
    w += 0.1 * 2 * (2 - w)
    np.testing.assert_allclose(model.get_variable_value("w"), [[w]], rtol=1e-6)


def test_evaluation_runs_no_update_of_a_layer_in_a_branch(tmp_path):
    def model_fn(features, labels, mode):
        norm = keras.layers.BatchNormalization(momentum=0.5)
        # A model that forgets to say that it does not train.
        output = tf.cond(
            tf.reduce_sum(features) > -1e9, lambda: norm(features, training=True), lambda: features
        )
        metric = keras.metrics.Mean()
        tf.cond(tf.reduce_sum(features) > -1e9, lambda: metric.update_state(labels), lambda: None)
        loss = tf.reduce_mean(tf.square(output - labels))
        metrics = {"moving": (tf.identity(norm.moving_mean.value[0]), tf.no_op()), "mean": metric}
        step = V1.train.get_global_step()
        minimize = V1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        return est.EstimatorSpec(mode, loss=loss, train_op=minimize, eval_metric_ops=metrics)

    model = est.Estimator(model_fn, str(tmp_path), est.RunConfig(**QUIET))
    model.train(input_fn, max_steps=1)
    moving = model.get_variable_value("batch_normalization/moving_mean")[0]
    assert moving == pytest.approx(0.5 * 1.5)  # Of the numbers 1 and 2.
    first, second = (model.evaluate(input_fn, steps=2) for _ in range(2))
    assert first["moving"] == second["moving"] == pytest.approx(moving)
    assert first["mean"] == second["mean"] == pytest.approx(2 * 2.5)  # Of 1, 2, 3, 4.


def test_a_function_may_count_the_global_step(tmp_path):
    def model_fn(features, labels, mode):
        w = V1.get_variable("w", [1, 1], initializer=V1.ones_initializer())
        step = V1.train.get_global_step()
        loss = tf.reduce_mean(tf.square(features @ w - labels))

        @tf.function
        def train():
            w.assign_sub([[0.1]])
            return step.assign_add(1)

        return est.EstimatorSpec(mode, loss=loss, train_op=train())

    model = est.Estimator(model_fn, str(tmp_path), est.RunConfig(iterations_per_loop=3, **QUIET))
    model.train(input_fn, max_steps=NUM_STEPS)
    assert model.train_result.global_step == NUM_STEPS
    assert model.get_variable_value("w")[0, 0] == pytest.approx(1 - 0.1 * NUM_STEPS)


@pytest.mark.parametrize("options", [{"clipnorm": 0.1}, {"global_clipnorm": 0.1}, {"clipvalue": 1}])
@pytest.mark.parametrize("strategy", ["mirrored", "central_storage"])
def test_replicas_clip_the_gradient_that_they_reduced(strategy, options, tmp_path):
    ends = []
    for replicas in (1, 2):
        config = est.RunConfig(
            f"{tmp_path}/{replicas}", strategy=strategy, num_replicas=replicas, **QUIET
        )
        make = make_scale_model_fn(lambda: keras.optimizers.SGD(0.1, **options))
        model = est.Estimator(make, config=config)
        model.train(lambda n=replicas: input_fn().unbatch().batch(4 // n), max_steps=3)
        ends.append(model.get_variable_value("w"))
    np.testing.assert_allclose(*ends, rtol=1e-6)


@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_keras_may_assign_in_branches_also_with_v1_control_flow(v1_control_flow, library, tmp_path):
    def model_fn(features, labels, mode):
        norm = library.layers.BatchNormalization(momentum=0.5, name="norm")
        norm.build([None, 1])
        output = tf.cond(
            tf.reduce_sum(features) > -1e9, lambda: norm(features, training=True), lambda: features
        )
        w = V1.get_variable("w", [], initializer=V1.ones_initializer())
        loss = tf.reduce_mean(tf.square(output * w - labels))
        optimizer = library.optimizers.SGD(
            0.1, use_ema=True, ema_momentum=0.0, ema_overwrite_frequency=1
        )
        optimizer.apply_gradients([(tf.gradients(loss, w)[0], w)])
        step = V1.train.get_global_step()
        return est.EstimatorSpec(mode, loss=loss, train_op=step.assign_add(1))

    model = est.Estimator(model_fn, str(tmp_path), est.RunConfig(**QUIET))
    model.train(input_fn, max_steps=1)
    names = {name.rpartition("/")[2]: name for name in model.get_variable_names()}
    assert model.get_variable_value(names["moving_mean"])[0] == pytest.approx(0.5 * 1.5)
    # One step moves the weight; its average, which keeps nothing, is written back.
    assert model.get_variable_value("w") != 1.0


def make_branching_model_fn(build):
    """Each step, `build` may call a layer that counts; is the batch odd or late?"""

    class Counter(keras.layers.Layer):
        def __init__(self):
            super().__init__(name="layer")
            self.count = self.add_weight(
                name="count", initializer="zeros", trainable=False, aggregation="none"
            )

        def call(self, number):
            self.count.value.assign_add(number)
            return number

    def model_fn(features, labels, mode):
        step = V1.train.get_global_step()
        build(Counter(), tf.equal(step % 2, 1), step >= 4)
        w = V1.get_variable("w", [], initializer=V1.ones_initializer())
        loss = tf.reduce_mean(tf.square(features * w - labels))
        train_op = V1.train.GradientDescentOptimizer(0.001).minimize(loss, step)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def count_in_cond(count, is_odd, is_late):
    tf.cond(
        is_odd, lambda: tf.cond(is_late, lambda: count(tf.constant(1.0)), lambda: 0.0), lambda: 0.0
    )
    tf.cond(is_late, lambda: 0.0, lambda: count(tf.constant(10.0)))


def count_in_loop(count, is_odd, is_late):
    tf.while_loop(lambda i: i < 3, lambda i: (count(tf.constant(1.0)), i + 1)[1:], [0])


@pytest.mark.parametrize("replicas", [{}, {"strategy": "mirrored", "num_replicas": 2}], ids=str)
def test_a_step_does_not_wait_for_a_branch_that_is_not_taken(v1_control_flow, replicas, tmp_path):
    config = est.RunConfig(str(tmp_path), **QUIET, **replicas)
    model = est.Estimator(make_branching_model_fn(count_in_cond), config=config)
    model.train(input_fn, max_steps=NUM_STEPS)
    assert model.train_result.global_step == NUM_STEPS
    # Of the steps 0 to 6, four come before step 4, and of the others 5 is odd.
    assert model.get_variable_value("layer/count") == 4 * 10 + 1


def test_a_loop_with_v1_control_flow_that_keras_assigns_in_is_an_error(v1_control_flow, tmp_path):
    model = est.Estimator(make_branching_model_fn(count_in_loop), str(tmp_path))
    with pytest.raises(ValueError, match=r"while_loop.*enable_control_flow_v2\(\)"):
        model.train(input_fn, max_steps=1)


class Adds(tf_keras.layers.Layer):
    """Adds an update as a function, which a frozen layer does not call."""

    def build(self, input_shape):
        self.count = self.add_weight(name="moving", initializer="zeros", trainable=False)

    def call(self, x):
        self.add_update(lambda: self.count.assign_add(tf.reduce_mean(x)))
        return x


def normalized(x, trainable):
    layer = legacy.BatchNormalization(momentum=0.5, trainable=trainable)
    return layer(x, training=True)


def normalized_by_keras(x, trainable):
    layer = tf_keras.layers.BatchNormalization(momentum=0.5, trainable=trainable)
    return layer(x, training=True)


@pytest.mark.pairwise
@pytest.mark.parametrize("trainable", [True, False])
@pytest.mark.parametrize("replicas", ["loop", "mirrored"])
@pytest.mark.parametrize(
    "layer", [normalized, normalized_by_keras, lambda x, trainable: Adds(trainable=trainable)(x)]
)
def test_the_statistics_of_a_frozen_layer_stay(layer, replicas, trainable, tmp_path):
    def model_fn(features, labels, mode):
        w = V1.get_variable("w", [], initializer=V1.ones_initializer())
        loss = tf.reduce_mean(tf.square(layer(features, trainable) * w - labels))
        step = V1.train.get_global_step()
        train_op = V1.train.GradientDescentOptimizer(1e-4).minimize(loss, step)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = est.RunConfig(**QUIET, **REPLICAS[replicas])
    with est.Estimator(model_fn, str(tmp_path), config) as model:
        model.train(input_fn, steps=NUM_STEPS)
        moving = [name for name in model.get_variable_names() if "moving" in name]
        start = [float("variance" in name) for name in moving]
        stays = [
            float(np.ravel(model.get_variable_value(name))[0]) == s
            for name, s in zip(moving, start, strict=True)
        ]
    assert stays == [not trainable] * len(moving) != []


@pytest.mark.parametrize("removes", [True, False])
@pytest.mark.parametrize("replicas", REPLICAS)
def test_of_the_updates_of_v1_layers_the_train_op_may_choose(replicas, removes, tmp_path):
    """Two passes through a net, of which the first gives the statistics; beside it Keras's own."""

    def model_fn(features, labels, mode):
        norms = [legacy.BatchNormalization(momentum=0.5, name=name) for name in ("first", "second")]
        collected = V1.get_collection_ref(V1.GraphKeys.UPDATE_OPS)
        others = [*collected]  # Of another replica.
        first = norms[0](features, training=True)
        updates = [update for update in collected if update not in others]
        second = norms[1](features, training=True)
        assert len(collected) > len([*others, *updates])
        if removes:
            collected[:] = [*others, *updates]
        third = keras.layers.BatchNormalization(momentum=0.5, name="third")
        loss = tf.reduce_mean(first + second + third(features, training=True) - labels)
        with tf.control_dependencies(updates):
            step = V1.train.get_global_step()
            train_op = V1.train.GradientDescentOptimizer(1e-4).minimize(loss, step)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = est.RunConfig(**QUIET, **REPLICAS[replicas])
    with est.Estimator(model_fn, str(tmp_path), config) as model:
        model.train(input_fn, steps=1)
        means = [model.get_variable_value(f"{name}/moving_mean") for name in ("first", "third")]
        assert means[0] == means[1] == (1.25 if replicas == "mirrored" else 0.75)
        assert model.get_variable_value("second/moving_mean") == 0.0
