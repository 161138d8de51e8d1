"""The tables of pages as CSV and JSON files to download. Of a page with several tables, JSON has all of them, by name.

The oldest message of a row is a time in UTC (ISO 8601), in the column oldest_message_at; "" if no message waits. The start of
a node, and the times at which it reported the values before them or the whole row, have the same form in the columns started,
figures_at, disk_at and reported_at; "" if they are unknown. Headers of messages, and in CSV details of the audit trail, are
lines of text, "name: value". A rate that no row has is left out.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from shared.http.api import json_response
from shared.http.errors import HttpError
from shared.text import without_surrogates

_RATES = ("rate_in", "rate_out", "gain", "slowest")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would take a text with this first character for a formula


def exported(fields: Mapping[str, Any], kind: str, headers: Mapping[str, str]) -> Response:
    """Return the page's table as a file. Raises HttpError 400 without a table, or if `kind` is neither csv nor json."""
    if fields.get("table") is None or kind not in ("csv", "json"):
        raise HttpError(400, "Cannot export: use ?format=csv or ?format=json on a page with a table.")
    name = re.sub("[^A-Za-z0-9]", "-", fields["title"]) or "table"
    headers = {**headers, "Content-Disposition": f'attachment; filename="{name}.{kind}"'}
    table = _rows(fields["table"])
    if kind == "json":
        others = fields.get("exports", {})
        answer = json_response({name: _rows(rows) for name, rows in others.items()} if others else table)
        answer.headers.update(headers)
        return answer
    text = io.StringIO()
    rows = csv.DictWriter(text, list(table[0]) if table else [], extrasaction="ignore")
    rows.writeheader()
    rows.writerows({name: _plain(value) for name, value in row.items()} for row in table)
    return Response(without_surrogates(text.getvalue()), 200, headers, "text/csv; charset=utf-8")


def _rows(table: list[dict[str, Any]]) -> list[dict[str, object]]:
    """Return the rows of a table as the file has them."""
    unknown = {name for name in _RATES if all(row.get(name) is None for row in table)}
    return [dict(_cell(name, value) for name, value in row.items() if name not in unknown) for row in table]


def _cell(name: str, value: object) -> tuple[str, object]:
    """Return a column and its value as the file has them."""
    if name in ("oldest", "figures_at", "disk_at", "reported_at", "started"):
        column = "oldest_message_at" if name == "oldest" else name
        return column, _iso(value) if isinstance(value, int) and value else ""
    if name == "headers" and isinstance(value, dict):
        return name, _lines(value)
    return name, value


def _lines(data: Mapping[str, object]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in data.items())


def _iso(moment: int) -> str:
    """Return ns since the epoch as a time in UTC; "" beyond year 9999, since nodes may lie."""
    try:
        return datetime.fromtimestamp(moment / 1e9, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return ""


def _plain(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula. Objects become lines of text."""
    value = _lines(value) if isinstance(value, dict) else value
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
