"""The limits on open connections: what is counted, what is refused, and how often the log tells of it."""

from collections import Counter

import pytest

from shared.connection_limiter import QUIET, ConnectionLimiter, ConnectionLimits


def limiter(total: int, per_ip: int = 0) -> ConnectionLimiter:
    return ConnectionLimiter("HTTP", ConnectionLimits(total, per_ip), Counter())


def test_a_connection_that_has_ended_makes_room() -> None:
    counted = limiter(2, 1)
    assert [counted.admits(ip, 0) for ip in ("a", "a", "b", "c")] == [True, False, True, False]
    assert counted.refused == {"max_connections_per_ip": 1, "max_connections": 1}
    counted.count_off("a")
    assert [counted.admits(ip, 0) for ip in ("b", "a", "c")] == [False, True, False]


def test_a_unix_socket_has_no_address_and_no_limit_of_its_own() -> None:
    counted = limiter(3, 1)
    assert [counted.admits("", 0) for _ in range(4)] == [True, True, True, False]


def test_the_log_tells_of_each_reason_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    full, crowded = limiter(1), limiter(2, 1)
    for counted in (full, crowded):
        assert counted.admits("a", 0)
        for now in (1, QUIET, QUIET + 1, QUIET + 2):
            assert not counted.admits("a", now)
    assert [record.getMessage() for record in caplog.records] == [
        *["HTTP: refusing connections: 1 connections are open"] * 2,
        *["HTTP: refusing connections: 1 connections of a are open"] * 2,
    ]
