"""What a whole run of the benchmarks writes into docs/speed.md and README.md."""

import pathlib

from benchmarks.report import Row
from benchmarks.speed_page import write_speed_page

ROOT = pathlib.Path(__file__).parents[2]
ROWS = [
    Row("loop", "logistic", "ours 100 / by hand 100", [0.5, 0.25, 0.75]),
    Row("loop", "cnn", "ours 100 / by hand 100", [2.0]),
    Row("warm", "mlp", "predict 32 examples, beyond bare predict", [4.0, 5.0], unit="ms"),
    Row("loop", "logistic", "of a kind that the page leaves out", [7.0]),
    Row("wide_deep", "columns", "ours 100 / by hand 100", [3.0]),
]
LOOP_ROW = (
    "| a step, loops of 100 / a hand-written `tf.function` loop of 100 | 0.50x (0.38 to 0.62) "
    "|  | 2.00x (2.00 to 2.00) |"
)
# The same label, in another table.
WIDE_DEEP_ROW = (
    "| a step, loops of 100 / a hand-written `tf.function` loop of 100 | 3.00x (3.00 to 3.00) "
    "|  |  |  |"
)


def write(folder):
    """Writes copies of this repository's pages; returns them."""
    (folder / "docs").mkdir(exist_ok=True)
    for name in ("README.md", "docs/speed.md"):
        if not (folder / name).exists():
            (folder / name).write_text((ROOT / name).read_text())
    write_speed_page(ROWS, minutes=12.3, load=0.25, folder=folder)
    return (folder / "README.md").read_text(), (folder / "docs/speed.md").read_text()


def test_the_page_has_the_rows_that_were_measured_and_no_others(tmp_path):
    _, page = write(tmp_path)
    measured = page.partition("<!-- measured: end -->")[0]
    rows = [line for line in measured.splitlines() if line.startswith("| ") and "x (" in line]
    assert rows == [LOOP_ROW, WIDE_DEEP_ROW]
    assert "beyond the model's own time |  | 4.5 ms (4.2 to 4.8) |  |" in page
    assert "in 12 minutes" in page
    assert "The load when it began was 0.2." in page.replace("\n", " ")


def test_the_text_around_the_figures_stays(tmp_path):
    before, after = (ROOT / "docs/speed.md").read_text().split("<!-- measured: begin -->")
    after = after.split("<!-- measured: end -->")[1]
    _, page = write(tmp_path)
    assert page.startswith(before)
    assert page.endswith(after)
    assert write(tmp_path)[1] == page  # Nothing grows from run to run.


def test_readme_quotes_the_page_word_for_word(tmp_path):
    old = (ROOT / "README.md").read_text().splitlines()
    readme, _ = write(tmp_path)
    changed = [line for line in readme.splitlines() if line not in old]
    assert changed == [LOOP_ROW]
    assert len(readme.splitlines()) == len(old)
