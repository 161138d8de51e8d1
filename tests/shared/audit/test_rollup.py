"""A flood of refusals becomes a few records with a count, and takes a bounded amount of memory."""

import math

from shared.audit.event import NODE, Event, Outcome
from shared.audit.rollup import BURST, BURST_OF_CHANGES, OTHERS, RollUp
from shared.repeats import MOST_KINDS, WINDOW


def refused(address: str = "192.0.2.1", target: str = "", action: str = "AUTH", who: str = "") -> Event:
    return Event("nsq", action, target, Outcome.REFUSED, who, "token" if who else "", "", address)


def offered(rollup: RollUp, events: list[Event], now: float) -> list[Event]:
    """The records of these events, as a trail makes them."""
    found = []
    for event in events:
        found += rollup.ended(now)
        found += [event] if rollup.admits(event, now) else []
    return found


def test_ten_thousand_wrong_tokens_are_a_few_records() -> None:
    rollup = RollUp()
    assert offered(rollup, [refused()] * 10_000, 1.0) == [refused()] * BURST
    assert rollup.next_end == 1.0 + WINDOW
    assert rollup.ended(0.9 + WINDOW) == []
    (rest,) = rollup.ended(1.0 + WINDOW)
    assert (rest.count, rest.action, rest.address) == (10_000 - BURST, "AUTH", "192.0.2.1")
    assert rollup.next_end == math.inf
    assert rollup.flush() == []


def test_what_was_done_is_never_left_out_and_every_attempt_in_vain_is_counted() -> None:
    for outcome in (Outcome.DONE, Outcome.UNCERTAIN):
        events = [Event("http", "topic/create", f"t{number}", outcome) for number in range(10_000)]
        assert offered(RollUp(), events, 0.0) == events
    for outcome in (Outcome.THROTTLED, Outcome.FAILED):
        assert len(offered(RollUp(), [Event("http", "stats", outcome=outcome)] * 1000, 0.0)) == BURST


def test_what_comes_by_itself_is_counted_beyond_more_and_kinds_have_windows_of_their_own() -> None:
    events = [Event(NODE, "topic/created", f"t{number}") for number in range(1000)]
    rollup = RollUp()
    assert offered(rollup, events, 0.0) == events[:BURST_OF_CHANGES]
    assert [one.count for one in rollup.flush()] == [1000 - BURST_OF_CHANGES]
    events = [refused(), refused("192.0.2.2"), refused(action="PUB"), refused(who="ann")]
    assert offered(RollUp(), events * BURST, 0.0) == events * BURST
    rollup = RollUp()
    offered(rollup, [refused(target="t")] * (BURST + 2), 0.0)
    offered(rollup, [refused("192.0.2.2", target=f"t{number}") for number in range(BURST + 2)], 0.0)
    assert [(one.target, one.count) for one in rollup.flush()] == [("t", 2), ("", 2)]


def test_memory_is_bounded_and_kinds_of_an_earlier_window_make_room() -> None:
    rollup = RollUp()
    found = offered(rollup, [refused(f"2001:db8::{number:x}") for number in range(3 * MOST_KINDS)], 0.0)
    assert len(rollup._windows) <= MOST_KINDS + 1
    assert len(found) == MOST_KINDS + BURST
    (rest,) = rollup.ended(WINDOW)
    assert (rest.action, rest.address, rest.count) == (OTHERS, "", 2 * MOST_KINDS - BURST)

    rollup = RollUp()
    offered(rollup, [refused(f"2001:db8::{number:x}") for number in range(MOST_KINDS)], 0.0)
    late = [refused("192.0.2.9")] * (BURST + 1)
    assert offered(rollup, late, WINDOW) == late[:BURST]
    assert [one.address for one in rollup.flush()] == ["192.0.2.9"]
