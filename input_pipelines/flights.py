"""10,000 flights from New York City, each with what is known of it before it leaves.

What the columns mean and where they come from is in `flights_data/README.md`.
"""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

SPLITS = ("train", "validation", "test")
LABEL = "late"
TYPES = {
    LABEL: np.int32,
    "carrier": np.str_,
    "origin": np.str_,
    "dest": np.str_,
    "month": np.int64,
    "weekday": np.int64,
    "hour": np.float32,
    "distance": np.float32,
    "temperature": np.float32,
    "dew_point": np.float32,
    "wind_speed": np.float32,
    "precipitation": np.float32,
    "visibility": np.float32,
}

_FOLDER = Path(__file__).parent / "flights_data"


def make_input_fn(
    split: str, batch_size: int, *, training: bool = False, seed: int | None = None
) -> Callable[[], tf.data.Dataset]:
    """Makes an `input_fn` over one split.

    Args:
      split: one of `SPLITS`.
      batch_size: flights in a batch.
      training: whether to shuffle and to repeat without end; otherwise every flight comes once.
      seed: makes the order of the training flights the same in every run.

    Returns:
      An `input_fn()` that gives batches of (features, labels): a dict from each column but
      "late" to a tensor [batch] of its type, and int32 [batch].
    """
    features, labels = read_flights(split)

    def input_fn() -> tf.data.Dataset:
        flights = tf.data.Dataset.from_tensor_slices((features, labels))
        if training:
            flights = flights.shuffle(len(labels), seed=seed).repeat()
        return flights.batch(batch_size).prefetch(2)

    return input_fn


def read_flights(split: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Reads one split: a dict from each column but "late" to its values, and the labels.

    Raises:
      ValueError: `split` is not one of `SPLITS`.
    """
    if split not in SPLITS:
        raise ValueError(f"`split` ({split!r}) must be one of {', '.join(SPLITS)}.")
    with open(_FOLDER / f"{split}.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {name: np.array([row[name] for row in rows]) for name in TYPES}
    flights = {name: column.astype(TYPES[name]) for name, column in columns.items()}
    return flights, flights.pop(LABEL)
