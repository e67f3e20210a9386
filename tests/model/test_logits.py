"""`call_logit_fn` gives a `logit_fn` what it takes, and checks what it returns."""

import functools

import pytest
import tensorflow as tf

import estimator as est

call_logit_fn = est.experimental.call_logit_fn


def test_it_gives_what_is_named_and_no_more():
    features, params, config = tf.constant([1.0]), {"rate": 2}, est.RunConfig()
    seen = []

    def all_of_them(features, mode, params, config):
        seen.append((mode, params, config))
        return features * 3

    def only_params(features, params):
        return features * params["rate"]

    def whatever(**given):
        assert given.keys() == {"features"}
        return given["features"]

    def call(logit_fn):
        return float(call_logit_fn(logit_fn, features, est.ModeKeys.EVAL, params, config)[0])

    assert call(all_of_them) == 3
    assert seen == [("eval", params, config)]
    assert call(only_params) == 2
    assert call(whatever) == 1
    assert call(lambda features: features * 5) == 5
    assert call(functools.partial(lambda features, factor: features * factor, factor=7)) == 7


def test_it_returns_a_tensor_or_a_dict_of_tensors():
    logits = {"a": tf.constant(1.0), "b": tf.constant(2.0)}
    assert call_logit_fn(lambda features: logits, None, "train", None, None) is logits


@pytest.mark.parametrize(
    "wrong", [None, 1.0, [tf.constant(1.0)], {"a": 1.0}, {1: tf.constant(1.0)}]
)
def test_another_result_is_an_error(wrong):
    with pytest.raises(ValueError, match=r"`logit_fn` returned .* It must return a tensor"):
        call_logit_fn(lambda features: wrong, None, "train", None, None)


def test_another_function_is_an_error():
    with pytest.raises(TypeError, match=r"`logit_fn` \(None\) must be a function"):
        call_logit_fn(None, None, "train", None, None)
    with pytest.raises(ValueError, match=r"`logit_fn` takes \(x\)\. It must take `features`"):
        call_logit_fn(lambda x: x, None, "train", None, None)
    with pytest.raises(ValueError, match=r"`logit_fn` takes \(features, labels\)\. It must take"):
        call_logit_fn(lambda features, labels: features, None, "train", None, None)
