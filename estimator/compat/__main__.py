"""`python -m estimator.compat`: runs, or checks, a program of TensorFlow 1."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

_EPILOG = """The options above come before the script or module; what comes after it are its own.
docs/migrating.md says more."""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs what the command line says; the exit code is the program's own.

    Args:
      argv: the arguments; those of this process if None.
    """
    parser = _make_parser()
    options = parser.parse_args(argv)
    program = options.program
    if program[:1] == ["--"]:
        del program[0]
    if not program and options.check is None:
        parser.error("there is no SCRIPT.py to run, and no MODULE after -m")
    from estimator.compat.runner import Settings, run
    from estimator.compat.script import ScriptError

    try:
        if options.check is not None:
            sys.exit(_check(options.check))
        settings = Settings(
            target=program[0],
            argv=program[1:],
            is_module=options.is_module,
            is_v1=not options.no_v1_behavior,
            old_numpy=options.old_numpy,
            v1_packages=options.v1_package,
        )
        run(settings)
    except ScriptError as error:
        parser.exit(2, f"estimator.compat: {error}\n")


def _make_parser() -> argparse.ArgumentParser:
    """Returns a parser that leaves the script or module and all that follows in `program`."""
    parser = argparse.ArgumentParser(
        prog="python -m estimator.compat",
        usage="%(prog)s [options] {SCRIPT.py | -m MODULE} [arguments]",
        description="Runs a program that was written for TensorFlow 1 and tf.estimator as it is.",
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("-m", dest="is_module", action="store_true", help="run a module")
    parser.add_argument(
        "--no-v1-behavior",
        action="store_true",
        help="for programs of TensorFlow 2: only supply tf.estimator",
    )
    parser.add_argument(
        "--old-numpy",
        action="store_true",
        help="supply removed names, such as np.bool and collections.Mapping",
    )
    parser.add_argument(
        "--v1-package",
        action="append",
        default=[],
        metavar="NAME",
        help="an installed package that was written for TensorFlow 1, too; may be repeated",
    )
    parser.add_argument(
        "--check", metavar="PATH", help="say what would work and what not; run nothing"
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _check(path: str) -> int:
    """Prints the report on a program; returns the exit code, 1 if some names are not there."""
    from estimator.compat.program_check import MISSING, check, report

    findings = check(path)
    print(report(findings, path))
    return int(any(one.verdict == MISSING for one in findings))


if __name__ == "__main__":
    main()
