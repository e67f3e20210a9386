"""Batches that say whether more follow, taken as the steps of one worker take them."""

import numpy as np
import pytest
import tensorflow as tf

from estimator.input.lookahead import build_unwrapped, with_lookahead

V1 = tf.compat.v1


def steps_of(dataset, num_replicas, flat):
    """The batches of each step, and whether it says that more follow; then the first news."""
    ahead = with_lookahead(dataset, num_replicas)
    iterator = V1.data.make_initializable_iterator(ahead)
    group, has_more = iterator.get_next()
    batches = build_unwrapped(group, dataset.element_spec, num_replicas)
    steps = []
    with V1.Session() as session:
        session.run(iterator.initializer)
        more = first_news = session.run(has_more)
        while more:
            values, more = session.run([[flat(batch) for batch in batches], has_more])
            steps.append([value.tolist() for value in values])
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(has_more)
    return steps, first_news


@pytest.mark.each_value
@pytest.mark.parametrize("num_replicas", [1, 2, 3])
@pytest.mark.parametrize("num_batches", [0, 1, 2, 3, 6, 7])
def test_whole_steps_in_their_order_and_what_is_too_little_for_one_left_out(
    num_batches, num_replicas
):
    with tf.Graph().as_default():
        numbers = tf.data.Dataset.range(num_batches)
        steps, first_news = steps_of(numbers, num_replicas, lambda batch: batch)
    num_steps = num_batches // num_replicas
    assert first_news == (num_steps > 0)
    assert steps == np.arange(num_steps * num_replicas).reshape(-1, num_replicas).tolist()


def test_elements_of_any_structure_and_shape_pass_unchanged():
    def make(i):
        rows = tf.ragged.range(tf.range(tf.cast(i, tf.int32) + 1))
        sparse = tf.sparse.from_dense(tf.one_hot([i], 4, dtype=tf.int64))
        return {"rows": rows, "sparse": sparse, "name": tf.strings.as_string([i])}, None

    def flat(batch):
        features, labels = batch
        assert labels is None
        parts = [features["rows"].flat_values, features["sparse"].indices[0]]
        numbers = tf.strings.to_number(features["name"], tf.int32)
        return tf.concat([*(tf.cast(part, tf.int32) for part in parts), numbers], axis=0)

    with tf.Graph().as_default():
        steps, _ = steps_of(tf.data.Dataset.range(4).map(make), 2, flat)
    assert steps == [[[0, 0, 0], [0, 0, 1, 1]], [[0, 0, 1, 0, 2, 2], [0, 0, 1, 0, 1, 2, 0, 3, 3]]]


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_a_saved_position_goes_on_with_the_next_step_from_anywhere(num_replicas, tmp_path):
    with tf.Graph().as_default():
        numbers = tf.data.Dataset.range(7 * num_replicas).shuffle(5, seed=1)
        ahead = with_lookahead(numbers, num_replicas)
        iterator = V1.data.make_initializable_iterator(ahead)
        group, has_more = iterator.get_next()
        step = [build_unwrapped(group, numbers.element_spec, num_replicas), has_more]
        V1.add_to_collection(
            V1.GraphKeys.SAVEABLE_OBJECTS,
            tf.data.experimental.make_saveable_from_iterator(iterator),
        )
        saver = V1.train.Saver(max_to_keep=7)
        with V1.Session() as session:
            session.run(iterator.initializer)
            session.run(has_more)
            paths, steps = [], []
            for number in range(7):
                paths.append(saver.save(session, str(tmp_path / f"at-{number}")))
                steps.append(session.run(step))
        for number, path in enumerate(paths):
            with V1.Session() as session:
                session.run(iterator.initializer)
                saver.restore(session, path)
                assert [session.run(step) for _ in range(number, 7)] == steps[number:]
    assert [more for _, more in steps] == [True] * 6 + [False]
