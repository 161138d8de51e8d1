"""A consumer that hands every message back with a short delay, for as long as it is told."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.load import Outcome
from bench.upgrade import introduce
from bench.wire import FRAME, expect_ok

_READ = 1 << 18  # bytes
_RDY = 2500
_DELAY = 200  # ms


@dataclass
class Release:
    """A load (see bench.load). Fields are the plan; the rest is state."""

    host: str
    ports: dict[str, int]
    topic: str
    channel: str
    seconds: float

    def prepare(self) -> None:
        """See bench.load.Runnable."""
        self._wire = introduce(self.host, self.ports["TCP"], "", heartbeat_interval=60_000)
        self._wire.sendall(f"SUB {self.topic} {self.channel}\n".encode())
        expect_ok(self._wire)

    def run(self) -> Outcome:
        """See bench.load.Runnable."""
        self._wire.sendall(b"RDY %d\n" % _RDY)
        began, count, held = time.perf_counter(), 0, b""
        while time.perf_counter() < began + self.seconds:
            data = held + self._wire.recv(_READ)
            whole = len(data) // FRAME * FRAME
            held = data[whole:]
            frames = [data[at : at + FRAME] for at in range(0, whole, FRAME)]
            self._wire.sendall(b"".join([b"REQ %b %d\n" % (frame[18:34], _DELAY) for frame in frames]))
            count += len(frames)
        return Outcome(count, time.perf_counter() - began)
