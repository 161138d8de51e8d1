"""The lines of an audit: their content, and which changes of them show."""

import json

import pytest

from shared.audit.chain import EMPTY, FIRST, MOST_LINE, BrokenChainError, Head, digest, encode, follow
from shared.audit.event import MOST_TEXT, Event, Outcome
from tests.cases import each

AT = 1_790_000_000_123_456_789  # ns since the epoch


def chain(count: int, head: Head = EMPTY) -> list[bytes]:
    lines = []
    for number in range(count):
        line, head = encode(head, 7, AT, Event("http", "topic/delete", f"t{number}"))
        lines.append(line)
    return lines


def end_of(lines: list[bytes]) -> Head | None:
    head = None
    for line in lines:
        head = follow(head, line)
    return head


def test_a_line_has_what_is_known_in_order() -> None:
    event = Event("https", "topic/delete", "orders api", Outcome.DONE, "ops", "token", "ann", "192.0.2.1", 3)
    line, head = encode(Head(), 7, AT, event)
    assert line.decode() == (
        '{"seq":1,"time":"2026-09-21T14:13:20.123Z","node":7,"who":"ops","by":"token","user":"ann","port":"https",'
        '"address":"192.0.2.1","action":"topic/delete","target":"orders api","count":3,"outcome":"done",'
        f'"prev":"{FIRST}"}}'
    )
    assert head == Head(1, digest(line))

    line, _ = encode(Head(), 7, AT, Event("http", "pub"))
    record = json.loads(line)
    assert "user" not in record
    assert "count" not in record
    assert record["who"] == record["by"] == record["address"] == ""
    assert json.loads(encode(Head(), 7, AT, Event("beanstalkd", "kick", count=0))[0])["count"] == 0


def test_a_chain_is_followed_from_any_line_on_and_a_forged_line_needs_the_right_number() -> None:
    lines = chain(5)
    assert end_of(lines) == end_of(lines[2:]) == Head(5, digest(lines[4]))
    lines = chain(3)
    lines.append(encode(Head(7, digest(lines[-1])), 7, AT, Event("http", "pub"))[0])
    with pytest.raises(BrokenChainError, match="its number is 8, expected 4"):
        end_of(lines)


@each("text", ["x" * 10_000, "\U0001f600" * 10_000, '"\\' * 5_000, "\udc80" * 10_000, "\n" * 10_000])
def test_a_line_is_bounded_whatever_is_in_it(text: str) -> None:
    line, head = encode(Head(), 7, AT, Event("nsq", text, text, Outcome.REFUSED, text, text, text, text))
    assert len(line) <= MOST_LINE
    assert b"\n" not in line
    assert json.loads(line)["who"] == text[:MOST_TEXT]
    assert follow(Head(), line) == head


@each(
    "line",
    [
        b"", b"{", b"[]", b"7", b"null", b"\0\0", b"\xff", b"[" * 100_000, b"1" * 5000, b'{"seq":true}',
        b'{"seq":0}', b'{"seq":1}',
    ],
)  # fmt: skip
def test_what_is_no_record(line: bytes) -> None:
    with pytest.raises(BrokenChainError, match="it is not a record"):
        follow(None, line)


@each("name", ["time", "who", "outcome", "prev"])
def test_a_record_has_all_texts(name: str) -> None:
    record = json.loads(chain(1)[0]) | {name: 7}
    with pytest.raises(BrokenChainError, match=f"it has no {name}"):
        follow(None, json.dumps(record).encode())
