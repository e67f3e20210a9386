"""Rows of the table, how they are judged and printed."""

import dataclasses
from collections.abc import Sequence

from benchmarks.timing import compute_quartiles

_HEADER = ("benchmark", "model", "what", "median", "quartiles", "target", "")
_WIDTHS = (16, 11, 53, 9, 18, 9, 7)


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure: a value for each round, and what its median should be.

    `unit` is "x" for a ratio, else "ms" or "us". `target` None: for information only. The
    median must be at most the target; with `at_least`, at least.
    """

    benchmark: str
    workload: str
    what: str
    values: Sequence[float]
    unit: str = "x"
    target: float | None = None
    at_least: bool = False

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """The lower quartile, the median and the upper quartile."""
        return compute_quartiles(self.values)

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None without a target."""
        if self.target is None:
            return None
        median = self.quartiles[1]
        return median >= self.target if self.at_least else median <= self.target

    def as_dict(self) -> dict:
        """For JSON: the fields, the statistics and the verdict."""
        low, median, high = self.quartiles
        statistics = {"median": median, "lower_quartile": low, "upper_quartile": high}
        return {**dataclasses.asdict(self), **statistics, "is_met": self.is_met}

    def as_cells(self) -> tuple[str, ...]:
        """For the table."""
        low, median, high = (self._format(value) for value in self.quartiles)
        target = "" if self.target is None else self._format(self.target)
        if target:
            target = (">= " if self.at_least else "<= ") + target
        verdict = {None: "", True: "met", False: "NOT MET"}[self.is_met]
        quartiles = f"{low}..{high}"
        return (self.benchmark, self.workload, self.what, median, quartiles, target, verdict)

    def _format(self, value: float) -> str:
        digits = {"x": 3, "ms": 2}.get(self.unit, 0)
        return f"{value:.{digits}f}{'' if self.unit == 'x' else ' '}{self.unit}"


def as_dicts(rows: Sequence[Row]) -> list[dict]:
    """The bare fields: `Row(**fields)` is the row again."""
    return [dataclasses.asdict(row) for row in rows]


def format_rows(rows: Sequence[Row], has_header: bool) -> str:
    """Rows in columns; the same columns for each call."""
    lines = [_HEADER] if has_header else []
    lines += [row.as_cells() for row in rows]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(line, _WIDTHS, strict=True)).rstrip()
        for line in lines
    )


def count_targets(rows: Sequence[Row]) -> str:
    """How many targets are met."""
    verdicts = [row.is_met for row in rows if row.is_met is not None]
    return f"{sum(verdicts)} of {len(verdicts)} targets met."
