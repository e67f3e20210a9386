"""Every read and every write of a variable in a step stand on one path: luck orders none."""

import dataclasses
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.estimators import train_setup
from tests.conformance import cases
from tests.step_accesses import unordered_accesses

V1 = tf.compat.v1


@dataclasses.dataclass
class StopBuildingError(Exception):
    """Holds the program, so that nothing is run."""

    program: object


@pytest.fixture
def unordered(monkeypatch, tmp_path):
    """Builds a training, and returns the pairs of accesses that nothing orders."""
    build = train_setup.build_train_program

    def build_only(*args, **kwargs):
        raise StopBuildingError(build(*args, **kwargs))

    monkeypatch.setattr(train_setup, "build_train_program", build_only)

    def find(model_fn, **config):
        model = est.Estimator(model_fn, str(tmp_path), cases.make_config(**config))
        with pytest.raises(StopBuildingError) as stop:
            model.train(cases.input_fn, max_steps=3)
        program = stop.value.program
        summaries = [] if program.fetches.summary is None else [program.fetches.summary]
        return unordered_accesses(
            program.graph, [program.fetches.loss, program.fetches.global_step, *summaries]
        )

    return find


def decaying_momentum():
    step = V1.train.get_global_step()
    return V1.train.MomentumOptimizer(V1.train.exponential_decay(0.1, step, 10, 0.9), 0.9)


OPTIMIZERS = {
    "v1_sgd": lambda: V1.train.GradientDescentOptimizer(0.1),
    "v1_momentum_decay": decaying_momentum,
    "keras_adam": lambda: keras.optimizers.Adam(0.1, clipnorm=1.0),
}


def host_fn(step, scale):
    """Reads variables, too."""
    return tf.group(step + V1.train.get_global_step(), scale)


def make_model_fn(optimizer, accumulate_steps):
    """Random numbers, moving statistics, counters and reads that no gradient needs."""

    def model_fn(features, labels, mode):
        step = V1.train.get_global_step()
        x = features
        if optimizer != "v1_sgd":  # Else no gradient waits for a random number.
            x = tf.nn.dropout(x, 0.3, seed=3)
            x = keras.layers.Dropout(0.2, seed=1)(x, training=True)
        x = keras.layers.BatchNormalization()(x, training=True)
        scale = V1.get_variable("scale", [], initializer=V1.ones_initializer())
        drawn = V1.get_variable(
            "drawn",
            [1],
            initializer=V1.ones_initializer(),
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
        noted = drawn.assign(tf.random.uniform([1], seed=5))
        loss = cases.build_softmax_loss(x, labels) + scale * tf.reduce_mean(features)
        V1.summary.scalar("step", tf.cast(step, tf.float32))
        V1.summary.scalar("scale", scale)
        read = scale.read_value()
        made = OPTIMIZERS[optimizer]()
        if accumulate_steps == 1:
            train_op = cases.build_minimize(made, loss)
        else:
            made = est.tpu.CrossShardOptimizer(made, accumulate_steps=accumulate_steps)
            train_op = made.minimize(loss, step)
        return est.tpu.TPUEstimatorSpec(
            mode,
            loss=loss,
            train_op=tf.group(train_op, noted),
            host_call=(host_fn, [tf.reshape(step, [1]), tf.reshape(read, [1])]),
        )

    return model_fn


CASES = [
    ("v1_sgd", 1, "no_strategy", 1, "raise"),
    ("v1_sgd", 4, "no_strategy", 1, "skip"),
    ("v1_momentum_decay", 4, "no_strategy", 5, "raise"),
    ("v1_sgd", 1, "mirrored_x2", 5, "skip"),
    ("v1_momentum_decay", 4, "mirrored_x2", 1, "raise"),
    ("keras_adam", 1, "no_strategy", 5, "skip"),
    ("keras_adam", 4, "mirrored_x2", 5, "raise"),
    ("v1_momentum_decay", 1, "central_storage_x2", 5, "raise"),
]


@pytest.mark.parametrize(("optimizer", "size", "strategy", "loop", "nan_policy"), CASES)
def test_no_two_accesses_of_a_variable_race(optimizer, size, strategy, loop, nan_policy, unordered):
    found = unordered(
        make_model_fn(optimizer, size),
        iterations_per_loop=loop,
        nan_policy=nan_policy,
        tf_random_seed=1,
        save_summary_steps=2,
        **cases.STRATEGIES[strategy],
    )
    assert found == []


READS = {
    "a branch": lambda step, read: tf.cond(step >= 0, read, lambda: 0.0),
    "a function": lambda step, read: tf.function(read)(),
    "a loop": lambda step, read: tf.reduce_sum(tf.map_fn(lambda x: x * read(), tf.ones([3]))),
}


@pytest.mark.usefixtures("control_flow")
@pytest.mark.parametrize("loop", [1, 5])
@pytest.mark.parametrize("where", READS)
def test_one_optimizer_waits_for_what_the_loss_of_another_reads(where, loop, unordered):
    """As of a generator and its critic: both losses read `d`, one of them trains it."""

    def model_fn(features, labels, mode):
        g, d = (V1.get_variable(n, [], initializer=V1.ones_initializer()) for n in "gd")
        step = V1.train.get_global_step()
        judged = READS[where](step, lambda: d * 2.0)
        optimizer = V1.train.GradientDescentOptimizer(0.1)
        loss = d * tf.reduce_mean(features)
        trains_d = optimizer.minimize(loss, step, var_list=[d])
        trains_g = optimizer.minimize(tf.square(g) * judged, var_list=[g])
        return est.EstimatorSpec(mode, loss=loss, train_op=tf.group(trains_d, trains_g))

    assert unordered(model_fn, iterations_per_loop=loop) == []


@pytest.mark.usefixtures("control_flow")
@pytest.mark.parametrize("loop", [1, 5])
@pytest.mark.parametrize("strategy", ["no_strategy", "mirrored_x2"])
def test_an_update_waits_for_reads_of_a_layer_that_is_computed_again(strategy, loop, unordered):
    """What is computed again reads a layer's weights, perhaps after the gradient of one of them."""

    def model_fn(features, labels, mode):
        ones = V1.ones_initializer()
        v, w = (V1.get_variable(name, [], initializer=ones) for name in ("v", "w"))
        outputs = tf.recompute_grad(lambda x: tf.tanh(x * v) * w)(features)
        loss = cases.build_softmax_loss(outputs, labels)
        train_op = cases.build_minimize(V1.train.AdamOptimizer(0.1), loss)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    assert unordered(model_fn, iterations_per_loop=loop, **cases.STRATEGIES[strategy]) == []


@pytest.mark.usefixtures("control_flow")
@pytest.mark.parametrize("loop", [1, 5])
@pytest.mark.parametrize("where", READS)
def test_what_keras_assigns_waits_for_reads_before_it(where, loop, unordered):
    def model_fn(features, labels, mode):
        layer = keras.layers.Dense(1)
        layer.build([None, 4])
        step = V1.train.get_global_step()
        seen = READS[where](step, lambda: tf.reduce_sum(layer.kernel.value) * 2.0)
        loss = tf.reduce_mean(tf.square(layer(features)))
        train_op = cases.build_minimize(keras.optimizers.SGD(0.1), loss)
        return est.EstimatorSpec(mode, loss=loss + 0.0 * seen, train_op=train_op)

    assert unordered(model_fn, iterations_per_loop=loop) == []


def build_updates_of_one_optimizer(step, loss, variables):
    """Both update the powers of the betas, after their own part of the weights."""
    optimizer = V1.train.AdamOptimizer(0.1)
    return [optimizer.minimize(loss, var_list=[variable]) for variable in variables]


def build_updates_of_the_same_variables(step, loss, variables):
    optimizers = V1.train.GradientDescentOptimizer(0.1), V1.train.MomentumOptimizer(0.1, 0.9)
    return [optimizer.minimize(loss * 2.0, var_list=variables) for optimizer in optimizers]


def build_counts(step, loss, variables):
    """Of a read that waits for an assignment to another variable, and of one that does not."""
    v, w = variables
    w_changed = w.assign(w * 0.9 + loss)
    with tf.control_dependencies([w_changed]):
        v_changed = v.assign(v.read_value() + 1.0)
    return [w_changed, v.assign_add(1.0), v_changed, w.assign_add(v.read_value())]


def build_branches(step, loss, variables):
    v, w = variables
    changed = tf.cond(step < 5, lambda: v.assign_add(w) + 0.0, lambda: v.assign(w * loss) + 0.0)
    return [changed, v.assign(v + 1.0), tf.cond(loss > 0, lambda: w * v, lambda: v + 0.0)]


@pytest.mark.usefixtures("control_flow")
@pytest.mark.parametrize(
    ("build", "strategy", "loop"),
    [
        (build_updates_of_one_optimizer, "no_strategy", 1),
        (build_updates_of_one_optimizer, "mirrored_x2", 5),
        (build_updates_of_the_same_variables, "no_strategy", 5),
        (build_updates_of_the_same_variables, "mirrored_x2", 1),
        (build_counts, "no_strategy", 1),
        (build_counts, "mirrored_x2", 5),
        (build_branches, "no_strategy", 1),
        (build_branches, "no_strategy", 5),
    ],
)
def test_updates_that_the_program_does_not_order_do_not_race(build, strategy, loop, unordered):
    def model_fn(features, labels, mode):
        options = {"aggregation": tf.VariableAggregation.MEAN}
        v, w = (V1.get_variable(n, initializer=1.0, **options) for n in "vw")
        step = V1.train.get_global_step()
        loss = v * w * tf.reduce_mean(features)
        train_op = tf.group(step.assign_add(1), *build(step, loss, [v, w]))
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    strategies = cases.STRATEGIES[strategy]
    assert unordered(model_fn, iterations_per_loop=loop, **strategies) == []


@pytest.mark.parametrize("loop", [1, 10])
def test_no_update_of_an_optimizer_that_is_used_twice_is_lost(loop, tmp_path):
    """As one Adam that trains the parts of a GAN: each update also changes what both share."""
    x = np.float32([[0, 1], [1, 2], [2, 0], [1, 1]])

    def model_fn(features, labels, mode):
        optimizer = V1.train.AdamOptimizer(0.1)
        losses, train_ops = [], []
        for name in ("generator", "critic"):
            w = V1.get_variable(name, [2, 32], initializer=V1.ones_initializer())
            losses.append(tf.reduce_mean(tf.square(features @ w)))
            train_ops.append(optimizer.minimize(losses[-1], var_list=[w]))
        train_op = tf.group(V1.train.get_global_step().assign_add(1), *train_ops)
        return est.EstimatorSpec(mode, loss=tf.add_n(losses), train_op=train_op)

    model = est.Estimator(model_fn, str(tmp_path), est.RunConfig(iterations_per_loop=loop))
    model.train(lambda: tf.data.Dataset.from_tensors(x).repeat(), max_steps=20)
    # beta at the start, and multiplied by beta twice a step.
    assert model.get_variable_value("beta1_power") == pytest.approx(0.9**41, rel=1e-4)
    w, mean, square = np.float64([1, 1]), 0.0, 0.0
    for step in range(20):
        gradient = 2 / (4 * 32) * x.T @ x @ w
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        power = 2 * step + 1
        rate = 0.1 * np.sqrt(1 - 0.999**power) / (1 - 0.9**power)
        w = w - rate * mean / (np.sqrt(square) + 1e-8)
    for name in ("generator", "critic"):
        trained = model.get_variable_value(name)
        np.testing.assert_allclose(trained, np.repeat(w[:, None], 32, axis=1), atol=1e-4)


def build_random_updates(rng, variables, is_odd):
    """Builds updates, some of which wait for an earlier one; returns them and their formulas.

    A formula is a variable, (factor, term) in even and in odd steps, and the variables that get the
    same value.
    """
    updates, formulas = [], []
    for _ in range(8):
        place, factor, term = (
            rng.randrange(len(variables)),
            rng.uniform(0.3, 1.1),
            rng.uniform(-1, 1),
        )
        variable, waits = (
            variables[place],
            rng.sample(updates, rng.randint(0, min(1, len(updates)))),
        )
        copies = [i for i in range(len(variables)) if i != place and rng.random() < 0.2]
        with tf.control_dependencies(waits):
            if rng.random() < 0.4:
                formulas.append((place, [(factor, term), (1.0, -term)], []))
                updates.append(build_branches_of_update(variable, is_odd, factor, term))
                continue
            value = variable.read_value() if rng.random() < 0.6 else variable
            value = value * factor + term
        if rng.random() < 0.2:
            V1.summary.scalar("value", value)
        if rng.random() < 0.3:
            value = tf.reduce_sum(tf.stack([value, 0.5]))
            term += 0.5
        assign = rng.choice([assign_in_line, assign_in_function])
        updates += [assign(variables[i], value) for i in (place, *copies)]
        formulas.append((place, [(factor, term)] * 2, copies))
    return updates, formulas


def assign_in_line(variable, value):
    return variable.assign(value).op


def assign_in_function(variable, value):
    @tf.function
    def assign(value):
        variable.assign(value)
        return tf.identity(value)

    return assign(value).op


def build_branches_of_update(variable, is_odd, factor, term):
    def in_odd_steps():
        return tf.identity(variable.assign(variable - term))

    def in_even_steps():
        return tf.identity(variable.assign(variable * factor + term))

    return tf.cond(is_odd, in_odd_steps, in_even_steps).op


@pytest.mark.usefixtures("control_flow")
@pytest.mark.parametrize("loop", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_updates_made_of_reads_follow_the_code(seed, loop, tmp_path):
    formulas = []

    def model_fn(features, labels, mode):
        del labels
        variables = [V1.get_variable(f"v{i}", initializer=1.0) for i in range(3)]
        step = V1.train.get_global_step()
        is_odd = tf.equal(step % 2, 1)
        updates, formulas[:] = build_random_updates(random.Random(seed), variables, is_odd)
        train_op = tf.group(*updates, V1.assign_add(step, 1))
        return est.EstimatorSpec(mode, loss=tf.reduce_mean(features), train_op=train_op)

    model = est.Estimator(model_fn, str(tmp_path), est.RunConfig(iterations_per_loop=loop))
    model.train(cases.input_fn, max_steps=3)
    state = [1.0] * 3
    for step in range(3):
        for place, formula, copies in formulas:
            factor, term = formula[step % 2]
            for i in (place, *copies):
                state[i] = state[place] * factor + term if i == place else state[place]
    found = [model.get_variable_value(f"v{i}") for i in range(3)]
    np.testing.assert_allclose(found, state, rtol=1e-5)


@pytest.mark.parametrize("strategy", ["no_strategy", "mirrored_x2"])
@pytest.mark.parametrize("loop", [1, 5])
def test_weights_are_clipped_after_their_update(loop, strategy, tmp_path):
    """As those of a WGAN's critic, whose code need not say that the one waits for the other."""

    def model_fn(features, labels, mode):
        w = V1.get_variable("w", [3], initializer=V1.zeros_initializer())
        mean = V1.get_variable("mean", [3], initializer=V1.zeros_initializer())
        loss = tf.reduce_mean(features) * 0.0 + tf.reduce_sum(w * [1.0, -2.0, 0.25])
        step = V1.train.get_global_step()
        trained = V1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        clipped = tf.clip_by_value(w, -0.3, 0.3)
        train_op = tf.group(trained, w.assign(clipped), mean.assign((mean + clipped) / 2))
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = cases.make_config(iterations_per_loop=loop, **cases.STRATEGIES[strategy])
    model = est.Estimator(model_fn, str(tmp_path), config)
    model.train(cases.input_fn, max_steps=5)
    w, mean = np.zeros(3), np.zeros(3)
    for _ in range(5):
        w = np.clip(w - 0.1 * np.array([1, -2, 0.25]), -0.3, 0.3)
        mean = (mean + w) / 2
    np.testing.assert_allclose(model.get_variable_value("w"), w, rtol=1e-5)
    np.testing.assert_allclose(model.get_variable_value("mean"), mean, rtol=1e-5)


def test_a_read_that_waits_for_no_write_is_of_the_value_before_the_step(tmp_path):
    """Even if it is made after the write."""

    def model_fn(features, labels, mode):
        w = V1.get_variable("w", initializer=0.0)
        written = w.assign_add(1.0)
        with tf.control_dependencies([tf.reduce_sum(tf.random.uniform([300, 300]))]):
            loss = tf.identity(w)
        train_op = tf.group(V1.train.get_global_step().assign_add(1), written)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    model = est.Estimator(model_fn, str(tmp_path), cases.make_config(iterations_per_loop=5))
    model.train(cases.input_fn, max_steps=5)
    assert np.float32(model.train_result.loss) == 4


def build_count_in_a_branch(step, x, v, w):
    """As a dynamic loss scale, which counts no step whose gradients are not finite."""
    counted = tf.cond(x > 0, lambda: tf.group(step.assign_add(1)), tf.no_op)
    return [counted, w.assign(tf.cast(step, tf.float32))]


def build_inner_steps(step, x, v, w):
    """Of a loop that assigns; what is read after it waits for another of its results."""

    def take_step(i, loss, _):
        return i + 1, tf.square(v.read_value()), v.assign_sub(0.2 * (v.read_value() - 3.0)) + 0.0

    _, loss, changed = tf.while_loop(
        lambda i, *_: i < 3, take_step, [0, 0.0, 0.0], parallel_iterations=1
    )
    with tf.control_dependencies([loss]):
        return [step.assign_add(1), w.assign(v.read_value()), changed]


def build_read_beside_a_loop(step, x, v, w):
    changed = w.assign_add(x)
    with tf.control_dependencies([v.assign_add(1.0)]):
        _, total = tf.while_loop(
            lambda i, _: i < 3, lambda i, total: (i + 1, total + w.read_value()), [0, 0.0]
        )
    return [step.assign_add(1), changed, v.assign_add(0.0 * total), w.assign(w + 0.0 * total)]


@pytest.mark.usefixtures("control_flow")
@pytest.mark.parametrize("loop", [1, 5])
@pytest.mark.parametrize(
    "build", [build_count_in_a_branch, build_inner_steps, build_read_beside_a_loop]
)
def test_the_order_makes_no_cycle(build, loop, tmp_path):
    def model_fn(features, labels, mode):
        v, w = (V1.get_variable(n, initializer=1.0) for n in "vw")
        x = tf.reduce_sum(tf.square(features))
        train_op = tf.group(*build(V1.train.get_global_step(), x, v, w))
        return est.EstimatorSpec(mode, loss=x, train_op=train_op)

    model = est.Estimator(model_fn, str(tmp_path), est.RunConfig(iterations_per_loop=loop))
    model.train(cases.input_fn, max_steps=5)
    assert model.get_variable_value("global_step") == 5


@pytest.mark.parametrize("loop", [1, 5])
def test_a_second_loss_is_of_the_weights_before_the_step(loop, tmp_path):
    """Also if it waits for an assignment that has nothing to do with them."""

    def model_fn(features, labels, mode):
        w = V1.get_variable("w", initializer=1.0)
        count = V1.get_variable("count", initializer=0.0, trainable=False)
        optimizer = V1.train.GradientDescentOptimizer(0.1)
        with tf.control_dependencies([count.assign_add(1.0)]):
            first = optimizer.minimize(tf.square(w) / 2, var_list=[w])
            loss = tf.square(w) / 2
            second = optimizer.minimize(loss, V1.train.get_global_step(), var_list=[w])
        return est.EstimatorSpec(mode, loss=loss, train_op=tf.group(first, second))

    model = est.Estimator(model_fn, str(tmp_path), est.RunConfig(iterations_per_loop=loop))
    model.train(cases.input_fn, max_steps=5)
    assert model.get_variable_value("w") == pytest.approx(0.8**5, rel=1e-5)


def test_many_assignments_to_a_variable_make_few_waits(tmp_path):
    graphs = []

    def model_fn(features, labels, mode):
        w = V1.get_variable("w", initializer=0.0)
        graphs.append(w.graph)
        counted = V1.train.get_global_step().assign_add(1)
        train_op = tf.group(counted, *(w.assign(w * 0.5 + 1.0) for _ in range(100)))
        return est.EstimatorSpec(mode, loss=tf.reduce_mean(features), train_op=train_op)

    model = est.Estimator(model_fn, str(tmp_path), est.RunConfig())
    model.train(cases.input_fn, max_steps=2)
    writes = [op for op in graphs[0].get_operations() if op.type == "AssignVariableOp"]
    assert sum(len(op.control_inputs) for op in writes) < 600


def loss_of_a_branch(step, x, w):
    """Returns a loss that reads `w` where its gradient, x, needs none."""
    loss = tf.cond(step < 5, lambda: w * w, lambda: x * w)
    return loss, loss


def loss_of_a_function(step, x, w):
    loss, factor = tf.function(lambda w: (x * w, 2.0 * x))(w.value())
    return loss, factor * w


@pytest.mark.usefixtures("control_flow")
@pytest.mark.parametrize("optimizer", [V1.train.GradientDescentOptimizer, keras.optimizers.SGD])
@pytest.mark.parametrize("build_losses", [loss_of_a_branch, loss_of_a_function])
def test_an_assignment_waits_for_reads_that_its_gradient_does_not_need(
    build_losses, optimizer, unordered
):
    """TensorFlow inlines calls and branches: each output waits only for what it needs."""

    def model_fn(features, labels, mode):
        w = V1.get_variable("w", [], initializer=V1.ones_initializer())
        step = V1.train.get_global_step()
        loss, trained = build_losses(step, tf.reduce_mean(features), w)
        train_op = cases.build_minimize(optimizer(0.1), trained)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    assert unordered(model_fn) == []


@pytest.mark.parametrize("loop", [1, 3])
@pytest.mark.parametrize(
    ("policy", "numbers"), [("raise", [1, 2, 3, 4, 5]), ("skip", [1, 2, np.nan, 3, 4, 5])]
)
def test_an_assignment_that_only_the_loss_runs_is_part_of_the_step(policy, numbers, loop, tmp_path):
    """It is reverted with the step, and not run without a batch."""

    def model_fn(features, labels, mode):
        w, c = (V1.get_variable(n, [], initializer=V1.zeros_initializer()) for n in "wc")
        with tf.control_dependencies([c.assign_add(1.0)]):
            loss = tf.identity(w * features)
        optimizer = V1.train.GradientDescentOptimizer(0.1)
        train_op = optimizer.minimize(loss, V1.train.get_global_step(), var_list=[w])
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = est.RunConfig(iterations_per_loop=loop, nan_policy=policy)
    model = est.Estimator(model_fn, str(tmp_path), config)
    model.train(lambda: tf.data.Dataset.from_tensor_slices(np.float32(numbers)))
    assert model.get_variable_value("c") == 5


COUNTS = {
    "cond": lambda x, count: tf.cond(x > 0.0, lambda: count.assign_add(1) + 0, lambda: 0),
    "while": lambda x, count: tf.while_loop(
        lambda k: k < 3, lambda k: k + 0 * count.assign_add(1) + 1, [0]
    ),
}


@pytest.mark.usefixtures("control_flow")
@pytest.mark.parametrize("kind", COUNTS)
def test_an_assignment_in_a_branch_or_a_loop_waits_for_reads_before_it(kind, unordered):
    def model_fn(features, labels, mode):
        count = V1.get_variable("count", [], tf.int32, V1.zeros_initializer())
        V1.summary.scalar("count", count)
        loss = V1.get_variable("w", []) * tf.reduce_mean(features)
        counted = COUNTS[kind](loss, count)
        train_op = cases.build_minimize(V1.train.GradientDescentOptimizer(0.1), loss)
        return est.EstimatorSpec(mode, loss=loss, train_op=tf.group(train_op, counted))

    assert unordered(model_fn) == []


class CountsInBranch(keras.layers.Layer):
    """Counts the batches in a branch."""

    def build(self, shape):
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, inputs):
        tf.cond(
            tf.size(inputs) > 0,
            lambda: tf.identity(self.count.assign_add(1.0)),
            lambda: tf.constant(0.0),
        )
        return inputs


@pytest.mark.usefixtures("control_flow")
def test_what_keras_assigns_in_a_branch_stands_between_the_reads_around_it(unordered):
    def model_fn(features, labels, mode):
        layer = CountsInBranch()
        layer.build([None, 4])
        V1.summary.scalar("before", layer.count.value + 0.0)
        loss = V1.get_variable("w", []) * tf.reduce_mean(layer.call(features))
        V1.summary.scalar("after", layer.count.value + 0.0)
        train_op = cases.build_minimize(V1.train.GradientDescentOptimizer(0.1), loss)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    assert unordered(model_fn) == []


def test_accesses_that_only_luck_orders_are_found():
    with tf.Graph().as_default():
        count = V1.get_variable("count", [], use_resource=True)
        read = count.read_value()
        write = count.assign_add(1.0, read_value=False)
        assert len(unordered_accesses(read.graph, [read, write])) == 1
        with tf.control_dependencies([write]):
            after = tf.identity(count.read_value())
        assert unordered_accesses(read.graph, [after]) == []


def test_a_loss_is_of_the_weights_before_its_step(tmp_path):
    """The gradient of w * x needs no w, so nothing but the rule orders the loss and the update."""

    def model_fn(features, labels, mode):
        w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
        loss = -w + 0 * tf.reduce_mean(features)
        step = V1.train.get_global_step()
        with tf.control_dependencies([tf.reduce_sum(tf.random.uniform([300, 300]))]):
            seen = tf.identity(loss)
        train_op = V1.train.GradientDescentOptimizer(1.0).minimize(loss, step)
        return est.EstimatorSpec(mode, loss=seen, train_op=train_op)

    model = est.Estimator(model_fn, str(tmp_path), cases.make_config(iterations_per_loop=5))
    model.train(cases.input_fn, max_steps=5)
    assert np.float32(model.train_result.loss) == -4
