"""Ready-made models of TensorFlow 1 in central storage have the names of one device."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.compat import v1

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(24, 2)
COLUMNS = [tf.feature_column.numeric_column("x", [2])]
MODELS = {
    "linear": lambda config: v1.LinearRegressor(COLUMNS, config=config),
    "dnn": lambda config: v1.DNNRegressor([3], COLUMNS, config=config),
}


def input_fn():
    return tf.data.Dataset.from_tensor_slices(({"x": X}, X[:, :1])).batch(4)


@pytest.mark.parametrize("name", MODELS)
def test_training_goes_on_with_and_without_central_storage(name, tmp_path):
    names = []
    for steps, strategy in ((2, None), (4, "central_storage"), (6, None)):
        replicas = {"strategy": strategy, "num_replicas": 2} if strategy else {}
        with MODELS[name](est.RunConfig(str(tmp_path), resume_input=False, **replicas)) as model:
            model.train(input_fn, max_steps=steps)
            names.append(model.get_variable_names())
    assert names[0] == names[1] == names[2]
