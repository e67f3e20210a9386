"""Optimizers by name take the steps of the Keras optimizers that 2.15 used, which tf-keras has."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from estimator.canned.named_optimizers import NAMED, make_named

V1 = tf.compat.v1
START = np.float32([[1, 2], [3, 4], [5, 6]])
LEGACY = {name: getattr(tf_keras.optimizers.legacy, name) for name in NAMED if name != "RMSProp"}
LEGACY["RMSProp"] = tf_keras.optimizers.legacy.RMSprop
DENSE = [np.float32([[0.1, -2], [3, 0], [1, 0.5]]) * scale for scale in (1, -0.5, 2)]
# Rows and their gradients; a row may be there twice.
SPARSE = [([2, 0], [[1, -1], [0.5, 2]]), ([1, 1], [[1, 1], [-3, 0.5]]), ([2, 2], [[1, 0], [1, 0]])]


def gradients(kind):
    if kind == "dense":
        return [tf.constant(values) for values in DENSE]
    return [tf.IndexedSlices(tf.constant(rows, tf.float32), ids) for ids, rows in SPARSE]


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("name", NAMED)
def test_steps_are_those_of_keras(name, kind):
    legacy, theirs = LEGACY[name](0.1), tf.Variable(START)
    if name == "Adagrad":  # As in 2.15.
        legacy = LEGACY[name](0.1, initial_accumulator_value=0.1)
    for gradient in gradients(kind):
        legacy.apply_gradients([(gradient, theirs)])

    with tf.Graph().as_default(), V1.Session() as session:
        ours = V1.get_variable("ours", initializer=START)
        step = V1.train.create_global_step()
        optimizer = make_named(name, 0.1, est.RegressionHead(), before=[])
        updates = [
            optimizer.apply_gradients([(gradient, ours)], step) for gradient in gradients(kind)
        ]
        session.run(V1.global_variables_initializer())
        for update in updates:
            session.run(update)
        found = session.run(ours)
    np.testing.assert_allclose(found, theirs, rtol=1e-5, atol=1e-5)
    assert not np.allclose(found, START)


@pytest.mark.each_value
@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize("loop_steps", [1, 2])
@pytest.mark.parametrize("name", ["Adam", "SGD"])
def test_a_legacy_optimizer_counts_in_the_global_step_as_one_by_name(
    name, loop_steps, num_replicas, tmp_path
):
    columns = [tf.feature_column.numeric_column("x")]
    features = {"x": np.float32([[1], [3], [2], [5]])}
    labels = np.int64([[0], [1], [1], [0]])

    def input_fn():
        data = tf.data.Dataset.from_tensor_slices((features, labels))
        return data.batch(4 // num_replicas).repeat()

    def trained(folder, wide, deep):
        strategy = "mirrored" if num_replicas > 1 else "one_device"
        model = est.DNNLinearCombinedClassifier(
            str(tmp_path / folder),
            linear_feature_columns=columns,
            linear_optimizer=wide,
            dnn_feature_columns=columns,
            dnn_optimizer=deep,
            dnn_hidden_units=[2],
            config=est.RunConfig(
                strategy=strategy,
                num_replicas=num_replicas,
                iterations_per_loop=loop_steps,
                tf_random_seed=1,
            ),
        )
        model.train(input_fn, steps=2)
        model.train(input_fn, max_steps=4)
        return {n: model.get_variable_value(n) for n in model.get_variable_names()}

    by_name = trained("name", name, name)
    rates = [by_name[f"training/{name}{end}/learning_rate"] for end in ("_1", "")]
    given = trained("given", *[functools.partial(LEGACY[name], rate) for rate in rates])
    assert by_name["global_step"] == given["global_step"] == 4
    assert by_name.keys() == given.keys()
    for variable, value in by_name.items():
        np.testing.assert_allclose(given[variable], value, rtol=1e-5, atol=1e-7, err_msg=variable)
