"""Names are looked up in a bounded number of threads, and a slow one keeps no other waiting."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client.resolver import MOST_THREADS, Resolver

PATIENCE_S = 30.0


class Names:
    """A getaddrinfo whose names that begin with "slow" wait until `answer` is set."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.asked: list[str] = []
        self.at_once, self.most_at_once = 0, 0
        self._lock = threading.Lock()

    def __call__(self, host: str, port: int, **options: Any) -> list[Any]:
        with self._lock:
            self.asked.append(host)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        if host.startswith("slow"):
            self.answer.wait(PATIENCE_S)
        with self._lock:
            self.at_once -= 1
        if host == "unknown":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if host == "bad":
            raise UnicodeError("label too long")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))]


@pytest.fixture
def names() -> Iterator[Names]:
    found = Names()
    yield found
    found.answer.set()


def test_a_slow_name_keeps_no_other_waiting(names: Names) -> None:
    resolver = Resolver(names)
    slow = resolver.begin("slow:1")
    assert resolver.begin("good:2").targets(PATIENCE_S) == [(socket.AF_INET, ("127.0.0.1", 2))]
    assert not slow.is_done
    with pytest.raises(TimeoutError, match="not resolved in time"):
        slow.targets(0)
    names.answer.set()
    assert slow.targets(PATIENCE_S) == [(socket.AF_INET, ("127.0.0.1", 1))]


def test_a_name_is_looked_up_once_at_a_time_and_wakes_all_that_wait(names: Names) -> None:
    resolver, woken = Resolver(names), threading.Semaphore(0)
    wakes = [lambda: woken.release(), lambda: woken.release()]
    for wake in (*wakes, *wakes):
        resolver.begin("slow:1", wake)
    names.answer.set()
    for _ in wakes:
        assert woken.acquire(timeout=PATIENCE_S)
    assert not woken.acquire(blocking=False)
    assert names.asked == ["slow"]
    resolver.begin("slow:1").targets(PATIENCE_S)
    assert names.asked == ["slow", "slow"], "an answer is not kept"


def test_threads_are_bounded_and_used_again(names: Names) -> None:
    resolver = Resolver(names)
    resolver.begin("good:1").targets(PATIENCE_S)
    resolver.begin("good:1").targets(PATIENCE_S)
    slow = [resolver.begin(f"slow{number}:1") for number in range(3 * MOST_THREADS)]
    names.answer.set()
    for one in slow:
        one.targets(PATIENCE_S)
    assert names.most_at_once <= MOST_THREADS


def test_numeric_addresses_and_paths_need_no_thread(names: Names) -> None:
    resolver = Resolver(names)
    assert resolver.begin("127.0.0.1:1").targets(0) == [(socket.AF_INET, ("127.0.0.1", 1))]
    assert resolver.begin("[::1]:2").targets(0) == [(socket.AF_INET6, ("::1", 2, 0, 0))]
    assert resolver.begin("unix:/run/nsqd.sock").targets(0) == [(socket.AF_UNIX, "/run/nsqd.sock")]
    assert names.asked == []


def test_a_name_that_does_not_exist_and_what_is_no_address_are_errors(names: Names) -> None:
    for host in ("unknown", "bad"):
        with pytest.raises(OSError):
            Resolver(names).begin(f"{host}:1").targets(PATIENCE_S)
    with pytest.raises(ValueError):
        Resolver(names).begin("host:0")
