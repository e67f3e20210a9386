"""Verses of four books, as words: from memory, or from TFRecord files.

Where the text comes from is in `verses_data/README.md`. To write such files:

    python -m input_pipelines.verses --split=train --output=verses.tfrecord
"""

import collections
import functools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from absl import app, flags

from input_pipelines import record_files

SPLITS = ("train", "test")
BOOKS = ("Genesis", "Proverbs", "Isaiah", "Luke")  # A label is a place in this list.
LENGTH = 48  # Words of an example; one verse in a hundred has more, and loses its end.
PADDING, UNKNOWN = 0, 1
NUM_SPECIAL = 2

_PATH = Path(__file__).parent / "verses_data" / "verses.tsv"
_FEWEST_TIMES = 2  # Words that the training verses have less often are unknown.

Example = tuple[list[int], int]
InputFn = Callable[..., tf.data.Dataset]


def make_input_fn(split: str, *, training: bool = False, seed: int | None = None) -> InputFn:
    """Makes an `input_fn` over one split, held in memory.

    Args:
      split: one of `SPLITS`.
      training: whether to shuffle, repeat without end and give full batches only; otherwise
        every verse comes once, in order.
      seed: makes the order of the training verses the same in every run.

    Returns:
      An `input_fn(params, input_context=None)`; see `make_batches` for what it gives.
    """
    examples = read_examples(split)
    tokens = np.array(
        [words + [PADDING] * (LENGTH - len(words)) for words, _ in examples], np.int32
    )
    labels = np.array([label for _, label in examples], np.int32)

    def input_fn(
        params: dict[str, Any], input_context: tf.distribute.InputContext | None = None
    ) -> tf.data.Dataset:
        verses = tf.data.Dataset.from_tensor_slices((tokens, labels))
        return make_batches(verses, params["batch_size"], training, seed, input_context)

    return input_fn


def make_tfrecord_input_fn(
    file_pattern: str, *, training: bool = False, seed: int | None = None
) -> InputFn:
    """Makes an `input_fn` over all files that match a pattern; the rest is as in `make_input_fn`.

    Raises:
      ValueError: no file matches.
    """
    paths = record_files.find_files(file_pattern, "input_pipelines.verses")

    def input_fn(
        params: dict[str, Any], input_context: tf.distribute.InputContext | None = None
    ) -> tf.data.Dataset:
        verses = tf.data.TFRecordDataset(paths).map(parse_record)
        return make_batches(verses, params["batch_size"], training, seed, input_context)

    return input_fn


def make_batches(
    verses: tf.data.Dataset,
    batch_size: int,
    training: bool,
    seed: int | None,
    input_context: tf.distribute.InputContext | None,
) -> tf.data.Dataset:
    """Turns single verses into what a model of text takes.

    Each verse has the same length, since a TPU compiles a program for each shape.

    Returns:
      A data set of (features, labels): {"tokens": int32 [batch, `LENGTH`]}, int32 [batch]. Each
      of several workers gets a part of its own.
    """
    if input_context is not None:
        verses = verses.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    if training:
        verses = verses.cache().shuffle(5000, seed=seed).repeat()
    batches = verses.batch(batch_size, drop_remainder=training)
    return batches.map(lambda tokens, labels: ({"tokens": tokens}, labels)).prefetch(2)


# --- Words ----------------------------------------------------------------------------------------


@functools.cache
def read_examples(split: str) -> list[Example]:
    """Reads one split: the tokens of each verse, at most `LENGTH` of them, and its label.

    Raises:
      ValueError: `split` is not one of `SPLITS`.
    """
    if split not in SPLITS:
        raise ValueError(f"`split` ({split!r}) must be one of {', '.join(SPLITS)}.")
    vocabulary = read_vocabulary()
    return [(encode(text, vocabulary), BOOKS.index(book)) for book, text in _read_verses(split)]


@functools.cache
def read_vocabulary() -> dict[str, int]:
    """Returns the token of each word that the training verses have twice or more, common first."""
    counts = collections.Counter(
        word for _, text in _read_verses("train") for word in _split_words(text)
    )
    words = [word for word, count in counts.most_common() if count >= _FEWEST_TIMES]
    return {word: token for token, word in enumerate(words, NUM_SPECIAL)}


def encode(text: str, vocabulary: dict[str, int]) -> list[int]:
    """Turns a text into the tokens of its first `LENGTH` words."""
    return [vocabulary.get(word, UNKNOWN) for word in _split_words(text)[:LENGTH]]


def _split_words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def _read_verses(split: str) -> list[tuple[str, str]]:
    """(book, text) of each verse; every fifth chapter is for the test."""
    rows = [line.split("\t") for line in _PATH.read_text().splitlines()]
    return [
        (book, text)
        for book, place, text in rows
        if (int(place.split(":")[0]) % 5 == 0) == (split == "test")
    ]


# --- TFRecord files -------------------------------------------------------------------------------


def parse_record(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Parses one serialized `tf.train.Example` into (int32 [`LENGTH`], int32 scalar)."""
    example = tf.io.parse_single_example(
        record,
        {
            "tokens": tf.io.RaggedFeature(tf.int64),
            "label": tf.io.FixedLenFeature([], tf.int64),
        },
    )
    tokens = tf.cast(example["tokens"][:LENGTH], tf.int32)
    padded = tf.pad(tokens, [[0, LENGTH - tf.size(tokens)]], constant_values=PADDING)
    return tf.ensure_shape(padded, [LENGTH]), tf.cast(example["label"], tf.int32)


def write_examples(examples: Iterable[Example], path: str) -> None:
    """Writes a file of `tf.train.Example`s with "tokens", without padding, and "label".

    The file is whole or absent.
    """
    record_files.write_files(map(_make_record, examples), [os.path.expanduser(path)])


def _make_record(example: Example) -> bytes:
    tokens, label = example
    feature = {
        "tokens": tf.train.Feature(int64_list=tf.train.Int64List(value=tokens)),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def main(argv: Sequence[str]) -> None:
    """Writes a split as a TFRecord file."""
    if len(argv) > 1:
        raise app.UsageError(f"Unknown arguments: {argv[1:]}. Use --output for the path.")
    write_examples(read_examples(flags.FLAGS.split), flags.FLAGS.output)
    print(flags.FLAGS.output)


if __name__ == "__main__":
    flags.DEFINE_enum("split", "train", SPLITS, "The split to write.")
    flags.DEFINE_string("output", None, "The file to write.", required=True)
    app.run(main)
