"""Runs programs in processes of their own, without importing TensorFlow for each of them.

A fork server imports TensorFlow once and forks for each program, before TensorFlow has started a
thread. The child runs a file as `python FILE ARGUMENTS` would, with its own environment, NumPy seed
and TensorFlow devices. It can be killed and sent signals, and its exit status is reported. Two
servers take turns, so the tasks of a cluster have different hash seeds and order sets differently.

Do not use it for a program that sets something up before it imports TensorFlow. `OldProgram` runs
one of TensorFlow 1, by a server that has imported TensorFlow with tf-keras.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import itertools
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NUM_SERVERS = 2
LIMIT_SECS = 120
# What TensorFlow reads when it is imported, or soon after.
ENVIRONMENT = {"PYTHONPATH": ROOT, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
# TensorFlow 2.18 logs all levels whatever the environment says.
_CPP_LOG = re.compile(r"^(WARNING: All log messages before absl|[IW]\d{4} [\d:]+).*\n", re.M)
WITH_TF_KERAS = {"TF_USE_LEGACY_KERAS": "1"}


def without_cpp_log(text):
    """The text without what TensorFlow's C++ code has logged as information or warning."""
    return _CPP_LOG.sub("", text)


class Program:
    """A running Python file. Its output goes to files, so no pipe can fill up and block it."""

    network = None  # The path of a network namespace to run in; None for this process's.

    def __init__(self, path, *arguments, **environment):
        self.name = os.path.basename(path)
        self._out, self._err = (tempfile.TemporaryFile("w+") for _ in range(2))  # noqa: SIM115
        command = [path, *map(str, arguments)]
        self.process = self._start(command, {**os.environ, **ENVIRONMENT, **environment})

    def _start(self, command, environment):
        server = next(_servers())
        outputs = self._out.fileno(), self._err.fileno()
        return server.start(command, environment, *outputs, self.network)

    @property
    def out(self):
        return self._read(self._out)

    @property
    def err(self):
        return without_cpp_log(self._read(self._err))

    def wait_for(self, text, limit_secs=LIMIT_SECS, where="out"):
        """Waits until the program has written `text` to stdout, or to stderr: "err"."""
        end = time.monotonic() + limit_secs
        while True:
            has_ended = self.process.poll() is not None  # Before its output is read.
            if text in getattr(self, where):
                return
            assert not has_ended, self.err[-3000:]
            assert time.monotonic() < end, f"{self.name} did not write {text!r}"
            time.sleep(0.05)

    def send(self, number):
        self.process.send_signal(number)

    def status(self, limit_secs=LIMIT_SECS):
        """Waits for the program to end; returns its exit status."""
        return self.process.wait(limit_secs)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self._out.close()
        self._err.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.end()

    def _read(self, file):
        file.flush()
        with open(f"/proc/self/fd/{file.fileno()}") as again:
            return again.read()


class OldProgram(Program):
    """A program that `python -m estimator.compat ARGUMENTS` runs."""

    def __init__(self, *arguments, **environment):
        main = os.path.join(ROOT, "estimator", "compat", "__main__.py")
        super().__init__(main, *arguments, **environment)

    def _start(self, command, environment):
        server = _old_programs_server()
        return server.start(command, environment, self._out.fileno(), self._err.fileno())


def run_text(text, *arguments, **environment):
    """Runs a program, given as its text, to its end; returns what it has written to stdout."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(text)
        file.flush()
        with Program(file.name, *arguments, **environment) as program:
            assert program.status() == 0, program.err[-3000:]
            return program.out


@functools.cache
def _servers():
    """Returns an endless iterator over the servers in turn.

    Both have imported TensorFlow, so that the tasks of a cluster start at about the same time.
    """
    servers = [_Server() for _ in range(NUM_SERVERS)]
    for server in servers:
        server.wait()
    return itertools.cycle(servers)


@functools.cache
def _old_programs_server():
    return _Server(**WITH_TF_KERAS)


class _Server:
    """A fork server; it exits when this process does."""

    def __init__(self, **environment):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env={**os.environ, **ENVIRONMENT, "OPENBLAS_NUM_THREADS": "1", **environment},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._end)

    def wait(self):
        """Waits until it can fork; a request would wait, too."""
        assert self._socket.recv(1), "The fork server has ended."

    def start(self, command, environment, stdout, stderr, network=None):
        ours, theirs = os.pipe()
        request = json.dumps([command, environment, os.getcwd(), network]).encode()
        socket.send_fds(self._socket, [request], [stdout, stderr, theirs])
        os.close(theirs)
        return _Process(command, os.fdopen(ours))

    def _end(self):
        self._socket.close()
        self._process.wait()


class _Process:
    """The part of `subprocess.Popen` that tests need, for a process that a server forked."""

    def __init__(self, command, told):
        self._command, self._told = command, told  # A line with the pid, then one with the status.
        line = self._told.readline()
        assert line, f"The fork server ended, and cannot run {command}"
        self.pid = int(line)
        self.returncode = None

    def poll(self):
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self._command, timeout)
            self.returncode = int(self._told.readline())
            self._told.close()
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # It has ended, and is told of next.
                os.kill(self.pid, number)


# --- In the server -------------------------------------------------------------------------------


def _serve(connection):
    """Forks for each request until the connection closes; returns the request in the child."""
    gc.disable()  # Imports make objects that stay.
    _import_all()
    # A child that looks for garbage would write to, and so copy, each object's header.
    gc.collect()
    gc.freeze()
    gc.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended, wakes = socket.socketpair()
    wakes.setblocking(False)
    ended.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    with contextlib.suppress(BrokenPipeError):
        connection.send(b"1")
    told = {}  # By pid: the pipe that its status is written to.
    while True:
        ready, _, _ = select.select([connection, ended], [], [])
        if ended in ready:
            ended.recv(1000)
        _tell_statuses(told)
        if connection not in ready:
            continue
        request, fds, _, _ = socket.recv_fds(connection, 1 << 18, 3)
        if not request:
            _end_all(told)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGINT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            for one in (connection, ended, wakes):
                one.close()
            for fd in told.values():
                os.close(fd)
            return json.loads(request), fds
        told[pid] = fds.pop()
        for fd in fds:
            os.close(fd)
        _tell(told[pid], pid)


def _import_all():
    """Imports what the programs need; the library's names import TensorFlow on first use."""
    import estimator as est

    assert est.Estimator
    if WITH_TF_KERAS.items() <= os.environ.items():
        for name in ("tf_keras", "estimator.compat.installation", "estimator.compat.v1_imports"):
            importlib.import_module(name)


def _end_all(pids):
    """Kills the programs that still run, and ends the server."""
    for pid in pids:  # Not waited for yet, so the ids are still theirs.
        os.kill(pid, signal.SIGKILL)
    sys.exit()


def _tell_statuses(told):
    """Reports the exit status of each child that has ended."""
    while told:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        fd = told.pop(pid)
        _tell(fd, os.waitstatus_to_exitcode(status))
        os.close(fd)


def _tell(fd, number):
    """Writes a line, unless the test that would read it was ended."""
    with contextlib.suppress(BrokenPipeError):
        os.write(fd, b"%d\n" % number)


def _enter_network(path):
    """Moves this process into a network namespace, which the threads that it starts inherit."""
    with open(path) as file:
        failed = ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0)
    if failed:
        raise OSError(ctypes.get_errno(), "setns failed", path)


def _become(command, environment, directory, network, fds):
    """Prepares this process as `python COMMAND` would; returns its code and its globals."""
    import random

    import numpy as np

    for number, fd in zip((1, 2), fds, strict=False):
        os.dup2(fd, number)
    for fd in fds:
        os.close(fd)
    if network is not None:
        _enter_network(network)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    random.seed()
    np.random.seed()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv[:] = command
    sys.path[0] = os.path.dirname(command[0])
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = command[0]
    with open(command[0]) as file:
        return compile(file.read(), command[0], "exec"), main.__dict__


if __name__ == "__main__":
    _request, _fds = _serve(socket.socket(fileno=int(sys.argv[1])))
    exec(*_become(*_request, _fds))
