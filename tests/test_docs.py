"""What README.md and docs/ show runs, what they link to exists, and their lists are complete."""

import dataclasses
import functools
import pathlib
import re

import pytest
from absl import flags

import estimator as est
import run_mnist  # noqa: F401  Defines its flags.
from estimator_launch import command  # noqa: F401  Likewise.
from tests.test_architecture import FLOORS

ROOT = pathlib.Path(__file__).parents[1]
README, SPEED = ROOT / "README.md", ROOT / "docs" / "speed.md"
DOCS = [README, *sorted((ROOT / "docs").rglob("*.md")), ROOT / "deploy/kubernetes/README.md"]
NAMES = {path: str(path.relative_to(ROOT)) for path in DOCS}

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]+\]\(([^()\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_FIGURE = re.compile(r"\b\d+(\.\d+)?( ?ms| ?us|x)\b")
# What a run writes, and a program of TensorFlow's own, have names but are not in this repository.
_ELSEWHERE = re.compile(r"(eval|input-position|assets\.extra)/|mnist_replica\.py")


def fences(path, language):
    """(line, text) of each block in that language."""
    text = path.read_text()
    for match in _FENCE.finditer(text):
        if match[1] == language:
            yield text.count("\n", 0, match.start(2)), match[2]


@functools.cache
def file_names():
    """The names of the repository's files; nothing of environments and tools."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."]
    found = [path for folder in folders for path in folder.rglob("*")]
    return {path.name for path in [*ROOT.iterdir(), *found]}


def prose(path):
    """The text without its blocks of code."""
    return _FENCE.sub("", path.read_text())


def anchors(path):
    """What a link to a heading of this page may say after the #, as GitHub makes it."""
    titles = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}


def run_python(path):
    """Runs a page's blocks of Python as one program; returns its names."""
    names = {"__name__": path.stem}
    for line, text in fences(path, "python"):
        # With the lines in front, a traceback names the line of the page.
        exec(compile("\n" * line + text, str(path), "exec"), names)
    return names


WITH_PYTHON = [path for path in DOCS if path != README and list(fences(path, "python"))]


@pytest.mark.parametrize("path", WITH_PYTHON, ids=NAMES.get)
def test_the_python_of_a_page_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_python(path)


def test_the_example_of_readme_trains_and_exports_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_python(README)
    line, best = tmp_path / "runs/line", tmp_path / "runs/best"
    assert (line / "model.ckpt-1000.index").exists()
    assert len(list(line.glob("export/*/saved_model.pb"))) == 1
    assert list(best.glob("export/best/*/saved_model.pb"))
    assert names["metrics"]["error"] < 0.1  # The noise is 0.08.
    assert names["metrics"]["global_step"] < 5000  # It has stopped early.


@pytest.mark.parametrize("path", DOCS, ids=NAMES.get)
def test_a_link_leads_to_a_file_and_a_heading(path):
    broken = []
    for link in _LINK.findall(prose(path)):
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if link.startswith(("http:", "https:")):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("path", DOCS, ids=NAMES.get)
def test_a_file_that_is_named_exists(path):
    known = file_names()
    places = (ROOT, ROOT / "estimator", ROOT / "estimator_launch", path.parent)
    missing = []
    for name in _CODE.findall(prose(path)):
        is_path = re.fullmatch(r"[\w./-]+(\.(py|md|yaml|toml)|/)", name)
        is_there = name in known or any((place / name).exists() for place in places)
        if is_path and not is_there and not _ELSEWHERE.fullmatch(name):
            missing.append(name)
    assert missing == []


@pytest.mark.parametrize("path", DOCS, ids=NAMES.get)
def test_a_make_target_that_is_named_exists(path):
    code = [*_CODE.findall(prose(path)), *(text for _, text in fences(path, "sh"))]
    named = {
        target for text in code for target in re.findall(r"^make ([\w-]+)", text, re.MULTILINE)
    }
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named - targets == set()


@pytest.mark.parametrize("path", DOCS, ids=NAMES.get)
def test_a_flag_that_is_named_exists(path):
    lines = [line for _, text in fences(path, "sh") for line in text.splitlines()]
    ours = [line for line in lines if re.match(r"(estimator-launch|make mnist|python run_)", line)]
    named = {name for line in ours for name in re.findall(r"--(\w+)", line)}
    assert named - set(flags.FLAGS) - {"helpshort"} == set()


def test_readme_is_short_and_begins_with_the_two_commands():
    assert len(README.read_text().splitlines()) < 150
    lines = README.read_text().splitlines()
    assert lines[0] == "# estimator"
    assert [line.split("  ")[0] for line in lines[2:6]] == [
        "```sh",
        "make mnist",
        "make test",
        "```",
    ]


def test_each_figure_of_readme_is_in_the_page_on_speed():
    figures = [line for line in README.read_text().splitlines() if _FIGURE.search(line)]
    assert figures
    assert [line for line in figures if line not in SPEED.read_text().splitlines()] == []


def test_readme_leads_to_every_page():
    linked = {(ROOT / link).resolve() for link in _LINK.findall(README.read_text())}
    assert set((ROOT / "docs").glob("*.md")) - linked == set()


def test_architecture_has_each_room_on_its_floor():
    text = (ROOT / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| (\d+) \| `(\w+)(?:/|\.py)` \|", text, re.MULTILINE)
    assert {room: int(floor) for floor, room in rows} == FLOORS


def test_a_name_of_the_code_that_is_mentioned_is_there():
    """Of the pages that are about the code, not about using it."""
    folders = (ROOT / "estimator", ROOT / "estimator_launch")
    code = "".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    missing = []
    for page in [ROOT / "docs/architecture.md", *(ROOT / "docs/decisions").glob("*.md")]:
        for name in _CODE.findall(prose(page)):
            words = name.removeprefix("_tf.").split(".")
            is_name = re.fullmatch(r"(_tf\.)?[A-Za-z]\w+(\.(?!py$)\w+)?", name)
            if is_name and not all(re.search(rf"\b{word}\b", code) for word in words):
                missing.append((page.name, name))
    assert missing == []


def test_every_switch_is_listed_with_its_default():
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", (ROOT / "docs/switches.md").read_text(), re.M)
    config = est.RunConfig()
    words = {"cluster": "from TF_CONFIG", "session_config": "None"}
    defaults = {
        field.name: words.get(field.name, repr(getattr(config, field.name)).replace("'", '"'))
        for field in dataclasses.fields(config)
    }
    assert dict(rows) == defaults, "docs/switches.md needs a row for each field"
    assert len(rows) == len(defaults)


def test_the_versions_that_were_tried_are_those_that_are_asked_for():
    asked = (ROOT / "pyproject.toml").read_text()
    first, end = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', asked).groups()
    (tensorflow,) = re.findall(r'"tensorflow>=2\.(\d+)"', asked)
    page = (ROOT / "docs/compatibility.md").read_text()
    tried = re.findall(r"^\| (?:nightly, )?2\.(\d+)\..*\| 3\.(\d+) \|", page, re.MULTILINE)
    assert min(int(version) for version, _ in tried) == int(tensorflow)
    assert {int(python) for _, python in tried} == set(range(int(first), int(end)))
