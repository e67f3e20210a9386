"""Says which names of TensorFlow and Keras each entry of `_tf` relies on, and tries it.

`make canary TF=2.18.1` runs this file alone in an environment with that TensorFlow. Of a change
there, the test of an entry says which name is gone, before anything imports `_tf`.
"""

import ast
import importlib
import inspect
import pathlib
import pkgutil
import re

import pytest

from tests._tf.canary.internals import INTERNALS, OF_INSTALL
from tests._tf.canary.rows import CHECKS

ROOT = pathlib.Path(__file__).parents[2]
GROUPS = ("graphs", "layers", "strategies", "training", "v1_optimizers")


def entries():
    """What `_tf/__init__.py` exports, read without importing it."""
    tree = ast.parse((ROOT / "estimator" / "_tf" / "__init__.py").read_text())
    return [
        alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]


def find(path):
    """Raises unless a name is there: "module:Class.method", or "module:Class#attribute_of_self".

    A name that begins with "?" may be absent with its module.
    """
    path, _, attribute = path.partition("#")
    try:
        owner = pkgutil.resolve_name(path.removeprefix("?"))
    except ModuleNotFoundError:
        if path.startswith("?"):
            return
        raise
    if attribute:
        files = {inspect.getmodule(c).__dict__.get("__file__") for c in owner.__mro__}
        texts = [pathlib.Path(file).read_text() for file in files if str(file).endswith(".py")]
        uses = re.compile(rf"\bself\.{attribute}\b")
        assert any(uses.search(text) for text in texts), f"no {attribute} in {path}"


@pytest.mark.parametrize("name", entries())
def test_canary(name):
    for path in INTERNALS[name]:
        find(path)
    for group in GROUPS:
        importlib.import_module(f"tests._tf.canary.{group}")
    CHECKS[name]()


@pytest.mark.parametrize("path", OF_INSTALL)
def test_what_install_relies_on_is_there(path):
    find(path)


def test_no_row_is_left_of_an_entry_that_is_gone():
    for group in GROUPS:
        importlib.import_module(f"tests._tf.canary.{group}")
    assert set(CHECKS) == set(INTERNALS) == set(entries())


def test_each_private_module_that_an_entry_imports_is_in_a_row():
    imported = {
        f"{node.module}.{alias.name}"
        for path in (ROOT / "estimator" / "_tf").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tensorflow.")
        for alias in node.names
    }
    named = " ".join(path for paths in [*INTERNALS.values(), OF_INSTALL] for path in paths)
    assert [module for module in imported if f"{module}:" not in named] == []


# They need tf-keras as tf.keras, and say so if it is not.
OF_TF_KERAS = ("tf.compat.v1.layers", "tf.compat.v1.nn.rnn_cell")


def parts(node):
    """The names of `a.b.c`, or an empty list for anything else."""
    if isinstance(node, ast.Attribute):
        before = parts(node.value)
        return [*before, node.attr] if before else []
    return [node.id] if isinstance(node, ast.Name) else []


def public_names():
    """What the library takes of `tf`, as "tf.data.Dataset"; not what it takes of a class."""
    for path in (ROOT / "estimator").rglob("*.py"):
        nodes = [*ast.walk(ast.parse(path.read_text()))]
        # Short names of a file, as in `_V1 = tf.compat.v1`.
        short = {
            target.id: parts(node.value)
            for node in nodes
            if isinstance(node, ast.Assign) and parts(node.value)[:1] == ["tf"]
            for target in node.targets
            if isinstance(target, ast.Name) and target.id.isupper()
        }
        for node in nodes:
            first, *rest = parts(node) or [""]
            if first == "tf" or first in short:
                yield ".".join(short.get(first, [first]) + rest)


def test_each_public_name_that_the_library_uses_is_there():
    names = set(public_names())
    assert {"tf.data.Dataset", "tf.compat.v1.Session"} <= names
    gone = set()
    for name in names:
        owner = importlib.import_module("tensorflow")
        for part in name.split(".")[1:]:
            if inspect.isclass(owner):
                break
            if not hasattr(owner, part):
                gone.add(name)
                break
            owner = getattr(owner, part)
    assert {name for name in gone if not name.startswith(OF_TF_KERAS)} == set()


def test_a_name_that_is_gone_is_named():
    with pytest.raises(AttributeError, match="no_such_function"):
        find("tensorflow.python.ops.while_v2:no_such_function")
    with pytest.raises(AssertionError, match="_no_such_attribute"):
        find("tensorflow.compat.v1.train:LoggingTensorHook#_no_such_attribute")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        find("tensorflow.python.no_such_module:name")
