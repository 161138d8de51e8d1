"""An exported table says what its columns are, in text that programs and spreadsheets read."""

import csv
import io
import json
from typing import Any

import pytest

from admin.output.export import exported
from shared.http.errors import HttpError
from tests.cases import each

AT = 1_700_000_000_123_000_000  # ns


def table(kind: str, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    text = bytes(exported({"title": "Topics", "table": list(rows)}, kind, {}).body).decode()
    return list(csv.DictReader(io.StringIO(text))) if kind == "csv" else json.loads(text)


@each("kind", ["csv", "json"])
def test_times_headers_and_rates(kind: str) -> None:
    rows = table(kind, {"name": "a", "oldest": AT}, {"name": "b", "oldest": 0}, {"name": "c", "oldest": 10**30})
    assert [row["oldest_message_at"] for row in rows] == ["2023-11-14T22:13:20.123+00:00", "", ""]
    assert "oldest" not in rows[0]
    (row,) = table(kind, {"id": "1", "headers": {"trace": "7f", "evil": "{'x': 1}"}})
    assert row["headers"] == "trace: 7f\nevil: {'x': 1}"
    detail = {"minutes": "60", "reason": "known"}
    (row,) = table(kind, {"action": "snooze", "detail": detail})
    assert row["detail"] == ("minutes: 60\nreason: known" if kind == "csv" else detail)
    unknown = {"name": "a", "rate_in": None, "rate_out": None, "gain": None}  # such ones are no columns
    assert list(table(kind, unknown)[0]) == ["name"]
    rows = table(kind, unknown, {"name": "b", "rate_in": 1.5, "rate_out": None, "gain": None})
    assert [list(row) for row in rows] == [["name", "rate_in"]] * 2
    assert float(rows[1]["rate_in"]) == 1.5


def test_a_page_with_several_tables_exports_all_of_them_as_json() -> None:
    nodes, clients = [{"node": "a", "oldest": AT}], [{"client": "c"}]
    fields = {"title": "Channel", "table": nodes, "exports": {"nodes": nodes, "clients": clients}}
    assert json.loads(bytes(exported(fields, "json", {}).body)) == {
        "nodes": [{"node": "a", "oldest_message_at": "2023-11-14T22:13:20.123+00:00"}],
        "clients": [{"client": "c"}],
    }
    assert bytes(exported(fields, "csv", {}).body).decode().startswith("node,oldest_message_at")


def test_a_text_that_a_spreadsheet_would_run_is_text() -> None:
    assert table("csv", {"name": "=1+1", "oldest": 0})[0]["name"] == "'=1+1"


@each("fields, kind", [({"title": "x"}, "csv"), ({"title": "x", "table": []}, "xml")])
def test_what_cannot_be_exported_is_said(fields: dict[str, Any], kind: str) -> None:
    with pytest.raises(HttpError, match="Cannot export"):
        exported(fields, kind, {})
