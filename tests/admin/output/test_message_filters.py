"""Filters as an address has them, and as nodes are asked."""

import pytest

from admin.output.message_filters import MOST_TEXT, Filters, read_filters
from shared.http.errors import HttpError
from tests.cases import each

NOW = 1_800_000_000_000_000_000


def test_fields_that_are_not_set_ask_for_nothing() -> None:
    assert not read_filters({"state": "ready", "node": "a:1", "search": " "}, "ready")
    assert Filters().asked(NOW) == Filters().fields() == {}


def test_all_fields_are_asked_for() -> None:
    typed = {"search": "x", "header": "a=b", "min_attempts": "03", "before": "15m", "since": "2d", "reason": "bad"}
    filters = read_filters(typed, "buried")
    assert filters.fields() == typed
    assert filters.asks_about_contents
    assert filters.asked(NOW) == {
        "contains": "x", "header": "a=b", "min_attempts": "3", "reason": "bad",
        "published_before": str(NOW - 900_000_000_000), "published_after": str(NOW - 172_800_000_000_000),
    }  # fmt: skip
    assert read_filters(typed, "ready").reason == ""
    assert not read_filters({"min_attempts": "1"}, "ready").asks_about_contents
    assert len(read_filters({"search": "x" * 1000}, "ready").search) == MOST_TEXT


@each("text, seconds", [
    ("2026-11-21 10:00", 1_795_255_200), ("2026-11-21T10:00:00Z", 1_795_255_200),
    ("2026-11-21 10:00:00.500 UTC", 1_795_255_200.5), ("2026-11-21T12:00+02:00", 1_795_255_200),
    ("90 s", 1_799_999_910), ("2H", 1_799_992_800),
    ("999999999d", 1e-9),  # before everything
])  # fmt: skip
def test_times(text: str, seconds: float) -> None:
    assert Filters(before=text).asked(NOW) == {"published_before": str(round(seconds * 1e9))}


@each("filters", [
    Filters(min_attempts="-1"), Filters(min_attempts="65536"), Filters(min_attempts="\u0663"),
    Filters(before="soon"), Filters(since="15"), Filters(since="99999-01-01"), Filters(since="1e3"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(filters: Filters) -> None:
    with pytest.raises(HttpError) as refused:
        filters.asked(NOW)
    assert refused.value.status == 400
