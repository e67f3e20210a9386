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


@pytest.fixture
def v1_control_flow():
    """As after `tf.compat.v1.disable_v2_behavior()`: a cond is built of Switch and Merge."""
    import tensorflow as tf

    tf.compat.v1.disable_control_flow_v2()
    yield
    tf.compat.v1.enable_control_flow_v2()


@pytest.fixture(params=["v1", "v2"])
def control_flow(request):
    """Both ways in which TensorFlow builds branches and loops."""
    if request.param == "v1":
        request.getfixturevalue("v1_control_flow")
