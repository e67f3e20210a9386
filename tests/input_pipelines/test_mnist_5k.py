import pathlib
import socket

import numpy as np
import pytest
import tensorflow_datasets as tfds

import input_pipelines
from input_pipelines import mnist_5k

_ARRAYS_PATH = pathlib.Path(input_pipelines.__file__).parent / "mnist_5k" / "mnist_5k.npz"


@pytest.fixture(scope="module")
def builder(data_dir):
    builder = mnist_5k.Builder(data_dir=data_dir)
    builder.download_and_prepare()
    return builder


def test_it_is_known_to_tfds_by_its_name(data_dir):
    assert isinstance(tfds.builder("mnist_5k", data_dir=data_dir), mnist_5k.Builder)


def test_preparing_touches_no_network(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError(f"The network was asked for: {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    builder = mnist_5k.Builder(data_dir=tmp_path)
    builder.download_and_prepare()
    assert builder.info.splits["train"].num_examples == 4000
    assert builder.info.splits["test"].num_examples == 1000


def test_the_digits_are_those_of_the_packaged_file(builder):
    with np.load(_ARRAYS_PATH) as arrays:
        for split in ("train", "test"):
            digits = zip(arrays[f"{split}_images"], arrays[f"{split}_labels"], strict=True)
            expected = {(image.tobytes(), int(label)) for image, label in digits}
            examples = tfds.as_numpy(builder.as_dataset(split=split, as_supervised=True))
            got = [(image.tobytes(), int(label)) for image, label in examples]
            assert len(got) == len(arrays[f"{split}_labels"])
            assert set(got) == expected


def test_every_class_has_as_many_digits_as_every_other(builder):
    for split, digits_per_class in (("train", 400), ("test", 100)):
        labels = [label for _, label in builder.as_dataset(split=split, as_supervised=True)]
        assert np.bincount(labels).tolist() == [digits_per_class] * 10


def test_its_features_are_those_of_tfds_own_mnist(builder, tmp_path):
    mnist = tfds.builder("mnist", data_dir=tmp_path)
    assert repr(builder.info.features) == repr(mnist.info.features)


def test_its_description_says_where_the_digits_are_from(builder):
    assert "CC BY-SA 3.0" in builder.info.description
    assert "LeCun" in builder.info.citation
