"""Every public name is at the place where TensorFlow 2.15 had it, and some test uses it."""

import ast
import json
import pathlib
import types

import pytest

import estimator as est

TESTS = pathlib.Path(__file__).parent

SPACES = {
    "estimator": est,
    "estimator.experimental": est.experimental,
    "estimator.export": est.export,
    "estimator.inputs": est.inputs,
    "estimator.keras": est.keras,
    "estimator.tpu": est.tpu,
    "estimator.compat": est.compat,
    "estimator.compat.v1": est.compat.v1,
}

# --- The names of TensorFlow 2.15 ----------------------------------------------------------------

THEIRS = json.loads((TESTS / "public_names" / "tensorflow_2_15.json").read_text())
OURS = {
    "tf.estimator": "estimator",
    "tf.estimator.experimental": "estimator.experimental",
    "tf.estimator.export": "estimator.export",
    "tf.compat.v1.estimator": "estimator.compat.v1",
    "tf.compat.v1.estimator.experimental": "estimator.compat.v1.experimental",
    "tf.compat.v1.estimator.export": "estimator.compat.v1.export",
    "tf.compat.v1.estimator.inputs": "estimator.compat.v1.inputs",
    "tf.compat.v1.estimator.tpu": "estimator.compat.v1.tpu",
    "tf.compat.v1.estimator.tpu.experimental": "estimator.compat.v1.tpu.experimental",
}

EMBEDDING = "it distributes tables over the cores of a TPU"
WITHOUT = {
    "tpu.experimental": EMBEDDING,
    "tpu.experimental.EmbeddingConfigSpec": EMBEDDING,
}


def resolve(path):
    """What a dotted path names, None if nothing."""
    first, *names = path.split(".")
    value = {"estimator": est}.get(first)
    for name in names:
        value = getattr(value, name, None)
    return value


def test_every_name_of_tensorflow_2_15_is_at_its_place_or_has_a_reason():
    absent = {
        f"{space}.{name}": name if "tpu" not in space else f"{space.split('estimator.')[1]}.{name}"
        for space, names in THEIRS.items()
        for name in names
        if resolve(f"{OURS[space]}.{name}") is None
    }
    unexplained = sorted(path for path, n in absent.items() if n not in WITHOUT)
    assert unexplained == []
    assert sorted(WITHOUT) == sorted(set(absent.values()))


def test_every_name_of_tensorflow_2_15_is_listed_as_public():
    for space, names in THEIRS.items():
        ours = resolve(OURS[space])
        here = {name for name in names if hasattr(ours, name)}
        assert here <= set(getattr(ours, "__all__", [])), space


# --- A test for each of ours ---------------------------------------------------------------------


def dotted(node):
    """A chain of attributes as written, "a.b.c"; None if it is something else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (value := dotted(node.value)) is not None:
        return f"{value}.{node.attr}"
    return None


def imported(tree):
    """By the name that a file gives them, what it imports of the library, as dotted paths."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "estimator":
                    names[alias.asname or alias.name] = "estimator"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "estimator":
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def used_in(tree):
    """The dotted paths of the library that a file's code uses, and all places above them."""
    names = imported(tree)
    for node in ast.walk(tree):
        path = dotted(node) if isinstance(node, ast.Attribute | ast.Name) else None
        first, _, rest = (path or "").partition(".")
        if first in names:
            path = f"{names[first]}.{rest}".rstrip(".")
            while path:
                yield path
                path = path.rpartition(".")[0]


def used_by_tests():
    for file in sorted(TESTS.rglob("*.py")):
        if file != pathlib.Path(__file__):
            yield from used_in(ast.parse(file.read_text()))


def test_every_public_name_is_used_in_a_test():
    used = set(used_by_tests())
    # A name may be used at another place: where it is defined, or under est for est.compat.v1.
    objects = {id(value) for path in used if (value := resolve(path)) is not None}
    unused = [
        f"{space}.{name}"
        for space, module in SPACES.items()
        for name in module.__all__
        if id(getattr(module, name)) not in objects
    ]
    assert unused == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import estimator as e\ne.tpu.X(1)", {"estimator", "estimator.tpu", "estimator.tpu.X"}),
        ("from estimator.export import A as B\nB.c", {"estimator.export.A.c"}),
        ("from estimator import export", set()),
        ("import tensorflow as tf\ntf.estimator.X", set()),
        ("'est.X'  # est.X", set()),
    ],
)
def test_a_use_is_code_that_runs_through_an_import(code, expected):
    found = set(used_in(ast.parse(code)))
    assert expected <= found
    assert bool(found) == bool(expected)


def test_every_module_of_names_is_walked():
    def modules(path, module):
        yield path
        for name in module.__all__:
            if isinstance(getattr(module, name), types.ModuleType):
                yield from modules(f"{path}.{name}", getattr(module, name))

    found = {
        path for path in modules("estimator", est) if not path.startswith("estimator.compat.v1.")
    }
    assert found == set(SPACES)
