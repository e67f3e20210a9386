"""Compiled losses that are sums: two replicas train as `fit` does with the whole batch."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(24, 2)
Y = {"summed": X[:, :1] * 3, "mean": X[:, 1:] - 2, "nested": X[:, :1] + 1}


def make_model(library):
    x = library.Input([2], name="x")
    outputs = [
        library.layers.Dense(
            1, name=name, kernel_initializer="ones", kernel_regularizer=library.regularizers.L2(0.3)
        )(x)
        for name in Y
    ]
    model = library.Model(x, outputs)

    def mean_by_hand(y_true, y_pred):
        rows = tf.cast(tf.shape(y_true)[0], tf.float32)
        return library.losses.MeanSquaredError(reduction="sum")(y_true, y_pred) / rows

    losses = {
        "nested": mean_by_hand,
        "summed": library.losses.MeanSquaredError(reduction="sum"),
        "mean": library.losses.MeanSquaredError(reduction="sum_over_batch_size"),
    }
    model.compile(
        library.optimizers.SGD(0.01),
        losses,
        loss_weights={"summed": 0.5, "mean": 2.0, "nested": 1.0},
    )
    return model


@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras", "tf_keras"])
@pytest.mark.parametrize(("strategy", "eval_size"), [("mirrored", 4), ("central_storage", 8)])
def test_a_sum_is_that_of_all_replicas(strategy, eval_size, library, tmp_path):
    def batches(size):
        return tf.data.Dataset.from_tensor_slices((X, Y)).batch(size)

    fitted, model = make_model(library), make_model(library)
    fitted.fit(batches(8), epochs=1, shuffle=False, verbose=0)
    expected = fitted.evaluate(batches(8), verbose=0, return_dict=True)["loss"]
    config = est.RunConfig(str(tmp_path), strategy=strategy, num_replicas=2, iterations_per_loop=2)
    with est.keras.model_to_estimator(model, config=config) as trained:
        trained.train(lambda: batches(4))
        result = trained.evaluate(lambda: batches(eval_size))  # One replica in central storage.
    est.keras.load_weights(model, str(tmp_path))
    for ours, theirs in zip(model.get_weights(), fitted.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert result["loss"] == pytest.approx(expected, rel=1e-5)
