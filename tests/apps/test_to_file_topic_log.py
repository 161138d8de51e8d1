"""From arrival to FIN: no message is finished that a power cut would lose, and each is written once, in order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.to_file.names import at_time
from apps.to_file.output import Output, Place
from apps.to_file.rotation import Limits
from apps.to_file.schedule import SyncWindow, Touches
from apps.to_file.topic_log import Now, TopicLog
from tests.apps.fake_disk import FakeDisk
from tests.effort import tries

START = datetime(2020, 1, 1, tzinfo=UTC)


class Sent:
    """A message as the log sees it; the server keeps its book."""

    def __init__(self, server: Server, number: int) -> None:
        self.server = server
        self.id = b"%016d" % number
        self.body = b"message-%d" % number
        self.timestamp = number

    def finish(self) -> None:
        self.server.finish(self)

    def requeue(self, ms: int | None = None, backoff: bool = False) -> None:
        self.server.requeued.append((self.body, ms))

    def touch(self) -> None:
        self.server.touched.append(self.body)


class Server:
    """An nsqd that sends numbered messages, at most `most` at a time, to a log whose clock it is."""

    def __init__(
        self,
        place: Place,
        disk: FakeDisk | None = None,
        most: int = 20,
        skips_empty: bool = True,
        interval: float = 30.0,
        name: str = "t.<DATETIME><REV>.log",
    ) -> None:
        self.disk = disk or FakeDisk()
        self.most = most
        self.sent: list[bytes] = []
        self.in_flight: dict[bytes, Sent] = {}
        self.finished: list[bytes] = []
        self.requeued: list[tuple[bytes, int | None]] = []
        self.touched: list[bytes] = []
        self.monotonic = 1000.0
        self.log = TopicLog(
            title="t/c", output=Output(place, self.disk), name_at=lambda when: at_time(name, "%H%M", when),
            window=SyncWindow(most, interval, self.monotonic), touches=Touches(60.0, self.monotonic), most_held=2 * most,
            skips_empty=skips_empty,
        )  # fmt: skip

    @property
    def now(self) -> Now:
        return Now(self.monotonic, START + timedelta(seconds=self.monotonic))

    def send(self, count: int) -> None:
        count = min(count, self.most - len(self.in_flight))
        batch = [Sent(self, len(self.sent) + i) for i in range(count)]
        self.sent += [message.body for message in batch]
        self.in_flight |= {message.body: message for message in batch}
        self.log.take(batch, self.now)

    def wait(self, seconds: float) -> None:
        self.monotonic += seconds
        self.log.tick(self.now)

    def finish(self, message: Sent) -> None:
        assert message.body in self.disk.durable_lines(), "finished, but not on disk"
        self.finished.append(message.body)
        del self.in_flight[message.body]


@st.composite
def places(draw: st.DrawFn) -> Place:
    return Place(
        "t/c", "/out", draw(st.sampled_from(["/out", "/open"])), draw(st.sampled_from([0, 6])),
        Limits(draw(st.sampled_from([0, 5, 100])), draw(st.sampled_from([0.0, 20.0]))),
    )  # fmt: skip


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 30)),
        st.tuples(st.just("wait"), st.sampled_from([0, 1, 20, 40, 100])),
        st.tuples(st.just("hang up"), st.just(0)),
    ),
    max_size=30,
)


def run(server: Server, steps: list[tuple[str, int]]) -> None:
    for step, number in steps:
        if step == "send":
            server.send(number)
        elif step == "wait":
            server.wait(number)
        else:
            server.log.hang_up(server.now)


@settings(max_examples=tries(100, in_short=40))
@given(places(), STEPS, st.booleans())
def test_each_message_is_once_in_the_files_in_order_and_finished(
    place: Place, steps: list[tuple[str, int]], skips_empty: bool
) -> None:
    server = Server(place, skips_empty=skips_empty)
    run(server, steps)
    server.log.stop(server.now)
    assert server.disk.lines() == server.sent
    assert server.finished == server.sent
    assert all(name.startswith("/out/") for name in server.disk.names)


@settings(max_examples=tries(100, in_short=40))
@given(places(), STEPS, st.lists(st.booleans(), max_size=60), st.booleans())
def test_so_it_is_over_failures_of_every_call(
    place: Place, steps: list[tuple[str, int]], plan: list[bool], skips_empty: bool
) -> None:
    server = Server(place, FakeDisk(plan, never_fails=("truncate",)), skips_empty=skips_empty)
    run(server, steps)
    server.disk.plan = []
    server.wait(100)
    server.log.stop(server.now)
    assert server.disk.lines() == server.sent
    assert server.finished == server.sent
    assert server.requeued == []
    assert server.disk.open_files == 0


@settings(max_examples=tries(100, in_short=40))
@given(places(), STEPS, st.lists(st.booleans(), max_size=60))
def test_nothing_is_lost_if_files_cannot_even_be_cut(
    place: Place, steps: list[tuple[str, int]], plan: list[bool]
) -> None:
    place = Place(place.title, place.output, place.work, 0, place.limits)
    server = Server(place, FakeDisk(plan))
    run(server, steps)
    server.disk.plan = []
    server.wait(100)
    server.log.stop(server.now)
    assert server.finished == server.sent
    assert set(server.sent) <= set(server.disk.lines())
    assert server.disk.open_files == 0


PLAIN = Place("t/c", "/out", "/out", 0, Limits())


def failing(calls: int = 10**6) -> FakeDisk:
    return FakeDisk([True] * calls)


def test_a_message_is_finished_after_the_sync_and_a_file_ends_behind_the_message_that_exceeds_its_size() -> None:
    server = Server(PLAIN)
    server.send(19)
    assert server.finished == []
    assert len(server.disk.lines()) == 19
    server.send(1)
    assert len(server.finished) == 20
    server = Server(Place("t/c", "/out", "/out", 0, Limits(size=22)), name="t<REV>")
    server.send(10)  # of 10 bytes each
    assert [len(file.content) for file in server.disk.opened] == [30, 30, 30, 10]
    assert len(server.finished) == 9


def test_the_interval_ends_a_wait_and_messages_that_wait_are_touched() -> None:
    server = Server(PLAIN, interval=2.0)
    for _ in range(9):  # there is never a silence, and never a full window
        server.send(1)
        server.wait(0.2)
        assert server.finished == []
    server.wait(0.2)
    assert len(server.finished) == 9

    server = Server(PLAIN, most=1000, interval=1000.0)
    for _ in range(99):
        server.send(1)
        server.wait(0.2)
        assert server.touched == []
    server.wait(0.2)
    assert server.touched == server.sent


@pytest.mark.parametrize("disk", [failing, lambda: FakeDisk([False] * 4 + [True] * 10**6)])
def test_while_writing_fails_messages_are_held_and_the_log_says_so_once(
    disk: Callable[[], FakeDisk], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.to_file.topic_log.log.propagate", True)
    server = Server(PLAIN, disk(), most=5)
    server.send(5)
    for _ in range(100):
        server.wait(1)
        server.send(5)
    assert (server.finished, server.requeued) == ([], [])
    (error,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "trying again in 1 s, then at intervals of up to 30 s; nothing is finished until it works" in error
    assert len(server.disk.calls) < 40, "a busy loop"
    assert server.touched[:5] == server.sent
    server.disk.plan = []
    server.wait(30)
    assert server.finished == server.sent == server.disk.lines()


def test_what_cannot_be_written_at_the_end_is_requeued() -> None:
    server = Server(PLAIN, failing())
    server.send(3)
    server.log.stop(server.now)
    assert server.requeued == [(body, 0) for body in server.sent]
    assert server.finished == []


def test_a_message_that_comes_again_while_it_waits_is_written_once() -> None:
    server = Server(PLAIN, interval=1000.0)
    server.send(2)
    again, new = Sent(server, 1), Sent(server, 2)
    server.sent.append(new.body)
    server.in_flight[new.body] = new
    server.log.take([again, new], server.now)
    assert server.log.waiting == 3
    server.wait(1)
    assert server.disk.lines() == server.sent
    assert sorted(server.finished) == server.sent


def test_other_messages_with_the_same_ids_come_later_and_make_the_touches_more_frequent_once() -> None:
    server = Server(PLAIN)
    server.send(1)
    stranger = Sent(server, 0)
    stranger.body = b"of another nsqd"
    server.log.take([stranger], server.now)
    assert server.requeued == [(b"of another nsqd", 1000)]
    assert server.log._touches.interval == 20.0
    server.wait(1)
    assert server.finished == [b"message-0"]
    server = Server(PLAIN, interval=1000.0)
    server.send(15)
    server.log.take([Sent(server, number) for number in range(15)], server.now)
    assert server.log._touches.interval == 20.0 / 3


def test_held_messages_are_bounded_when_the_server_gives_up_on_them() -> None:
    server = Server(PLAIN, failing(), most=5)
    for _ in range(10):
        server.send(5)
        server.in_flight.clear()  # they timed out
    assert server.log.waiting == 10
    assert len(server.requeued) == 40
    server.disk.plan = []
    server.in_flight = {message.body: message for message in [Sent(server, number) for number in range(50)]}
    server.wait(100)
    assert server.finished == server.sent[40:]
    assert server.disk.lines() == server.sent[40:]


def test_a_rotation_that_fails_without_a_message_is_tried_again() -> None:
    place = Place("t/c", "/out", "/open", 0, Limits(interval=10.0))
    server = Server(place, interval=30.0)
    server.send(1)
    server.wait(1)
    server.disk.plan = [False, True, True, True]  # the file is closed, and cannot be moved
    server.wait(30)
    assert list(server.disk.names) == ["/open/t.0016-000000.log"]
    for _ in range(7):
        server.wait(1)
    assert list(server.disk.names) == ["/out/t.0016-000000.log"]


def test_a_hang_up_closes_one_file() -> None:
    server = Server(Place("t/c", "/out", "/out", 6, Limits()), interval=10.0, name="t<REV>")
    server.send(1)
    server.log.hang_up(server.now)
    assert server.finished == server.sent
    for _ in range(3):
        server.send(1)
        server.wait(10)
    assert list(server.disk.names) == ["/out/t-000000", "/out/t-000001"]
