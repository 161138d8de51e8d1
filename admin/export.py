"""The tables of pages as CSV and JSON files to download."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from shared.http.api import json_response
from shared.http.errors import HttpError
from shared.text import without_surrogates

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would take a text with this first character for a formula


def exported(fields: Mapping[str, Any], kind: str, headers: Mapping[str, str]) -> Response:
    """Return the page's table as a file. Raises HttpError 400 without a table, or if `kind` is neither csv nor json."""
    table = fields.get("table")
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


def _plain(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
