"""The tables of pages as CSV and JSON files to download.

The oldest message of a row is a time in UTC (ISO 8601), in the column oldest_message_at; "" if no message waits. The times
at which a node reported the values before them, or the whole row, have the same form in the columns figures_at, disk_at and
reported_at; "" if it never did. Headers of messages are lines of text, "name: value". A rate that no row has is left out.
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
    table = fields.get("table")
    if table is not None:
        unknown = {name for name in _RATES if all(row.get(name) is None for row in table)}
        table = [dict(_cell(name, value) for name, value in row.items() if name not in unknown) for row in table]
    if table is None or kind not in ("csv", "json"):
        raise HttpError(400, "Cannot export: use ?format=csv or ?format=json on a page with a table.")
    name = re.sub("[^A-Za-z0-9]", "-", fields["title"]) or "table"
    headers = {**headers, "Content-Disposition": f'attachment; filename="{name}.{kind}"'}
    if kind == "json":
        answer = json_response(table)
        answer.headers.update(headers)
        return answer
    text = io.StringIO()
    rows = csv.DictWriter(text, list(table[0]) if table else [], extrasaction="ignore")
    rows.writeheader()
    rows.writerows({name: _plain(value) for name, value in row.items()} for row in table)
    return Response(without_surrogates(text.getvalue()), 200, headers, "text/csv; charset=utf-8")


def _cell(name: str, value: object) -> tuple[str, object]:
    """Return a column and its value as the file has them."""
    if name in ("oldest", "figures_at", "disk_at", "reported_at"):
        column = "oldest_message_at" if name == "oldest" else name
        return column, _iso(value) if isinstance(value, int) and value else ""
    if name == "headers" and isinstance(value, dict):
        return name, "\n".join(f"{one}: {text}" for one, text in value.items())
    return name, value


def _iso(moment: int) -> str:
    """Return ns since the epoch as a time in UTC; "" beyond year 9999, since nodes may lie."""
    try:
        return datetime.fromtimestamp(moment / 1e9, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return ""


def _plain(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
