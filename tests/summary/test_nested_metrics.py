"""A metric's value may be a structure of tensors of any shapes."""

import collections
import json

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.toy import Model, events, numbers

V1 = tf.compat.v1
Pair = collections.namedtuple("Pair", ["low", "high"])


def values(mean):
    """By name, the value of a metric, what `evaluate` returns, and the tags of its events."""
    row, text = tf.stack([mean, mean]), tf.as_string(mean)
    ones = np.ones(2, np.float32)
    return {
        "flat": (mean, 1, ["flat"]),
        "list": ([mean, row], [1, ones], ["list/0", "list/1"]),
        "same": ([mean, mean + 1], [1, 2], ["same/0", "same/1"]),
        "pair": (Pair(mean, row), Pair(1, ones), ["pair/0", "pair/1"]),
        "dict": (
            {"z": {"deep": mean, "name": text}, "a": [row, mean > 0]},
            {"z": {"deep": 1, "name": b"1.000000"}, "a": [ones, True]},
            ["dict/a/0", "dict/a/1", "dict/z/deep"],
        ),
        "text": (text, b"1.000000", []),
        "texts": (tf.stack([text, text]), np.array([b"1.000000"] * 2, object), []),
        "bfloat16": ([tf.cast(row, tf.bfloat16)], [ones], ["bfloat16/0"]),
        "nan": ([mean, mean / 0], [1, np.inf], ["nan/0", "nan/1"]),
    }


@pytest.mark.parametrize("replicas", [1, 2])
def test_nested_values_are_returned_and_written(replicas, tmp_path, caplog):
    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        mean, update = V1.metrics.mean(tf.cast(features, tf.float32))
        metrics = {name: (value, update) for name, (value, _, _) in values(mean).items()}
        return spec.replace(eval_metric_ops=metrics)

    config = est.RunConfig(strategy="mirrored", num_replicas=replicas)
    with est.Estimator(model_fn, str(tmp_path), config) as model, tf.Graph().as_default():
        results = model.evaluate(numbers(3))
        expected = values(tf.constant(1.0))
        for name, (_, value, _) in expected.items():
            tf.nest.map_structure(np.testing.assert_array_equal, results[name], value)
            assert isinstance(results[name], type(value)) or name == "flat"
        tags = {tag for _, _, tags in expected.values() for tag in tags} | {"loss"}
        assert {tag for _, tag, _ in events(model.eval_dir())} - {"checkpoint_path"} == tags
    assert "1 replica" not in caplog.text
    line = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert line["metrics"] == {
        "flat": 1,
        "list": [1, [1, 1]],
        "same": [1, 2],
        "pair": [1, [1, 1]],
        "bfloat16": [[1, 1]],
        "nan": [1, None],
    }
