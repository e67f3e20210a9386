import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from input_pipelines import mnist, tfrecord
from tests.forked import Program


def make_examples(num_examples):
    """Images of noise, labelled by their position."""
    images = np.random.default_rng(0).integers(0, 256, [num_examples, 28, 28, 1], np.uint8)
    return list(zip(images, range(num_examples), strict=True))


def read_labels(input_fn, batch_size=4, num_batches=-1, **kwargs):
    batches = input_fn({"batch_size": batch_size}, **kwargs).take(num_batches)
    return np.concatenate([labels for _, labels in batches.as_numpy_iterator()]).tolist()


def test_a_record_is_what_the_classic_example_reads(tmp_path):
    (image, label), *_ = examples = make_examples(3)
    (path,) = tfrecord.write_examples(examples, str(tmp_path / "digits"))
    record = next(tf.data.TFRecordDataset(path).as_numpy_iterator())
    features = tf.train.Example.FromString(record).features.feature
    assert sorted(features) == ["image_raw", "label"]
    assert features["image_raw"].bytes_list.value[0] == image.tobytes()
    assert len(features["image_raw"].bytes_list.value[0]) == 784
    assert features["label"].int64_list.value[0] == label


@pytest.mark.parametrize("num_files", [1, 2, 13])
def test_what_is_written_is_read_once(tmp_path, num_files):
    examples = make_examples(100)
    paths = tfrecord.write_examples(examples, str(tmp_path / "digits"), num_files)
    assert len(paths) == num_files
    got = list(tfds.as_numpy(tfrecord.read_examples(paths)))
    assert sorted(label for _, label in got) == list(range(100))
    for image, label in got:
        np.testing.assert_array_equal(image, examples[label][0])


def test_several_files_are_numbered(tmp_path):
    paths = tfrecord.write_examples(make_examples(2), str(tmp_path / "digits"), 2)
    assert paths == [str(tmp_path / f"digits-0000{i}-of-00002") for i in range(2)]


def test_batches_are_those_of_the_other_pipeline(tmp_path, data_dir):
    builder = mnist.prepare("mnist_5k", data_dir)
    examples = tfds.as_numpy(mnist.read_examples(builder, "test"))
    (path,) = tfrecord.write_examples(examples, str(tmp_path / "test.tfrecord"))
    for training in (False, True):
        one = mnist.make_input_fn("mnist_5k", "test", training=training, seed=1, data_dir=data_dir)(
            {"batch_size": 300}
        )
        other = tfrecord.make_input_fn(path, training=training, seed=1)({"batch_size": 300})
        assert one.element_spec == other.element_spec
        for (features, labels), (other_features, other_labels) in zip(
            one.take(6), other.take(6), strict=True
        ):
            np.testing.assert_array_equal(features["image"], other_features["image"])
            np.testing.assert_array_equal(labels, other_labels)


def test_training_shuffles_over_all_files_and_repeats(tmp_path):
    paths = tfrecord.write_examples(make_examples(40), str(tmp_path / "digits"), 4)
    input_fn = tfrecord.make_input_fn(str(tmp_path / "digits-*"), training=True, seed=5)
    labels = read_labels(input_fn, num_batches=20)
    first, second = labels[:40], labels[40:]
    assert sorted(first) == sorted(second) == list(range(40))
    assert first != second
    assert first != read_labels(tfrecord.make_input_fn(str(tmp_path / "digits-*")))
    assert len(paths) == 4


def test_workers_share_the_examples_of_one_file(tmp_path):
    (path,) = tfrecord.write_examples(make_examples(11), str(tmp_path / "digits"))
    shares = [
        read_labels(
            tfrecord.make_input_fn(path), input_context=tf.distribute.InputContext(2, worker)
        )
        for worker in range(2)
    ]
    assert shares == [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9]]


def test_the_command_writes_a_split(tmp_path, data_dir):
    output = tmp_path / "test.tfrecord"
    flags = ["--dataset=mnist_5k", "--split=test[:50]", f"--output={output}", "--num_files=2"]
    with Program(tfrecord.__file__, *flags, f"--data_dir={data_dir}") as program:
        assert program.status() == 0, program.err
    assert sorted(os.listdir(tmp_path)) == [f"test.tfrecord-0000{i}-of-00002" for i in range(2)]
    labels = read_labels(tfrecord.make_input_fn(f"{output}-*"))
    assert len(labels) == 50


def test_the_command_asks_for_an_output():
    command = [sys.executable, "-m", "input_pipelines.tfrecord"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert "--output" in process.stderr
