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
    """Keeps what was imported out of each later look for garbage.

    TensorFlow and the tests are a million objects that stay: a test that counts what is left
    collects all garbage again and again, and each time would take a second for these alone.
    """
    gc.collect()
    gc.freeze()
