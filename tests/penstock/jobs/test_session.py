"""The core of the clients of jobs in virtual time: scripted servers that refuse, close, fall silent or lie."""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.jobs import (
    AnswerLost,
    BadServer,
    ConnectionLost,
    JobsError,
    JobsSettings,
    NotFound,
    ReservationLost,
    Unsupported,
    calls,
)
from penstock.jobs.retries import Retries, TouchPlan
from penstock.jobs.session import Check, Dial, Exchange, HangUp, JobsSession, Pause, Steps
from penstock.protocol.headers import pack_headers
from tests.cases import each

T = TypeVar("T")
CLOSED, SILENT, REFUSED, RESET = "closed", "silent", "refused", "reset"
Answer = bytes | str  # the next action of the server: bytes, or one of the constants above


class World:
    """A driver with a clock of its own. `answers` are what follows each Dial ("" connects) and each Exchange, in order."""

    def __init__(self, *answers: Answer, settings: JobsSettings | None = None, **tubes: object) -> None:
        self.now = 1000.0
        self.answers = list(answers)
        self.sent: list[bytes] = []
        self.pauses: list[float] = []
        self.stale = False
        self.session = JobsSession(settings or JobsSettings(), lambda: self.now, lambda: 1.0, **tubes)  # type: ignore[arg-type]

    def run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    data = self.execute(step)
                except OSError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(data)
        except StopIteration as done:
            result: T = done.value
            return result

    def execute(self, step: object) -> bytes:
        if isinstance(step, Pause):
            assert step.seconds > 0
            self.pauses.append(step.seconds)
            self.now += step.seconds
        elif isinstance(step, Check):
            return b"!" if self.stale else b""
        elif isinstance(step, Dial | Exchange):
            if isinstance(step, Exchange):
                self.sent.append(step.data)
            answer = self.answers.pop(0) if self.answers else REFUSED
            if answer == SILENT:
                self.now += step.seconds
                raise TimeoutError
            if answer == REFUSED:
                raise ConnectionRefusedError("refused")
            if answer == RESET:
                raise ConnectionResetError("reset")
            return b"" if isinstance(answer, str) else answer
        else:
            assert isinstance(step, HangUp)
        return b""


PUT = calls.put("default", b"x", 1, 0, 60)


def call(world: World, one: calls.Call[T]) -> T:
    return world.run(world.session.perform(one))


def test_an_answer_in_two_pieces() -> None:
    world = World("", b"INSERT", b"ED 7\r\n")
    assert call(world, calls.put("default", b"x", 1, 0.2, 60)) == 7
    assert world.sent == [b"put 1 1 60 1\r\nx\r\n", b""]


def test_headers_go_to_a_server_that_takes_them() -> None:
    content = pack_headers((("a", "1"),)) + b"x"
    found = b"RESERVED 7 %d\r\n%s\r\n" % (len(content), content)
    batch, put = b"RESERVED_BATCH 1\r\n" + found, PUT._replace(headers=(("a", "1"),), needs_headers=True)
    world = World("", b"HEADERS\r\n", b"INSERTED 7\r\n", found, batch, b"FOUND 7 1\r\nx\r\n", wants_headers=True)
    assert call(world, put) == 7
    assert world.sent == [b"headers\r\n", b"put 1 0 60 %d\r\n%s\r\n" % (len(content), content)]
    assert call(world, calls.reserve(0)) == (7, b"x", (("a", "1"),))
    assert call(world, calls.reserve_batch(1, 0)) == [(7, b"x", (("a", "1"),))]
    with pytest.raises(BadServer, match="without headers"):
        call(world, calls.peek(7))


def test_a_server_without_headers_gets_none() -> None:
    unknown = b"UNKNOWN_COMMAND\r\n"
    world = World("", unknown, b"INSERTED 7\r\n", b"RESERVED 7 1\r\nx\r\n", wants_headers=True)
    assert call(world, PUT._replace(headers=(("a", "1"),))) == 7
    assert world.sent[1] == PUT.command
    assert call(world, calls.reserve(0)) == (7, b"x", ())
    with pytest.raises(Unsupported):
        call(world, PUT._replace(headers=(("a", "1"),), needs_headers=True))


def test_tubes_are_restored_after_a_reconnect() -> None:
    restored = b"WATCHING 2\r\nWATCHING 1\r\nUSING u\r\n"
    answers = ("", restored, b"TIMED_OUT\r\n", CLOSED, "", restored, b"RESERVED 5 1\r\nx\r\n")
    world = World(*answers, using="u", watching=["w"])
    assert world.run(world.session.reserve(0)) is None
    assert world.run(world.session.reserve(5)) == (5, b"x", ())
    first = b"watch w\r\nignore default\r\nuse u\r\n"
    reserve = b"reserve-with-timeout %d\r\n"
    assert world.sent == [first, reserve % 0, reserve % 5, first, reserve % 5]
    assert world.session.epoch == 2


def test_a_put_is_tried_again_only_if_it_was_not_sent() -> None:
    for lost in (CLOSED, SILENT):
        world = World("", lost, "", b"INSERTED 1\r\n")
        with pytest.raises(AnswerLost):
            call(world, PUT)
        assert len(world.sent) == 1
    world = World(REFUSED, SILENT, "", b"INSERTED 1\r\n")
    assert call(world, PUT) == 1
    assert world.pauses == [0.1, 0.2]


def test_a_unique_put_is_repeated_unless_a_server_would_execute_its_body() -> None:
    world = World("", b"BAD_FORMAT\r\n", CLOSED, "", b"BAD_FORMAT\r\n", b"DUPLICATE\r\n")
    assert call(world, calls.put_unique("default", "k", b"x", 1, 0, 60)) is None
    put = b"put-unique k 1 0 60 1\r\nx\r\n"
    assert world.sent == [b"put-unique \r\n", put, b"put-unique \r\n", put]
    world = World("", b"UNKNOWN_COMMAND\r\n")
    for _ in range(2):
        with pytest.raises(Unsupported):
            call(world, calls.put_unique("default", "k", b"delete 1\r\n", 1, 0, 60))
    assert world.sent == [b"put-unique \r\n"]


def test_a_batch_is_awaited_until_it_is_done_or_time_is_up() -> None:
    def stats(state: str) -> bytes:
        body = f"---\nstate: {state}\n"
        return f"OK {len(body)}\r\n{body}\r\n".encode()

    world = World("", stats("open"), stats("closed"), stats("done"))
    assert world.run(world.session.wait_for_batch("b", None))
    assert (world.sent, world.pauses) == ([b"stats-batch b\r\n"] * 3, [0.5] * 2)
    world = World("", *[stats("closed")] * 3)
    assert not world.run(world.session.wait_for_batch("b", 0.75))
    assert world.pauses == [0.5, 0.25]


def test_refusals_keep_the_connection_and_what_was_reserved_over_a_lost_one_is_not_touched() -> None:
    world = World("", b"NOT_FOUND\r\n", b"DELETED\r\n")
    with pytest.raises(NotFound):
        call(world, calls.delete(1))
    call(world, calls.delete(2))
    assert world.session.epoch == 1

    world = World("", b"RESERVED 5 1\r\nx\r\n")
    world.run(world.session.reserve(1))
    world.now += 5
    world.stale = True
    with pytest.raises(ReservationLost):
        call(world, calls.touch(5, world.session.epoch))
    assert len(world.sent) == 1


@each("lie", [b"HTTP/1.1 400\r\n", b"USING default\r\n", b"OK 99999999999\r\n", b"DELETED\r\nDELETED\r\n", b"x" * 300])
def test_a_lying_server_is_left_at_once(lie: bytes) -> None:
    world = World("", lie, "", b"DELETED\r\n")
    with pytest.raises(BadServer):
        call(world, calls.delete(1))
    assert world.pauses == []
    call(world, calls.delete(1))  # over a new connection
    assert world.session.epoch == 2


def test_a_server_that_is_gone_or_ends_a_reserve_at_once_costs_growing_pauses() -> None:
    world = World(settings=JobsSettings(retry_s=30))
    with pytest.raises(ConnectionLost, match="refused"):
        call(world, calls.STATS)
    assert world.now - 1000 <= 30
    assert world.pauses[:3] == [0.1, 0.2, 0.4]
    assert max(world.pauses) == 5.0

    world = World("", *[b"TIMED_OUT\r\n"] * 20)
    assert world.run(world.session.reserve(10)) is None
    assert world.now == 1010.0
    assert world.pauses[:5] == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert len(world.sent) < 10


def test_a_reserve_ends_in_time_without_an_answer_and_a_timeout_must_end() -> None:
    world = World("", SILENT)
    with pytest.raises(ConnectionLost):
        world.run(world.session.reserve(5))
    assert world.now - 1000 <= 5 + 10 + 1
    for timeout_s in (-1.0, math.nan):
        with pytest.raises(ValueError, match="at least 0"):
            World("").run(World("").session.reserve(timeout_s))


def test_a_long_reserve_is_sent_in_slices() -> None:
    world = World("")

    def execute(step: object) -> bytes:
        if isinstance(step, Exchange):
            world.now += float(step.data.split()[1])
            world.sent.append(step.data)
            return b"TIMED_OUT\r\n"
        return b""

    world.execute = execute  # type: ignore[method-assign]
    assert world.run(world.session.reserve(70)) is None
    assert world.sent == [b"reserve-with-timeout %d\r\n" % seconds for seconds in (30, 30, 10)]


@each("lost", [CLOSED, RESET])
def test_a_peer_that_never_answered_may_be_no_server_of_jobs(lost: str) -> None:
    with pytest.raises(AnswerLost, match=r"may have been executed: .*may not be a server of jobs"):
        call(World("", lost), PUT)
    once = JobsSettings(retry_s=0)
    with pytest.raises(ConnectionLost, match="may not be a server of jobs"):
        call(World("", lost, settings=once), calls.STATS)
    world = World("", b"INSERTED 1\r\n", lost)
    call(world, PUT)
    with pytest.raises(AnswerLost) as answered:
        call(world, PUT)
    with pytest.raises(ConnectionLost) as unanswered:
        call(World(settings=once), calls.STATS)
    assert "may not be" not in str(answered.value) + str(unanswered.value)


answers_of_a_server = st.sampled_from(
    [b"INSERTED 1\r\n", b"DELETED\r\n", b"NOT_FOUND\r\n", b"RESERVED 1 2\r\nxy\r\n", b"TIMED_OUT\r\n", b"USING a\r\n",
     b"OK 3\r\n", b"OUT_OF_MEMORY\r\n", b"BAD_FORMAT\r\n", b"KICKED 3\r\n", b"junk", b"WATCHING 1\r\n", CLOSED, SILENT, REFUSED]
)  # fmt: skip
makers: list[Callable[[JobsSession], Steps[object]]] = [
    lambda session: session.perform(PUT),
    lambda session: session.perform(calls.put_unique("t", "k", b"x", 1, 0, 60)),
    lambda session: session.perform(calls.STATS), lambda session: session.perform(calls.touch(1, session.epoch)),
    lambda session: session.perform(calls.kick("t", 3)), lambda session: session.reserve(3),
    lambda session: session.perform(session.use("t")), lambda session: session.perform(session.watch("t")),
    lambda session: session.perform(session.ignore("t")),
]  # fmt: skip


@given(st.lists(answers_of_a_server, max_size=30), st.lists(st.sampled_from(makers), min_size=1, max_size=6))
def test_whatever_a_server_does_each_call_ends_in_time_with_a_result_or_a_clear_error(
    answers: list[Answer], todo: list[Callable[[JobsSession], Steps[object]]]
) -> None:
    world = World(*answers)
    for make in todo:
        began, sent = world.now, len(world.sent)
        with suppress(JobsError):  # any other exception is a bug
            world.run(make(world.session))
        assert world.now - began <= 30 + 3 * 15
        puts = [line for line in world.sent[sent:] if line.startswith(b"put ")]
        assert len(puts) <= 1


@given(st.integers(0, 20), st.floats(0, 100), st.floats(100, 1e5), st.integers(0, 10**6))
def test_delays_grow_up_to_their_limit(most: int, first: float, longest: float, attempts: int) -> None:
    retries = Retries(most, first, longest)
    delay = retries.delay_s(attempts)
    assert (delay is None) == (most > 0 and attempts >= most)
    if delay is not None:
        assert 0 <= delay <= longest
        following = retries.delay_s(attempts + 1)
        assert following is None or following >= delay


@given(st.integers(1, 1000))
def test_a_job_at_work_is_touched_before_its_time_is_over(ttr: int) -> None:
    plan, now, expires = TouchPlan(0.0), 0.0, float(ttr)
    for _ in range(2000):
        now += 0.3
        assert now < expires
        if plan.is_due(now):
            if plan.asks_for_ttr:
                plan.note_ttr(ttr, now)
            else:
                expires = now + ttr
                plan.note_touched(now)
