"""Orders tests so that each process of pytest-xdist begins with slow ones.

`--dist worksteal` deals consecutive tests, as many to each process. One that has no more takes half
of what another one has left, from its end. If only short tests are left by then, all processes end
together, and files whose tests share a costly fixture are not divided.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence


def order(files: Sequence[Hashable], is_slow: Sequence[bool], num_processes: int) -> list[int]:
    """Returns the indices of the tests in the order in which they are to be dealt.

    Files that have a slow test stay whole; each process gets about as many slow tests.

    Args:
      files: the file of each test.
      is_slow: whether each test is slow.
      num_processes: the number of processes.
    """
    slow_files = {file for file, slow in zip(files, is_slow, strict=True) if slow}
    slow, short = (
        [place for place, file in enumerate(files) if (file in slow_files) == wanted]
        for wanted in (True, False)
    )
    parts: list[list[int]] = [[] for _ in range(num_processes)]
    num_seen = 0
    for _, group in itertools.groupby(slow, key=lambda place: files[place]):
        places = list(group)
        parts[num_seen * num_processes // sum(is_slow)] += places
        num_seen += sum(is_slow[place] for place in places)
    ordered: list[int] = []
    rest = iter(short)
    for number, part in enumerate(parts):
        size = (len(files) - len(ordered)) // (num_processes - number)
        ordered += [*part, *itertools.islice(rest, max(0, size - len(part)))]
    return ordered
