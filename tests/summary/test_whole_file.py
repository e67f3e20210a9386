import os

import pytest
import tensorflow as tf

from estimator.summary.whole_file import write_file
from tests.full_disk import no_file_larger_than


def test_a_file_that_cannot_be_written_stays_as_it_was_and_leaves_no_other(tmp_path):
    path = str(tmp_path / "file")
    write_file(path, b"old")
    with no_file_larger_than(1000), pytest.raises(tf.errors.OpError):
        write_file(path, b"new" * 1000)
    assert (tmp_path / "file").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
