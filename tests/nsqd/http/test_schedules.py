"""/schedule and /schedules: ticks over restarts and clock changes, the list, rights, limits and bad input."""

import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from nsqd.core.scheduling.schedules import Schedules
from nsqd.tasks.schedule_task import RETRY
from tests.cases import each
from tests.local_node import SECOND, LocalNode
from tests.nsqd.http.asking import ask, drained, get, post, reply_of

MINUTE = 60 * SECOND


def keys(node: LocalNode) -> list[str]:
    """Return the schedules and ticks of the messages of `t`, which are all in its channel `c`."""
    messages = get(node, "/channel/messages", topic="t", channel="c", state="ready", limit=1000)["messages"]
    return [message["key"].removeprefix("schedule:") for message in messages]


def add(node: LocalNode, name: str = "n", body: str = "x", **when: Any) -> None:
    post(node, "/schedule", body, topic="t", name=name, **when)


def wall(node: LocalNode) -> int:
    return node.clock.wall // SECOND


def started() -> LocalNode:
    node = LocalNode()
    post(node, "/topic/create", topic="t")
    post(node, "/channel/create", topic="t", channel="c")
    return node


@pytest.fixture
def node() -> LocalNode:
    return started()


def test_a_schedule_publishes_its_body_and_headers(node: LocalNode) -> None:
    answer = node.client.post("/schedule?topic=t&name=n&every=10m", content=b"hello", headers={"X-Nsq-Header-A": "b"})
    assert (answer.status_code, answer.content) == (200, b"")
    began = wall(node)
    described = {
        "topic": "t", "name": "n", "every": "10m0s", "missed": "once", "paused": False, "next": began + 600, "last": 0,
        "body_size": 5,
    }  # fmt: skip
    assert get(node, "/schedule", topic="t", name="n") == described
    encoded = base64.b64encode(b"hello").decode()
    assert get(node, "/schedule", topic="t", name="n", body="true") == {
        **described, "body": encoded, "headers": {"a": "b"},
    }  # fmt: skip
    node.advance(20 * MINUTE)
    assert keys(node) == [f"n:{began + 600}", f"n:{began + 1200}"]
    assert get(node, "/schedule", topic="t", name="n")["last"] == began + 1200
    assert drained(node, "t", "c", 2) == [b"hello"] * 2
    node.broker.check()


def test_schedules_and_ticks_survive_a_kill(node: LocalNode) -> None:
    add(node, every="10m")
    add(node, "gone", every="10m")
    post(node, "/schedule/delete", topic="t", name="gone")
    began = wall(node)
    node.advance(10 * MINUTE)
    again = node.killed(down=5 * MINUTE)
    again.advance(0)
    assert keys(again) == [f"n:{began + 600}"]
    again.advance(5 * MINUTE)
    assert keys(again) == [f"n:{began + 600}", f"n:{began + 1200}"]


@each("missed, expected", [("skip", []), ("once", [60]), ("all", [60, 120, 180])])
def test_a_node_makes_up_for_what_it_missed_while_it_was_down(missed: str, expected: list[int]) -> None:
    node = started()
    add(node, every="1m", missed=missed)
    began = wall(node)
    again = node.killed(down=3 * MINUTE + SECOND)
    again.advance(SECOND)
    assert keys(again) == [f"n:{began + tick}" for tick in expected]


def test_a_kill_between_a_publish_and_its_note_publishes_once(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    add(node, every="1m")
    began = wall(node)
    monkeypatch.setattr(Schedules, "note", lambda schedules, ticks: None)
    node.advance(MINUTE + 2 * SECOND)
    assert keys(node) == [f"n:{began + 60}"]
    monkeypatch.undo()
    again = node.killed(down=SECOND)
    again.advance(10 * SECOND)
    assert keys(again) == [f"n:{began + 60}"]


def test_a_schedule_at_a_time_is_gone_after_it(node: LocalNode) -> None:
    began = wall(node)
    at = datetime.fromtimestamp(began + 30, UTC).isoformat()
    add(node, at=at)
    assert get(node, "/schedule", topic="t", name="n")["at"] == at.replace("+00:00", "Z")
    node.advance(MINUTE)
    for one in (node, node.killed(down=MINUTE)):
        one.advance(MINUTE)
        assert reply_of(ask(one, "GET", "/schedule", topic="t", name="n")) == (404, "SCHEDULE_NOT_FOUND")
        assert keys(one) == [f"n:{began + 30}"]


def test_a_clock_that_is_set_back_publishes_nothing_twice(node: LocalNode) -> None:
    add(node, every="1m")
    began = wall(node)
    node.advance(2 * MINUTE)
    node.clock.wall -= 90 * SECOND
    again = node.killed(down=SECOND)
    for one in (node, again):
        one.advance(MINUTE)
        assert keys(one) == [f"n:{began + 60}", f"n:{began + 120}"]
    again.advance(90 * SECOND)
    assert keys(again)[2:] == [f"n:{began + 180}"]


def test_a_pause_publishes_nothing_and_survives_a_kill(node: LocalNode) -> None:
    add(node, every="1m", missed="all")
    began = wall(node)
    post(node, "/schedule/pause", topic="t", name="n")
    again = node.killed(down=SECOND)
    again.advance(3 * MINUTE)
    shown = get(again, "/schedule", topic="t", name="n")
    assert (shown["paused"], shown["next"], keys(again)) == (True, 0, [])
    post(again, "/schedule/unpause", topic="t", name="n")
    again.advance(MINUTE)
    assert keys(again) == [f"n:{began + 240}"]


def test_a_tick_waits_until_the_node_takes_messages(node: LocalNode, caplog: pytest.LogCaptureFixture) -> None:
    add(node, every="1m")
    began = wall(node)
    post(node, "/node/drain")
    node.advance(90 * SECOND)
    assert keys(node) == []
    metrics = node.client.get("/metrics").text
    assert "nsqd_schedules 1.0\n" in metrics
    assert 'nsqd_schedule_ticks_total{outcome="refused"} 7.0\n' in metrics
    assert caplog.messages.count("SCHEDULE: cannot publish n to t: DRAINING") == 1
    node.broker.drain(False)
    node.advance(RETRY * SECOND)
    assert keys(node) == [f"n:{began + 60}"]


def test_a_topic_that_was_deleted_is_made_again(node: LocalNode) -> None:
    add(node, every="1m")
    post(node, "/topic/delete", topic="t")
    node.advance(MINUTE)
    assert node.broker.topics["t"].intake.message_count == 1


def test_schedules_are_listed_in_pages(node: LocalNode) -> None:
    for topic, name in (("u", "a"), ("t", "c"), ("t", "b"), ("t", "a")):
        post(node, "/schedule", "x", topic=topic, name=name, cron="0 0 * * *", timezone="Europe/Berlin")
    first = get(node, "/schedules", limit=3)
    assert [(one["topic"], one["name"]) for one in first["schedules"]] == [("t", "a"), ("t", "b"), ("t", "c")]
    second = get(node, "/schedules", limit=3, after=first["after"])
    assert [(one["topic"], one["name"]) for one in second["schedules"]] == [("u", "a")]
    assert (first["count"], second["count"], second["after"]) == (4, 4, "")
    assert [one["name"] for one in get(node, "/schedules", topic="u")["schedules"]] == ["a"]
    assert get(node, "/schedules", after="\x00nowhere")["count"] == 4


LATER = "2026-06-01T00:00:00Z"


@each("arguments, error", [
    ({}, "MISSING_ARG_CRON"),
    ({"every": "1m", "at": LATER}, "CRON_EVERY_OR_AT"),
    ({"every": "1m", "timezone": "UTC"}, "INVALID_ARG_TIMEZONE"),
    *(({"cron": cron}, "INVALID_ARG_CRON") for cron in ("", "* * * *", "0 0 30 2 *", "* * * * * *", "\u0665 * * * *")),
    *(({"cron": "* * * * *", "timezone": zone}, "INVALID_ARG_TIMEZONE") for zone in ("", "Mars", "../../etc/passwd", "\0")),
    *(({"every": every}, "INVALID_ARG_EVERY") for every in ("0", "-1m", "999ms", "1500ms", "87841h", "x")),
    *(({"at": at}, "INVALID_ARG_AT")
      for at in ("2025-01-01T00:00:00Z", "2026-06-01T00:00:00", "9999-12-31T23:59:59-12:00", "x")),
    ({"every": "1m", "missed": "maybe"}, "INVALID_ARG_MISSED"),
    ({"every": "1m", "name": "a b"}, "INVALID_ARG_NAME"),
    ({"every": "1m", "topic": "a b"}, "INVALID_TOPIC"),
])  # fmt: skip
def test_bad_arguments(node: LocalNode, arguments: dict[str, str], error: str) -> None:
    assert reply_of(ask(node, "POST", "/schedule", "x", **{"topic": "t", "name": "n"} | arguments)) == (400, error)
    assert get(node, "/schedules")["count"] == 0


@each("header, error", [
    ("batch", "INVALID_BATCH"), ("after", "INVALID_BATCH"), ("unique", "INVALID_UNIQUE"), ("deliver-at", "INVALID_DELIVER_AT"),
])  # fmt: skip
def test_headers_that_a_schedule_cannot_have(node: LocalNode, header: str, error: str) -> None:
    headers = {f"X-Nsq-Header-{header}": "2026-06-01T00:00:00Z"}
    assert reply_of(node.client.post("/schedule?topic=t&name=n&every=1m", content=b"x", headers=headers)) == (
        400,
        error,
    )


def test_limits_of_number_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    node = LocalNode("-max-schedules", "2", "-max-msg-size", "100")
    add(node, "a", every="1m")
    add(node, "b", every="1m")
    add(node, "b", "y" * 100, every="2m")
    full = 503, "TOO_MANY_SCHEDULES"
    assert reply_of(ask(node, "POST", "/schedule", "x", topic="t", name="c", every="1m")) == full
    assert reply_of(ask(node, "POST", "/schedule", "x" * 101, topic="t", name="b", every="1m")) == (413, "MSG_TOO_BIG")
    assert reply_of(ask(node, "POST", "/schedule", topic="t", name="b", every="1m")) == (400, "MSG_EMPTY")
    monkeypatch.setattr("nsqd.http.schedules.MOST_BYTES", 101)
    add(node, "b", "z" * 100, every="2m")
    assert reply_of(ask(node, "POST", "/schedule", "xx", topic="t", name="a", every="1m")) == full
