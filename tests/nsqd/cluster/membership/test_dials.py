"""Which addresses a node dials, and when."""

from nsqd.cluster.membership.dials import MOST_BUSY, MOST_FOUND, Dials
from shared.values import SECOND


def half(size: int) -> bytes:
    """Return random bytes by which a pause has its usual length."""
    return b"\x80" + bytes(size - 1)


def dials(*seeds: str) -> Dials:
    return Dials("me:1", seeds, half)


def due(dials: Dials, now: int, members: tuple[str, ...] = (), linked: tuple[str, ...] = ()) -> list[str]:
    found = []
    while (address := dials.take_due(members, linked, now)) is not None:
        found.append(address)
    return found


def test_seeds_found_addresses_and_members_are_dialed_once_each_and_this_node_never() -> None:
    asked = dials("a:1", "me:1")
    asked.set_found(["b:1", "me:1", "a:1"])
    asked.meet("c:1")
    asked.meet("me:1")
    assert due(asked, 0, ("d:1", "b:1")) == ["a:1", "c:1", "b:1", "d:1"]
    assert due(asked, 99 * SECOND, ("d:1",)) == [], "all are being dialed"


def test_an_address_with_a_connection_is_not_dialed() -> None:
    assert due(dials("a:1", "b:1"), 0, linked=("a:1",)) == ["b:1"]


def test_the_pause_after_a_failure_doubles_up_to_half_a_minute() -> None:
    asked, now, pauses = dials("a:1"), 0, []
    assert due(asked, now) == ["a:1"]
    for _ in range(8):
        asked.fail("a:1", now)
        pause = next(one for one in range(1, 99) if due(asked, now + one * SECOND // 2))
        now += pause * SECOND // 2
        pauses.append(pause / 2)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_an_address_that_is_wanted_no_more_is_forgotten_with_its_pause() -> None:
    asked = dials()
    asked.set_found(["a:1"])
    assert due(asked, 0) == ["a:1"]
    asked.fail("a:1", 0)
    asked.set_found([])
    assert due(asked, 1) == []
    asked.set_found(["a:1"])
    assert due(asked, 1) == ["a:1"]


def test_others_can_make_a_node_dial_a_bounded_number_of_addresses() -> None:
    asked = dials()
    asked.set_found([f"a{number}:1" for number in range(MOST_FOUND + 9)])
    for number in range(MOST_FOUND + 9):
        asked.meet(f"b{number}:1")
    assert len(due(asked, 0)) == MOST_BUSY
    total = 0
    for now in range(1, 99):
        for address in [*asked._dials]:
            if asked._dials[address].is_busy:
                asked.fail(address, now)
                total += 1
        due(asked, now)
    assert total == 2 * MOST_FOUND
