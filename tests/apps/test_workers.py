"""Threads that do jobs, and the socket that wakes their owner."""

import select
import threading

import pytest

from apps import workers
from apps.workers import Waker, Workers
from tests.daemons import eventually


class Doubler:
    """Doubles numbers, as soon as `gate` is open; raises for 13."""

    def __init__(self, gate: threading.Event) -> None:
        self.gate = gate
        self.idled = threading.Event()

    def work(self, job: int) -> int:
        assert self.gate.wait(30)
        if job == 13:
            raise ZeroDivisionError
        return 2 * job

    def idle(self) -> None:
        self.idled.set()


class Owner:
    """Collects results, and waits for them."""

    def __init__(self, most: int) -> None:
        self.gate, self.awake, self.made = threading.Event(), threading.Semaphore(0), list[Doubler]()
        self.threads = Workers(self.make, most, self.awake.release)

    def make(self) -> Doubler:
        self.made.append(Doubler(self.gate))
        return self.made[-1]

    def results(self, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count:
            assert self.awake.acquire(timeout=30)
            found += self.threads.results()
        return sorted(found)


def test_each_job_has_one_result_and_threads_start_when_needed() -> None:
    owner = Owner(3)
    assert (owner.threads.free, owner.threads.busy) == (3, 0)
    owner.gate.set()
    for job in range(5):
        owner.threads.submit(job)
        assert owner.results(1) == [2 * job]
    assert len(owner.made) == 1
    owner.gate.clear()
    for job in range(5):
        owner.threads.submit(job)
    assert (owner.threads.free, owner.threads.busy) == (-2, 5)
    owner.gate.set()
    assert owner.results(5) == [0, 2, 4, 6, 8]
    assert (owner.threads.free, owner.threads.busy) == (3, 0)
    eventually(lambda: len(owner.made) == 3)  # the third thread may begin after the others have done all
    owner.threads.close()


def test_a_bug_in_a_thread_ends_the_program() -> None:
    owner = Owner(1)
    owner.gate.set()
    owner.threads.submit(13)
    with pytest.raises(ZeroDivisionError):
        owner.results(1)


def test_a_thread_without_a_job_idles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "IDLE_S", 0.001)
    owner = Owner(1)
    owner.gate.set()
    owner.threads.submit(1)
    assert owner.results(1) == [2]
    assert owner.made[0].idled.wait(30)
    owner.threads.close()


@pytest.mark.process
def test_the_waker_is_readable_until_it_is_cleared() -> None:
    waker = Waker()

    def readable() -> bool:
        return bool(select.select([waker], [], [], 0)[0])

    assert not readable()
    for _ in range(100_000):  # more than a socket's buffer holds
        waker.wake()
    assert readable()
    waker.clear()
    assert not readable()
    waker.clear()
    waker.wake()
    assert readable()
    waker.close()
    waker.wake()  # by a thread that hangs until after the end
