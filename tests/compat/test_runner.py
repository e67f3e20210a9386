"""`python -m estimator.compat` runs a script as Python does, with TensorFlow 1 in it."""

import builtins
import functools
import importlib
import inspect
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from estimator.compat import script
from estimator.compat.__main__ import _make_parser, main
from estimator.compat.old_aliases import aliases, old_aliases
from estimator.compat.v1_api import make_v1_api
from estimator.compat.v1_imports import ProgramFinder, ProgramImports
from tests.forked import OldProgram
from tests.old_versions import obeys_log_level


def run(*arguments, **variables):
    """Runs the runner; returns its exit code and what it wrote to stderr."""
    with OldProgram(*arguments, **variables) as program:
        return program.status(), program.err


FACTS = """
    import json, os, sys
    import collections
    import numpy as np
    import tensorflow as tf
    import tensorflow.compat.v1 as same
    import tensorflow.contrib.tpu as contrib_tpu
    import neighbour
    from tensorflow import keras, layers
    from tensorflow.contrib.learn.python.learn import learn_runner
    from tensorflow.python.ops import array_ops
    from tensorflow.python.framework import ops

    if __name__ == "__main__":
        missing = []
        for code in (
            "tf.contrib.signal", "tf.contrib.layers.conv2", "tf.no_such_name",
            "from tensorflow.contrib import seq2seq", "from tensorflow import nothing",
            "import tensorflow.contrib.gan", "from tensorflow.contrib.tpu import TPUEstimatr",
        ):
            try:
                exec(code)
            except (AttributeError, ImportError) as error:
                missing.append(f"{type(error).__name__}: {error}")
        facts = dict(
            argv=sys.argv,
            file=__file__,
            path=sys.path[0],
            is_v1=tf is same and not tf.executing_eagerly(),
            old_dimension=tf.placeholder(tf.float32, [3]).shape[0].value,
            session=tf.Session().run(tf.constant(7)).item(),
            one_shot=callable(tf.data.Dataset.range(3).make_one_shot_iterator),
            keras=tf.keras.layers.Dense.__module__,
            layers=layers.dense.__module__,
            neighbour=neighbour.tf is tf and neighbour.__name__,
            tpu=contrib_tpu.TPUEstimator.__module__,
            same=tf.contrib.tpu.python.tpu.tpu_config.RunConfig is tf.estimator.tpu.RunConfig,
            cross_shard=tf.tpu.CrossShardOptimizer.__module__,
            real=sys.modules["tensorflow"] is not tf,
            ops=ops.Graph is tf.Graph,
            ref=(lambda v: v._ref() is v)(tf.get_variable("v", [], use_resource=True)),
            aliases=[np.float is float, collections.Mapping is not None, bool(np.bool(1))],
            missing=missing,
        )
        print(json.dumps(facts))
        sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    """The script's folder, what it found, and what a process of its own wrote to stderr."""
    folder = tmp_path_factory.mktemp("script")
    (folder / "facts.py").write_text(textwrap.dedent(FACTS))
    (folder / "neighbour.py").write_text(
        "import tensorflow as tf\nfrom tensorflow import *\nSession\n"
    )
    chosen = ("TF_USE_LEGACY_KERAS", "TF_CPP_MIN_LOG_LEVEL")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "estimator.compat", "--old-numpy", folder / "facts.py"),
            *("7", "--steps=3", "-m", "x"),
        ],
        env={name: value for name, value in os.environ.items() if name not in chosen},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 7, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_arguments_paths_and_the_exit_code_are_the_scripts_own(facts):
    folder, found, _ = facts
    assert found["argv"] == [str(folder / "facts.py"), "7", "--steps=3", "-m", "x"]
    assert found["file"] == str(folder / "facts.py")
    assert found["path"] == str(folder)


def test_tensorflow_is_version_1_in_the_script_and_in_its_modules(facts):
    _, found, _ = facts
    assert found["is_v1"]
    assert found["old_dimension"] == 3
    assert found["session"] == 7
    assert found["one_shot"]
    assert found["keras"].startswith("tf_keras")
    assert found["layers"].startswith("tf_keras")
    assert found["neighbour"] == "neighbour"
    assert found["tpu"] == "estimator.estimators.tpu_estimator"
    assert found["same"]
    assert found["cross_shard"] == "estimator.optimizer.cross_shard"
    assert found["real"]
    assert found["ops"]


def test_a_variable_refers_to_itself(facts):
    assert facts[1]["ref"]


def test_removed_names_of_numpy_and_python_are_supplied_on_demand(facts):
    assert facts[1]["aliases"] == [True, True, True]


@obeys_log_level
def test_tensorflows_c_log_is_not_shown(facts):
    assert facts[2] == ""


def test_a_name_that_is_not_provided_is_an_error_with_the_way_out(facts):
    expected = [
        "AttributeError: tf.contrib.signal is not provided by estimator.compat. Use tf.signal.",
        "AttributeError: tf.contrib.layers.conv2 is not provided by estimator.compat. Did you mean "
        "'conv2d'?",
        "AttributeError: tf.no_such_name is not in the v1 API of TensorFlow 2.",
        "ImportError: tf.contrib.seq2seq is not provided by estimator.compat. Use a `model_fn`",
        "ImportError: tf.nothing is not in the v1 API of TensorFlow 2.",
        "ModuleNotFoundError: tf.contrib.gan is not provided by estimator.compat. Install tensorf",
        "ImportError: tf.contrib.tpu.TPUEstimatr is not provided by estimator.compat. Did you mean "
        "'TPUEstimator'?",
    ]
    for found, start in zip(facts[1]["missing"], expected, strict=True):
        assert found.startswith(start)


def test_a_failing_module_of_tensorflow_2_ends_as_in_python(tmp_path, monkeypatch):
    (tmp_path / "program.py").write_text(
        textwrap.dedent("""
            import tensorflow as tf
            from tensorflow_estimator.python.estimator import estimator

            def fail():
                is_ours = estimator.Estimator is tf.estimator.Estimator
                raise KeyError(is_ours, tf.executing_eagerly())

            if __name__ == "__main__":
                print(__spec__ is not None or __package__)
                fail()
        """)
    )
    monkeypatch.chdir(tmp_path)
    code, errors = run("--no-v1-behavior", "-m", "program")
    assert code == 1
    lines = errors[errors.index("Traceback") :].splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{tmp_path / "program.py"}", line 11, in <module>'
    assert lines[-1] == "KeyError: (True, True)"
    assert "runner.py" not in errors


@pytest.mark.parametrize(
    ("line", "status", "last"),
    [
        ("tf.placeholder", 0, ""),
        ("import no_such_library", 1, "ModuleNotFoundError: No module named 'no_such_library'"),
    ],
)
def test_the_package_of_a_module_is_a_part_of_the_program(
    line, status, last, tmp_path, monkeypatch
):
    (tmp_path / "some_program").mkdir()
    (tmp_path / "some_program" / "__init__.py").write_text(f"import tensorflow as tf\n{line}\n")
    (tmp_path / "some_program" / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    code, errors = run("-m", "some_program.train")
    assert (code, errors.splitlines()[-1:]) == (status, [last] if last else [])
    assert "runner.py" not in errors


def test_an_error_in_a_module_of_the_script_shows_their_lines_alone(tmp_path):
    (tmp_path / "program.py").write_text("import broken\n")
    (tmp_path / "broken.py").write_text("import old\n")
    (tmp_path / "old.py").write_text("x = 1\nprint 'x'\n")
    code, errors = run(tmp_path / "program.py")
    assert code == 1
    lines = errors[errors.index("Traceback") :].splitlines()
    assert lines[:-1] == [
        "Traceback (most recent call last):",
        f'  File "{tmp_path / "program.py"}", line 1, in <module>',
        "    import broken",
        f'  File "{tmp_path / "broken.py"}", line 1, in <module>',
        "    import old",
    ]
    message = f"estimator.compat.script.Python2Error: {tmp_path / 'old.py'}:2: this is Python 2 ("
    assert lines[-1].startswith(message)


def test_a_directory_is_run_by_its_main_module_and_imports_what_is_in_it(tmp_path):
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "__main__.py").write_text(
        "import sys, neighbour\nprint(sys.argv, sys.path[0], repr(__package__))\n"
    )
    (tmp_path / "program" / "neighbour.py").touch()
    folder = str(tmp_path / "program")
    with OldProgram(folder, "--x") as program:
        assert program.status() == 0, program.err
        assert program.out == f"{[folder, '--x']} {folder} ''\n"


def write(folder, sources):
    """Writes Python files; the keys are their names without `.py`."""
    for name, source in sources.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))


def printed(*arguments):
    """The lines that a program prints."""
    with OldProgram(*arguments) as program:
        assert program.status() == 0, program.err
        return program.out.splitlines()


def test_what_a_program_adds_to_the_builtins_its_modules_have(tmp_path):
    program = """
        import builtins, gettext
        builtins.unicode = str
        __builtins__.xrange = range
        gettext.install("program")
        import neighbour
        print(__builtins__ is builtins, unicode(1), neighbour.three)
    """
    write(tmp_path, {"program": program, "neighbour": "three = len(xrange(3)), _('x')"})
    assert printed(tmp_path / "program.py") == ["True 1 (3, 'x')"]


def test_files_that_are_loaded_in_other_ways_have_tensorflow_1(tmp_path):
    program = """
        import importlib.util, os, runpy
        folder = os.path.dirname(__file__)
        config = runpy.run_path(os.path.join(folder, "config.py"))
        spec = importlib.util.spec_from_file_location("loaded", os.path.join(folder, "config.py"))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        lines = {}
        exec("import tensorflow as tf; found = hasattr(tf, 'placeholder')", lines)
        print(config["found"], module.found, lines["found"])
    """
    config = "import tensorflow as tf\nfound = hasattr(tf, 'placeholder')"
    write(tmp_path, {"program": program, "config": config})
    assert printed(tmp_path / "program.py") == ["True True True"]


def test_the_file_of_a_program_is_absolute_and_its_path_follows_links(tmp_path, monkeypatch):
    program = "import helper, sys\nprint(__file__, sys.argv[0], helper.x)"
    write(tmp_path / "real", {"program": program, "helper": "x = 1"})
    (tmp_path / "link.py").symlink_to(tmp_path / "real" / "program.py")
    monkeypatch.chdir(tmp_path)
    assert printed("link.py") == [f"{tmp_path / 'link.py'} link.py 1"]


OWN_ESTIMATOR = """
    import tensorflow as tf
    import estimator
    from estimator import build
    print(build(), estimator.build is build, tf.estimator.Estimator.__module__)
"""


THEIRS = "def build():\n    return 'theirs'"
FORMS = {
    "module": {"estimator": THEIRS},
    "package": {"estimator/parts": THEIRS, "estimator/__init__": "from estimator.parts import *"},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [[], ["--no-v1-behavior"]], ids=["v1", "v2"])
def test_a_program_may_have_an_estimator_of_its_own(form, options, tmp_path):
    write(tmp_path, {**FORMS[form], "program": OWN_ESTIMATOR})
    lines = printed(*options, tmp_path / "program.py")
    assert lines == ["theirs True estimator.estimators.estimator"]


def test_an_own_estimator_may_be_a_folder_or_the_program_itself(tmp_path, monkeypatch):
    train = "from estimator.parts import build\nprint(build(), __spec__.parent)"
    write(tmp_path, {"estimator/parts": THEIRS, "estimator/train": train})
    monkeypatch.chdir(tmp_path)
    assert printed("-m", "estimator.train") == ["theirs estimator_of_program"]


def test_an_installed_module_that_is_run_is_the_program(tmp_path, monkeypatch):
    installed = tmp_path / "site-packages"
    source = """
        import tensorflow as tf
        json = __import__("json", globals=globals(), locals=None, fromlist=["dumps"], level=0)
        print(json.dumps(hasattr(tf, "placeholder")), __import__.__name__)
    """
    write(installed / "old_package", {"__init__": "", "main": source})
    monkeypatch.chdir(installed)
    assert printed("-m", "old_package.main") == ["true __import__"]


def test_tracebacks_of_chained_errors_show_the_program_alone(tmp_path):
    broken = """
        try:
            import no_such_library
        except ImportError as error:
            raise KeyError(1) from error
    """
    write(tmp_path, {"program": "import broken", "broken": broken})
    code, errors = run(tmp_path / "program.py")
    assert code == 1
    assert "no_such_library" in errors
    assert "v1_imports.py" not in errors


def test_a_command_runs_a_program_beside_its_own_estimator(tmp_path):
    write(tmp_path, {**FORMS["module"], "program": OWN_ESTIMATOR})
    command = os.path.join(os.path.dirname(sys.executable), "estimator-compat")
    done = subprocess.run(
        [command, "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout.splitlines() == ["theirs True estimator.estimators.estimator"], done.stderr


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_that_are_not_forked_run_the_program_too(method, tmp_path, monkeypatch):
    main = """
        import multiprocessing
        import sys
        import estimator
        import tensorflow as tf
        from . import neighbour

        def work(number):
            is_v1 = hasattr(tf, "placeholder")
            return estimator.build(), number * neighbour.nine(), is_v1, tf.estimator.__name__

        if __name__ == "__main__":
            with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
                print(pool.map(work, [1, 2]))
    """
    neighbour = "import tensorflow as tf\ndef nine():\n    return tf.Dimension(9).value"
    write(tmp_path / "package", {"__init__": "", "main": main, "neighbour": neighbour})
    write(tmp_path, FORMS["module"])  # Where a new process looks first.
    monkeypatch.chdir(tmp_path)
    (line,) = printed("-m", "package.main", method)
    assert line == str([("theirs", n * 9, True, "estimator.compat.v1") for n in (1, 2)])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("print 'x'", "program.py:1: this is Python 2 (a print statement): \"print 'x'\". Convert"),
        (
            "try:\n  f()\nexcept KeyError, e:\n  pass",
            "program.py:3: this is Python 2 (`except X, e",
        ),
        ("x = 0777", "program.py:1: this is Python 2 (an octal or long number)"),
        ("raise ValueError, 'x'", "program.py:1: this is Python 2 (`raise X, message`)"),
        ("if 1 <> 2: pass", "program.py:1: this is Python 2 (the operator `<>`)"),
        ("exec 'x' in {}", "program.py:1: this is Python 2 (an exec statement)"),
    ],
)
def test_python_2_is_named_with_its_line(tmp_path, source, message):
    path = tmp_path / "program.py"
    path.write_text(source)
    with pytest.raises(script.ScriptError) as caught:
        script.parse(str(path))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "def f(:\n",
        "# coding: no_such_coding\nprint 'x'\n",
        "f(learning_rate=0.001 momentum=0.9)\n",
        "x = {'day': '2019-01-05' 3}\n",
        'x = {"day": "2019-01-05" 3}\n',
        "f(a b)  # see `c` <> 01\n",
    ],
)
def test_another_syntax_error_stays_one(tmp_path, source, monkeypatch, api):
    (tmp_path / "broken_module.py").write_text(source)
    with pytest.raises(SyntaxError):
        script.parse(str(tmp_path / "broken_module.py"))
    monkeypatch.syspath_prepend(tmp_path)
    import_as_program(monkeypatch, api, str(tmp_path))
    with pytest.raises(SyntaxError):
        importlib.import_module("broken_module")


def test_a_syntax_error_of_the_script_is_shown_as_in_python(tmp_path):
    write(tmp_path, {"program": "def f(:\n"})
    code, errors = run(tmp_path / "program.py")
    assert code == 1
    assert errors.lstrip().startswith(f'File "{tmp_path / "program.py"}", line 1\n')


def test_what_is_not_there_is_said_without_a_traceback(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, errors = run("no_such_script.py")
    assert code == 2
    assert errors == f"estimator.compat: There is no script 'no_such_script.py' in {tmp_path}.\n"
    for name in ("no_such_module", "no_such_package.module", "sys", "email"):
        with pytest.raises(script.ScriptError, match=f"no module '{name}' of Python code"):
            script.find_script(name, is_module=True)


def test_without_a_script_the_usage_is_shown(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--old-numpy"])
    assert ended.value.code == 2
    assert "there is no SCRIPT.py to run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "count"),
    [
        (["a.py", "-m", "x"], 0),
        (["--old-numpy", "a.py", "--old-numpy"], 1),
        (["--v1-package", "t2t", "a.py", "b.py"], 2),
        (["--no-v1-behavior", "-m", "a.b", "--flag", "--", "--check"], 2),
        (["--v1-package=t2t", "-m", "a"], 2),
    ],
)
def test_options_end_at_the_script(argv, count):
    assert _make_parser().parse_args(argv).program == argv[count:]


# --- Parts of the runner, in this process --------------------------------------------------------


@pytest.fixture
def api():
    return make_v1_api()


def import_as_program(monkeypatch, api, folder, packages=()):
    finder = ProgramFinder(folder, packages)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    monkeypatch.setattr(builtins, "__import__", ProgramImports(api, finder))


def test_a_package_is_run_by_its_main_module(tmp_path, monkeypatch):
    (tmp_path / "some_program").mkdir()
    (tmp_path / "some_program" / "__init__.py").touch()
    (tmp_path / "some_program" / "__main__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    found = script.find_script("some_program", is_module=True)
    path = str(tmp_path / "some_program" / "__main__.py")
    assert (found.path, found.package) == (path, "some_program")
    assert found.spec.name == "some_program.__main__"
    folder = script.find_script(str(tmp_path / "some_program"), is_module=False)
    assert folder == script.Script(path, package="")


def test_without_tf_keras_its_names_say_what_to_install(api, monkeypatch):
    # In this process tf.keras is Keras 3, which has no tf.layers.
    for name in ("tf.layers", "tf.nn.rnn_cell"):
        path = name.split(".")[1:]
        with pytest.raises(AttributeError, match=f"{name} needs tf-keras as tf.keras: set the env"):
            functools.reduce(getattr, path, api)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        AttributeError, match="needs tf-keras, .* not installed: pip install tf-ker"
    ):
        _ = api.layers


def test_installed_packages_import_the_real_tensorflow_unless_listed(tmp_path, monkeypatch, api):
    installed = tmp_path / "site-packages"
    for name in ("old_package", "new_package"):
        (installed / name).mkdir(parents=True)
        (installed / name / "__init__.py").write_text("import tensorflow as tf\n")
    (tmp_path / "own_module.py").write_text("import tensorflow as tf\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(installed)
    import_as_program(monkeypatch, api, str(tmp_path), ["old_package"])
    found = {n: importlib.import_module(n) for n in ("old_package", "new_package", "own_module")}
    for name in found:
        monkeypatch.delitem(sys.modules, name)
    assert found["old_package"].tf is found["own_module"].tf is api
    assert found["new_package"].tf is tf


def test_modules_inside_tensorflow_are_imported_from_their_packages(api, monkeypatch, tmp_path):
    import_as_program(monkeypatch, api, str(tmp_path))
    name = "tensorflow.core.example.example_parser_configuration_pb2"
    assert name not in sys.modules  # Otherwise the package has it already.
    package, _, last = name.rpartition(".")
    found = {"__file__": "program.py"}
    exec(f"from {package} import {last}", found)
    assert found[last] is sys.modules.pop(name)
    with pytest.raises(ImportError, match="no_such_pb2"):
        exec(f"from {package} import no_such_pb2", found)


def test_a_package_inside_tensorflow_does_not_hide_a_public_one(api, monkeypatch, tmp_path):
    import_as_program(monkeypatch, api, str(tmp_path))
    assert api.lite.TFLiteConverter is tf.compat.v1.lite.TFLiteConverter
    found = {"__file__": "program.py"}
    exec("from tensorflow.lite.python import interpreter\nimport tensorflow as tf", found)
    assert found["tf"].lite.Interpreter is found["interpreter"].Interpreter


def test_functions_that_were_removed_do_what_they_did():
    def function(a, b=2, *rest, **others):
        pass

    with old_aliases():
        spec = inspect.getargspec(function)
    assert (spec.args, spec.varargs, spec.keywords, spec.defaults) == (
        ["a", "b"],
        "rest",
        "others",
        (2,),
    )
    in1d = {name: value for _, name, value in aliases()}["in1d"]
    assert in1d([[1, 2], [3, 4]], [2, 3]).tolist() == [False, True, True, False]
    assert in1d(np.arange(3), 1, invert=True).tolist() == [True, False, True]


# --- What TensorFlow logs during its import ------------------------------------------------------


IMPORTS = """
import importlib.abc, importlib.machinery, os, sys
from estimator.compat.tensorflow_import import import_tensorflow

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow":
            os.write(2, b"logged\\n")
            {reaction}

sys.meta_path.insert(0, Finder())
import_tensorflow()
"""
MODULE = "return importlib.machinery.ModuleSpec(name, None, is_package=True)"


@pytest.mark.parametrize(
    ("level", "reaction", "shown"),
    [
        ("2", MODULE, ""),
        ("1", MODULE, "logged\n"),
        ("3", "raise ImportError('broken')", "logged\nTraceback"),
    ],
)
def test_what_is_logged_in_an_import_is_shown_if_it_fails_or_on_demand(level, reaction, shown):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS.format(reaction=reaction)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": level},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr.startswith(shown)
    assert bool(done.stderr) == bool(shown)
