"""Calls of a session that return while the process exits; real processes."""

import contextlib
import itertools
import os
import sys
import time

import pytest

from tests.forked import Program

MOMENTS = ("while Python ends", "after Python has ended")
CALLS = ("makes a callable", "closes a session")
STATUS = 3
PROGRAM = f"""
import ctypes
import os
import sys
import threading

import tensorflow as tf

from estimator import _tf

held, fifo, moment, call = sys.argv[1:]
os.dup2(os.open(held, os.O_RDONLY), 0)  # A read ends when the test closes the file.


class Stdout:  # Python flushes it when other threads cannot run any more.
    closed = False

    def flush(self):
        if sys.is_finalizing():
            os.read(0, 1)


def wait(is_done):
    if not is_done.wait(0.5):
        raise TimeoutError


def run_in_thread(function, *args):
    def run():
        with _tf.stopped_at_exit():
            function(*args)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(0.5)
    assert thread.is_alive()


target = tf.distribute.Server.create_local_server().target
with tf.Graph().as_default() as graph:
    # Both wait until another process opens the file: the first where constants are folded.
    constant = tf.io.read_file(fifo)
    name = tf.compat.v1.placeholder(tf.string, [])
    text = tf.io.read_file(name)
if call == "makes a callable":
    session = _tf.InterruptibleSession(target, graph, None, wait)
    try:
        _tf.make_callable(session, [constant], [])
        raise AssertionError
    except TimeoutError:
        pass
else:
    session = tf.compat.v1.Session(target, graph=graph)
    run_in_thread(session.run, text, {{name: fifo}})
    run_in_thread(session.close)
print("exits", flush=True)
if moment == "while Python ends":
    sys.stdout = Stdout()
else:
    libc = ctypes.CDLL(None)
    libc.on_exit(libc.getchar, None)
sys.exit({STATUS})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a signal to spare")
def test_a_call_that_returns_late_does_not_change_the_exit_status(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    cases = list(itertools.product(MOMENTS, CALLS))
    fifos = [str(tmp_path / f"{i}.fifo") for i in range(len(cases))]
    held = str(tmp_path / "held.fifo")
    os.mkfifo(held)
    holder = os.open(held, os.O_RDWR)
    with contextlib.ExitStack() as stack:
        release = stack.enter_context(contextlib.ExitStack())
        release.callback(os.close, holder)
        programs = []
        for fifo, case in zip(fifos, cases, strict=True):
            os.mkfifo(fifo)
            programs.append(stack.enter_context(Program(str(path), held, fifo, *case)))
        for program in programs:
            program.wait_for("exits")
        time.sleep(0.5)  # To get there. A slow machine may try another moment.
        for fifo in fifos:
            # Fails if no call waits for it any more.
            os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        time.sleep(0.5)  # To return there.
        release.close()
        for case, program in zip(cases, programs, strict=True):
            assert program.status() == STATUS, (case, program.err[-3000:])
