"""Digits from TFRecord files in the format of the classic TPUEstimator example.

A record is a `tf.train.Example` with `image_raw`, 784 bytes, and `label`, an int64. To write
such files:

    python -m input_pipelines.tfrecord --dataset=mnist_5k --split=train --output=train.tfrecord
"""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from absl import app, flags

from input_pipelines import mnist, record_files

# Files read at the same time; one record of each in turn.
_FILES_AT_ONCE = 8


def make_input_fn(
    file_pattern: str, *, training: bool = False, seed: int | None = None
) -> mnist.InputFn:
    """Makes an `input_fn` over all files that match a pattern, such as "train.tfrecord-*".

    Args:
      file_pattern: a path, with or without wildcards.
      training: as for `mnist.make_input_fn`.
      seed: as for `mnist.make_input_fn`.

    Returns:
      An `input_fn(params, input_context=None)`; see `mnist.make_batches` for what it gives.

    Raises:
      ValueError: no file matches.
    """
    paths = record_files.find_files(file_pattern, "input_pipelines.tfrecord")

    def input_fn(
        params: dict[str, Any], input_context: tf.distribute.InputContext | None = None
    ) -> tf.data.Dataset:
        return mnist.make_batches(
            read_examples(paths),
            params["batch_size"],
            training=training,
            seed=seed,
            input_context=input_context,
        )

    return input_fn


def read_examples(paths: Sequence[str]) -> tf.data.Dataset:
    """Gives the examples of the files, always in the same order.

    Returns:
      A data set of (image, label): uint8 [28, 28, 1], int32 scalar.
    """
    records = tf.data.Dataset.from_tensor_slices(list(paths)).interleave(
        tf.data.TFRecordDataset,
        cycle_length=_FILES_AT_ONCE,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    return records.map(parse_record, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def parse_record(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Parses one serialized `tf.train.Example` into (uint8 [28, 28, 1], int32 scalar)."""
    example = tf.io.parse_single_example(
        record,
        {
            "image_raw": tf.io.FixedLenFeature([], tf.string),
            "label": tf.io.FixedLenFeature([], tf.int64),
        },
    )
    pixels = tf.io.decode_raw(example["image_raw"], tf.uint8)
    return tf.reshape(pixels, mnist.IMAGE_SHAPE), tf.cast(example["label"], tf.int32)


def write_examples(
    examples: Iterable[tuple[np.ndarray, int]], output_path: str, num_files: int = 1
) -> list[str]:
    """Writes examples to `num_files` files, in turn; a file is whole or absent.

    Args:
      examples: (image, label): uint8 arrays of 784 pixels in any shape.
      output_path: the path of the one file, or what the paths of several begin with.
      num_files: how many files.

    Returns:
      The paths of the files.
    """
    paths = _output_paths(output_path, num_files)
    record_files.write_files(map(_make_record, examples), paths)
    return paths


def _output_paths(output_path: str, num_files: int) -> list[str]:
    path = os.path.expanduser(output_path)
    if num_files == 1:
        return [path]
    return [f"{path}-{number:05d}-of-{num_files:05d}" for number in range(num_files)]


def _make_record(example: tuple[np.ndarray, int]) -> bytes:
    image, label = example
    feature = {
        "image_raw": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(label)])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def _define_flags() -> None:
    """Defines the command's flags; not on import, for `run_mnist.py` has flags of the same name."""
    flags.DEFINE_enum("dataset", "mnist_5k", mnist.DATASETS, "The data set to read.")
    flags.DEFINE_string("split", "train", "The split to read: train, test, or train[:90%].")
    flags.DEFINE_string("output", None, "The file to write.", required=True)
    flags.DEFINE_integer(
        "num_files", 1, "Files to write: OUTPUT, or OUTPUT-00000-of-00002 and so on.", lower_bound=1
    )
    flags.DEFINE_string("data_dir", mnist.DEFAULT_DATA_DIR, "Where TFDS keeps its data sets.")


def main(argv: Sequence[str]) -> None:
    """Writes a split of a data set as TFRecord files."""
    if len(argv) > 1:
        raise app.UsageError(f"Unknown arguments: {argv[1:]}. Use --output for the path.")
    args = flags.FLAGS
    builder = mnist.prepare(args.dataset, args.data_dir)
    examples = tfds.as_numpy(mnist.read_examples(builder, args.split))
    for path in write_examples(examples, args.output, args.num_files):
        print(path)


if __name__ == "__main__":
    _define_flags()
    app.run(main)
