"""A line of the commit log's table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """Of the table."""

    row: str
    what: str
    measured: str
    compared: str = ""
    aim: str = ""

    def cells(self) -> list[str]:
        """For bench.table.table."""
        return [self.row, self.what, self.measured, self.compared, self.aim]
