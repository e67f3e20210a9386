"""`import estimator` has no side effects and imports no TensorFlow; nor do its names have any."""

import ast
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Runs in a clean process: what there is before and after the import, as JSON on stderr.
PROGRAM = """
import json, logging, os, signal, sys, threading, warnings
{before}

def state():
    loggers = [logging.getLogger()]
    loggers += [logging.getLogger(name) for name in sorted(logging.root.manager.loggerDict)]
    found = dict(
        env=dict(os.environ),
        directory=os.getcwd(),
        path=list(sys.path),
        threads=threading.active_count(),
        signals=[str(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM)],
        filters=len(warnings.filters),
        handlers=[(l.name, str(l.handlers), l.level, l.propagate) for l in loggers if l.handlers],
        hook=str(sys.excepthook),
    )
    if "tensorflow" in sys.modules:
        import tensorflow as tf
        from tensorflow.python.eager import context
        found["eager"] = tf.executing_eagerly()
        found["has_eager_context"] = context.context()._initialized
        found["v2"] = tf.compat.v1.resource_variables_enabled()
    return found


old = state()
from estimator import *
sys.stdout.flush()
json.dump([old, state()], open({path!r}, "w"))
"""


def run(path, before):
    program = PROGRAM.format(before=before, path=str(path))
    finished = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={key: value for key, value in os.environ.items() if not key.startswith("TF_")},
    )
    with open(path) as file:
        return finished, json.load(file)


@pytest.fixture(scope="module")
def after_tensorflow(tmp_path_factory):
    """What `import estimator` did in a process that had imported tensorflow."""
    quiet = "import tensorflow as tf\nsys.stdout.flush()\nos.dup2(os.open({0!r}, 65), 2)"
    folder = tmp_path_factory.mktemp("import")
    noise = str(folder / "stderr")
    finished, (old, new) = run(folder / "state.json", quiet.format(noise))
    with open(noise) as file:
        return finished.stdout + file.read(), old, new


def test_it_prints_nothing(after_tensorflow):
    printed, _, _ = after_tensorflow
    assert printed == ""


def test_it_changes_no_global_state(after_tensorflow):
    _, old, new = after_tensorflow
    assert new == old
    assert old["has_eager_context"] is False


def test_the_import_alone_imports_neither_tensorflow_nor_numpy():
    program = """
import sys
import estimator
assert set(estimator.__all__) <= set(dir(estimator))
cluster = estimator.parse_tf_config(None)
print([name for name in ("tensorflow", "numpy", "absl") if name in sys.modules])
"""
    printed = subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True)
    assert printed == "[]\n"


def test_type_checkers_see_the_names_that_are_imported_on_first_use():
    import estimator as est

    for_checkers, _ = (
        node
        for node in ast.parse(pathlib.Path(est.__file__).read_text()).body
        if isinstance(node, ast.If)
    )
    seen = {
        alias.asname: node.module
        for node in for_checkers.body
        for alias in node.names
        if alias.name == alias.asname  # Only this says that they are exported.
    }
    assert seen == est._HOMES | dict.fromkeys(est._MODULES, "estimator")
    assert est.__all__ == sorted(seen)


def test_no_module_has_the_name_of_a_public_function_or_class():
    import estimator as est

    # An import of such a module would put it where the function is to be imported on first use.
    modules = {path.stem for path in pathlib.Path(est.__file__).parent.iterdir()}
    assert modules & set(est.__all__) == set(est._MODULES)


def test_a_name_that_is_not_there_is_an_attribute_error():
    import estimator as est

    with pytest.raises(AttributeError, match="'estimator' has no attribute 'nothing'"):
        _ = est.nothing
    with pytest.raises(ImportError, match="nothing"):
        from estimator import nothing  # noqa: F401


def test_what_it_names_is_there():
    import estimator as est

    assert sorted(est.__all__) == list(dict.fromkeys(sorted(est.__all__)))
    for name in est.__all__:
        assert getattr(est, name) is not None
    for name in est.tpu.__all__:
        assert getattr(est.tpu, name) is not None
    for name in est.experimental.__all__:
        assert getattr(est.experimental, name) is not None
