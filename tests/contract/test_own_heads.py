"""Heads of the program's own, by the forms that 2.15 takes."""

import numpy as np

from tests.contract.names import est, tf, v1

COLUMNS = [tf.feature_column.numeric_column("x")]


def batch():
    return tf.data.Dataset.from_tensors(({"x": [[1.0], [2.0]]}, [[1.0], [3.0]])).repeat(2)


class ByTpuSpec(type(est.RegressionHead())):
    """A head that makes a TPUEstimatorSpec, with a loss and outputs of its own."""

    def _create_tpu_estimator_spec(
        self, features, mode, logits, labels=None, train_op_fn=None, **kwargs
    ):
        predictions = {"doubled": 2 * logits}
        spec = est.tpu.TPUEstimatorSpec if hasattr(est, "tpu") else None
        make = spec or v1.estimator.tpu.TPUEstimatorSpec
        if mode == est.ModeKeys.PREDICT:
            return make(mode, predictions=predictions)
        loss = tf.reduce_sum(tf.abs(logits - labels)) + 100.0
        train_op = None if train_op_fn is None else train_op_fn(loss)
        if train_op is None:
            train_op = v1.train.get_global_step().assign_add(1)
        return make(mode, predictions=predictions, loss=loss, train_op=train_op)


def test_a_head_may_make_a_spec_for_tpus(tmp_path):
    model = est.LinearEstimator(ByTpuSpec(), COLUMNS, str(tmp_path))
    assert model.train(batch, steps=1).evaluate(batch, steps=1)["loss"] > 100
    assert set(next(iter(model.predict(batch)))) == {"doubled"}


class Renamed(type(est.RegressionHead())):
    """A head whose name is a property."""

    @property
    def name(self):
        return "own"


def test_a_head_may_make_its_own_name(tmp_path):
    model = est.LinearEstimator(Renamed(), COLUMNS, str(tmp_path))
    results = model.train(batch, steps=1).evaluate(batch, steps=1)
    assert "average_loss/own" in results
    assert np.isfinite(results["average_loss/own"])
