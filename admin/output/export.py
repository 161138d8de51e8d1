"""The tables of pages as CSV and JSON files to download.

The oldest message of a row is a time in UTC (ISO 8601), in the column oldest_message_at; "": no message waits. So are
figures_at, disk_at and told_at: when a node told the figures before them, or all of the row; "": never. Headers of
messages are lines of text, "name: value". Rates that are known of no row, because it takes two looks to know them, are
left out.
"""

from __future__ import annotations

import csv
import io
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
    name = "".join(one if one.isalnum() else "-" for one in fields["title"]) or "table"
    named = {"Content-Disposition": f'attachment; filename="{name.encode("ascii", "replace").decode()}.{kind}"'}
    if kind == "json":
        answer = json_response(table)
        answer.headers.update({**headers, **named})
        return answer
    text = io.StringIO()
    names = list(table[0]) if table else []
    rows = csv.DictWriter(text, names, extrasaction="ignore")
    rows.writeheader()
    rows.writerows({name: _plain(row.get(name)) for name in names} for row in table)
    return Response(without_surrogates(text.getvalue()), 200, {**headers, **named}, "text/csv; charset=utf-8")


def _cell(name: str, value: object) -> tuple[str, object]:
    """Return a column and its value as the file has them."""
    if name == "oldest":
        moment = value if isinstance(value, int) else 0
        return "oldest_message_at", _iso(moment) if moment else ""
    if name in ("figures_at", "disk_at", "told_at"):
        return name, _iso(value) if isinstance(value, int) and value else ""
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
