"""One training of one contender, in this process. Each imports only what it needs."""

import re
import tempfile
from pathlib import Path

from benchmarks.processes import answer
from benchmarks.workloads import WORKLOADS

_LOOP_STEPS = 100


def measure(workload: str, contender: str, num_steps: int) -> dict:
    """Peak resident memory, in MiB, of this process after `num_steps` steps."""
    steps_left = num_steps

    def report(steps: int) -> bool:
        nonlocal steps_left
        steps_left -= steps
        return steps_left > 0

    work = WORKLOADS[workload]
    if contender == "ours":
        from benchmarks.ours import Setup, train_ours

        with tempfile.TemporaryDirectory() as directory:
            train_ours(work, directory, Setup(_LOOP_STEPS, writes_checkpoints=True), report)
    else:
        from benchmarks.hand_written import train_hand_written

        train_hand_written(work, _LOOP_STEPS, report)
    return {"peak_mib": _read_peak_mib()}


def _read_peak_mib() -> float:
    """`getrusage` will not do: its maximum survives `exec`, so it may be the parent's."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


if __name__ == "__main__":
    answer(measure)
