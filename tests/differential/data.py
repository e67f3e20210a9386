"""What a program and its truth have in common: the examples and the first values of variables."""

from __future__ import annotations

import zlib

import numpy as np
import tensorflow as tf

NUM_EXAMPLES = 64
NUM_FEATURES, NUM_CLASSES = 3, 3
NUM_IDS, EMBEDDING_SIZE = 5, 2

_random = np.random.RandomState(5)
X = _random.randn(NUM_EXAMPLES, NUM_FEATURES).astype(np.float32)
IDS = _random.randint(NUM_IDS, size=[NUM_EXAMPLES, 2]).astype(np.int32)
WEIGHTS = _random.choice(np.float32([0, 0.5, 1, 2]), size=NUM_EXAMPLES)
LABELS = _random.randint(NUM_CLASSES, size=NUM_EXAMPLES).astype(np.int32)


def first_value(name, shape):
    """A variable's: small numbers that depend on its name alone."""
    shape = tuple(int(size) for size in shape)
    numbers = np.random.RandomState(zlib.crc32(name.encode())).uniform(-0.6, 0.6, shape)
    return numbers.astype(np.float32)


def features_of(rows):
    """The features of some examples."""
    return {"x": X[rows], "ids": IDS[rows], "weights": WEIGHTS[rows]}


def make_numbers(source):
    """The dataset of the numbers of the examples that `source`, an Input, gives, in batches."""
    numbers = tf.data.Dataset.range(source.num_examples)
    if source.shuffle_seed is not None:
        # Where it ends, how a second pass in one session is shuffled is nobody's promise.
        reshuffles = source.epochs is None
        numbers = numbers.shuffle(4, source.shuffle_seed, reshuffle_each_iteration=reshuffles)
    numbers = numbers.repeat(source.epochs)
    return numbers.batch(source.batch_size, drop_remainder=source.drop_remainder)
