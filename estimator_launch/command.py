"""Runs a program as a cluster on this machine, one process per task.

    estimator-launch --workers=2 --ps=1 --evaluator -- run_mnist.py --flags

Each process gets the environment variable TF_CONFIG, with free ports. Each line it prints is
prefixed with the name of its task. The first task that fails ends all of them, and its exit code
becomes that of the launcher. Ctrl-C, SIGTERM and SIGHUP end all of them too: with SIGTERM, which
lets a training save, then with SIGKILL. The ps are ended when all others have ended with 0.

The program is a Python file, `-m` and a module, or any other command. TensorFlow's servers listen
on all interfaces without authentication: protect them with a firewall.
"""

import sys
from collections.abc import Sequence
from io import FileIO

from absl import app, flags

from estimator_launch.job import Job, run_job
from estimator_launch.output import Output
from estimator_launch.tasks import make_command, make_tasks

FLAGS = flags.FLAGS
flags.DEFINE_integer("workers", 1, "Workers. Worker 0 is the chief, if none is.", lower_bound=0)
flags.DEFINE_integer("ps", 0, "Parameter servers.", lower_bound=0)
flags.DEFINE_boolean("chief", False, "Start a chief in addition to the workers.")
flags.DEFINE_boolean("evaluator", False, "Start an evaluator, outside of the training cluster.")
flags.DEFINE_integer(
    "restarts", 0, "How many times to restart all tasks after a failure.", lower_bound=0
)
flags.DEFINE_float(
    "grace_secs",
    30.0,
    "Seconds from SIGTERM to SIGKILL. A task has no limit of its own: after SIGTERM it finishes "
    "its current loop of steps and saves, and waits up to 20 s for tasks that do not answer. "
    "Allow for all of these: a task that is killed before it has saved loses what it had trained "
    "since the last checkpoint.",
    lower_bound=0,
)


def main(argv: Sequence[str]) -> int:
    """Runs the program given on the command line as a cluster; returns the exit code."""
    try:
        tasks = make_tasks(FLAGS.workers, FLAGS.ps, FLAGS.chief, FLAGS.evaluator)
        job = Job(tasks, make_command(argv[1:]), FLAGS.restarts, FLAGS.grace_secs)
    except ValueError as error:
        raise app.UsageError(str(error)) from error
    # Unbuffered: the buffer of sys.stdout would retry writes that have failed.
    streams = (FileIO(stream.fileno(), "wb", closefd=False) for stream in (sys.stdout, sys.stderr))
    return run_job(job, Output(list(map(str, tasks)), *streams))


def run() -> None:
    """Runs the command line of this process and exits; the entry point of the console script."""
    # Stops parsing flags at the first argument that is not a flag: the program.
    FLAGS.set_gnu_getopt(False)
    # absl's --help shows the docstring and flags of the main module, which only imports this one.
    sys.modules["__main__"].__doc__ = __doc__
    for flag in FLAGS.get_key_flags_for_module(__name__):
        FLAGS.register_key_flag_for_module(sys.argv[0], flag)
    app.run(main)
