"""The benchmark for GPUs: its models are as large as it says, and both contenders run."""

import dataclasses
import functools
import math

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import examples, examples_contenders
from benchmarks.examples_contenders import EXAMPLES

SMALL = {
    "resnet_50": {"depth": 18, "width": 4, "num_classes": 5},
    "bert_base": {"num_tokens": 4000, "size": 8, "num_layers": 1, "num_heads": 2},
}


@pytest.mark.parametrize(("name", "millions"), [("resnet_50", 25.6), ("bert_base", 108.0)])
def test_the_models_have_as_many_weights_as_their_names_say(name, millions):
    example = EXAMPLES[name]
    value = example.make_feature(np.random.default_rng(0), 2)
    with tf.Graph().as_default():
        example.model.build_logits(tf.constant(value), example.params, is_training=True)
        shapes = [variable.shape for variable in tf.compat.v1.trainable_variables()]
    assert sum(math.prod(shape) for shape in shapes) / 1e6 == pytest.approx(millions, rel=0.01)


@pytest.mark.parametrize("name", SMALL)
def test_both_contenders_train(name, monkeypatch):
    features = {
        "resnet_50": functools.partial(examples_contenders._make_images, size=16),
        "bert_base": functools.partial(examples_contenders._make_texts, length=12),
    }
    small = dataclasses.replace(
        EXAMPLES[name],
        batch_size=2,
        loop_steps=2,
        make_feature=features[name],
        settings=SMALL[name],
    )
    monkeypatch.setitem(EXAMPLES, name, small)
    result = examples.measure(name, num_rounds=2, until=math.inf, is_quick=True)
    ratios, by_hand = (row["values"] for row in result["rows"])
    assert len(ratios) == len(by_hand) == 2
    assert all(0 < value < math.inf for value in [*ratios, *by_hand])
