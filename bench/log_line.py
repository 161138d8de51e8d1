"""A line in the table of the commit log's figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """A line in the table, cell by cell."""

    row: str
    what: str
    measured: str
    compared: str = ""
    aim: str = ""

    def cells(self) -> list[str]:
        """Return the cells of this line for bench.table.table."""
        return [self.row, self.what, self.measured, self.compared, self.aim]
