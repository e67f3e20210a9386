"""The summaries of an `input_fn` show the batch of the step that they are recorded in."""

import logging

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests import toy

BATCH_SIZE = 4
NUM_STEPS = 12


def add_summaries(batch):
    tf.compat.v1.summary.scalar("mean_of_batch", tf.reduce_mean(tf.cast(batch, tf.float32)))
    tf.compat.v1.summary.histogram("histogram_of_batch", batch)
    return batch


def one_shot_iterator():
    dataset = toy.numbers(batch_size=BATCH_SIZE)()
    return add_summaries(tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()), None


def queue():
    one = tf.compat.v1.train.range_input_producer(1000, shuffle=False).dequeue()
    return add_summaries(tf.compat.v1.train.batch([one], BATCH_SIZE)), None


def dataset():
    tf.compat.v1.summary.scalar("mean_of_batch", 7.0)
    return toy.numbers(batch_size=BATCH_SIZE)()


def train(input_fn, model_dir, **config):
    config = est.RunConfig(**{"save_summary_steps": 1, **config})
    trained = est.Estimator(toy.Model(), str(model_dir), config)
    trained.train(input_fn, steps=NUM_STEPS)


def recorded(model_dir):
    """The recorded means, by step, and the steps of the histograms."""
    events = toy.events(str(model_dir))
    means = {step: value.simple_value for step, tag, value in events if tag == "mean_of_batch"}
    return means, {step for step, tag, _ in events if tag == "histogram_of_batch"}


def mean_at(step, num_replicas=1):
    """Of the batch that the first replica takes in the step that ends with `step`."""
    first = (step - 1) * BATCH_SIZE * num_replicas
    return np.mean(np.arange(first, first + BATCH_SIZE))


@pytest.mark.parametrize("input_fn", [one_shot_iterator, queue])
@pytest.mark.parametrize("strategy", [None, "one_device"])
def test_each_step_has_that_of_its_batch(strategy, input_fn, tmp_path):
    train(input_fn, tmp_path, strategy=strategy)
    means, histograms = recorded(tmp_path)
    assert means == {step: mean_at(step) for step in range(1, NUM_STEPS + 1)}
    assert histograms == set(means)


@pytest.mark.parametrize("loop_steps", [2, 3, 100])
def test_a_loop_has_that_of_its_last_batch(loop_steps, tmp_path):
    steps = loop_steps if loop_steps < NUM_STEPS else NUM_STEPS
    train(
        one_shot_iterator, tmp_path, iterations_per_loop=loop_steps, save_summary_steps=loop_steps
    )
    means, histograms = recorded(tmp_path)
    assert means == {step: mean_at(step) for step in range(steps, NUM_STEPS + 1, steps)}
    assert histograms == set(means)


@pytest.mark.parametrize("loop_steps", [1, 3])
def test_replicas_have_that_of_the_first_ones_batch(loop_steps, tmp_path):
    train(
        one_shot_iterator,
        tmp_path,
        strategy="mirrored",
        num_replicas=2,
        iterations_per_loop=loop_steps,
        save_summary_steps=loop_steps,
    )
    means, _ = recorded(tmp_path)
    assert means == {
        step: mean_at(step, num_replicas=2) for step in range(loop_steps, NUM_STEPS + 1, loop_steps)
    }


def test_the_input_of_a_dataset_may_make_one(tmp_path):
    train(dataset, tmp_path)
    assert recorded(tmp_path)[0] == dict.fromkeys(range(1, NUM_STEPS + 1), 7.0)


def test_a_loop_tells_what_it_cannot_record(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        train(queue, tmp_path, iterations_per_loop=3, save_summary_steps=3)
    assert "'mean_of_batch'" in caplog.text
    assert "iterations_per_loop=1" in caplog.text
    assert recorded(tmp_path) == ({}, set())
