"""Pages of a tube's jobs: together they are all of it, in each state and in order, and looking changes nothing."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.listing import FAR, list_jobs
from nsqd.core.work_queue.tube import Tube
from tests.effort import tries
from tests.nsqd.protocols.beanstalk.wire import Wire, put


def tube_of(wire: Wire) -> Tube:
    return wire.node.broker.tubes.tube("default")


def pages(tube: Tube, state: JobState, limit: int) -> list[Job]:
    """All, a page at a time."""
    found, after = [], ""
    while True:
        page, after = list_jobs(tube.table, state, after, limit)
        assert len(page) <= limit
        found += page
        if not after:
            return found
        assert len(page) == limit


def numbers(tube: Tube, jobs: list[Job]) -> list[int]:
    """Return the ids by which clients name the jobs."""
    return [tube.index.client_id(job.id) for job in jobs]


def busy(seed: int, count: int) -> Wire:
    """Jobs of some priorities, of which some were reserved, touched, released, buried and kicked."""
    dice, wire = Random(seed), Wire()
    for number in range(1, count + 1):
        wire.ask(
            put(b"%d" % number, dice.choice((0, 5, 5, 2000)), dice.choice((0, 0, 0, 30, 60)), dice.choice((9, 99)))
        )
    for _ in range(count):
        number, priority = dice.randrange(1, count + 1), dice.choice((1, 5))
        wire.ask(
            dice.choice(
                (
                    b"reserve-job %d\r\n" % number,
                    b"reserve-with-timeout 0\r\n",
                    b"touch %d\r\n" % number,
                    b"release %d %d %d\r\n" % (number, priority, dice.choice((0, 40))),
                    b"reserve-job %d\r\nbury %d %d\r\n" % (number, number, priority),
                    b"kick-job %d\r\n" % number,
                    b"delete %d\r\n" % number if dice.random() < 0.2 else b"list-tubes\r\n",
                )
            )
        )
    return wire


@settings(max_examples=tries(12), deadline=None)
@given(seed=st.integers(), count=st.integers(1, 25), limit=st.integers(1, 9))
def test_pages_are_all_there_is_in_order(seed: int, count: int, limit: int) -> None:
    wire = busy(seed, count)
    tube = tube_of(wire)
    of = {state: [job for job in tube.jobs if job.state is state] for state in JobState}
    by_due = {state: sorted(of[state], key=lambda job: (job.due, job.ordinal)) for state in JobState}
    assert pages(tube, JobState.READY, limit) == sorted(of[JobState.READY], key=lambda job: (job.priority, job.id))
    for state in (JobState.RESERVED, JobState.DELAYED, JobState.BURIED):
        assert pages(tube, state, limit) == by_due[state]
    assert [job.ordinal for job in pages(tube, JobState.BURIED, limit)] == list(tube.table.buried)
    wire.node.broker.tubes.check()


def test_the_order_is_that_of_reserving_and_kicking_and_looking_changes_nothing() -> None:
    wire = busy(3, 80)
    tube = tube_of(wire)
    before = [pages(tube, state, 7) for state in JobState]
    for _ in range(100):
        for state in JobState:
            list_jobs(tube.table, state, "", 5)
    assert [pages(tube, state, 7) for state in JobState] == before
    buried, ready = (numbers(tube, pages(tube, state, 7)) for state in (JobState.BURIED, JobState.READY))
    assert len(ready) > 4
    assert len(buried) > 1
    for number in ready:
        assert wire.ask(b"reserve-with-timeout 0\r\n").startswith(b"RESERVED %d " % number)
    for number in buried:
        assert wire.ask(b"peek-buried\r\nkick 1\r\n").startswith(b"FOUND %d " % number)
    wire.check()


def test_what_is_far_in_a_large_tube_comes_as_it_was_put() -> None:
    wire, count = Wire(), FAR + 1500
    for number in range(1, count + 1):
        wire.peer.receive(put(b"x", number % 3), wire.node.now)
    wire.said()
    tube = tube_of(wire)
    ordered = sorted(range(1, count + 1), key=lambda number: (number % 3, number))
    for limit in (700, 1000):
        assert numbers(tube, pages(tube, JobState.READY, limit)) == ordered[:FAR] + sorted(ordered[FAR:])
    wire.ask(b"kick 1\r\n" + put(b"urgent"))  # new jobs are at the front: no job is listed twice for them
    page, after = list_jobs(tube.table, JobState.READY, "", 1000)
    assert numbers(tube, page[1000 - 4 :]) == ordered[996:1000]
    rest = []
    while after:
        page, after = list_jobs(tube.table, JobState.READY, after, 1000)
        rest += numbers(tube, page)
    assert len(set(rest)) == len(rest) == count - 1000 + 1


def test_what_is_no_place_is_refused() -> None:
    tube = tube_of(busy(2, 10))
    for state in JobState:
        for after in ("x", ".", "1.", "1.x", ".1", "-1", "1.-1", "1.2.3", "9" * 5000, "\u0661", " 1", "<b>"):
            with pytest.raises(ValueError):
                list_jobs(tube.table, state, after, 5)
