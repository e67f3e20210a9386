"""What all tests share."""

import gc

import pytest

from tests import pairwise


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of a test marked `pairwise`, a selection of its cases belongs to the default run."""
    for item in pairwise.rest(items):
        item.add_marker(pytest.mark.full)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """Excludes what was imported from garbage collection.

    TensorFlow and the tests are a million objects that stay alive. Tests of leaks call
    `gc.collect` many times, and each call would spend a second on these objects alone.
    """
    gc.collect()
    gc.freeze()
