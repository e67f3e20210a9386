"""Batches that say whether more follow, taken as the steps of one worker take them."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.input.batch_size_check import check_batch_size
from estimator.input.input_calls import build_replica_batches, get_input
from estimator.input.lookahead import build_unwrapped, with_lookahead
from estimator.input.pipelines import build_pipeline

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


def input_of(input_fn, lookahead):
    return get_input(
        input_fn, mode="train", params={}, config=None, input_context=None, lookahead=lookahead
    )


def test_shards_say_whether_more_follows_before_they_have_batches():
    def build(index, num_calls):
        return input_of(lambda: tf.data.Dataset.range(10 * index, 10 * index + 2), 1).build()

    # Nothing that the call does not need is pruned from the graph.
    config = V1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default(), V1.Session(config=config) as session:
        source = build_pipeline(build, est.tpu.InputPipelineConfig.PER_SHARD_V1, 2)
        batches, has_more = build_replica_batches(source, 2)
        session.run(source.initializer)
        assert session.run(has_more)
        numbers = [features for features, _ in batches]
        assert session.run([numbers, has_more]) == [[0, 10], True]
        assert session.run([numbers, has_more]) == [[1, 11], False]


def test_the_size_of_batches_is_known_with_a_lookahead_too():
    def input_fn(params):
        return tf.data.Dataset.range(20).batch(8)

    with tf.Graph().as_default():
        source = input_of(input_fn, 2)
        with pytest.raises(ValueError, match="yields batches of 8 examples"):
            check_batch_size(input_fn, source, 4, "as `train_batch_size` says")
