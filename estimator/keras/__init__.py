"""Estimators from Keras models: `model_to_estimator`, and back: `load_weights`."""

from estimator.keras.keras_estimator import load_weights, model_to_estimator

__all__ = ["load_weights", "model_to_estimator"]
