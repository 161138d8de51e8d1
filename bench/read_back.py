"""The cost of reads of the log: reading a topic back, a reader that follows publishers, listing a long channel."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from statistics import median

import httpx

from bench.background import in_background
from bench.rows import CHANNEL, TOPIC, Effort, fill, publish
from bench.server import Program, Server
from bench.table import Line, number

MSGPACK = {"Accept": "application/msgpack"}
MOST_BYTES = 8 * 1024 * 1024  # of one answer
MOST = 10_000_000  # messages of one answer
PAGE = 100  # messages in a listing
AT_ONCE = (2000, 10_000)  # messages that a following reader waits for, for a second at most: those of 0.1 and 0.5 s
_LOOKS = 21  # measurements of a listing
_RUNS = 3
_SYNCED = 0.5  # s for a sync of the last messages


@dataclass(frozen=True, slots=True)
class ReadBack:
    """The row of reading back, listing, and publishing while a reader follows."""

    name: str
    messages: int = 10_000_000

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        messages = max(20_000, int(self.messages * effort.scale))
        os_mode = program.with_flags("os", "-durability", "os")
        with os_mode.start() as server:
            _retain(server)
            published = fill(server, messages)
            cpu, seconds, read = self._read(server, published)
            page = self._page(server)
        runs = _RUNS if effort.scale == 1 else 1
        costs: dict[int, list[float]] = {at_once: [] for at_once in (0, *AT_ONCE)}
        for _ in range(runs):
            for at_once, found in costs.items():
                found.append(self._publish(program, effort, at_once))
        what = f"{number(published)} messages"
        return [
            Line(self.name, f"{what}: read back", f"{cpu / read:.0f} ns", f"{number(read / seconds)}/s", "<= 1000 ns CPU"),
            Line(self.name, f"{what}: a page of {PAGE} of the channel", f"{page * 1e3:.1f} ms", "", "<= 50 ms"),
            *(
                Line(
                    self.name, f"PUB 50, CPU while a reader follows, {number(at_once)} at a time",
                    f"{median(costs[at_once]):.0f} ns", f"{median(costs[at_once]) / median(costs[0]):.2f} of without", "<= 1.1",
                )
                for at_once in AT_ONCE
            ),
        ]  # fmt: skip

    @staticmethod
    def _read(server: Server, messages: int) -> tuple[int, float, int]:
        """Return CPU time in ns, seconds and messages of reading the whole topic."""
        with _client(server) as client:
            client.get("/topic/offsets", params={"topic": TOPIC})  # makes the server sync what it has not yet
            time.sleep(_SYNCED)
            cpu, began, place = server.cpu(), time.perf_counter(), 0
            while place < messages:
                asked: dict[str, str | int] = {"topic": TOPIC, "from": place, "max_bytes": MOST_BYTES}
                asked |= {"limit": MOST, "wait_ms": 10_000}
                answer = client.get("/topic/read", params=asked).raise_for_status()
                place = int(answer.headers["x-nsq-next-offset"])
            return server.cpu() - cpu, time.perf_counter() - began, place

    @staticmethod
    def _page(server: Server) -> float:
        """Return the median seconds that a listing takes."""
        times = []
        with _client(server) as client:
            for _ in range(_LOOKS):
                asked: dict[str, str | int] = {"topic": TOPIC, "channel": CHANNEL, "state": "ready", "limit": PAGE}
                began = time.perf_counter()
                client.get("/channel/messages", params=asked).raise_for_status()
                times.append(time.perf_counter() - began)
        return median(times)

    @staticmethod
    def _publish(program: Program, effort: Effort, at_once: int) -> float:
        """Return the server's CPU time in ns per published message.

        Meanwhile a reader reads `at_once` messages at a time; 0: there is no reader.
        """
        with program.start() as server:
            _retain(server)
            with _following(server, at_once) if at_once else nullcontext():
                sample = publish(server, effort.seconds)
            return sample.server_cpu / sample.outcome.messages


def _retain(server: Server) -> None:
    server.create_all([f"/topic/create?topic={TOPIC}&retention=1h"])


def _client(server: Server) -> httpx.Client:
    return httpx.Client(base_url=f"http://{server.host}:{server.ports['HTTP']}", headers=MSGPACK, timeout=60)


@contextmanager
def _following(server: Server, at_once: int) -> Iterator[None]:
    """Read new messages in a thread, `at_once` at a time, while the context lasts."""

    def work(stop: threading.Event) -> None:
        place = "latest"
        with _client(server) as client:
            while not stop.is_set():
                asked = {
                    "topic": TOPIC, "from": place, "wait_ms": "1000", "min": str(at_once), "max_bytes": str(MOST_BYTES),
                }  # fmt: skip
                place = client.get("/topic/read", params=asked).raise_for_status().headers["x-nsq-next-offset"]

    with in_background(work):
        yield
