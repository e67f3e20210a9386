import pytest

from estimator.summary.event_reader import read_evaluations
from estimator.summary.event_writer import EventWriter, close_event_files


@pytest.fixture
def write(tmp_path):
    """Writes an evaluation of a step into a directory."""
    directories = []

    def write(name, step):
        directories.append(str(tmp_path / name))
        EventWriter(directories[-1]).write_metrics({"loss": step / 2}, step)

    yield write
    close_event_files(directories)


def test_a_directory_of_that_very_name_is_meant_before_others(write, tmp_path):
    write("eval[12]", 5)
    write("eval1", 7)
    write("eval2", 8)
    assert read_evaluations(str(tmp_path / "eval[12]" / "*tfevents*")) == {5: {"loss": 2.5}}
    assert list(read_evaluations(str(tmp_path / "eval[1]" / "*tfevents*"))) == [7]
    assert list(read_evaluations(str(tmp_path / "eval?" / "*tfevents*"))) == [7, 8]
    assert list(read_evaluations(str(tmp_path / "*" / "*tfevents*"))) == [5, 7, 8]


def test_where_nothing_was_evaluated_there_is_nothing(write, tmp_path):
    write("eval", 5)
    assert read_evaluations(str(tmp_path / "eval" / "*others*")) == {}
    assert read_evaluations(str(tmp_path / "eval_2" / "*tfevents*")) == {}
