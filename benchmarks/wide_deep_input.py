"""The input of the wide-and-deep benchmark, and what all of its contenders agree on.

It uses no more than TensorFlow 2.15 has, which one of them runs on.
"""

import numpy as np
import tensorflow as tf

BATCH_SIZE = 128
CATEGORIES = ("country", "device", "product", "referrer")
NUMBERS = ("age", "price", "visits")
NUM_BUCKETS = 1000
DIMENSION = 16
HIDDEN_UNITS = (64, 32)
DNN_RATE, LINEAR_RATE = 0.05, 0.1

_NUM_BATCHES = 40
_NUM_VALUES = 3000


def make_training_input() -> tf.data.Dataset:
    """Endless batches from memory: strings and float32 [128], and labels int32 [128, 1]."""
    random = np.random.default_rng(0)
    count = BATCH_SIZE * _NUM_BATCHES
    features = {name: random.normal(size=count).astype(np.float32) for name in NUMBERS}
    for name in CATEGORIES:
        values = random.zipf(1.3, size=count) % _NUM_VALUES
        features[name] = np.array([f"{name} {value}" for value in values])
    labels = random.integers(0, 2, size=[count, 1], dtype=np.int32)
    batches = tf.data.Dataset.from_tensor_slices((features, labels)).batch(
        BATCH_SIZE, drop_remainder=True
    )
    return batches.cache().repeat().prefetch(4)


def make_columns() -> tuple[list, list]:
    """The columns of the linear and of the deep half."""
    columns = tf.feature_column
    hashed = [columns.categorical_column_with_hash_bucket(name, NUM_BUCKETS) for name in CATEGORIES]
    embedded = [columns.embedding_column(column, DIMENSION) for column in hashed]
    return hashed, [*embedded, *(columns.numeric_column(name) for name in NUMBERS)]
