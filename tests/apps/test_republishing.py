"""The work of nsq_to_nsq: batches, and what their results mean for messages. Threads and destinations are fakes."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.destinations import HostPool
from apps.json_filter import JsonFilter
from apps.republishing import BATCH_BYTES, Batch, Outcome, Publisher, Republishing, Waiting
from apps.timings import Status
from penstock.client import Message, PublishError
from penstock.protocol import nsq


class Answers:
    """Notes what was answered."""

    def __init__(self) -> None:
        self.finished: list[int] = []
        self.requeued: list[tuple[int, int | None, bool]] = []
        self.touched: list[int] = []

    def finish(self, message_id: bytes) -> None:
        self.finished.append(int(message_id))

    def requeue(self, message_id: bytes, attempts: int, ms: int | None, backoff: bool) -> None:
        self.requeued.append((int(message_id), ms, backoff))

    def touch(self, message_id: bytes) -> None:
        self.touched.append(int(message_id))


class Threads:
    """Workers without threads: the test does the jobs."""

    def __init__(self, most: int = 2) -> None:
        self.most = most
        self.jobs: deque[Any] = deque()
        self.done: list[Any] = []
        self.closed = False

    @property
    def free(self) -> int:
        return self.most - len(self.jobs) - len(self.done)

    def submit(self, job: object) -> None:
        assert self.free > 0
        self.jobs.append(job)

    def results(self) -> list[Any]:
        done, self.done = self.done, []
        return done

    def close(self) -> None:
        self.closed = True

    def end_first(self, refused: Sequence[int] = (), failed: Sequence[int] = ()) -> None:
        batch = self.jobs.popleft()
        reason = "why" if refused or failed else ""
        self.done.append(Outcome(batch, 0.5, frozenset(refused), frozenset(failed), reason))


def messages(answers: Answers, *numbers: int, body: bytes = b"") -> list[Message]:
    return [Message(nsq.Message(0, 1, b"%016d" % n, body or b"%d" % n), answers) for n in numbers]


def route(*threads: Threads, keep: JsonFilter | None = None, most: int = 3, **topics: str) -> Republishing:
    workers = {f"d{index}": each for index, each in enumerate(threads)}
    names = topics or {"t": "t"}
    return Republishing(names, HostPool(tuple(workers)), workers, Status(0, workers), keep, most)  # type: ignore[arg-type]


@pytest.fixture
def answers() -> Answers:
    return Answers()


def test_a_failure_backs_off_and_a_refusal_does_not(answers: Answers) -> None:
    threads = Threads()
    forward = route(threads)
    forward.take("t", messages(answers, 0, 1, 2), 0.0)
    forward.dispatch(0.0)
    threads.end_first(refused=[1], failed=[2])
    forward.collect(1.0)
    assert answers.finished == [0]
    assert answers.requeued == [(1, None, False), (2, None, True)]


def test_topics_take_turns_and_have_their_own_destination_topic(answers: Answers) -> None:
    threads = Threads(most=1)
    forward = route(threads, most=2, a="x", b="y")
    forward.take("a", messages(answers, *range(4)), 0.0)
    forward.take("b", messages(answers, *range(4, 8)), 0.0)
    seen = []
    for _ in range(4):
        forward.dispatch(0.0)
        seen.append(threads.jobs[0].topic)
        threads.end_first()
        forward.collect(0.0)
    assert sorted(seen) == ["x", "x", "y", "y"]
    assert sorted(answers.finished) == list(range(8))


def test_a_batch_is_bounded_in_bytes_and_a_large_message_goes_alone(answers: Answers) -> None:
    waiting = Waiting("t")
    for size in (10, BATCH_BYTES, 1, BATCH_BYTES - 1, 1, BATCH_BYTES + 1, 5):
        waiting.messages += messages(answers, 0)
        waiting.bodies.append(b"x" * size)
    sizes = []
    while waiting.bodies:
        sizes.append([len(body) for body in waiting.next_batch(100).bodies])
    assert sizes == [[10], [BATCH_BYTES], [1, BATCH_BYTES - 1], [1], [BATCH_BYTES + 1], [5]]


def test_what_is_old_is_touched_once_in_a_while(answers: Answers) -> None:
    threads = Threads(most=1)
    forward = route(threads, most=2)
    forward.take("t", messages(answers, 0, 1, 2), 0.0)
    forward.dispatch(0.0)
    forward.touch_older(0.0, 1.0)
    assert answers.touched == []
    forward.touch_older(0.5, 5.0)
    assert sorted(answers.touched) == [0, 1, 2]
    forward.touch_older(4.9, 9.9)
    assert len(answers.touched) == 3
    forward.touch_older(5.1, 10.0)
    assert len(answers.touched) == 6


def test_the_end_gives_back_what_waits_and_what_hangs(answers: Answers) -> None:
    threads = Threads(most=1)
    forward = route(threads, most=2)
    forward.take("t", messages(answers, 0, 1, 2), 0.0)
    forward.dispatch(0.0)
    forward.give_back()
    assert answers.requeued == [(2, 0, False)]
    assert forward.busy
    forward.abandon()
    assert answers.requeued == [(2, 0, False), (0, 0, False), (1, 0, False)]
    assert threads.closed
    assert not forward.busy


def test_filtered_messages_are_answered_at_once(answers: Answers) -> None:
    threads = Threads()
    forward = route(threads, keep=JsonFilter("f", "x", ("g",)), most=10)
    bodies = (b'{"f":"x","g":1}', b"no json", b'{"f":"y"}', b'{"g":1}', b'{"f":"x"}')
    for number, body in enumerate(bodies):
        forward.take("t", messages(answers, number, body=body), 0.0)
    forward.dispatch(0.0)
    assert threads.jobs[0].bodies == [b'{"g":1}', b"{}"]
    assert answers.finished == [1, 2]
    assert answers.requeued == [(3, None, True)]
    assert forward.undecodable == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 9)),
        st.tuples(st.just("dispatch"), st.just(0)),
        st.tuples(st.sampled_from(["ok", "refuse", "fail"]), st.integers(0, 1)),
        st.tuples(st.just("collect"), st.just(0)),
        st.tuples(st.just("touch"), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_in_any_order_each_message_is_answered_once_and_finished_only_after_an_ok(steps: list[tuple[str, int]]) -> None:
    answers, threads, taken, now = Answers(), (Threads(), Threads()), 0, 0.0
    forward = route(*threads)
    good: set[int] = set()
    for step, number in steps:
        now += 1
        if step == "take":
            forward.take("t", messages(answers, *range(taken, taken + number)), now)
            taken += number
        elif step == "dispatch":
            forward.dispatch(now)
        elif step == "collect":
            forward.collect(now)
        elif step == "touch":
            forward.touch_older(now, now)
        elif threads[number].jobs:
            batch = threads[number].jobs[0]
            bad = () if step == "ok" else (0,)
            good |= {int(body) for body in batch.bodies[len(bad) :]}
            threads[number].end_first(refused=bad if step == "refuse" else (), failed=bad if step == "fail" else ())
        assert set(answers.finished) <= good
    forward.collect(now)
    forward.give_back()
    forward.abandon()
    assert sorted(answers.finished + [one for one, _, _ in answers.requeued]) == list(range(taken))
    assert set(answers.finished) == good


class Destination:
    """A producer to an nsqd that refuses some bodies, and is down from some publish on."""

    def __init__(self, bad: frozenset[bytes], code: str, down_after: int) -> None:
        self.bad = bad
        self.code = code  # "": the nsqd resets the connection
        self.left = down_after  # publishes that it still answers
        self.published: list[bytes] = []

    def connect(self) -> None:
        if not self.left:
            raise PublishError("cannot connect")

    def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
        assert topic == "t"
        assert bodies
        self.left -= 1
        if self.bad & set(bodies):
            raise PublishError("refused", self.code)
        self.published += bodies


def work(destination: Destination, bodies: list[bytes]) -> Outcome:
    return Publisher(destination).work(Batch("t", [], bodies))  # type: ignore[arg-type]


@given(
    st.integers(1, 40),
    st.sets(st.integers(0, 39)),
    st.sampled_from(["E_BAD_MESSAGE", "E_BAD_BODY", ""]),
    st.integers(0, 60) | st.just(10_000),
)
def test_a_bad_message_fails_alone_and_none_is_published_twice(count: int, bad: set[int], code: str, down: int) -> None:
    bodies = [b"%d" % i for i in range(count)]
    bad &= set(range(count))
    destination = Destination(frozenset(b"%d" % i for i in bad), code, down)
    outcome = work(destination, bodies)
    assert outcome.refused <= bad
    assert not outcome.refused & outcome.failed
    answered = sorted(destination.published + [bodies[i] for i in outcome.refused | outcome.failed])
    assert answered == sorted(bodies)
    assert bool(outcome.reason) == bool(outcome.refused | outcome.failed)
    if down == 10_000:
        assert outcome.refused == bad
        assert not outcome.failed
