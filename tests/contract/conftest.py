"""Chooses what of the contract holds on the side that runs it."""

import os

import pytest

from tests.contract.names import IS_2_15, v1
from tests.contract.not_yet import NOT_YET


def pytest_collection_modifyitems(config, items):
    """Leaves out what holds on the other side only; what is not done yet must fail."""
    other = "only_here" if IS_2_15 else "only_2_15"
    ours = [item for item in items if "tests/contract/" in item.path.as_posix()]
    left_out = [item for item in ours if item.get_closest_marker(other)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    for item in () if IS_2_15 else ours:
        for reason, names in NOT_YET.get(item.path.name, {}).items():
            if item.name in names:
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture(autouse=True)
def _without_tf_config(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)


@pytest.fixture
def without_resource_variables():
    """As after `tf.compat.v1.disable_v2_behavior()`: on 2.15.1, reference variables are made."""
    v1.disable_resource_variables()
    yield
    v1.enable_resource_variables()


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    """A directory that the tests of a module share."""
    return os.fspath(tmp_path_factory.mktemp("model"))
