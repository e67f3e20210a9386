"""How batches become those of programs that take one size only."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Padding:
    """How batches become those that a padded program takes.

    Attributes:
      batch_size: rows of every batch, of one replica.
      is_padded: for each component tensor of a batch, whether its rows may be fewer.
      in_parts: whether a batch that is not full is cut into parts that divide `batch_size`.
    """

    batch_size: int
    is_padded: list[bool]
    in_parts: bool = False
