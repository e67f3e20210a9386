"""Temporarily replaces attributes of TensorFlow and Keras; no other file does so.

`docs/decisions/patches.md` lists every patch: what it replaces, why, and until when.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

# A context in which attributes are replaced.
Patch: TypeAlias = contextlib.AbstractContextManager[None]

_lock = threading.RLock()
_patched: dict[tuple[int, str], _Attribute] = {}


@contextlib.contextmanager
def patched(
    owner: Any, name: str, make: Callable[[Any], Any], *, may_be_missing: bool = False
) -> Iterator[None]:
    """Replaces `owner.name` by `make(original)` inside the block, and restores it afterwards.

    Blocks may be nested, and threads may enter and leave them in any order: each exit removes its
    own replacement only. An earlier replacement is wrapped by a later one. All threads see a
    replacement; one that is meant for some callers only must check who calls.

    Args:
      owner: a module, a class or an object.
      name: the name of its attribute.
      make: takes the value to replace and returns the replacement; called again whenever another
        replacement of the attribute is added or removed.
      may_be_missing: whether to add an attribute that is missing, for which `make` gets None;
        otherwise that is an AttributeError.
    """
    with _lock:
        attribute = _patched.get((id(owner), name)) or _Attribute(owner, name, may_be_missing)
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


@contextlib.contextmanager
def together(patches: Iterable[Patch]) -> Iterator[None]:
    """Makes several replacements inside the block."""
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


class _Attribute:
    """An attribute that is currently replaced, with its replacements."""

    def __init__(self, owner: Any, name: str, may_be_missing: bool) -> None:
        self.owner, self.name = owner, name
        self.layers: list[Callable[[Any], Any]] = []
        self._original = getattr(owner, name, *([None] if may_be_missing else []))
        # To restore an inherited attribute, it is deleted from the owner. The raw value is kept,
        # because `getattr` would bind a class method. A tf.Graph has no __dict__; only its methods
        # are patched.
        own = getattr(owner, "__dict__", {})
        self._own = {name: own[name]} if name in own else {}

    def show(self, layers: list[Callable[[Any], Any]]) -> None:
        """Sets the owner's attribute to the original wrapped by these layers."""
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
