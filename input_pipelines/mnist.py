"""MNIST from TFDS: the 5,000 digits that come with the code, or all 70,000 from the network."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_datasets as tfds

import input_pipelines.mnist_5k  # noqa: F401  Makes `mnist_5k` known to TFDS.

DATASETS = ("mnist_5k", "mnist")
DEFAULT_DATA_DIR = "~/.cache/estimator/datasets"
IMAGE_SHAPE = (28, 28, 1)

# All of MNIST, so that every order of the examples is as likely as any other.
_SHUFFLED_TOGETHER = 60_000
_BATCHES_AHEAD = 4

InputFn = Callable[..., tf.data.Dataset]


def make_input_fn(
    dataset: str,
    split: str,
    *,
    training: bool = False,
    seed: int | None = None,
    data_dir: str = DEFAULT_DATA_DIR,
) -> InputFn:
    """Makes an `input_fn` over one split, after preparing the data set if need be.

    Args:
      dataset: one of `DATASETS`.
      split: "train", "test", or a part of one, such as "train[:90%]".
      training: whether to shuffle, repeat without end and give full batches only; otherwise
        every example comes once, in order.
      seed: makes the order of the training examples the same in every run.
      data_dir: where TFDS keeps its data sets.

    Returns:
      An `input_fn(params, input_context=None)`; see `make_batches` for what it gives.
    """
    builder = prepare(dataset, data_dir)

    def input_fn(
        params: dict[str, Any], input_context: tf.distribute.InputContext | None = None
    ) -> tf.data.Dataset:
        return make_batches(
            read_examples(builder, split),
            params["batch_size"],
            training=training,
            seed=seed,
            input_context=input_context,
        )

    return input_fn


def prepare(dataset: str, data_dir: str = DEFAULT_DATA_DIR) -> tfds.core.DatasetBuilder:
    """Makes sure that the data set is in `data_dir`; downloads `mnist` if it is not.

    Raises:
      ValueError: `dataset` is not one of `DATASETS`.
      RuntimeError: it could not be prepared, say for want of a network.
    """
    if dataset not in DATASETS:
        raise ValueError(f"`dataset` ({dataset!r}) must be one of {', '.join(DATASETS)}.")
    if not sys.stderr.isatty():
        tfds.disable_progress_bar()  # Each of its updates would be a line of the log.
    path = Path(data_dir).expanduser()
    try:
        tfds.builder(dataset, data_dir=path).download_and_prepare()
    except OSError as error:
        # Another process may have been first to move the same files to their place.
        if not tfds.builder(dataset, data_dir=path).is_prepared():
            raise RuntimeError(
                f"`dataset` ({dataset!r}) could not be prepared in `data_dir` ({str(path)!r}): "
                f"{error}. Choose a folder that can be written to; "
                "'mnist_5k' needs no network."
            ) from error
    return tfds.builder(dataset, data_dir=path)


def read_examples(builder: tfds.core.DatasetBuilder, split: str) -> tf.data.Dataset:
    """Gives the decoded examples of a split, always in the same order.

    Returns:
      A data set of (image, label): uint8 [28, 28, 1], int32 scalar.
    """
    examples = builder.as_dataset(
        split=split,
        as_supervised=True,
        # `make_batches` keeps what is worth keeping: the decoded images.
        read_config=tfds.ReadConfig(try_autocache=False),
    )
    return examples.map(lambda image, label: (image, tf.cast(label, tf.int32)))


def make_batches(
    examples: tf.data.Dataset,
    batch_size: int,
    *,
    training: bool,
    seed: int | None = None,
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Turns decoded examples into what a model of digits takes.

    Args:
      examples: (image, label): uint8 [28, 28, 1], int32 scalar.
      batch_size: examples in a batch of one replica.
      training: as for `make_input_fn`.
      seed: as for `make_input_fn`.
      input_context: which worker this is; each takes its own share of the examples.

    Returns:
      A data set of ({"image": float32 [batch, 28, 28, 1] in [-0.5, 0.5]}, int32 [batch]).
    """
    if input_context is not None:
        examples = examples.shard(
            input_context.num_input_pipelines, input_context.input_pipeline_id
        )
    if training:
        examples = _repeat_shuffled(examples, seed)
    batches = examples.batch(batch_size, drop_remainder=training)
    return batches.map(_scale_batch).prefetch(_BATCHES_AHEAD).with_options(_make_options())


def _repeat_shuffled(examples: tf.data.Dataset, seed: int | None) -> tf.data.Dataset:
    """Repeats decoded examples from memory, each epoch in an order of its own.

    A whole split is permuted at once, by a seed of its epoch. So the position in the input, which
    a checkpoint holds, is little more than one tensor: 2 to 4 MB for `mnist_5k`, saved in 0.05 s.
    With the 8,000 single images that `cache` and `shuffle` hold, it was 17 MB and 0.9 s.
    """
    whole_split = examples.batch(_SHUFFLED_TOGETHER).cache().repeat()
    epoch_seeds = tf.data.Dataset.random(seed=seed).batch(2)

    def shuffle(
        split: tuple[tf.Tensor, tf.Tensor], epoch_seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        images, labels = split
        order = tf.random.experimental.stateless_shuffle(tf.range(tf.size(labels)), epoch_seed)
        return tf.gather(images, order), tf.gather(labels, order)

    return tf.data.Dataset.zip((whole_split, epoch_seeds)).map(shuffle).unbatch()


def scale_images(images: tf.Tensor) -> tf.Tensor:
    """Scales pixels from uint8 in [0, 255] to float32 in [-0.5, 0.5], any shape."""
    return tf.cast(images, tf.float32) / 255.0 - 0.5


def _make_options() -> tf.data.Options:
    """Turns off what closes late.

    On TensorFlow 2.21 the thread that tunes a pipeline now and then sleeps on after its session is
    closed, as long as it last did: 36 s at the end of a minute of training. There is little to
    tune here.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return options


def _scale_batch(images: tf.Tensor, labels: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    return {"image": scale_images(images)}, labels
