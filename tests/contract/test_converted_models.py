"""The results of a Keras model, by the names that `compile` gave to its metrics."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.contract.names import IS_2_15, est, tf, tf_keras, v1

convert = tf.keras.estimator.model_to_estimator if IS_2_15 else est.keras.model_to_estimator

# Of Keras 3, too, on this project.
both_libraries = pytest.mark.parametrize("keras", [tf_keras, tf.keras], ids=["tf_keras", "keras"])
X = np.float32([[1, 2], [3, -4], [-5, 6], [-7, -8]])
Y = np.float32([[1], [0], [1], [0]])
WEIGHTS = np.float32([1, 2, 3, 4])


def mean_error(labels, outputs):
    return tf.reduce_mean(tf.abs(labels - outputs), axis=-1)


def make_model(keras, num_outputs, **metrics):
    """Outputs `p` and `q`, or `p` alone."""
    inputs = keras.Input([2], name="x")
    names = ["p", "q"][:num_outputs]
    made = [keras.layers.Dense(1, "sigmoid", name=name)(inputs) for name in names]
    model = keras.Model(inputs, made if num_outputs > 1 else made[0])
    model.compile("sgd", ["mse", "mae"] if num_outputs > 1 else "mse", **metrics)
    return model


def evaluate(model, model_dir, weights=None, num_calls=1, **arguments):
    """The results without those that each model has, and without losses of outputs."""
    num_outputs = len(model.outputs)
    features = X if weights is None else {"features": X, "sample_weights": weights}

    def input_fn():
        labels = (Y, Y) if num_outputs > 1 else Y
        return v1.data.Dataset.from_tensor_slices((features, labels)).batch(2)

    made = convert(model, model_dir=model_dir and os.fspath(model_dir), **arguments)
    results = {}
    for _ in range(num_calls):
        results = made.evaluate(input_fn)
    return {name: results[name] for name in results if name not in ("loss", "global_step")}


@both_libraries
@pytest.mark.parametrize(
    ("strings", "num_outputs", "expected"),
    [
        (["AUC", "Precision", "MSE"], 1, {"AUC", "Precision", "MSE"}),
        (["MeanSquaredError", "mse", "acc"], 1, {"MeanSquaredError", "mse", "acc"}),
        ({"p": ["AUC", "MAE"], "q": ["Recall"]}, 2, {"p_AUC", "p_MAE", "q_Recall"}),
        ([["AUC"], ["AUC", "mae"]], 2, {"p_AUC", "q_AUC", "q_mae"}),
    ],
)
def test_a_metric_is_called_by_the_string_that_it_was_given_as(
    keras, strings, num_outputs, expected, tmp_path
):
    results = evaluate(make_model(keras, num_outputs, metrics=strings), tmp_path)
    assert results.keys() - {"p_loss", "q_loss"} == expected


@both_libraries
def test_functions_and_objects_have_their_own_names(keras, tmp_path):
    area = keras.metrics.AUC(name="area")
    strings_and_others = [mean_error, area, keras.metrics.MeanSquaredError(), "MeanSquaredError"]
    results = evaluate(make_model(keras, 1, metrics=strings_and_others), tmp_path)
    assert set(results) == {"mean_error", "area", "mean_squared_error", "MeanSquaredError"}


def test_one_list_is_for_each_output(tmp_path):
    results = evaluate(make_model(tf_keras, 2, metrics=["AUC", "mae"]), tmp_path)
    assert results.keys() - {"p_loss", "q_loss"} == {"p_AUC", "q_AUC", "p_mae", "q_mae"}


@both_libraries
def test_a_weighted_metric_has_the_name_of_its_string(keras, tmp_path):
    model = make_model(keras, 1, metrics=["mae"], weighted_metrics=["Precision"])
    assert set(evaluate(model, tmp_path)) == {"mae", "Precision"}


def test_a_name_that_is_taken_gets_a_number(tmp_path):
    def loss(labels, outputs):
        return mean_error(labels, outputs)

    model = make_model(tf_keras, 1, metrics=["mae", loss], weighted_metrics=["mae"])
    assert set(evaluate(model, tmp_path)) == {"mae", "loss_1", "mae_1"}


def test_of_metrics_with_one_name_the_last_is_evaluated(tmp_path):
    def MSE(labels, outputs):  # noqa: N802
        return labels * 0.0 + 7.0

    results = evaluate(make_model(tf_keras, 1, metrics=["MSE", "MSE", MSE]), tmp_path)
    assert results == {"MSE": 7.0}


@both_libraries
def test_metric_names_map_takes_the_strings(keras, tmp_path):
    model = make_model(keras, 2, metrics={"p": ["AUC"], "q": ["mae"]})
    names = {"p_AUC": "roc", "q_mae": "error"}
    results = evaluate(model, tmp_path, metric_names_map=names)
    assert results.keys() - {"p_loss", "q_loss"} == {"roc", "error"}


WITHOUT_V2_BEHAVIOR = """
import tensorflow as tf
tf.compat.v1.disable_v2_behavior()
from tests.contract.test_converted_models import evaluate, make_model, mean_error, tf_keras
strings, weighted = ["accuracy", "mae", "AUC"], ["Precision", mean_error]
model = make_model(tf_keras, 1, metrics=strings, weighted_metrics=weighted)
print("names:", *sorted(evaluate(model, None)))
"""


def test_without_v2_behavior_metrics_have_the_names_of_tensorflow_1():
    """In a process of its own: v2 behavior cannot be enabled again."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_V2_BEHAVIOR],
        cwd=pathlib.Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    names = "acc auc mean_absolute_error weighted_mean_error weighted_precision"
    assert f"names: {names}\n" in done.stdout, done.stderr


# --- What Keras's `evaluate` returns --------------------------------------------------------------


def of_two_outputs(model_dir):
    objects = {"p": [tf_keras.metrics.AUC(name="area")]}
    return evaluate(make_model(tf_keras, 2, metrics=objects), model_dir, num_calls=2)


def of_weighted_alone(model_dir):
    return evaluate(make_model(tf_keras, 1, weighted_metrics=["mae"]), model_dir)


def of_weights(model_dir):
    model = make_model(tf_keras, 1, metrics=["mse"], weighted_metrics=["mae"])
    model.set_weights([np.zeros([2, 1]), np.float32([-100])])  # The output is 0.
    return evaluate(model, model_dir, WEIGHTS)["mae"]


def of_one_name(model_dir):
    model = make_model(tf.keras, 1, metrics=["mae"], weighted_metrics=["mae"])
    return evaluate(model, model_dir)


@pytest.mark.only_2_15("results of a Keras model")
def test_names_of_metric_objects_grow_and_weighted_metrics_lack_weights(tmp_path):
    assert set(of_two_outputs(tmp_path / "two")) == {"p_p_p_area"}
    assert of_weighted_alone(tmp_path / "weighted") == {}
    assert of_weights(tmp_path / "weights") == pytest.approx(0.5)
    assert set(of_one_name(tmp_path / "name")) == {"mae", "mae_1"}


@pytest.mark.only_here("results of a Keras model")
def test_results_are_those_of_kerass_evaluate(tmp_path):
    assert set(of_two_outputs(tmp_path / "two")) == {"p_area", "p_loss", "q_loss"}
    assert set(of_weighted_alone(tmp_path / "weighted")) == {"mae"}
    assert of_weights(tmp_path / "weights") == pytest.approx((1 + 3) / (1 + 2 + 3 + 4))
    assert set(of_one_name(tmp_path / "name")) == {"mae", "weighted_mae"}
