"""Writes the measured part of `docs/speed.md`, and the rows of it that README.md quotes."""

import dataclasses
import datetime
import os
import platform
import subprocess
import textwrap
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from benchmarks.report import Row

_REPOSITORY = Path(__file__).parents[1]
_PAGE = Path("docs", "speed.md")
_README = Path("README.md")
_BEGIN, _END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"

# (benchmark, workload, what) -> the row.
Rows = Mapping[tuple[str, str, str], Row]

_HAND, _KERAS = "a hand-written `tf.function` loop of 100", "Keras `fit`"
_LOOPS = "a step, loops of 100"


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of the page: a row for each kind of figure, a column for each model.

    Attributes:
      title: its heading.
      text: what stands below the heading.
      columns: heading -> the workload.
      rows: (label, benchmark, what it calls the row).
    """

    title: str
    text: str
    columns: Mapping[str, str]
    rows: Sequence[tuple[str, str, str]]


_TABLES = (
    Table(
        "One process",
        "Lower is better, except for throughput.",
        {"logistic": "logistic", "MLP": "mlp", "CNN": "cnn"},
        (
            (f"{_LOOPS} / {_HAND}", "loop", "ours 100 / by hand 100"),
            (
                f"{_LOOPS} / {_KERAS} with `steps_per_execution=100`",
                "loop",
                "ours 100 / keras 100",
            ),
            (
                f"a step, no loop / {_KERAS} with `steps_per_execution=1`",
                "loop",
                "ours 1 / keras 1",
            ),
            (f"a step, loops of 10 / {_HAND}", "loop", "ours 10 / by hand 100"),
            (
                "a step, 2 mirrored replicas with half the batch each / 1 replica",
                "mirrored",
                "2 replicas / 1 replica",
            ),
            (
                "from `train()` to the end of the first step / Keras `compile` and the first step",
                "start",
                "ours / keras",
            ),
            (
                "the same, ours in loops of 100, Keras without loops",
                "start",
                "ours, loop 100 / keras",
            ),
            (
                "from `train()` to the end of the first loop of 100 / Keras `compile` and the "
                "first 100 steps, with `steps_per_execution=100`",
                "start",
                "ours, first loop / keras, first loop",
            ),
            ("peak memory of training / a hand-written loop's", "memory", "ours / by hand"),
            (
                "throughput of `predict` over 10,000 examples / a bare `tf.function` in a loop",
                "warm",
                "predict 10,000 by batches, speed / bare",
            ),
            (
                "second `predict` of 32 examples, beyond the model's own time",
                "warm",
                "predict 32 examples, beyond bare predict",
            ),
            (
                "second `evaluate` of 8 batches, beyond the model and reading the data",
                "warm",
                "evaluate 8 batches, beyond bare evaluate and input",
            ),
            (
                "a call of a predictor with 1 example, beyond its session call",
                "warm",
                "predictor 1 example, beyond its session call",
            ),
        ),
    ),
    Table(
        "Saves",
        "A step with a checkpoint every 100 steps, in loops of 100 (the dense layer: 20), against "
        "one without\nany; with 100 million variables, a checkpoint has 400 MB. Lower is better.",
        {"CNN": "cnn", "100 million, a dense layer": "dense", "an embedding": "embedding"},
        (
            ("written between the loops", "saves", "sync / none"),
            ("`RunConfig(async_checkpoints=True)`", "saves", "async / none"),
        ),
    ),
    Table(
        "Several processes",
        "All processes share the CPUs. Of parameter servers, higher is better.",
        {"MLP": "mlp"},
        (
            (
                "a step of 2 workers / a hand-written loop with a distributed dataset, as in "
                "TensorFlow's tutorial",
                "multi_worker",
                "2 workers, ours / hand-written, distributed input",
            ),
            (
                "a step of 2 workers / a hand-written loop with an iterator a worker, which must "
                "end at the same step on all",
                "multi_worker",
                "2 workers, ours / hand-written",
            ),
            (
                "global steps a second, 1 ps and 2 workers / the classic script with "
                "`replica_device_setter`",
                "parameter_server",
                "global steps a second, ours / classic",
            ),
            (
                "from the launcher to the first step of 2 workers / the same processes started "
                "by hand",
                "launch",
                "2 workers to the first step, launcher / by hand",
            ),
        ),
    ),
    Table(
        "A ready-made model, larger models",
        "Wide and deep is `DNNLinearCombinedClassifier` with hashed and embedding columns, batch "
        "size 128.\nBERT has 12 layers and 110 million parameters. Lower is better.",
        {
            "wide and deep": "columns",
            "ResNet-18, 32x32 pixels": "resnet",
            "Transformer": "transformer",
            "BERT-base": "bert",
        },
        (
            (f"{_LOOPS} / {_HAND}", "wide_deep", "ours 100 / by hand 100"),
            (
                f"{_LOOPS} / {_KERAS} with `steps_per_execution=100`",
                "wide_deep",
                "ours 100 / keras 100",
            ),
            (
                f"{_LOOPS} / tf.estimator 2.15.1, which makes a session call a step",
                "wide_deep",
                "ours 100 / tf.estimator",
            ),
            (
                "from `train()` to the end of the first step / a script's session on the same ops",
                "large_start",
                "ours / by hand",
            ),
            ("a step, loops of 10 / such a loop by hand", "examples", "ours 10 / by hand 10"),
            ("a step, loops of 100 / such a loop by hand", "examples", "ours 100 / by hand 100"),
        ),
    ),
)


def describe_machine() -> dict:
    """What the figures depend on."""
    versions = {name: metadata.version(name) for name in ("tensorflow", "keras", "numpy")}
    cpus = len(os.sched_getaffinity(0))
    return {"cpus": cpus, "cpu": _cpu_model(), "python": platform.python_version(), **versions}


def describe_commit() -> str:
    """The commit, and whether files differ from it."""

    def ask(*arguments: str) -> str:
        command = ["git", *arguments]
        completed = subprocess.run(
            command, cwd=_REPOSITORY, capture_output=True, text=True, check=False
        )
        return completed.stdout.strip()

    commit = ask("rev-parse", "--short", "HEAD") or "unknown"
    return f"{commit} with changes" if ask("status", "--porcelain") else commit


def write_speed_page(
    rows: Sequence[Row], minutes: float, load: float, folder: Path = _REPOSITORY
) -> None:
    """Replaces the measured part of the page, and README's copies of its rows.

    Args:
      rows: all rows of a whole run.
      minutes: how long it took.
      load: the load when it began.
      folder: the repository.
    """
    page = folder / _PAGE
    before, _, rest = page.read_text().partition(_BEGIN)
    after = rest.partition(_END)[2]
    tables = format_tables(rows)
    measured = f"{_describe_run(minutes, load)}\n\n{tables}\n"
    page.write_text(f"{before}{_BEGIN}\n{measured}{_END}{after}")
    readme = folder / _README
    readme.write_text(update_rows(readme.read_text(), tables))


def _describe_run(minutes: float, load: float) -> str:
    machine = describe_machine()
    today = datetime.datetime.now(tz=datetime.timezone.utc).date()
    text = (
        f"Measured on {today}, commit `{describe_commit()}`, in {minutes:.0f} minutes: "
        f"{machine['cpus']} CPUs ({machine['cpu']}), Python {machine['python']}, TensorFlow "
        f"{machine['tensorflow']}, Keras {machine['keras']}, NumPy {machine['numpy']}. The load "
        f"when it began was {load:.1f}. In brackets: quartiles of the rounds."
    )
    return textwrap.fill(text, width=100)


def format_tables(rows: Sequence[Row]) -> str:
    """The tables of the page, in Markdown."""
    found = {(row.benchmark, row.workload, row.what): row for row in rows}
    return "\n".join(_format_table(table, found) for table in _TABLES)


def update_rows(text: str, tables: str) -> str:
    """Returns a text with its rows of tables as they are in `tables`, found by their labels."""
    new: dict[str, str] = {}
    for line in tables.splitlines():
        new.setdefault(_label(line), line)  # README has rows of the first table.
    return "".join(
        f"{new[_label(line)]}\n" if line.startswith("| a step") and _label(line) in new else line
        for line in text.splitlines(keepends=True)
    )


def _format_table(table: Table, found: Rows) -> str:
    lines = [f"## {table.title}", "", table.text, ""]
    lines += [f"| | {' | '.join(table.columns)} |", "|---" * (1 + len(table.columns)) + "|"]
    for label, benchmark, what in table.rows:
        rows = [found.get((benchmark, workload, what)) for workload in table.columns.values()]
        if any(rows):
            cells = ["" if row is None else _format_cell(row) for row in rows]
            lines.append("| " + " | ".join([label, *cells]) + " |")
    return "\n".join([*lines, ""])


def _format_cell(row: Row) -> str:
    low, median, high = row.quartiles
    if row.unit == "x":
        return f"{median:.2f}x ({low:.2f} to {high:.2f})"
    return f"{median:.1f} {row.unit} ({low:.1f} to {high:.1f})"


def _label(line: str) -> str:
    return line.split("|")[1].strip() if line.count("|") > 1 else ""


def _cpu_model() -> str:
    """The name of the processor, as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
