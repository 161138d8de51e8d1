"""Admission to nsqlookupd: pending connections before IDENTIFY, slots after it."""

from collections.abc import Iterable, Iterator
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


def crowd(pending: PendingConnections, names: Iterable[object], ip: str, gone: list[object]) -> list[bool]:
    """Add connections of this address. Return those that displaced one; the displaced ones are in `gone`."""
    return [pending.add(name, ip.format(name), lambda name=name: gone.append(name)) for name in names]  # type: ignore[misc]


def test_a_crowd_displaces_the_oldest_of_its_address_and_in_a_full_lobby_the_oldest_of_all() -> None:
    pending, gone = PendingConnections(), list[object]()
    crowd(pending, ["other"], "10.0.0.2", gone)
    assert not any(crowd(pending, range(MOST_PER_IP), "10.0.0.1", gone))
    assert crowd(pending, ["next"], "10.0.0.1", gone) == [True]
    assert (gone, len(pending)) == ([0], MOST_PER_IP + 1)
    pending, gone = PendingConnections(), []
    for number in range(MOST):
        crowd(pending, [number], f"10.0.0.{number % 8}", gone)
    assert crowd(pending, ["next"], "10.0.1.1", gone) == [True]
    assert (gone, len(pending)) == ([0], MOST)


def test_a_removed_connection_is_not_displaced_and_one_that_is_added_again_is_the_newest() -> None:
    pending, gone = PendingConnections(), list[object]()
    crowd(pending, ["identified"], "10.0.0.1", gone)
    pending.remove("identified")
    pending.remove("identified")
    crowd(pending, range(2 * MOST_PER_IP), "10.0.0.1", gone)
    assert "identified" not in gone
    assert len(pending) == MOST_PER_IP
    pending, gone = PendingConnections(), []
    crowd(pending, ["failed", *range(MOST_PER_IP - 1)], "10.0.0.1", gone)
    assert crowd(pending, ["failed", "next"], "10.0.0.1", gone) == [False, True]
    assert gone == [0]


# The slots


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry(300, 45, LIMITS)
    yield made
    made.check()


def a_node(number: int, ip: str) -> PeerInfo:
    return replace(INFO, remote_address=f"{ip}:{5000 + number}", broadcast_address=f"node{number}")


def flood(registry: Registry, ip: str, now: int = T0) -> list[Peer]:
    """As many producers as get in."""
    peers: list[Peer] = []
    while True:
        try:
            peers.append(registry.identify(a_node(100 + len(peers), ip), now))
            registry.ping(peers[-1], now + 1)  # who says nothing gives way
        except Full:
            return peers


def come_and_go(registry: Registry, info: PeerInfo = INFO, after: int = KNOWN_AFTER) -> None:
    """A producer that pings so long after it came, and leaves."""
    peer = registry.identify(info, T0)
    registry.ping(peer, T0 + after)
    registry.disconnect(peer)


@pytest.mark.parametrize("ip", ["10.0.0.1", "10.0.0.9"])
def test_a_known_producer_comes_back_although_strangers_took_all_seats(registry: Registry, ip: str) -> None:
    come_and_go(registry)
    flood(registry, ip)
    flood(registry, "10.0.0.8")
    back = registry.identify(replace(INFO, remote_address="10.0.0.1:7777"), T0)
    with pytest.raises(Full):  # another one by the same name
        registry.identify(replace(INFO, remote_address="10.0.0.1:7778"), T0)
    registry.disconnect(back)
    registry.identify(INFO, T0)  # although it stayed for a moment only


def test_a_producer_that_never_pinged_is_not_known(registry: Registry) -> None:
    come_and_go(registry, after=KNOWN_AFTER - 1)
    flood(registry, "10.0.0.1")
    with pytest.raises(Full, match=r"3 producers of 10\.0\.0\.1 are connected"):
        registry.identify(INFO, T0)


def test_of_an_address_so_many_are_known_the_latest(registry: Registry) -> None:
    for number in range(4):
        come_and_go(registry, a_node(number, "10.0.0.1"))
    flood(registry, "10.0.0.1")
    with pytest.raises(Full):
        registry.identify(a_node(0, "10.0.0.1"), T0)
    for number in (1, 2, 3):
        registry.identify(a_node(number, "10.0.0.1"), T0)


def test_unix_sockets_have_no_address_to_be_limited_by(registry: Registry) -> None:
    for number in range(6):
        registry.ping(registry.identify(replace(INFO, remote_address=f"@{number}", tcp_port=number + 1), T0), T0)
    with pytest.raises(Full, match="6 producers are connected"):
        registry.identify(INFO, T0)


def test_who_said_nothing_since_identify_gives_way_to_a_newcomer_the_oldest_first(registry: Registry) -> None:
    gone: list[int] = []

    def come(info: PeerInfo, name: int) -> Peer:
        return registry.identify(info, T0, lambda: gone.append(name))

    peers = [come(a_node(number, "10.0.0.1"), number) for number in range(3)]
    other = come(a_node(9, "10.0.0.2"), 9)
    come(INFO, 3)
    assert gone == [0]
    come(a_node(4, "10.0.0.3"), 4)
    come(a_node(5, "10.0.0.3"), 5)
    assert gone == [0]
    assert registry.slots.full
    come(a_node(6, "10.0.0.4"), 6)  # of any address now
    assert gone == [0, 1]
    for peer in (other, *peers):  # who gave way may disconnect later
        registry.disconnect(peer)
    assert len(registry.slots) == 4


def test_who_pinged_or_registered_or_is_known_stays(registry: Registry) -> None:
    gone: list[str] = []
    come_and_go(registry)
    registry.identify(INFO, T0, lambda: gone.append("known"))
    registry.ping(registry.identify(a_node(1, "10.0.0.1"), T0, lambda: gone.append("pinged")), T0 + 1)
    registry.register(registry.identify(a_node(2, "10.0.0.1"), T0, lambda: gone.append("registered")), "t")
    with pytest.raises(Full):
        registry.identify(a_node(3, "10.0.0.1"), T0)
    assert gone == []


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
