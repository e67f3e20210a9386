"""Starts the launcher on small programs, and tells which processes are left."""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import psutil

# Long, as a machine may be busy: what hangs is found all the same.
LIMIT_SECS = 240
ROOT = pathlib.Path(__file__).parents[2]

# A process that a shell started with `&` ignores SIGINT, with `nohup` SIGHUP; so do its children.
_START = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, "-m", "estimator_launch", *sys.argv[1:]])
"""

# What most programs need to know who they are.
_PRELUDE = """
import json, os, signal, sys, time
config = json.loads(os.environ["TF_CONFIG"])
role, index = config["task"]["type"], config["task"]["index"]

def sleep():
    # A signal that comes just before `signal.pause` would not end it.
    while True:
        time.sleep(0.05)

def wait_for_the_end():
    print("waiting", os.getpid(), flush=True)
    sleep()

def on_sigterm(action):
    signal.signal(signal.SIGTERM, lambda number, frame: action())
"""


def write_program(folder, text):
    """Writes a Python program that knows its `role` and `index`; returns its path."""
    path = folder / "program.py"
    path.write_text(_PRELUDE + textwrap.dedent(text))
    return str(path)


def command(*arguments):
    """The launcher's command line."""
    return [sys.executable, "-c", _START, *arguments]


def run(*arguments, **options):
    """Runs the launcher to its end."""
    return subprocess.run(
        command(*arguments),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECS,
        check=False,
        **options,
    )


@contextlib.contextmanager
def started(*arguments):
    """The launcher while it runs; at the end it and what it started are gone."""
    process = subprocess.Popen(
        command(*arguments),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        children = []
        try:
            yield process
            children = psutil.Process(process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            pass
        finally:
            process.kill()
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()


def read_pids(process, count):
    """The process ids of as many lines "waiting PID" on stdout, by the task's name."""
    pids = {}
    while len(pids) < count:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        name, _, text = line.partition("] ")
        word, pid = text.split()
        assert word == "waiting"
        pids[name.lstrip("[")] = int(pid)
    return pids


def printed_pids(finished):
    """The process ids of the lines "waiting PID"."""
    return [int(pid) for pid in re.findall(r"waiting (\d+)", finished.stdout)]


def living(pids):
    """Those of the processes that have not ended; one that nobody has buried yet has."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found


def lines_of(text, name):
    """What a task has printed."""
    prefix = f"[{name}]"
    return [line.removeprefix(prefix).lstrip() for line in text.splitlines() if prefix in line]


def environment(**variables):
    """This process's environment, with other variables."""
    return {**os.environ, **variables}
