"""Who gets into nsqlookupd: the pending before IDENTIFY, the slots after it."""

from dataclasses import replace

import pytest

from lookupd import rate_limit
from lookupd.pending import MOST, MOST_PER_IP, PendingConnections
from lookupd.producer_slots import KNOWN_AFTER
from lookupd.producers import Full, Limits, Peer, PeerInfo
from lookupd.rate_limit import BURST, LONGEST, RATE, RateLimit
from lookupd.registry import Registry

T0 = 1_700_000_000_000_000_000
INFO = PeerInfo("10.0.0.1:5001", "host1", "node1", 4150, 4151, "1.3.0")
LIMITS = Limits(producers=6, producers_per_ip=3)


# The pending


def test_a_crowd_from_one_address_displaces_its_own_oldest() -> None:
    pending, gone = PendingConnections(), []
    pending.add("other", "10.0.0.2", lambda: gone.append("other"))
    for number in range(MOST_PER_IP):
        assert not pending.add(number, "10.0.0.1", lambda number=number: gone.append(number))  # type: ignore[misc]
    assert pending.add("next", "10.0.0.1", lambda: gone.append("next"))
    assert gone == [0]
    assert len(pending) == MOST_PER_IP + 1


def test_a_full_lobby_displaces_the_oldest_of_all() -> None:
    pending, gone = PendingConnections(), []
    for number in range(MOST):
        pending.add(number, f"10.0.0.{number % 8}", lambda number=number: gone.append(number))  # type: ignore[misc]
    assert pending.add("next", "10.0.1.1", lambda: None)
    assert gone == [0]
    assert len(pending) == MOST


def test_whoever_left_is_not_displaced() -> None:
    pending, gone = PendingConnections(), []
    pending.add("identified", "10.0.0.1", lambda: gone.append("seated"))
    pending.remove("identified")
    pending.remove("identified")
    for number in range(2 * MOST_PER_IP):
        pending.add(number, "10.0.0.1", lambda: None)
    assert gone == []
    assert len(pending) == MOST_PER_IP


def test_entering_again_makes_a_guest_the_newest() -> None:
    pending, gone = PendingConnections(), []
    pending.add("failed", "10.0.0.1", lambda: gone.append("failed"))
    for number in range(MOST_PER_IP - 1):
        pending.add(number, "10.0.0.1", lambda number=number: gone.append(number))  # type: ignore[misc]
    assert not pending.add("failed", "10.0.0.1", lambda: gone.append("failed"))
    pending.add("next", "10.0.0.1", lambda: None)
    assert gone == [0]


# The slots


def a_node(number: int, ip: str) -> PeerInfo:
    return replace(INFO, remote_address=f"{ip}:{5000 + number}", broadcast_address=f"node{number}")


def flood(registry: Registry, ip: str, now: int) -> list[Peer]:
    """As many producers as get in."""
    peers: list[Peer] = []
    while True:
        try:
            peers.append(registry.identify(a_node(100 + len(peers), ip), now))
            registry.ping(peers[-1], now + 1)  # who says nothing gives way
        except Full:
            return peers


def test_an_address_has_so_many_seats_and_leaves_the_others() -> None:
    registry = Registry(300, 45, LIMITS)
    assert len(flood(registry, "10.0.0.9", T0)) == 3
    registry.ping(registry.identify(INFO, T0), T0)
    assert not registry.slots.full
    assert len(flood(registry, "10.0.0.8", T0)) == 2
    assert registry.slots.full
    assert registry.refused["identify"] == 2
    registry.check()


def test_the_seat_of_a_producer_that_left_is_free() -> None:
    registry = Registry(300, 45, LIMITS)
    peers = flood(registry, "10.0.0.1", T0)
    registry.disconnect(peers[0])
    registry.identify(INFO, T0)
    registry.check()


@pytest.mark.parametrize("ip", ["10.0.0.1", "10.0.0.9"])
def test_a_known_producer_comes_back_although_strangers_took_all_seats(ip: str) -> None:
    registry = Registry(300, 45, LIMITS)
    known = registry.identify(INFO, T0)
    registry.ping(known, T0 + KNOWN_AFTER)
    registry.disconnect(known)
    flood(registry, ip, T0)
    flood(registry, "10.0.0.8", T0)
    back = registry.identify(replace(INFO, remote_address="10.0.0.1:7777"), T0)
    with pytest.raises(Full):  # another one by the same name
        registry.identify(replace(INFO, remote_address="10.0.0.1:7778"), T0)
    registry.disconnect(back)
    registry.identify(INFO, T0)  # although it stayed for a moment only
    registry.check()


def test_a_producer_that_never_pinged_is_not_known() -> None:
    registry = Registry(300, 45, LIMITS)
    stranger = registry.identify(INFO, T0)
    registry.ping(stranger, T0 + KNOWN_AFTER - 1)
    registry.disconnect(stranger)
    flood(registry, "10.0.0.1", T0)
    with pytest.raises(Full, match=r"3 producers of 10\.0\.0\.1 are connected"):
        registry.identify(INFO, T0)


def test_of_an_address_so_many_are_known_the_latest() -> None:
    registry = Registry(300, 45, LIMITS)
    for number in range(4):
        peer = registry.identify(a_node(number, "10.0.0.1"), T0)
        registry.ping(peer, T0 + KNOWN_AFTER)
        registry.disconnect(peer)
    flood(registry, "10.0.0.1", T0)
    with pytest.raises(Full):
        registry.identify(a_node(0, "10.0.0.1"), T0)
    for number in (1, 2, 3):
        registry.identify(a_node(number, "10.0.0.1"), T0)
    registry.check()


def test_unix_sockets_have_no_address_to_be_limited_by() -> None:
    registry = Registry(300, 45, LIMITS)
    for number in range(6):
        registry.ping(registry.identify(replace(INFO, remote_address=f"@{number}", tcp_port=number + 1), T0), T0)
    with pytest.raises(Full, match="6 producers are connected"):
        registry.identify(INFO, T0)


def test_who_said_nothing_since_identify_gives_way_to_a_newcomer_the_oldest_first() -> None:
    registry, gone = Registry(300, 45, LIMITS), []
    for number in range(3):
        registry.identify(a_node(number, "10.0.0.1"), T0, lambda number=number: gone.append(number))  # type: ignore[misc]
    other = registry.identify(a_node(9, "10.0.0.2"), T0, lambda: gone.append(9))
    registry.identify(INFO, T0, lambda: gone.append(3))
    assert gone == [0]
    registry.identify(a_node(4, "10.0.0.3"), T0, lambda: gone.append(4))
    registry.identify(a_node(5, "10.0.0.3"), T0, lambda: gone.append(5))
    assert gone == [0]
    assert registry.slots.full
    registry.identify(a_node(6, "10.0.0.4"), T0)  # of any address now
    assert gone == [0, 1]
    registry.disconnect(other)
    registry.check()


def test_who_pinged_or_registered_or_is_known_stays() -> None:
    registry, gone = Registry(300, 45, LIMITS), []
    known = registry.identify(INFO, T0)
    registry.ping(known, T0 + KNOWN_AFTER)
    registry.disconnect(known)
    registry.identify(INFO, T0, lambda: gone.append("known"))
    registry.ping(registry.identify(a_node(1, "10.0.0.1"), T0, lambda: gone.append("pinged")), T0 + 1)
    registry.register(registry.identify(a_node(2, "10.0.0.1"), T0, lambda: gone.append("registered")), "t")
    with pytest.raises(Full):
        registry.identify(a_node(3, "10.0.0.1"), T0)
    assert gone == []


def test_who_gave_way_may_disconnect_later() -> None:
    registry = Registry(300, 45, LIMITS)
    peers = [registry.identify(a_node(number, "10.0.0.1"), T0) for number in range(3)]
    registry.identify(INFO, T0)
    for peer in peers:
        registry.disconnect(peer)
    assert len(registry.slots) == 1
    registry.check()


# The pace


def test_a_burst_is_free_and_then_an_address_has_its_rate() -> None:
    pace = RateLimit()
    assert pace.pause("10.0.0.1", BURST, 100.0) == 0
    assert pace.pause("10.0.0.1", RATE // 2, 100.0) == 0.5
    assert pace.pause("10.0.0.2", BURST, 100.0) == 0
    assert pace.pause("10.0.0.1", 0, 100.5) == 0
    assert pace.pause("10.0.0.1", 9 * BURST, 100.5) == LONGEST
    assert pace.pause("10.0.0.2", BURST, 100.0 + BURST / RATE) == 0


def test_the_addresses_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 200
    monkeypatch.setattr(rate_limit, "MOST_REMEMBERED", most)
    pace = RateLimit()
    for number in range(2 * most):
        pace.pause(f"host{number}", 1 if number % 2 else BURST, number / 1000)
    assert len(pace) <= most
    for number in range(most + 1):  # none has its burst whole
        pace.pause(f"again{number}", BURST, 9.0)
    assert len(pace) == most
    assert pace.pause(f"again{most}", RATE, 9.0) == 1.0
