import numpy as np
import tensorflow as tf

from models import schedules


def rates_of(build, steps, **settings):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        step = tf.compat.v1.placeholder(tf.int64, [])
        rate = build(step, **settings)
        return [session.run(rate, {step: value}) for value in steps]


SETTINGS = {"peak": 2.0, "warmup_steps": 4, "train_steps": 12}


def test_both_rise_linearly_to_the_peak_and_end_at_zero():
    for build in (schedules.build_cosine, schedules.build_linear):
        assert rates_of(build, [0, 1, 3, 4, 12, 20], **SETTINGS) == [0.5, 1.0, 2.0, 2.0, 0.0, 0.0]


def test_in_between_one_falls_as_a_cosine_and_one_linearly():
    cosine = rates_of(schedules.build_cosine, [6, 8, 10], **SETTINGS)
    np.testing.assert_allclose(cosine, [1 + 0.5**0.5, 1.0, 1 - 0.5**0.5], rtol=1e-6)
    assert rates_of(schedules.build_linear, [6, 8, 10], **SETTINGS) == [1.5, 1.0, 0.5]


def test_without_a_warm_up_the_first_step_has_the_peak():
    for build in (schedules.build_cosine, schedules.build_linear):
        assert rates_of(build, [0], peak=2.0, warmup_steps=0, train_steps=10) == [2.0]
