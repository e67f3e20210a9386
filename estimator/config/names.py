"""What to suggest when a name is unknown."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A sentence with the nearest known name, or with all of them if none is near."""
    known = list(known)
    near = difflib.get_close_matches(str(name).lower(), known, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"Use one of {', '.join(map(repr, known))}."
