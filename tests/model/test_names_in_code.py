"""Values whose names are in the code of a `model_fn` otherwise than as a global or an attribute."""

import argparse
import dataclasses
import importlib
import sys

import pytest

from estimator.model.names_in_code import find_names
from estimator.model.outside_values import OutsideValues

IMPORTS = {
    "import": "import package_of_test.conf\nreturn package_of_test.conf.RATE",
    "import as": "import package_of_test.conf as c\nreturn c.RATE",
    "from": "from package_of_test.conf import RATE\nreturn RATE",
    "class": "from package_of_test.conf import Conf\nreturn Conf.rate",
    "submodule": "from package_of_test import conf\nreturn conf.RATE",
    "relative": "from .conf import RATE\nreturn RATE",
    "relative submodule": "from . import conf\nreturn conf.RATE",
    "two dots": "from ..conf import RATE\nreturn RATE",
    "in an inner function": (
        "def read():\n  from package_of_test.conf import RATE\n  return RATE\nreturn read()"
    ),
}
CONF = "RATE = 1\n\n\nclass Conf:\n    rate = 1\n"
UNREAD = 1


def values(model_fn, results=None):
    return OutsideValues((model_fn, None), set() if results is None else results).find()


@pytest.fixture
def package(monkeypatch, tmp_path):
    """A folder of modules that no test has imported."""
    folder = tmp_path / "package_of_test"
    (folder / "inner").mkdir(parents=True)
    for name, text in (("__init__", ""), ("conf", CONF), ("inner/__init__", "")):
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == folder.name]:
        del sys.modules[name]


def model_fn_in(package, name, body):
    """Writes a `model_fn` with that body into a new module, and imports it."""
    lines = "\n    ".join(body.splitlines())
    place = package / ("inner" if ".." in body else ".") / f"{name}.py"
    place.write_text(f"def model_fn(features=None, labels=None, mode=None):\n    {lines}\n")
    importlib.invalidate_caches()
    path = place.resolve().relative_to(package.parent.resolve()).with_suffix("")
    return importlib.import_module(".".join(path.parts)).model_fn


@pytest.mark.parametrize("body", IMPORTS.values(), ids=IMPORTS)
def test_a_module_counts_that_is_imported_where_it_is_read(package, body):
    model_fn, results = model_fn_in(package, "model", body), set()
    with OutsideValues((model_fn, None), results).noting_results():
        assert model_fn() == 1  # The first import.
    before = values(model_fn, results)
    assert values(model_fn, results) == before
    conf = sys.modules["package_of_test.conf"]
    conf.RATE = conf.Conf.rate = 2
    assert values(model_fn, results) != before


def test_modules_that_were_not_imported_or_do_not_exist_are_left_out(package):
    body = "import package_of_test.conf\nfrom package_of_nobody import a\nfrom ....b import c"
    model_fn = model_fn_in(package, "model", body)
    found = find_names(model_fn.__code__).modules(model_fn.__globals__)
    assert [module.__name__ for module in found] == ["package_of_test"]


@dataclasses.dataclass(eq=False)
class Settings:
    rate_of_settings: float = 1.0


class Meta(type):
    rate_of_meta = 1.0


class OfMeta(metaclass=Meta):
    pass


class Conf:
    rate_of_conf = 1.0


RATE_OF_GLOBALS = 1.0
ARGUMENTS, SETTINGS = argparse.Namespace(rate=1.0), Settings()
# The code of each reads a value that it does not name, but for that of the metaclass.
READS = {
    "vars of an object": (lambda: sum(vars(ARGUMENTS).values()), ARGUMENTS, "rate"),
    "vars of a class": (lambda: list(vars(Conf).values()), Conf, "rate_of_conf"),
    "__dict__": (lambda: {**SETTINGS.__dict__}, SETTINGS, "rate_of_settings"),
    "asdict": (lambda: dataclasses.asdict(SETTINGS), SETTINGS, "rate_of_settings"),
    "dir": (lambda: [getattr(Conf, name) for name in dir(Conf)], Conf, "rate_of_conf"),
    "metaclass": (lambda: OfMeta.rate_of_meta, Meta, "rate_of_meta"),
}


@pytest.mark.parametrize(("read", "owner", "name"), READS.values(), ids=READS)
def test_attributes_count_that_code_reads_without_their_names(monkeypatch, read, owner, name):
    before = values(read)
    assert values(read) == before
    monkeypatch.setattr(owner, name, 2.0)
    changed = values(read)
    assert changed != before
    monkeypatch.setitem(globals(), "UNREAD", 2)
    assert values(read) == changed


@pytest.mark.parametrize(
    "read",
    [lambda x: globals()[x], lambda x: [eval(x)], lambda x: [exec(x)]],
    ids=["g", "eval", "exec"],
)
def test_globals_count_that_code_reads_without_their_names(monkeypatch, read):
    before = values(read)
    assert values(read) == before
    monkeypatch.setitem(globals(), "RATE_OF_GLOBALS", 2.0)
    assert values(read) != before


def test_globals_and_attributes_that_are_read_by_name_leave_the_others_out(monkeypatch):
    def model_fn(features, labels, mode):
        return UNREAD, ARGUMENTS.rate, ARGUMENTS.vars, ARGUMENTS.eval

    before = values(model_fn)
    monkeypatch.setitem(globals(), "RATE_OF_GLOBALS", 2.0)
    monkeypatch.setattr(ARGUMENTS, "other", 2.0, raising=False)
    assert values(model_fn) == before
