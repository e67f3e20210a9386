import numpy as np
import pytest
import tensorflow as tf

from input_pipelines import verses
from tests.forked import Program


def read(dataset):
    return [(features["tokens"], labels) for features, labels in dataset.as_numpy_iterator()]


def test_the_splits_are_4891_verses_of_four_books():
    train, test = (verses.read_examples(split) for split in verses.SPLITS)
    assert (len(train), len(test)) == (4005, 886)
    counts = np.bincount([label for _, label in [*train, *test]])
    assert dict(zip(verses.BOOKS, counts.tolist(), strict=True)) == {
        "Genesis": 1533,
        "Proverbs": 915,
        "Isaiah": 1292,
        "Luke": 1151,
    }


def test_common_words_have_small_tokens_and_rare_ones_are_unknown():
    vocabulary = verses.read_vocabulary()
    assert list(vocabulary)[:2] == ["and", "the"]
    text = "In the beginning, GOD created Estimators."
    known = [vocabulary[word] for word in ("in", "the", "beginning", "god", "created")]
    assert verses.encode(text, vocabulary) == [*known, verses.UNKNOWN]
    assert len(vocabulary) + verses.NUM_SPECIAL <= 4000


def test_evaluation_has_every_verse_once_in_order_padded_to_one_length():
    batches = read(verses.make_input_fn("test")({"batch_size": 100}))
    tokens = np.concatenate([tokens for tokens, _ in batches])
    assert tokens.shape == (886, verses.LENGTH)
    for row, (words, _) in zip(tokens, verses.read_examples("test"), strict=True):
        assert row.tolist() == words + [verses.PADDING] * (verses.LENGTH - len(words))


@pytest.mark.parametrize("training", [False, True])
def test_tfrecord_files_give_the_same_batches(training, tmp_path):
    path = str(tmp_path / "verses")
    verses.write_examples(verses.read_examples("test"), path)
    params, options = {"batch_size": 300}, {"training": training, "seed": 1}
    one = verses.make_input_fn("test", **options)(params)
    other = verses.make_tfrecord_input_fn(path, **options)(params)
    assert one.element_spec == other.element_spec
    for batch, other_batch in zip(read(one.take(5)), read(other.take(5)), strict=True):
        np.testing.assert_array_equal(batch[0], other_batch[0])
        np.testing.assert_array_equal(batch[1], other_batch[1])


def test_workers_share_the_verses():
    input_fn = verses.make_input_fn("test")
    shares = [
        read(input_fn({"batch_size": 1000}, tf.distribute.InputContext(2, worker)))
        for worker in range(2)
    ]
    assert [len(labels) for ((_, labels),) in shares] == [443, 443]


def test_training_shuffles_and_repeats():
    batches = read(verses.make_input_fn("test", training=True, seed=1)({"batch_size": 886}).take(2))
    (first, _), (second, _) = batches
    assert (first != second).any()
    np.testing.assert_array_equal(np.sort(first, axis=0), np.sort(second, axis=0))


def test_the_command_writes_a_split(tmp_path):
    path = tmp_path / "test.tfrecord"
    with Program(verses.__file__, "--split=test", f"--output={path}") as program:
        assert program.status() == 0, program.err
    batches = read(verses.make_tfrecord_input_fn(str(path))({"batch_size": 1000}))
    assert [len(labels) for _, labels in batches] == [886]


def test_what_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"`split` \('dev'\) must be one of train, test"):
        verses.make_input_fn("dev")
