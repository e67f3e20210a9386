import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.input.conversion import with_arrays, with_own_keys, with_sortable_keys

v1 = tf.compat.v1


def make(model_dir, seen, loop=1):
    def model_fn(features, labels, mode):
        seen.append(features)
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        values = features.values() if isinstance(features, dict) else [features]
        total = sum(tf.reduce_sum(tf.cast(value, tf.float32)) for value in values)
        if labels is not None:
            total += tf.reduce_sum(tf.cast(labels, tf.float32))
        step = v1.train.get_global_step()
        train_op = tf.group(w.assign_add(total), v1.assign_add(step, 1))
        return est.EstimatorSpec(
            mode, predictions={"total": total[None]}, loss=total, train_op=train_op
        )

    return est.Estimator(model_fn, model_dir, est.RunConfig(iterations_per_loop=loop))


@pytest.mark.parametrize("loop", [1, 4])
@pytest.mark.parametrize(
    ("returned", "total"),
    [
        (([[1.0, 2.0], [3.0, 4.0]], [1, 2]), 13),
        ((3, 4), 7),
        (({"a": [1.0, 2.0], "b": np.float32(3)}, None), 6),
        (({"a": tf.constant, "b": 2}, [5]), 8),
        (({"a": 1, 2: [2.0], None: 3.0, ("b", 1): 4.0}, 5), 15),
    ],
)
def test_numbers_lists_and_keys_of_mixed_types_are_features(tmp_path, returned, total, loop):
    seen = []

    def input_fn():
        features, labels = returned
        if isinstance(features, dict) and features.get("a") is tf.constant:
            features = {**features, "a": tf.constant([1.0])}
        return features, labels

    with make(tmp_path, seen, loop) as model:
        model.train(input_fn, steps=3)
        assert model.get_variable_value("w") == 3 * total
        assert model.evaluate(input_fn, steps=1)["loss"] == total
    if isinstance(returned[0], dict):
        for features in seen:
            assert set(map(type, features)) == set(map(type, returned[0]))
            assert set(features) == set(returned[0])


def test_three_plain_numbers_are_a_wrong_value(tmp_path):
    with (
        make(tmp_path, []) as model,
        pytest.raises(ValueError, match="returned a tuple of 3 values. It must return .features"),
    ):
        model.train(lambda: (1, 2, 3), steps=1)


def test_what_need_not_change_stays_the_same():
    tensors = {"a": np.float32(1), "b": {"c": [tf.constant(1)]}}
    assert with_sortable_keys(tensors) == tensors
    assert with_own_keys(tensors) == tensors
    assert with_arrays([tensors["b"]]) == [tensors["b"]]
