"""The TFDS builder of `mnist_5k`; README.md and CITATIONS.bib beside it are its metadata."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

_ARRAYS_PATH = Path(__file__).with_name("mnist_5k.npz")


class Builder(tfds.core.GeneratorBasedBuilder):
    """Prepares `mnist_5k` from the file beside this module, without a network."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "4,000 digits to train on, 1,000 to test on."}

    def _info(self) -> tfds.core.DatasetInfo:
        """Describes features that are those of TFDS's own `mnist`."""
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(28, 28, 1)),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="http://yann.lecun.com/exdb/mnist/",
        )

    def _split_generators(
        self, dl_manager: tfds.download.DownloadManager
    ) -> Mapping[str, Iterator[tuple[int, dict[str, Any]]]]:
        """Takes the splits from the packaged file; `dl_manager` has nothing to do."""
        del dl_manager
        return {split: self._generate_examples(split) for split in ("train", "test")}

    def _generate_examples(self, split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields (position in the split, example)."""
        with np.load(_ARRAYS_PATH) as arrays:
            images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
        for position, (image, label) in enumerate(zip(images, labels, strict=True)):
            yield position, {"image": image[..., np.newaxis], "label": int(label)}
