"""How batches are padded for programs that take a single batch size."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Padding:
    """How batches are padded for a program.

    Attributes:
      batch_size: the number of rows of a replica's batch.
      is_padded: for each component tensor of a batch, whether it may have fewer rows.
      in_parts: whether an incomplete batch is cut into parts that divide `batch_size`.
    """

    batch_size: int
    is_padded: list[bool]
    in_parts: bool = False
