"""Tables that sort by every column, both ways. The state is in the URL: an order can be shared and needs no script. Pure.

A table called "" is sorted by the arguments `sort` and `order` of its page, one called "nodes" by `nodes_sort` and
`nodes_order`. `sort` is the key of a column, `order` is "asc" or "desc".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

# arguments that no link of a head keeps
_OTHERS = ("live", "page", "after", "format", "wrong", "did", "n", "published", "at")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column by which the rows of a table can be sorted."""

    key: str  # in the URL
    words: str  # the label
    # Sort key of a row: a number or a text, None where it is unknown. Unknown ones are last in either order.
    value: Callable[[T], Any]
    is_text: bool = False  # texts are on the left, and ascend at the first click; numbers descend


@dataclass(frozen=True, slots=True)
class Order:
    """The column by which a table is sorted, and the direction."""

    key: str
    is_descending: bool


@dataclass(frozen=True, slots=True)
class ColumnHead:
    """The head of a column, as a page shows it."""

    key: str
    words: str
    link: dict[str, str]  # the arguments of the page with the order that a click asks for; empty ones can be omitted
    aria: str  # "ascending", "descending", or "" if the table is not sorted by it
    is_text: bool


@dataclass(frozen=True, slots=True)
class Table(Generic[T]):
    """A table that can be sorted."""

    columns: tuple[Column[T], ...]
    name: str = ""
    first: str = ""  # the key that sorts it at first; "": the first column
    has_own_order: bool = False  # its rows come in an order of their own until a column is asked for

    def order(self, asked: Mapping[str, str]) -> Order:
        """Return the order that the arguments of a page ask for; invalid ones are ignored."""
        keys = {one.key: one for one in self.columns}
        sort, order = asked.get(self._named("sort"), ""), asked.get(self._named("order"), "")
        column = keys.get(sort) or keys[self.first or self.columns[0].key]
        return Order(column.key, order == "desc" if order in ("asc", "desc") else not column.is_text)

    def heads(self, asked: Mapping[str, str]) -> list[ColumnHead]:
        """Return the heads of the columns. A click on the column that sorts the table now reverses the order."""
        now = Order("", False) if self._is_unsorted(asked) else self.order(asked)
        kept = {name: value for name, value in asked.items() if name not in _OTHERS}
        return [self._head(column, now, kept) for column in self.columns]

    def _head(self, column: Column[T], now: Order, kept: dict[str, str]) -> ColumnHead:
        is_now = column.key == now.key
        descends = not now.is_descending if is_now else not column.is_text
        is_first = descends is not column.is_text  # the order of the first click is the default
        order = "" if is_first else "desc" if descends else "asc"
        link = kept | {self._named("sort"): column.key, self._named("order"): order}
        aria = ("descending" if now.is_descending else "ascending") if is_now else ""
        return ColumnHead(column.key, column.words, link, aria, column.is_text)

    def sorted(self, rows: Iterable[T], asked: Mapping[str, str]) -> list[T]:
        """Return the rows in the order that is asked for, or in their own. Equal ones keep their order."""
        if self._is_unsorted(asked):
            return list(rows)
        order = self.order(asked)
        value = next(one.value for one in self.columns if one.key == order.key)
        return arranged(rows, value, order.is_descending)

    def _is_unsorted(self, asked: Mapping[str, str]) -> bool:
        """Return whether the rows keep an order of their own, because no column is asked for."""
        return self.has_own_order and not asked.get(self._named("sort"))

    def _named(self, argument: str) -> str:
        return f"{self.name}_{argument}" if self.name else argument


def arranged(rows: Iterable[T], value: Callable[[T], Any], is_descending: bool) -> list[T]:
    """Return the rows by their value; equal ones keep their order, and those without a value (None) are last."""
    valued = [(value(row), row) for row in rows]
    known = sorted((one for one in valued if one[0] is not None), key=lambda one: one[0], reverse=is_descending)
    return [row for _, row in known] + [row for rank, row in valued if rank is None]
