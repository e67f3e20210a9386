"""Every Keras optimizer, with each option, does in a graph what it does in a plain eager loop."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.conformance import cases
from tests.conformance import keras_optimizers as table
from tests.integration.cluster import Cluster

LOCAL = [setting for setting in table.SETTINGS if setting != "workers_x2"]
TWO = [("worker", 0), ("worker", 1)]


@pytest.mark.parametrize("library", table.LIBRARIES)
def test_each_public_optimizer_has_a_row(library):
    rows = {name for row, name in table.ROWS if row == library}
    public = table.optimizers_in(table.LIBRARIES[library])
    assert public.difference(table.WITHOUT_ROW) == rows


@pytest.mark.parametrize("library", table.LIBRARIES)
def test_the_selection_has_each_optimizer_once_and_each_option(library):
    of_settings = {
        setting: [case for case in table.selection(setting) if case.library == library]
        for setting in table.SETTINGS
    }
    cases = [case for found in of_settings.values() for case in found]
    assert sorted(case.name for case in cases) == sorted(
        name for row, name in table.ROWS if row == library
    )
    if library != "keras" or "Muon" not in table.WITHOUT_ROW:  # Else there are too few optimizers.
        assert {case.option for case in cases} == set(table.OPTIONS[library])
    for found in of_settings.values():
        assert len(found) >= len(cases) // len(table.SETTINGS)
        assert {case.wrapper for case in found} == set(table.WRAPPERS)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("setting", LOCAL)
def test_the_selection_agrees_with_an_eager_loop(setting, tmp_path):
    cases = table.selection(setting)
    names = table.train(cases, setting, str(tmp_path))
    assert table.disagreements(cases, names, str(tmp_path)) == {}


@pytest.mark.slow
def test_replicas_that_share_their_variables_agree_with_an_eager_loop(tmp_path):
    names = table.train(table.CENTRAL, "central_storage_x2", str(tmp_path))
    assert table.disagreements(table.CENTRAL, names, str(tmp_path)) == {}


@pytest.mark.full
@pytest.mark.parametrize("group", table.all_groups())
@pytest.mark.parametrize("setting", LOCAL)
def test_all_agree_with_an_eager_loop(setting, group, tmp_path):
    cases = table.group(group)
    names = table.train(cases, setting, str(tmp_path))
    assert table.disagreements(cases, names, str(tmp_path)) == {}


# Those that are patched, as they rely on eager execution or on Keras's own variables.
PATCHED = {"Adafactor", "LossScaleOptimizer", "MultiOptimizer", "Muon", "ScheduleFreeAdamW"}


def build_layer_and_loss(features, labels):
    layer = keras.layers.Dense(
        3, kernel_initializer=lambda shape, dtype: tf.constant(cases.KERNEL), name="layer"
    )
    logits = layer(features)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return layer, tf.reduce_mean(losses)


def eager_kernel(optimizer):
    """A Keras layer's kernel after some steps of an eager loop."""
    layer = None
    for features, labels in cases.input_fn(tf.distribute.InputContext()):
        with tf.GradientTape() as tape:
            if layer is None:
                layer, _ = build_layer_and_loss(features, labels)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, layer(features))
            loss = optimizer.scale_loss(tf.reduce_mean(losses))
        variables = layer.trainable_variables
        optimizer.apply(tape.gradient(loss, [v.value for v in variables]), variables)
    return layer.kernel.numpy()


@pytest.mark.each_value
@pytest.mark.parametrize("setting", ["no_strategy", "mirrored_x2"])
@pytest.mark.parametrize("name", sorted(PATCHED & {name for _, name in table.ROWS}))
def test_keras_variables_are_trained_as_in_an_eager_loop(name, setting, tmp_path):
    case = table.Case("keras", name, "plain")

    def model_fn(features, labels, mode):
        layer, loss = build_layer_and_loss(features, labels)
        optimizer, variables = table.make_optimizer(case), layer.trainable_variables
        gradients = tf.gradients(optimizer.scale_loss(loss), [v.value for v in variables])
        optimizer.apply(gradients, variables)
        step = tf.compat.v1.train.get_global_step()
        return est.EstimatorSpec(mode, loss=loss, train_op=step.assign_add(1))

    config = cases.make_config(iterations_per_loop=5, **cases.STRATEGIES[setting])
    with est.Estimator(model_fn, str(tmp_path), config) as model:
        model.train(cases.input_fn)
        kernel = model.get_variable_value("layer/kernel")
    np.testing.assert_allclose(kernel, eager_kernel(table.make_optimizer(case)), rtol=0, atol=2e-6)


def check_workers(groups, model_dir, limit_secs):
    """Two processes train the groups, one after the other; both name all variables alike."""
    with Cluster(table.__file__, model_dir, *groups, worker=2) as cluster:
        assert cluster.statuses(limit_secs) == [0, 0], cluster[TWO[0]].err[-3000:]
        of_each = [cluster[task].results for task in TWO]
    assert of_each[0] == of_each[1]
    assert [result["case"] for result in of_each[0]] == list(groups)
    for number, (group, result) in enumerate(zip(groups, of_each[0], strict=True)):
        found = table.disagreements(table.group(group), result["names"], model_dir / str(number))
        assert found == {}, group


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_selection_agrees_on_two_workers(tmp_path):
    check_workers(["selection workers_x2"], tmp_path, 800)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_all_agree_on_two_workers(tmp_path):
    check_workers(table.all_groups(), tmp_path, 3500)
