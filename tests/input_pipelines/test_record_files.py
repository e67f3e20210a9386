"""What the pipelines that read TFRecord files have in common."""

import os

import numpy as np
import pytest

from input_pipelines import tfrecord, verses

# Module: what finds its files, what writes one, and an example of it.
PIPELINES = {
    "tfrecord": (
        tfrecord.make_input_fn,
        tfrecord.write_examples,
        (np.zeros([28, 28, 1], np.uint8), 1),
    ),
    "verses": (verses.make_tfrecord_input_fn, verses.write_examples, ([5, 6], 1)),
}


@pytest.fixture(params=PIPELINES)
def name(request):
    return request.param


def test_a_failed_write_leaves_nothing_and_keeps_what_was_there(name, tmp_path):
    _, write_examples, example = PIPELINES[name]

    def failing():
        yield example
        raise OSError("the disk is gone")

    (tmp_path / "there").write_text("as it was")
    for path in (tmp_path / "there", tmp_path / "absent"):
        with pytest.raises(OSError, match="the disk is gone"):
            write_examples(failing(), str(path))
    assert os.listdir(tmp_path) == ["there"]
    assert (tmp_path / "there").read_text() == "as it was"


def test_a_pattern_without_files_is_refused_and_says_what_writes_them(name, tmp_path):
    message = rf"`file_pattern` \('.*absent-\*'\) must match .* -m input_pipelines\.{name}` writes"
    with pytest.raises(ValueError, match=message):
        PIPELINES[name][0](str(tmp_path / "absent-*"))
