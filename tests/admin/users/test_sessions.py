"""Sessions end in time; failed tries have to wait; the memory of both is bounded."""

from collections.abc import Callable
from itertools import count

import pytest

from admin.users.roles import of_role
from admin.users.sessions import (
    ADDRESS,
    FORGOTTEN,
    FREE_TRIES,
    IDLE,
    LONGEST_WAIT,
    MOST_OF_ONE,
    MOST_REMEMBERED,
    PAIR,
    Key,
    Session,
    Sessions,
    Tries,
    csrf_of,
)  # fmt: skip
from shared.auth.auth_file import Identity
from tests.admin.asking import Clock

ANN = of_role("ann", "admin", kind="user")
SECRET = "$argon2id$1"
LIFETIME = 10 * IDLE
A, B, C = Key(PAIR, "a"), Key(PAIR, "b"), Key(PAIR, "c")


def sessions(clock: Clock) -> Sessions:
    numbers = count()
    return Sessions(LIFETIME, clock, lambda: f"cookie{next(numbers)}")


def always(user: Identity | None, secret: str = SECRET) -> Callable[[Session], tuple[Identity, str] | None]:
    return lambda session: (user, secret) if user is not None else None


def test_a_session_lasts_while_it_is_used_and_no_longer_than_its_life() -> None:
    clock = Clock(100.0)
    kept = sessions(clock)
    cookie = kept.begin("ann", SECRET, "agent")
    for _ in range(int(LIFETIME / IDLE * 2) - 1):
        clock.now += IDLE / 2
        assert kept.find(cookie, "agent", always(ANN)) == ANN
    clock.now += IDLE / 2
    assert kept.find(cookie, "agent", always(ANN)) is None
    cookie = kept.begin("ann", SECRET, "agent")
    clock.now += IDLE - 1
    assert kept.find(cookie, "agent", always(ANN), is_use=False) == ANN, "a page that was left open is no use"
    clock.now += 1
    assert kept.find(cookie, "agent", always(ANN)) is None


def test_it_is_the_users_as_he_is_now() -> None:
    kept = sessions(Clock(100.0))
    cookie = kept.begin("ann", SECRET, "agent")
    demoted = of_role("ann", "viewer", kind="user")
    assert kept.find(cookie, "agent", always(demoted)) == demoted
    assert kept.find("another", "agent", always(ANN)) is None
    for over in (always(None), always(ANN, "$argon2id$2")):
        cookie = kept.begin("ann", SECRET, "agent")
        assert kept.find(cookie, "agent", over) is None
        assert kept.find(cookie, "agent", always(ANN)) is None
    assert csrf_of(cookie) != csrf_of(cookie + "x")


def test_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admin.users.sessions.MOST", 300)
    kept = sessions(Clock(100.0))
    words = [kept.begin("ann", SECRET, "agent") for _ in range(MOST_OF_ONE + 1)]
    assert kept.find(words[0], "agent", always(ANN)) is None
    assert kept.find(words[1], "agent", always(ANN)) == ANN
    for number in range(310):
        kept.begin(f"u{number}", SECRET, "agent")
    assert len(kept._sessions) == 300


def test_tries_in_vain_cost_twice_as_much_each_time() -> None:
    clock = Clock(100.0)
    tries = Tries(clock)
    for _ in range(FREE_TRIES - 1):
        tries.failed(A, B)
        assert tries.wait(A) == 0
    waits = []
    for _ in range(12):
        tries.failed(A)
        waits.append(tries.wait(A, C))
        assert tries.wait(B, C) == 0
        clock.now += waits[-1]
        assert tries.wait(A) == 0
    assert waits[:3] == [1, 2, 4]
    assert max(waits) == LONGEST_WAIT
    clock.now += FORGOTTEN + 1
    tries.failed(A)
    assert tries.wait(A) == 0
    tries.succeeded(A)
    for number in range(MOST_REMEMBERED + 10):
        tries.failed(Key(PAIR, str(number)))
    assert len(tries._failed) == MOST_REMEMBERED


def test_one_who_knows_it_does_not_wash_an_address_clean() -> None:
    clock = Clock(100.0)
    tries, house = Tries(clock), Key(ADDRESS, "10.0.0.1", 3)
    for _ in range(2):
        tries.failed(A, house)
    tries.failed(B, house)  # before the password is compared
    assert tries.wait(house) > 0
    tries.succeeded(B, house)
    assert tries.wait(B, house) == 0
    tries.failed(A, house)
    assert tries.wait(house) > 0
