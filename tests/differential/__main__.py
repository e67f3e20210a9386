"""`python -m tests.differential --cases 1000 --seed 1`, or a program as it was printed."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def main():
    parser = argparse.ArgumentParser(prog="tests.differential")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("program", nargs="?", help="such as 'Program(parts=(Part(steps=3),))'")
    args = parser.parse_args()
    logging.getLogger("estimator").setLevel("ERROR")
    from tests.differential import program as names
    from tests.differential.cases import run_cases
    from tests.differential.compare import check

    if args.program is not None:
        check(eval(args.program, vars(names)))
        print("agrees")
        return
    run_cases(args.cases, args.seed, shrinks=True, tell=_Progress(args.cases))


class _Progress:
    """Says how far the cases are and how much memory the process has."""

    def __init__(self, num_cases):
        self._num_cases, self._count, self._start = num_cases, 0, time.monotonic()

    def __call__(self, program):
        self._count += 1
        if self._count % 20 and self._count != 1:
            return
        with open("/proc/self/statm") as file:
            mebibytes = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
        seconds = time.monotonic() - self._start
        print(
            f"{self._count} of {self._num_cases} cases, {seconds / self._count:.1f} s each, "
            f"{mebibytes:,} MiB",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
