"""Replaces attributes of TensorFlow and Keras for a while; the only file that does so.

`docs/decisions/patches.md` lists every patch: what it replaces, why, and until when.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

_lock = threading.RLock()
_patched: dict[tuple[int, str], _Attribute] = {}


@contextlib.contextmanager
def patched(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Inside, `owner.name` is `make(original)`; afterwards it is what it was, after an error too.

    Blocks may be nested, and threads may enter and leave them in any order: each exit takes its own
    replacement away and leaves those of the others in place, the earlier inside the later. All
    threads see a replacement; one that is for some callers only asks who calls.

    Args:
      owner: a module, a class or an object.
      name: of its attribute.
      make: called with what to replace, and again whenever another replacement comes or goes.
    """
    with _lock:
        attribute = _patched.get((id(owner), name)) or _Attribute(owner, name)
        attribute.show([*attribute.layers, make])
        _patched[id(owner), name] = attribute
    try:
        yield
    finally:
        with _lock:
            left = list(attribute.layers)
            left.remove(make)
            attribute.show(left)
            if not left:
                del _patched[id(owner), name]


class _Attribute:
    """An attribute that is replaced now, and by what."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name
        self.layers: list[Callable[[Any], Any]] = []
        self._original = getattr(owner, name)
        # What the owner inherits is deleted from it again, not set. The raw value: `getattr` would
        # bind a class method. A tf.Graph has no __dict__; what is patched there are its methods.
        own = getattr(owner, "__dict__", {})
        self._own = {name: own[name]} if name in own else {}

    def show(self, layers: list[Callable[[Any], Any]]) -> None:
        """Gives the owner the original inside these layers."""
        value = self._original
        for make in layers:
            value = make(value)
        if layers:
            setattr(self.owner, self.name, value)
        elif self._own:
            setattr(self.owner, self.name, self._own[self.name])
        else:
            delattr(self.owner, self.name)
        self.layers = layers


def patches_in_force() -> list[tuple[Any, str]]:
    """The owners and names of all attributes that are replaced now."""
    with _lock:
        return [(attribute.owner, attribute.name) for attribute in _patched.values()]
