"""`python -m estimator.compat --check PATH` says what works, by file and line, and runs nothing."""

import ast
import textwrap

import pytest

from estimator.compat.__main__ import _check
from estimator.compat.program_check import uses_in
from estimator.compat.script import ScriptError
from tests.forked import OldProgram

PROGRAM = """
    import collections
    import numpy as np
    import tensorflow as tf
    import tensorflow.compat.v1 as tf1
    import tensorflow.contrib.signal as signal
    from tensorflow.contrib import layers as contrib_layers
    from tensorflow.python.estimator.canned import timeseries
    from tensorflow.python.ops import no_such_ops
    from tensorflow.python.ops import array_ops

    raise AssertionError("it runs")
    x = tf.placeholder(tf.float32, [None])
    y = contrib_layers.fully_connected(x, 3) + contrib_layers.conv2(x)
    tf.layers.dense(x, 3)
    tf.estimator.Estimator(None)
    tf.reduce_mean(tf1.placeholder(tf.float32))
    isinstance(np.float(3), collections.Mapping)
    tf.estimator.Estimato(None)
    tf.placeholder(tf.flags.FLAGS.type)
    tf.python_io.TFRecordWriter("records")
"""
EXPECTED = """
program.py:16: tf.estimator.Estimator works after estimator.install(), or with the runner
program.py:7: tf.contrib.layers needs the runner
program.py:13: tf.placeholder needs the runner (also 20)
program.py:14: tf.contrib.layers.fully_connected needs the runner
program.py:15: tf.layers.dense needs the runner: with tf-keras
program.py:20: tf.flags.FLAGS.type needs the runner
program.py:21: tf.python_io.TFRecordWriter needs the runner
program.py:18: collections.Mapping needs the runner with --old-numpy
program.py:18: numpy.float needs the runner with --old-numpy
broken.py:2: this is no Python: 'return' outside function
old.py:2: this is Python 2 (a print statement): "print 'x'". Convert the \
program to Python 3 first, for example with `2to3 -w` of Python 3.12 or older, or with \
python-modernize.
program.py:6: tf.contrib.signal is not provided by estimator.compat. Use tf.signal.
program.py:8: tensorflow.python.estimator.canned.timeseries is not provided by the `estimator` \
package, which stands in for tf.estimator. Use a `model_fn`.
program.py:9: tensorflow.python.ops.no_such_ops is not there: it is private to TensorFlow, which \
has changed it; use the public API
program.py:14: tf.contrib.layers.conv2 is not provided by estimator.compat. Did you mean 'conv2d'?
program.py:19: tf.estimator.Estimato is not there: module 'estimator.compat.v1' has no attribute \
'Estimato'

works as it is: 6
works after estimator.install(), or with the runner: 1
needs the runner: 6
needs the runner with --old-numpy: 2
is not there: 7
"""


def check(path):
    """Returns the exit code and the report on a program."""
    with OldProgram("--check", path) as program:
        return program.status(), program.out


def last_line_on(tmp_path, source):
    (tmp_path / "program.py").write_text(source)
    code, printed = check(tmp_path)
    assert code == 0
    return printed.replace(f"{tmp_path}/", "").splitlines()[-1]


def test_each_name_has_its_verdict_and_its_line(tmp_path):
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    (tmp_path / "old.py").write_text("x = 1\nprint 'x'\n")
    (tmp_path / "broken.py").write_text("x = 1\nreturn x\n")
    for folder in (".venv", "env/lib/site-packages"):  # What is installed there is not looked at.
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "other.py").write_text("return 1")
    code, printed = check(tmp_path)
    assert code == 1
    assert printed.replace(f"{tmp_path}/", "").strip() == EXPECTED.strip()


def test_the_programs_of_the_tests_have_all_that_they_need():
    code, printed = check("tests/compat/programs")
    assert code == 0
    assert "is not there" not in printed
    last = printed.splitlines()[-1]
    assert last == "Run it by: python -m estimator.compat tests/compat/programs/SCRIPT.py"


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ("tf.reduce_mean; tf.optimizers.Adam", "It runs as it is."),
        (
            "tf.estimator.Estimator; tf.optimizers.Adam",
            "Call estimator.install() first, or run it by: python -m estimator.compat "
            "--no-v1-behavior SCRIPT.py",
        ),
        (
            "import numpy as np; np.float; tf.optimizers.Adam",
            "Run it by: python -m estimator.compat --no-v1-behavior --old-numpy SCRIPT.py",
        ),
        (
            "import numpy as np; np.float; tf.placeholder",
            "Run it by: python -m estimator.compat --old-numpy SCRIPT.py",
        ),
        (
            "tf.placeholder; tf.optimizers.Adam",
            "It has names of TensorFlow 1 alone and of TensorFlow 2 alone: change either.",
        ),
    ],
)
def test_the_last_line_says_how_to_run_the_program(tmp_path, source, advice):
    assert last_line_on(tmp_path, f"import tensorflow as tf; {source}") == advice


def test_a_directory_with_a_main_module_is_run_as_it_is(tmp_path):
    (tmp_path / "__main__.py").touch()
    assert last_line_on(tmp_path, "import tensorflow as tf; tf.placeholder").endswith(str(tmp_path))


def test_a_file_is_checked_whatever_its_name(tmp_path):
    (tmp_path / "program").write_text("import tensorflow as tf; tf.reduce_mean")
    code, printed = check(tmp_path / "program")
    assert (code, printed.splitlines()[-1]) == (0, "It runs as it is.")


def test_a_path_without_programs_is_an_error(tmp_path):
    with pytest.raises(ScriptError, match="There is no Python file '.*', and none in such a dir"):
        _check(str(tmp_path))


def test_uses_are_found_through_their_imports():
    program = """
import tensorflow as tf, os
from tensorflow.contrib.tpu.python.tpu import tpu_config as config
def f():
    import tensorflow.contrib.data as data
    return tf.nn.relu(data.map_and_batch(os.path, config.RunConfig)).shape, x.y
"""
    assert set(uses_in(ast.parse(program))) == {
        ("tensorflow", 2),
        ("tensorflow.contrib.tpu.python.tpu.tpu_config", 3),
        ("tensorflow.contrib.data", 5),
        ("tensorflow.nn.relu", 6),
        ("tensorflow.contrib.data.map_and_batch", 6),
        ("tensorflow.contrib.tpu.python.tpu.tpu_config.RunConfig", 6),
    }
