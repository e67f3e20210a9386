"""5,000 real MNIST digits as a TFDS data set; importing it makes `mnist_5k` known to TFDS."""

from input_pipelines.mnist_5k.mnist_5k_dataset_builder import Builder

__all__ = ["Builder"]
