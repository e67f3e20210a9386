"""The thread in which the sessions of this process have their first calls prepared.

A session copies and optimizes its graph for each call that it has not seen before. It also looks
for oneDNN's kernels, 0.5 ms for each type of op and dtype, and TensorFlow remembers what it finds
for as long as the thread lives. In a thread of its own, each call of a small model's start would
spend about a third of its preparation on that.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any

_THREAD = concurrent.futures.ThreadPoolExecutor(1, "preparation")


def begin(function: Callable[..., Any], *args: Any) -> concurrent.futures.Future:
    """Has the thread call a function after those before it; it must not wait for other tasks."""
    return submit(_THREAD, function, *args)


def submit(
    executor: concurrent.futures.Executor, function: Callable[..., Any], *args: Any
) -> concurrent.futures.Future:
    """Has an executor call a function; calls it here if the main thread of the process has ended.

    Executors take no more calls then, but another thread may still train. An error of a call made
    here is raised at once.
    """
    try:
        return executor.submit(function, *args)
    except RuntimeError:
        call: concurrent.futures.Future = concurrent.futures.Future()
        call.set_result(function(*args))
        return call


def finish() -> None:
    """Waits until the thread has called all functions so far, whatever they raised."""
    begin(lambda: None).result()
