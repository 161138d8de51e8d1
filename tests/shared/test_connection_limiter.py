"""The limits on open connections: counts, refusals, and how often they are logged."""

from collections import Counter
from functools import partial

import pytest

from shared.connection_limiter import QUIET, ConnectionLimiter, ConnectionLimits


def limiter(total: int, per_ip: int = 0) -> ConnectionLimiter:
    return ConnectionLimiter("HTTP", ConnectionLimits(total, per_ip), Counter())


def test_a_connection_that_has_ended_makes_room_and_a_unix_socket_has_no_limit_of_its_own() -> None:
    counted = limiter(2, 1)
    assert [counted.admits(ip, 0) for ip in ("a", "a", "b", "c")] == [True, False, True, False]
    assert counted.refused == {"max_connections_per_ip": 1, "max_connections": 1}
    counted.count_off("a")
    assert [counted.admits(ip, 0) for ip in ("b", "a", "c")] == [False, True, False]
    counted = limiter(3, 1)
    assert [counted.admits("", 0) for _ in range(4)] == [True, True, True, False]


def test_each_reason_is_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    full, crowded = limiter(1), limiter(2, 1)
    for counted in (full, crowded):
        assert counted.admits("a", 0)
        for now in (1, QUIET, QUIET + 1, QUIET + 2):
            assert not counted.admits("a", now)
    assert [record.getMessage() for record in caplog.records] == [
        *["HTTP: refusing connections: 1 connections are open"] * 2,
        *["HTTP: refusing connections: 1 connections of a are open"] * 2,
    ]


def test_a_stranger_makes_room_and_a_known_client_does_not() -> None:
    counted = limiter(3)
    ended: list[str] = []
    known = {"b"}

    def displace(name: str) -> bool:
        if name not in known:
            ended.append(name)
        return name not in known

    for name in "bac":
        assert counted.admits("127.0.0.1", 0)
        counted.watch(name, "127.0.0.1", partial(displace, name))
    assert counted.admits("127.0.0.1", 0)
    assert ended == ["a"]
    counted.stop_displacing("c")  # it has ended by itself
    assert not counted.admits("127.0.0.1", 0)
    assert (ended, counted.refused) == (["a"], {"displaced": 1, "max_connections": 1})
    assert not counted._strangers
    assert not counted._oldest


def test_an_address_at_its_limit_displaces_its_own_strangers_only() -> None:
    counted = limiter(10, 2)
    ended: list[int] = []

    def displace(number: int) -> bool:
        ended.append(number)
        return True

    for number, ip in enumerate(("10.0.0.1", "10.0.0.2", "10.0.0.2")):
        assert counted.admits(ip, 0)
        counted.watch(number, ip, partial(displace, number))
    assert counted.admits("10.0.0.2", 0)
    assert ended == [1]
    counted.count_off("10.0.0.2")
    assert counted._by_ip == {"10.0.0.1": 1, "10.0.0.2": 2}


def test_one_address_has_a_tenth_by_default_but_not_on_the_machine_itself() -> None:
    limits = ConnectionLimits(1000)
    beyond = [limits.of(ip) for ip in ("10.0.0.1", "2001:db8::1", "::ffff:10.0.0.1")]
    within = [limits.of(ip) for ip in ("", "127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1")]
    assert (beyond, within) == ([100] * 3, [1000] * 5)
    assert ConnectionLimits(1000, 5).of("127.0.0.1") == 5
    assert ConnectionLimits(3).of("10.0.0.1") == 1
