import re

import numpy as np
import pytest

from estimator.config.batch_size import per_replica_batch_size


@pytest.mark.parametrize(("global_size", "replicas", "share"), [(128, 4, 32), (7, 1, 7), (3, 3, 1)])
def test_every_replica_gets_the_same_share(global_size, replicas, share):
    assert per_replica_batch_size(global_size, replicas, "train_batch_size") == share


def test_the_share_of_a_numpy_integer_is_an_int():
    share = per_replica_batch_size(np.int64(8), 2, "train_batch_size")
    assert share == 4
    assert type(share) is int


@pytest.mark.parametrize(
    ("global_size", "replicas", "nearest"),
    [(130, 4, 128), (131, 4, 132), (127, 4, 128), (1, 4, 4), (3, 2, 2), (5, 3, 6)],
)
def test_an_error_names_the_nearest_size_that_fits(global_size, replicas, nearest):
    message = (
        f"`train_batch_size` ({global_size}) must be a multiple of the number of replicas "
        f"({replicas}). The nearest that fits is {nearest}."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        per_replica_batch_size(global_size, replicas, "train_batch_size")


@pytest.mark.parametrize(
    ("global_size", "error", "message"),
    [
        (0, ValueError, "`eval_batch_size` (0) must be at least 1."),
        (-8, ValueError, "`eval_batch_size` (-8) must be at least 1."),
        (2.0, TypeError, "`eval_batch_size` (2.0) must be an integer."),
        (True, TypeError, "`eval_batch_size` (True) must be an integer."),
        ("8", TypeError, "`eval_batch_size` ('8') must be an integer."),
        (None, TypeError, "`eval_batch_size` (None) must be an integer."),
    ],
)
def test_a_size_that_is_no_positive_integer_is_an_error(global_size, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        per_replica_batch_size(global_size, 1, "eval_batch_size")
