"""Rooms import lower floors only, and the doors to the outside stay few."""

import ast
import collections
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).parents[1] / "estimator"
FLOORS = {
    "spec": 0,
    "_tf": 0,
    "console": 0,
    "config": 1,
    "rewrite": 2,
    "cluster": 3,
    "input": 3,
    "runtime": 4,
    "optimizer": 4,
    "randomness": 4,
    "summary": 4,
    "model": 5,
    "program": 6,
    "checkpoint": 6,
    "session": 7,
    "hooks": 8,
    "evaluation": 8,
    "export": 8,
    "training": 9,
    "estimators": 10,
    "heads": 10,
    "canned": 11,
    "keras": 11,
    "roles": 11,
    "inputs": 12,
    "tpu": 12,
    "experimental": 12,
    "compat": 13,
    "launch": 14,
    "__init__": 15,
}
LAUNCHER = sorted((PACKAGE.parent / "estimator_launch").glob("*.py"))
FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def place_of(path):
    """The path in the package; of the launcher, the file alone."""
    return str(path.relative_to(PACKAGE)) if path.is_relative_to(PACKAGE) else path.name


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_rooms(path):
    for name in imported_modules(path):
        first, _, rest = name.partition(".")
        room = rest.split(".")[0]
        if first == "estimator" and room in FLOORS:
            yield room


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_rooms_on_lower_floors(path):
    room = room_of(path)
    for other in imported_rooms(path):
        assert other == room or FLOORS[other] < FLOORS[room], f"{room} imports {other}"


def test_every_module_has_a_floor():
    assert {room_of(path) for path in FILES} == set(FLOORS)


def test_private_tensorflow_enters_by_one_door():
    users = {
        room_of(path)
        for path in FILES
        if any(name.startswith("tensorflow.python") for name in imported_modules(path))
    }
    assert users == {"_tf"}


def test_the_environment_is_read_in_one_place():
    readers = {path.name for path in FILES if "os.environ" in path.read_text()}
    assert readers == {"cluster.py"}


def test_the_launcher_uses_nothing_of_the_library_but_the_cluster():
    used = {name for path in LAUNCHER for name in imported_modules(path)}
    used = {name for name in used if name.split(".")[0] in ("estimator", "tensorflow", "numpy")}
    assert {".".join(name.split(".")[:3]) for name in used} == {"estimator.config.cluster"}
    assert not any("os.environ" in path.read_text() for path in LAUNCHER)


def test_there_is_one_while_loop():
    calls = [
        path.name
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("while_loop")
    ]
    assert calls == ["loop.py"]


def test_no_file_name_is_in_two_rooms():
    # The files of `_tf` are named after the part of TensorFlow that they give access to.
    elsewhere = [path for path in FILES if room_of(path) != "_tf"]
    names = collections.Counter(path.stem for path in elsewhere if path.stem != "__init__")
    assert {name for name, count in names.items() if count > 1} == set()


def test_no_room_is_for_odds_and_ends():
    names = {path.stem for path in FILES}
    assert not names & {"utils", "util", "common", "helpers", "helper", "misc"}


# --- The family of a strategy: one file of `runtime/` each ----------------------------------------

FAMILY_NAMES = {"is_tpu", "is_multi_worker", "is_for_workers", "num_ps_replicas"}
# What tells the family by accident: who the other workers are, and how they are reached.
TELLTALES = {"workers.count", "num_worker_replicas"}
MAY_ASK = {
    # Reads the workers from a strategy of TensorFlow's, which is all that a replica knows; with one
    # worker, what it says is what all say.
    "cluster/collectives.py": {"is_multi_worker", "workers.count"},
    # Builds no consensus for one worker.
    "cluster/consensus.py": {"workers.count"},
    # Variables have at most as many parts as there are ps tasks.
    "canned/parts.py": {"num_ps_replicas"},
    # Refuses every kind of cluster for models that only one process can train.
    "canned/one_trainer.py": {"num_worker_replicas"},
    # A file's name says which worker wrote it, and how many copies of a variable there are.
    "checkpoint/input_position.py": {"workers.count"},
}


def questions_of_family(path):
    """What a file asks that only one family of strategies answers with yes."""
    for node in ast.walk(ast.parse(path.read_text())):
        name = getattr(node, "id", None) or getattr(node, "attr", None)
        if name in FAMILY_NAMES:
            yield name
        if isinstance(node, ast.Compare):
            for part in (node.left, *node.comparators):
                yield from (one for one in TELLTALES if ast.unparse(part).endswith(one))


@pytest.mark.parametrize("path", FILES, ids=place_of)
def test_only_a_runtime_asks_which_family_of_strategies_it_is(path):
    if room_of(path) not in ("runtime", "config", "_tf"):
        assert set(questions_of_family(path)) == MAY_ASK.get(place_of(path), set())


# --- State of the process: docs/decisions/patches.md lists who changes what, and until when -------

# By the file that may call them: what changes state that all of the process sees.
MAY_CALL = {
    "random.seed": {"randomness/seed.py"},
    "random.setstate": {"randomness/seed.py"},
    "gc.disable": {"program/graph_scope.py"},
    "gc.enable": {"program/graph_scope.py"},
    "signal.signal": {"session/signals.py", "job.py", "watchdog.py"},
    "libc.signal": {"_tf/session.py"},
    "signal.set_wakeup_fd": {"session/signals.py"},
    "logger.addFilter": {"console.py"},
    "log.addFilter": {"console.py"},
    "logger.removeFilter": {"console.py"},
    # Shows an exception of the program that the process is for.
    "sys.excepthook": {"compat/runner.py"},
}
# Methods of these names, of whatever.
SETTERS = {
    *("addFilter", "addHandler", "chdir", "disable", "enable", "excepthook", "putenv"),
    *("removeFilter", "removeHandler", "seed", "set_wakeup_fd", "setLevel", "setstate", "signal"),
}


def test_only_listed_files_change_state_of_the_process():
    found = {}
    for path in [*FILES, *LAUNCHER]:
        for node in ast.walk(ast.parse(path.read_text())):
            function = node.func if isinstance(node, ast.Call) else None
            if isinstance(function, ast.Attribute) and function.attr in SETTERS:
                found.setdefault(ast.unparse(function), set()).add(place_of(path))
    assert found == MAY_CALL


def imported_names(tree):
    """What a file calls the modules, classes and functions that it imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)


def changed_attributes(tree):
    """The attributes, of anything, that a file assigns to, deletes or has set."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            yield node.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr"):
            yield node.args[0]


def root(node):
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def test_one_file_replaces_attributes_of_other_modules_and_classes():
    uses = {}
    for path in [*FILES, *LAUNCHER]:
        tree = ast.parse(path.read_text())
        if any(root(owner) in set(imported_names(tree)) for owner in changed_attributes(tree)):
            uses[place_of(path)] = "assigns"
        if any(isinstance(n, ast.Name) and n.id == "setattr" for n in ast.walk(tree)):
            uses[place_of(path)] = "setattr"
    # session.py gives a Scaffold its parts; distribute.py sets a graph's stacks, which are a
    # thread's; graph.py and gradients.py note something on a graph; command.py has --help show its
    # docstring; runner.py sets `sys.argv` and `__import__` for the program that its process is for.
    assert uses == {
        "_tf/patches.py": "setattr",
        "_tf/session.py": "setattr",
        "_tf/distribute.py": "setattr",
        "_tf/graph.py": "setattr",
        "_tf/keras_losses.py": "assigns",
        "command.py": "assigns",
        "compat/runner.py": "assigns",
    }


def test_attributes_are_replaced_in_one_room():
    rooms = {
        room_of(path)
        for path in FILES
        for name in imported_modules(path)
        if name.startswith("estimator._tf.patches")
    }
    assert rooms == {"_tf"}


def attributes_set(node):
    """The attributes of `self` that are assigned to anywhere inside."""
    inside = [part for part in ast.walk(node) if isinstance(part, ast.Attribute)]
    stored = [part for part in inside if isinstance(part.ctx, ast.Store)]
    return {part.attr for part in stored if ast.unparse(part.value) == "self"}


def classes_of(*rooms):
    for path in FILES:
        if room_of(path) in rooms:
            nodes = ast.walk(ast.parse(path.read_text()))
            yield from (node for node in nodes if isinstance(node, ast.ClassDef))


def test_what_builds_a_program_leaves_no_note_on_itself():
    notes = [
        f"{owner.name}.{method.name} sets {name}"
        for owner in classes_of("program")
        for method in owner.body
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("__")
        for name in attributes_set(method)
    ]
    assert notes == []


def test_programs_and_trainings_are_made_of_parts_that_one_can_survey():
    sizes = {
        owner.name: len(attributes_set(owner))
        + sum(isinstance(part, ast.AnnAssign) for part in owner.body)
        for owner in classes_of("program", "training")
    }
    assert {name: size for name, size in sizes.items() if size > 16} == {}
