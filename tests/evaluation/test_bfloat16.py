"""Results in bfloat16, for which NumPy has no type: whoever reads evaluations sees them."""

import json
import logging
import os

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.conformance.cases import STRATEGIES
from tests.toy import Model, checkpoint_steps, events, numbers

SCORES = {10: 3.0, 20: 0.5, 30: 0.75, 40: 1.5, 50: 1.75}


class HalfScored(Model):
    """`Model` with metrics in bfloat16; "score" is told in advance, by the step."""

    def __call__(self, features, labels, mode):
        spec = super().__call__(features, labels, mode)
        step = tf.cast(tf.compat.v1.train.get_global_step(), tf.int32)
        scores = tf.constant([SCORES.get(10 * i, 0.0) for i in range(6)], tf.bfloat16)
        both = tf.gather(scores, [step // 10, 2])
        metrics = {"score": (both[0], tf.no_op()), "scores": (both, tf.no_op())}
        return spec.replace(eval_metric_ops=metrics)


def serving_fn():
    x = tf.compat.v1.placeholder(tf.float32, [None], "x")
    return est.export.TensorServingInputReceiver(x, x)


@pytest.fixture
def make(tmp_path):
    made = []

    def make(model_fn, **config):
        config = est.RunConfig(save_checkpoints_steps=10, **config)
        made.append(est.Estimator(model_fn, str(tmp_path), config))
        return made[-1]

    yield make
    for model in made:
        model.close()


@pytest.mark.parametrize("strategy", ["no_strategy", "mirrored_x2"])
def test_metrics_are_float32_in_every_result(strategy, make, tmp_path, caplog):
    caplog.set_level(logging.INFO, "estimator")
    model = make(HalfScored(), **STRATEGIES[strategy])
    model.train(numbers(), steps=20)
    results = model.evaluate(numbers(4))
    assert results["score"] == 0.5
    assert results["score"].dtype == results["scores"].dtype == np.float32
    np.testing.assert_array_equal(results["scores"], [0.5, 0.5])
    written = {tag: value for _, tag, value in events(model.eval_dir())}
    assert written["score"].simple_value == 0.5
    assert written["scores"].histo.sum == 1.0
    with open(os.path.join(tmp_path, "metrics.jsonl")) as file:
        assert json.loads(file.readlines()[-1])["metrics"] == {"score": 0.5, "scores": [0.5, 0.5]}
    assert "score = 0.5" in caplog.text


def test_a_metric_in_bfloat16_stops_training_and_chooses_the_best_model(make, tmp_path):
    model = make(HalfScored())
    hook = est.experimental.stop_if_no_decrease_hook(model, "score", 20)

    def is_lower(best_eval_result, current_eval_result):
        return current_eval_result["score"] < best_eval_result["score"]

    exporter = est.BestExporter("best", serving_fn, compare_fn=is_lower)
    result = est.train_and_evaluate(
        model,
        est.TrainSpec(numbers(), 50, [hook]),
        est.EvalSpec(numbers(2), throttle_secs=0, exporters=[exporter]),
    )
    assert result.train_result.reason == "hook"
    assert checkpoint_steps(tmp_path)[-1] == 40  # 20 steps after the lowest, that of step 20.
    exports = sorted(os.listdir(os.path.join(tmp_path, "export", "best")))
    assert len(exports) == 2  # Of the steps 10 and 20.


class HalfLoss(Model):
    """Its loss in evaluation is one an example, in bfloat16."""

    def __call__(self, features, labels, mode):
        spec = super().__call__(features, labels, mode)
        ones = tf.ones_like(features, tf.bfloat16)
        return spec if mode != est.ModeKeys.EVAL else spec.replace(loss=ones)


def test_losses_of_examples_are_not_summed_in_bfloat16(make):
    """A sum of ones in 8 bits ends at 256."""
    model = make(HalfLoss())
    model.train(numbers(), steps=1)
    assert model.evaluate(numbers(1000, batch_size=1000))["loss"] == 1.0
