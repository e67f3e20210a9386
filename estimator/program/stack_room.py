"""Keeps the frames of nested Python calls in one piece of memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

_Function = TypeVar("_Function", bound=Callable)

# In words of 8 bytes: a frame of 128 KiB does not fit into a chunk of that size.
_FRAME_WORDS = 1 << 14


def with_stack_room(function: _Function) -> _Function:
    """Gives all calls inside `function` one chunk of memory for their frames; returns `function`.

    From CPython 3.11 on, the frames of Python functions lie in chunks of 16 KiB. A call that does
    not fit into the current chunk maps a new one, and its return unmaps it. Where the calls of a
    loop cross that border, as those that build a graph do at some depths of the stack, each of
    them pays for it. A large frame gets a chunk of the next power of two, here 256 KiB, and leaves
    the rest to what it calls. The system provides only the pages that are written to.

    Args:
      function: a Python function. Its own code object is replaced.
    """
    if sys.version_info >= (3, 11):
        function.__code__ = function.__code__.replace(co_stacksize=_FRAME_WORDS)
    return function
