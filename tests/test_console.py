"""Where what the library says goes, whatever logging the program has set up."""

import contextlib
import fcntl
import io
import logging
import os
import pty
import struct
import sys
import termios

import pytest
import tensorflow as tf
from absl import flags
from absl import logging as absl_logging

import estimator as est
from estimator import console
from estimator.checkpoint.input_position import InputPosition
from tests.toy import Model, numbers

V1 = tf.compat.v1
ESTIMATOR = logging.getLogger("estimator")
TENSORFLOW = logging.getLogger("tensorflow")


@contextlib.contextmanager
def fresh_logging():
    """Inside, logging is as in a program that has set nothing up: pytest has, for each test."""
    root, verbosity = logging.getLogger(), flags.FLAGS["verbosity"]
    handlers, root.handlers = root.handlers, []
    of_tensorflow, TENSORFLOW.handlers = TENSORFLOW.handlers, []
    loggers = (root, ESTIMATOR, TENSORFLOW, absl_logging.get_absl_logger())
    before = [(logger, logger.level) for logger in loggers]
    TENSORFLOW.setLevel(logging.NOTSET)
    before_absl = verbosity.value, verbosity.using_default_value
    absl_stream = absl_logging.get_absl_handler().python_handler.stream
    ESTIMATOR.setLevel(logging.NOTSET)
    verbosity.using_default_value = True
    try:
        yield
    finally:
        root.handlers = handlers
        TENSORFLOW.handlers = of_tensorflow
        absl_logging.get_absl_handler().python_handler.stream = absl_stream
        verbosity.value, verbosity.using_default_value = before_absl
        for logger, level in before:
            logger.setLevel(level)
        logging.disable(logging.NOTSET)


def log_to(stream, logger="", level=logging.NOTSET):
    logging.getLogger(logger).addHandler(logging.StreamHandler(stream))
    logging.getLogger(logger).setLevel(level)


def absl_logs_before(stream):
    """What the first call of `absl.logging` does if nobody has set logging up."""
    logging.basicConfig(stream=stream, format="%(message)s")


def run_as_absl_app(verbosity=None, stream=None):
    """What `absl.app.run` does to logging, with or without the flag, and perhaps with --log_dir."""
    # It keeps the stderr that was there when it was imported, which pytest has taken away.
    absl_logging.get_absl_handler().python_handler.stream = stream or sys.stderr
    absl_logging.use_absl_handler()
    absl_logging.set_verbosity(absl_logging.INFO if verbosity is None else verbosity)


# What the program sets up, and where a line goes: to stderr as it is, to its own handlers, nowhere.
SET_UP = {
    "nothing": (lambda stream: None, "stderr"),
    "our logger, and no handler": (lambda stream: ESTIMATOR.setLevel(logging.INFO), "stderr"),
    "our logger to be quiet": (lambda stream: ESTIMATOR.setLevel(logging.WARNING), None),
    "all loggers to be quiet": (lambda stream: logging.disable(logging.INFO), None),
    "a handler for INFO": (lambda stream: log_to(stream, level=logging.INFO), "handler"),
    "a handler for WARNING": (lambda stream: log_to(stream, level=logging.WARNING), None),
    "a handler, and our logger": (
        lambda stream: (log_to(stream, level=logging.WARNING), ESTIMATOR.setLevel(logging.INFO)),
        "handler",
    ),
    "a call of absl.logging before": (absl_logs_before, None),
    "a call of absl.logging before, and TensorFlow at INFO": (
        lambda stream: (
            absl_logs_before(stream),
            tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO),
        ),
        "handler",
    ),
    "a call of absl.logging before, and absl at INFO": (
        lambda stream: (absl_logs_before(stream), absl_logging.set_verbosity(absl_logging.INFO)),
        "handler",
    ),
    "TensorFlow at INFO, with a handler of the program's": (
        lambda stream: log_to(stream, "tensorflow", logging.INFO),
        "both",
    ),
    "a handler of TensorFlow's logger that wants warnings only": (
        lambda stream: log_to(stream, "tensorflow", logging.WARNING),
        "stderr",
    ),
    "TensorFlow's verbosity, which is not ours": (
        lambda stream: tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.WARN),
        "stderr",
    ),
    "absl's app without flags": (lambda stream: run_as_absl_app(), "stderr"),
    "absl's app with --verbosity=1": (lambda stream: run_as_absl_app(absl_logging.DEBUG), "stderr"),
    "absl's app with --verbosity=-1": (
        lambda stream: run_as_absl_app(absl_logging.WARNING),
        None,
    ),
    "absl's app to be quiet, but our logger": (
        lambda stream: (run_as_absl_app(absl_logging.ERROR), ESTIMATOR.setLevel(logging.INFO)),
        "stderr",
    ),
    "absl's verbosity without its app": (
        lambda stream: absl_logging.set_verbosity(absl_logging.ERROR),
        None,
    ),
}


@pytest.mark.parametrize(("set_up", "goes_to"), SET_UP.values(), ids=SET_UP)
def test_a_line_goes_where_the_program_wants_it(set_up, goes_to, capsys):
    stream = io.StringIO()
    with fresh_logging():
        set_up(stream)
        console.say("step %d", 7)
    assert capsys.readouterr().err == ("step 7\n" if goes_to in ("stderr", "both") else "")
    assert stream.getvalue() == ("step 7\n" if goes_to in ("handler", "both") else "")


def test_an_absl_app_that_logs_to_a_file_has_the_lines_there():
    with fresh_logging():
        run_as_absl_app(stream=io.StringIO())
        assert console._way() == "logging"


class Gone(io.StringIO):
    """Where nobody reads any more."""

    def write(self, text):
        raise BrokenPipeError


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("make_stream", [Gone, closed, lambda: None])
def test_nobody_needs_to_read_the_lines(make_stream, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", make_stream())
    with fresh_logging():
        assert console.say("step %d", 7) is None
        assert not console.is_terminal()
    assert capsys.readouterr().out == ""


def test_details_are_for_programs_that_have_set_logging_up(capsys):
    stream = io.StringIO()
    with fresh_logging():
        console.say("%s", "table\nrow", brief="table")
        assert capsys.readouterr().err == "table\n"
        log_to(stream, level=logging.INFO)
        console.say("%s", "table\nrow", brief="table")
    assert stream.getvalue() == "table\nrow\n"


@pytest.mark.parametrize("size", [None, (0, 0), (110, 40)])
def test_a_terminal_has_a_size(size, monkeypatch):
    """Off a terminal, and on one of a container that nobody looks at, there are lines of a log."""
    ours, theirs = pty.openpty() if size is not None else os.pipe()
    if size is not None:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *reversed(size), 0, 0))
    with fresh_logging(), open(theirs, "w") as stderr, open(ours, "rb"):
        monkeypatch.setattr(sys, "stderr", stderr)
        assert console.is_terminal() == (size == (110, 40))
        ESTIMATOR.setLevel(logging.WARNING)
        assert not console.is_terminal()


class Window(io.StringIO):
    """Calls itself a terminal, but has no file, as in IDLE."""

    def isatty(self):
        return True


def test_a_window_without_a_file_has_no_line_to_rewrite(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Window())
    with fresh_logging():
        assert not console.is_terminal()


class FakeLine:
    """Counts how often it is taken off the terminal."""

    num_cleared = 0

    def clear(self):
        self.num_cleared += 1


def test_a_line_gives_way_to_all_that_is_said_and_logged_and_to_nothing_after():
    line, names = FakeLine(), ("", "estimator", "tensorflow", "absl")
    filters = {name: list(logging.getLogger(name).filters) for name in names}
    with fresh_logging():
        with console.rewriting(line):
            console.say("said")
            for name in names:
                logging.getLogger(name).warning("logged")
            assert line.num_cleared == 1 + len(names)
        console.say("said")
        logging.getLogger().warning("logged")
    assert line.num_cleared == 1 + len(names)
    assert all(logging.getLogger(name).filters == filters[name] for name in names)


def test_a_warning_is_shown_though_nobody_set_logging_up(capsys, monkeypatch):
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler(sys.stderr))
    with fresh_logging(), console.rewriting(FakeLine()):
        ESTIMATOR.warning("mind %s", "that")
    assert capsys.readouterr().err == "mind that\n"


def test_after_a_save_that_failed_the_programs_own_deprecations_are_logged(caplog):
    with pytest.raises(AttributeError), tf.Graph().as_default():
        InputPosition("unused", ["no iterator"], tf.no_op())
    tensorflow = logging.getLogger("tensorflow")
    assert tensorflow.filters == []
    tensorflow.addHandler(caplog.handler)
    try:
        with tf.Graph().as_default():
            tf.compat.v1.to_float(1)
    finally:
        tensorflow.removeHandler(caplog.handler)
    deprecated = [r.getMessage() for r in caplog.records if "deprecated" in r.getMessage()]
    assert sum("to_float" in message for message in deprecated) == len(deprecated) > 0


def test_details_that_tensorflow_logs_are_about_the_programs_own_calls(tmp_path):
    """In notebooks, TensorFlow shows its details: without being asked, among the library's own."""
    pretrained = str(tmp_path / "pretrained")
    with tf.Graph().as_default(), V1.Session() as session:
        V1.get_variable("w", initializer=3.0)
        session.run(V1.global_variables_initializer())
        V1.train.Saver().save(session, pretrained)

    def model_fn(features, mode):
        w = V1.get_variable("w", initializer=1.0)
        saver = V1.train.Saver([w])
        y = w * tf.cast(features, tf.float32)
        return est.EstimatorSpec(
            mode,
            predictions=y,
            loss=w,
            train_op=V1.assign_add(V1.train.get_global_step(), 1),
            scaffold=V1.train.Scaffold(init_fn=lambda _, s: saver.restore(s, pretrained)),
            export_outputs={"y": est.export.PredictOutput(y)},
        )

    def receive():
        x = V1.placeholder(tf.float32, [None])
        return est.export.TensorServingInputReceiver(x, x)

    stream = io.StringIO()
    with fresh_logging():
        log_to(stream, "tensorflow", logging.INFO)
        TENSORFLOW.handlers[0].addFilter(lambda record: record.name == "tensorflow")
        for strategy in (None, "mirrored"):
            config = est.RunConfig(strategy=strategy)
            model = est.Estimator(model_fn, tmp_path / "model", config)
            model.train(numbers(), steps=1)
            assert model.evaluate(numbers(), steps=1)["loss"] == 3
            next(model.predict(numbers()))
        model.export_saved_model(tmp_path / "export", receive)
    assert stream.getvalue() == f"Restoring parameters from {pretrained}\n"


def test_handlers_of_tensorflows_logger_get_warnings_and_details_once(capsys):
    """As those that a program attached for tf.estimator did; TensorFlow's own is left out."""
    stream = io.StringIO()
    with fresh_logging():
        log_to(stream, "tensorflow", logging.INFO)
        own = logging.StreamHandler(sys.stderr)
        own.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
        TENSORFLOW.addHandler(own)
        console.note("saved step %d", 7)
        ESTIMATOR.warning("mind that")
        console.say("at step %d", 8)
        assert capsys.readouterr().err.endswith("at step 8\n")
        assert stream.getvalue() == "saved step 7\nmind that\nat step 8\n"
        # One that the records reach anyway gets them once.
        logging.getLogger().addHandler(TENSORFLOW.handlers[0])
        console.say("at step %d", 9)
        assert stream.getvalue().endswith("at step 8\nat step 9\n")


def test_two_quiet_parts_of_a_program_may_overlap():
    tensorflow = logging.getLogger("tensorflow")
    one, other = console.no_internal_messages(), console.no_internal_messages()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert len(tensorflow.filters) == 1
    other.__exit__(None, None, None)
    assert tensorflow.filters == []


class OnlyWrites:
    """A stream as programs put in the place of stderr: no `flush`, no `isatty`, no `fileno`."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text


def test_stderr_may_be_an_object_that_only_writes(monkeypatch, tmp_path):
    stream = OnlyWrites()
    with fresh_logging():
        monkeypatch.setattr(sys, "stderr", stream)
        est.Estimator(Model(), str(tmp_path)).train(numbers(), steps=2)
    assert "Training stopped at step 2" in stream.text
