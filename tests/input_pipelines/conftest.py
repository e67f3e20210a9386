"""What the tests of the input pipelines share."""

import pytest


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """One TFDS folder for all tests, so that `mnist_5k` is prepared once."""
    return str(tmp_path_factory.mktemp("datasets"))
