"""Optimizers of old programs: SyncReplicasOptimizer, and those that apply gradients themselves."""

import re

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.conformance import cases

v1 = tf.compat.v1

STRATEGIES = pytest.mark.parametrize(
    "strategy", ["no_strategy", "one_device", "mirrored_x2", "central_storage_x2"]
)
LOOPS = pytest.mark.parametrize("loop", [1, 100])


class AdamWithWeightDecay(v1.train.Optimizer):
    """As BERT's: state by `get_variable`, `assign` by itself, and no count of the step."""

    def __init__(self, rate, decay):
        super().__init__(False, "AdamWithWeightDecay")
        self.rate, self.decay = rate, decay

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        assignments = []
        for gradient, variable in grads_and_vars:
            if gradient is None or variable is None:
                continue
            owner = re.match("^(.*):\\d+$", variable.name).group(1)
            m, v = (
                v1.get_variable(
                    name=f"{owner}/{slot}",
                    shape=variable.shape.as_list(),
                    dtype=tf.float32,
                    trainable=False,
                    initializer=v1.zeros_initializer(),
                )
                for slot in ("adam_m", "adam_v")
            )
            next_m = tf.multiply(0.9, m) + tf.multiply(0.1, gradient)
            next_v = tf.multiply(0.999, v) + tf.multiply(0.001, tf.square(gradient))
            update = next_m / (tf.sqrt(next_v) + 1e-6)
            if "bias" not in owner:
                update += self.decay * variable
            next_variable = variable - self.rate * update
            assignments += [variable.assign(next_variable), m.assign(next_m), v.assign(next_v)]
        return tf.group(*assignments, name=name)


class NumpyAdamWithWeightDecay:
    """The same in float64, without the corrections of the first steps, as BERT has it."""

    def __init__(self, rate, decay):
        self.rate, self.decay = rate, decay
        self.slots = {}

    def __call__(self, weights, gradients):
        for name, gradient in gradients.items():
            m, v = self.slots.get(name, (0.0, 0.0))
            m = 0.9 * m + 0.1 * gradient
            v = 0.999 * v + 0.001 * gradient**2
            self.slots[name] = m, v
            decay = 0.0 if name == "bias" else self.decay * weights[name]
            weights[name] = weights[name] - self.rate * (m / (np.sqrt(v) + 1e-6) + decay)


class Clipped(v1.train.Optimizer):
    """Clips what another optimizer applies."""

    def __init__(self, opt, norm):
        super().__init__(False, "Clipped")
        self.opt, self.norm = opt, norm

    def compute_gradients(self, *args, **kwargs):
        return self.opt.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        gradients, variables = zip(*grads_and_vars, strict=True)
        gradients, _ = tf.clip_by_global_norm(gradients, self.norm)
        return self.opt.apply_gradients(zip(gradients, variables, strict=True), global_step, name)


class Doubled(v1.train.GradientDescentOptimizer):
    """Doubles the gradients, and leaves the rest to its base class."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        return super().apply_gradients([(2 * g, v) for g, v in grads_and_vars], global_step, name)


def numpy_clipped(rate, norm):
    sgd = cases.NumpySgd(rate)

    def update(weights, gradients):
        total = np.sqrt(sum(np.sum(g**2) for g in gradients.values()))
        factor = min(1.0, norm / total)
        sgd(weights, {name: g * factor for name, g in gradients.items()})

    return update


def train(model_dir, model_fn, strategy, loop, **config):
    run_config = cases.make_config(**cases.STRATEGIES[strategy], iterations_per_loop=loop, **config)
    model = est.Estimator(model_fn, str(model_dir), run_config)
    model.train(cases.input_fn, max_steps=cases.NUM_STEPS)
    return model


def check_trained(model, update):
    expected, loss = cases.numpy_training(update)
    assert model.train_result.global_step == cases.NUM_STEPS
    np.testing.assert_allclose(model.train_result.loss, loss, rtol=1e-4)
    for name, value in cases.trained_weights(model, expected).items():
        np.testing.assert_allclose(value, expected[name], rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.each_value
@LOOPS
@STRATEGIES
def test_an_optimizer_with_state_and_assignments_of_its_own_trains_as_numpy(
    tmp_path, strategy, loop
):
    def model_fn(features, labels, mode):
        loss = cases.build_softmax_loss(features, labels)
        global_step = v1.train.get_or_create_global_step()
        optimizer = est.tpu.CrossShardOptimizer(AdamWithWeightDecay(0.05, 0.01))
        variables = v1.trainable_variables()
        gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), clip_norm=100.0)
        train_op = optimizer.apply_gradients(
            zip(gradients, variables, strict=True), global_step=global_step
        )
        # It does not count the step by itself.
        new_global_step = global_step + 1
        train_op = tf.group(train_op, [global_step.assign(new_global_step)])
        return est.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    model = train(tmp_path, model_fn, strategy, loop)
    numpy_adam = NumpyAdamWithWeightDecay(0.05, 0.01)
    check_trained(model, numpy_adam)
    for name, slots in numpy_adam.slots.items():
        for slot, value in zip(("adam_m", "adam_v"), slots, strict=True):
            saved = model.get_variable_value(f"{name}/{slot}")
            np.testing.assert_allclose(saved, value, rtol=1e-3, atol=1e-6)


@pytest.mark.each_value
@STRATEGIES
@pytest.mark.parametrize(
    ("loop", "kind"), [(1, "around another"), (100, "around another"), (100, "subclass")]
)
def test_an_optimizer_that_changes_gradients_sees_those_of_all_replicas(
    tmp_path, strategy, loop, kind
):
    def make_optimizer():
        if kind == "subclass":
            return Doubled(0.1)
        return Clipped(v1.train.GradientDescentOptimizer(0.5), norm=0.2)

    model_fn = cases.make_softmax_model_fn(lambda: est.tpu.CrossShardOptimizer(make_optimizer()))
    update = cases.NumpySgd(0.2) if kind == "subclass" else numpy_clipped(0.5, 0.2)
    check_trained(train(tmp_path, model_fn, strategy, loop), update)


@pytest.mark.each_value
@pytest.mark.parametrize(("loop", "is_wrapped"), [(1, False), (100, False), (100, True)])
@STRATEGIES
def test_sync_replicas_on_one_machine_trains_as_the_optimizer_inside(
    tmp_path, strategy, loop, is_wrapped
):
    def model_fn(features, labels, mode):
        loss = cases.build_softmax_loss(features, labels)
        sync = v1.train.SyncReplicasOptimizer(
            v1.train.AdamOptimizer(0.05), replicas_to_aggregate=1, total_num_replicas=1
        )
        optimizer = est.tpu.CrossShardOptimizer(sync) if is_wrapped else sync
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        hook = sync.make_session_run_hook(is_chief=True)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=[hook])

    model = train(tmp_path, model_fn, strategy, loop)
    check_trained(model, cases.NumpyAdam(0.05, 1e-8))
    assert {"kernel/Adam", "kernel/Adam_1", "bias/Adam", "beta1_power"} <= set(
        model.get_variable_names()
    )


@pytest.mark.parametrize("loop", [1, 100])
@pytest.mark.parametrize("strategy", ["no_strategy", "mirrored_x2"])
def test_an_update_for_all_replicas_at_once_passes_over_what_has_no_gradient(
    tmp_path, strategy, loop
):
    def model_fn(features, labels, mode):
        loss = cases.build_softmax_loss(features, labels)
        v1.get_variable("unused", [2], initializer=v1.ones_initializer())
        optimizer, step = v1.train.GradientDescentOptimizer(0.5), v1.train.get_global_step()

        def apply(strategy, gradients, variables):
            means = [
                g if g is None else strategy.extended.reduce_to(tf.distribute.ReduceOp.MEAN, g, v)
                for g, v in zip(gradients, variables, strict=True)
            ]
            return optimizer.apply_gradients(zip(means, variables, strict=True), step)

        gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
        # An all-reduce looks for variables behind its input, and fails at another replica's.
        stopped = [g if g is None else tf.stop_gradient(g) for g in gradients]
        context = tf.distribute.get_replica_context()
        train_op = context.merge_call(apply, args=(stopped, list(variables)))
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    model = train(tmp_path, model_fn, strategy, loop)
    check_trained(model, cases.NumpySgd(0.5))
    assert model.get_variable_value("unused").tolist() == [1, 1]


@pytest.mark.each_value
@LOOPS
@STRATEGIES
def test_sync_replicas_moves_averages_after_each_update(tmp_path, strategy, loop):
    def model_fn(features, labels, mode):
        loss = cases.build_softmax_loss(features, labels)
        average = tf.train.ExponentialMovingAverage(0.5)
        sync = v1.train.SyncReplicasOptimizer(
            v1.train.GradientDescentOptimizer(0.5),
            replicas_to_aggregate=1,
            variable_averages=average,
            variables_to_average=v1.trainable_variables(),
        )
        train_op = sync.minimize(loss, v1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    model = train(tmp_path, model_fn, strategy, loop)
    sgd = cases.NumpySgd(0.5)
    averages = {"kernel": cases.KERNEL.astype(np.float64), "bias": cases.BIAS.astype(np.float64)}

    def update(weights, gradients):
        sgd(weights, gradients)
        for name, weight in weights.items():
            averages[name] = 0.5 * averages[name] + 0.5 * weight

    check_trained(model, update)
    for name, average in averages.items():
        value = model.get_variable_value(f"{name}/ExponentialMovingAverage")
        np.testing.assert_allclose(value, average, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.each_value
@STRATEGIES
@pytest.mark.parametrize(("loop", "kind"), [(100, "own state"), (1, "clipped")])
def test_sparse_gradients_of_all_replicas_are_one(tmp_path, strategy, loop, kind):
    """Rows of an embedding: what is trained on two replicas is what one trains on both batches."""

    def make_optimizer():
        if kind == "own state":
            return AdamWithWeightDecay(0.05, 0.01)
        return Clipped(v1.train.MomentumOptimizer(0.5, 0.5), norm=0.2)

    def model_fn(features, labels, mode):
        start = np.arange(15, dtype=np.float32).reshape(5, 3) / 10
        embedding = v1.get_variable("embedding", initializer=start)
        rows = tf.nn.embedding_lookup(embedding, labels)
        loss = tf.reduce_mean(tf.square(rows - features[:, :3]))
        step = v1.train.get_global_step()
        train_op = est.tpu.CrossShardOptimizer(make_optimizer()).minimize(loss, step)
        if kind == "own state":
            train_op = tf.group(train_op, step.assign_add(1))
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    many = train(tmp_path / "many", model_fn, strategy, loop)
    one = train(tmp_path / "one", model_fn, "no_strategy", 1)
    expected = one.get_variable_value("embedding")
    np.testing.assert_allclose(many.get_variable_value("embedding"), expected, rtol=1e-4)


def test_sync_replicas_of_more_than_one_worker_is_an_error(tmp_path):
    def model_fn(features, labels, mode):
        loss = cases.build_softmax_loss(features, labels)
        sync = v1.train.SyncReplicasOptimizer(v1.train.AdamOptimizer(0.05), replicas_to_aggregate=4)
        return est.EstimatorSpec(
            mode, loss=loss, train_op=sync.minimize(loss, v1.train.get_global_step())
        )

    with pytest.raises(ValueError, match=r"`replicas_to_aggregate` \(4\) .* Pass 1\."):
        train(tmp_path, model_fn, "mirrored_x2", 1)


def test_sync_replicas_without_a_global_step_is_an_error(tmp_path):
    def model_fn(features, labels, mode):
        loss = cases.build_softmax_loss(features, labels)
        sync = v1.train.SyncReplicasOptimizer(v1.train.AdamOptimizer(0.05), replicas_to_aggregate=1)
        return est.EstimatorSpec(mode, loss=loss, train_op=sync.minimize(loss))

    with pytest.raises(ValueError, match="`global_step` of SyncReplicasOptimizer"):
        train(tmp_path, model_fn, "no_strategy", 1)


@pytest.mark.each_value
@pytest.mark.parametrize(("loop", "kind"), [(1, "clipped"), (100, "own state")])
@pytest.mark.parametrize("strategy", ["no_strategy", "mirrored_x2", "central_storage_x2"])
def test_gradients_of_several_batches_are_applied_by_it_once(tmp_path, strategy, loop, kind):
    """An update of the mean of three batches is one of a batch three times as big."""

    def make_optimizer():
        if kind == "own state":
            return AdamWithWeightDecay(0.05, 0.01)
        return Clipped(v1.train.GradientDescentOptimizer(0.5), norm=0.2)

    def model_fn(features, labels, mode):
        loss = cases.build_softmax_loss(features, labels)
        optimizer = est.tpu.CrossShardOptimizer(make_optimizer(), accumulate_steps=3)
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    run_config = cases.make_config(**cases.STRATEGIES[strategy], iterations_per_loop=loop)
    model = est.Estimator(model_fn, str(tmp_path), run_config)
    model.train(cases.input_fn, max_steps=7)
    update = numpy_clipped(0.5, 0.2) if kind == "clipped" else NumpyAdamWithWeightDecay(0.05, 0.01)
    weights = {"kernel": cases.KERNEL.astype(np.float64), "bias": cases.BIAS.astype(np.float64)}
    for step in range(7):
        batch = slice(step * 36, (step + 1) * 36)
        _, gradients = cases.softmax_gradients(weights, cases.FEATURES[batch], cases.LABELS[batch])
        update(weights, gradients)
    assert model.train_result.global_step == 7
    for name, value in cases.trained_weights(model, weights).items():
        np.testing.assert_allclose(value, weights[name], rtol=2e-4, atol=2e-5, err_msg=name)


SLOTS_BESIDE_VARIABLES = {
    "proximal_adagrad": lambda: v1.train.ProximalAdagradOptimizer(0.1),
    "adagrad_da": lambda: v1.train.AdagradDAOptimizer(0.1, v1.train.get_global_step()),
}


@pytest.mark.parametrize(("name", "loop"), [("proximal_adagrad", 1), ("adagrad_da", 100)])
def test_slots_that_are_placed_beside_their_variables_are_made_on_replicas(name, loop, tmp_path):
    """Each makes its slots where no replica is current, and places them beside the variable."""

    def model_fn(features, labels, mode):
        loss = cases.build_softmax_loss(features, labels)
        train_op = SLOTS_BESIDE_VARIABLES[name]().minimize(loss, v1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    one, two = (
        train(tmp_path / strategy, model_fn, strategy, loop)
        for strategy in ("no_strategy", "mirrored_x2")
    )
    for variable in one.get_variable_names():
        np.testing.assert_allclose(
            two.get_variable_value(variable), one.get_variable_value(variable), rtol=1e-4, atol=1e-5
        )


@pytest.mark.usefixtures("control_flow")
@pytest.mark.parametrize("strategy", ["no_strategy", "mirrored_x2", "central_storage_x2"])
def test_replicas_meet_in_a_branch_that_all_of_them_are_in(tmp_path, strategy):
    """An optimizer that scales the loss applies gradients in a cond, for all replicas at once."""

    def model_fn(features, labels, mode):
        weight = v1.get_variable("weight", [], initializer=v1.ones_initializer())
        inner = v1.train.GradientDescentOptimizer(0.1)
        optimizer = v1.mixed_precision.MixedPrecisionLossScaleOptimizer(inner, "dynamic")
        loss = weight * tf.reduce_mean(features)
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = cases.make_config(**cases.STRATEGIES[strategy])
    model = est.Estimator(model_fn, str(tmp_path), config)
    model.train(lambda: tf.data.Dataset.from_tensors(tf.ones([2])).repeat(), steps=3)
    assert model.get_variable_value("weight") == pytest.approx(0.7)


@pytest.mark.usefixtures("control_flow")
@pytest.mark.parametrize("strategy", ["mirrored_x2", "central_storage_x2"])
@pytest.mark.parametrize("make", [v1.train.GradientDescentOptimizer, tf.keras.optimizers.SGD])
def test_gradients_that_replicas_reduce_in_a_branch_are_an_error(tmp_path, strategy, make):
    def model_fn(features, labels, mode):
        weight = v1.get_variable("weight", [], initializer=v1.ones_initializer())
        loss, step = weight * tf.reduce_mean(features), v1.train.get_global_step()
        gradients = [(tf.gradients(loss, weight)[0], weight)]
        optimizer = make(0.1)
        apply = tf.cond(
            tf.equal(step % 2, 1),
            lambda: tf.group(optimizer.apply_gradients(gradients)),
            tf.no_op,
        )
        with tf.control_dependencies([apply]):
            return est.EstimatorSpec(mode, loss=loss, train_op=step.assign_add(1))

    model = est.Estimator(model_fn, str(tmp_path), cases.make_config(**cases.STRATEGIES[strategy]))
    with pytest.raises(RuntimeError, match=r"cannot meet in a branch.*`apply_gradients`.*accumul"):
        model.train(lambda: tf.data.Dataset.from_tensors(tf.ones([2])).repeat(), steps=1)
