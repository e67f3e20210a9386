import concurrent.futures
import os
import pathlib
import signal

import pytest
import tensorflow as tf

from estimator.export import directory
from tests.forked import Program


def at(seconds):
    return lambda: seconds + 0.9


def write_nothing(path):
    del path


def test_the_number_appears_only_when_all_is_written(tmp_path):
    base = tmp_path / "not" / "there"

    def write(path):
        assert [name.startswith("temp-1000-") for name in os.listdir(base)] == [True]
        pathlib.Path(path, "file").write_text("whole")

    assert directory.write_numbered_dir(str(base), write, at(1000)) == str(base / "1000")
    assert os.listdir(base) == ["1000"]
    assert (base / "1000" / "file").read_text() == "whole"


@pytest.mark.parametrize(
    ("there", "number"),
    [
        ([], "1000"),
        (["1", "999"], "1000"),
        (["1000"], "1001"),
        (["1000", "1001"], "1002"),
        (["1000", "1005"], "1006"),  # Not 1001: the newest export has the highest number.
        (["temp-2000", "best", "3000x"], "1000"),
    ],
)
def test_a_number_that_is_taken_gives_the_next(tmp_path, there, number):
    for name in there:
        (tmp_path / name).mkdir()
    path = directory.write_numbered_dir(str(tmp_path), write_nothing, at(1000))
    assert path == str(tmp_path / number)
    assert sorted(os.listdir(tmp_path)) == sorted([*there, number])


def test_a_number_taken_at_the_last_moment_gives_the_next(tmp_path, monkeypatch):
    listdir = tf.io.gfile.listdir

    def list_then_take(path):
        names = listdir(path)
        (tmp_path / "1000").mkdir()
        (tmp_path / "1000" / "file").touch()
        return names

    monkeypatch.setattr(tf.io.gfile, "listdir", list_then_take)
    path = directory.write_numbered_dir(str(tmp_path), write_nothing, at(1000))
    assert path == str(tmp_path / "1001")


@pytest.mark.parametrize("error", [RuntimeError("no space"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing(tmp_path, error):
    def write(path):
        pathlib.Path(path, "file").touch()
        raise error

    with pytest.raises(type(error)):
        directory.write_numbered_dir(str(tmp_path), write, at(1000))
    assert os.listdir(tmp_path) == []


def test_a_failure_to_rename_leaves_nothing(tmp_path, monkeypatch):
    def rename(source, destination):
        raise tf.errors.PermissionDeniedError(None, None, f"{source} to {destination}")

    monkeypatch.setattr(tf.io.gfile, "rename", rename)
    with pytest.raises(tf.errors.PermissionDeniedError):
        directory.write_numbered_dir(str(tmp_path), write_nothing, at(1000))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("value", [None, "", b"", 3, ["a"]])
def test_a_wrong_base_is_named(value):
    with pytest.raises(ValueError, match="`export_dir_base` .* must be the path of a directory"):
        directory.make_base_path(value)


def test_a_base_that_is_a_file_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file"):
        directory.make_base_path(tmp_path / "file")


@pytest.mark.parametrize("make", [str, os.fsencode, pathlib.Path])
def test_a_base_of_any_path_type_becomes_a_string(tmp_path, make):
    assert directory.make_base_path(make(str(tmp_path))) == str(tmp_path)


@pytest.mark.parametrize(
    ("destination", "message"),
    [
        ("..", "stay inside"),
        ("../x", "stay inside"),
        ("a/../../x", "stay inside"),
        ("a/../x", "stay inside"),
        ("a\\..\\..\\x", "stay inside"),
        ("/x", "stay inside"),
        ("\\x", "stay inside"),
        ("C:\\x", "stay inside"),
        ("gs://bucket/x", "stay inside"),
        ("", "stay inside"),
        (".", "stay inside"),
        (3, "stay inside"),
    ],
)
def test_extra_assets_cannot_leave_their_directory(destination, message):
    with pytest.raises(ValueError, match=message):
        directory.make_extra_assets({destination: __file__})


@pytest.mark.parametrize("source", ["/not/there", None, 3, "", os.path.dirname(__file__)])
def test_an_extra_asset_must_be_a_file(source):
    with pytest.raises(ValueError, match=r"`assets_extra\['a'\]` .* a file that exists"):
        directory.make_extra_assets({"a": source})


def test_extra_assets_must_be_a_dict_without_doubles():
    with pytest.raises(ValueError, match="must be a dict"):
        directory.make_extra_assets([__file__])
    with pytest.raises(ValueError, match="two files for 'a/b'"):
        directory.make_extra_assets({"a/b": __file__, "./a//b": __file__})


def test_extra_assets_are_copied_to_their_places(tmp_path):
    extra = directory.make_extra_assets({"a.py": __file__, "./deep/er/b.py": __file__})
    directory.write_extra_assets(extra, str(tmp_path))
    written = pathlib.Path(tmp_path, "assets.extra")
    content = pathlib.Path(__file__).read_text()
    assert (written / "a.py").read_text() == content
    assert (written / "deep" / "er" / "b.py").read_text() == content
    assert directory.make_extra_assets(None) == {}


# --- Processes that are killed -------------------------------------------------------------------

KILLED = """
import signal, sys
from estimator.export import directory

def write(path):
    open(path + "/half", "w").close()
    print("writing", flush=True)
    signal.pause()

directory.write_numbered_dir(sys.argv[1], write, lambda: 1000.0)
"""


def test_what_a_killed_export_left_is_removed_by_the_next(tmp_path):
    base = tmp_path / "base"
    program = tmp_path / "program.py"
    program.write_text(KILLED)
    with Program(str(program), base) as process:
        process.wait_for("writing\n")
        (unfinished,) = os.listdir(base)
        directory.write_numbered_dir(str(base), write_nothing, at(2000))
        assert sorted(os.listdir(base)) == ["2000", unfinished]  # It may still come to its end.
        process.send(signal.SIGKILL)
        assert process.status() == -signal.SIGKILL
    directory.write_numbered_dir(str(base), write_nothing, at(1010))
    assert sorted(os.listdir(base)) == ["2000", "2001", unfinished]  # It is too new to tell.
    directory.write_numbered_dir(str(base), write_nothing, at(2001))
    assert sorted(os.listdir(base)) == ["2000", "2001", "2002"]


def test_exports_of_one_second_get_a_number_each(tmp_path):
    def export(index):
        write = pathlib.Path.touch
        return directory.write_numbered_dir(
            str(tmp_path), lambda path: write(pathlib.Path(path, str(index))), at(1000)
        )

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(export, range(16)))
    assert sorted(os.listdir(tmp_path)) == [str(1000 + i) for i in range(16)]
    for index, path in enumerate(paths):
        assert os.listdir(path) == [str(index)]
