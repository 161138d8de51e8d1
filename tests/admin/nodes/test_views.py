"""What pages show: rates, orders, pages, and words."""

import base64
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from admin.nodes import views
from admin.nodes.merge import topic_of
from admin.nodes.views import MOST_TALKERS, Row, Talker, hex_of, message_view, page_of, top_talkers, with_rates
from tests.cases import each

ROW = Row("t", False, 100, 5, 0, 1000, 0, 0, 2, 3)


def test_rates() -> None:
    later = replace(ROW, messages=1100, depth=150)
    row = with_rates(later, ROW, 2.0)  # a copy for each of two channels
    assert (row.rate_in, row.rate_out) == (50.0, 37.5)
    assert with_rates(later, None, 2.0).rate_in is None
    assert with_rates(ROW, later, 2.0).rate_in is None  # the node was restarted
    poison = replace(ROW, channels=1, depth=0, in_flight=0)
    row = with_rates(replace(poison, messages=1010, buried=10), poison, 2.0)
    assert (row.rate_in, row.rate_out) == (5.0, 0.0), "burying is not finishing"
    before = replace(ROW, channels=3)
    row = with_rates(replace(before, messages=1100), before, 2.0)  # nothing is left of any of the three
    assert row.rate_in == row.rate_out == 50.0, "they compare with each other"


@each("depth, gain, words", [(0, -1.0, "empty"), (100, 0.0, "stalled"), (100, 10.0, "10.0 s"), (36_000, 5.0, "2.0 h")])
def test_the_time_to_drain(depth: int, gain: float, words: str) -> None:
    assert replace(ROW, depth=depth, gain=gain).drain == words
    assert replace(ROW, depth=7).drain == "-"


def test_what_grows_does_not_drain_however_many_channels_it_has() -> None:
    grown = with_rates(replace(ROW, messages=1100, depth=150), ROW, 2.0)
    assert (grown.gain, grown.drain) == (-25.0, "growing")


@given(st.integers(0, 350), st.integers(-3, 10))
def test_pages_have_every_row_once(count: int, page: int) -> None:
    rows = [replace(ROW, name=str(number)) for number in range(count)]
    _, _, pages = page_of(rows, page)
    assert [row for number in range(1, pages + 1) for row in page_of(rows, number)[0]] == rows
    assert 1 <= page_of(rows, page)[1] <= pages


@given(st.binary(max_size=80))
def test_whatever_a_body_is_it_is_shown(body: bytes) -> None:
    view = message_view({"offset": 7, "body_base64": base64.b64encode(body).decode(), "body_size": len(body) + 1})
    assert view["cut"]
    assert all(one.isprintable() or one in "\n\t" for one in view["text"])
    assert bytes.fromhex("".join(line[8:55] for line in view["hex"].splitlines())) == body
    assert "\0" not in hex_of(body)


def test_a_body_is_text_or_binary_or_decoded() -> None:
    view = message_view({"body": '{"a":[1]}', "body_size": 9})
    assert (view["text"], view["is_binary"], view["decoded"].words) == ('{"a":[1]}', False, "JSON")
    assert message_view({"body": "17", "body_size": 2})["decoded"] is None
    view = message_view({"body_base64": base64.b64encode(b"\xff\0\x01").decode(), "body_size": 3})
    assert (view["text"], view["is_binary"]) == ("", True)
    view = message_view({"offset": 7, "body_size": 5, "waiting_for_copies": True})
    assert (view["waits"], view["text"], view["body_size"]) == (True, "", 5)
    assert not message_view({"offset": 7, "body": "x", "waiting_for_copies": "yes"})["waits"]


def test_words() -> None:
    assert views.segment("t#ephemeral/..") == "t%23ephemeral%2F.."
    assert views.duration(1_500_000) == "1.5 ms"
    assert views.duration(90e9) == "1.5 min"
    assert views.size(1_500_000) == "1.5 MB"
    assert views.percent(0.999) == "99.9 %"
    assert views.moment(0) == "-"
    assert views.arguments({"a": "b c", "q": ""}) == "a=b+c"


def test_a_topic_whose_channel_is_paused_is_not_paused() -> None:
    channel = {"channel_name": "c", "paused": True, "depth": 0}
    raw = {"topic_name": "t", "channels": [channel, channel | {"channel_name": "d", "paused": False}]}
    parts = [topic_of(raw, node, "h", 1) for node in ("a:1", "b:1")]
    row = views.topic_row("t", parts)
    assert (row.paused, row.paused_channels, row.channels) == (False, 1, 2)


def test_the_talkers_with_the_most_bytes_come_first() -> None:
    reported = [{"name": f"n{number}", "bytes": number, "messages": 1} for number in range(MOST_TALKERS + 5)]
    found = top_talkers({"identities": reported})
    assert [one.name for one in found] == [f"n{number}" for number in range(MOST_TALKERS + 4, 4, -1)]
    assert found[0] == Talker("n14", 0, 0, 1, 14, 0, 0, 0)
    assert top_talkers({}) == []
