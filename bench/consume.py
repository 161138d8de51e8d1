"""Consumers that drain a channel whose messages all have the same known size, and finish each message.

A chunk of frames becomes a chunk of FINs without a loop in Python: 16 frames are unpacked at a time, and their ids
joined.
"""

from __future__ import annotations

import select
import time
from dataclasses import dataclass
from itertools import chain
from struct import Struct

from bench.outcome import Outcome
from bench.upgrade import introduce, pack_for
from bench.wire import FRAME, FRAME_HEAD, HEARTBEAT, SIZE, Wire, expect_ok

_BUFFER = 1 << 20  # bytes
_BLOCK = 16  # frames unpacked by one struct
_ONE = Struct(f"18x16s{SIZE}x")
_MANY = Struct(f"18x16s{SIZE}x" * _BLOCK)
_READ = 1 << 18  # bytes
_IDLE = 2.0  # s without a message, after which the channel is taken as empty


@dataclass
class Drain:
    """A load of consumers (see bench.load). The fields are the plan; everything else is state."""

    host: str
    ports: dict[str, int]
    topic: str
    channel: str
    connections: int
    rdy: int
    seconds: float  # at most
    messages: int  # in the channel
    upgrade: str = ""  # see bench.upgrade

    def prepare(self) -> None:
        self._epoll = select.epoll()
        self._peers: dict[int, _Peer] = {}
        for _ in range(self.connections):
            peer = _Peer(introduce(self.host, self.ports["TCP"], self.upgrade, heartbeat_interval=60_000), self.upgrade)
            peer.say(f"SUB {self.topic} {self.channel}\n".encode())
            expect_ok(peer.wire)
            self._epoll.register(peer.wire.fileno(), select.EPOLLIN)
            self._peers[peer.wire.fileno()] = peer

    def run(self) -> Outcome:
        peers, wanted, got = self._peers, self.messages, 0
        begin = last = time.perf_counter()
        end = begin + self.seconds
        for peer in peers.values():
            peer.say(f"RDY {self.rdy}\n".encode())
        while got < wanted:
            events = self._epoll.poll(_IDLE)
            if not events:
                break
            for fd, _ in events:
                got += peers[fd].receive()
            last = time.perf_counter()
            if last >= end:
                break
        return Outcome(got, last - begin, missing=wanted - got)


class _Peer:
    """One connection, and the incomplete frame at the end of its input."""

    def __init__(self, wire: Wire, upgrade: str) -> None:
        self.wire = wire
        self._upgrade = upgrade
        self._view = memoryview(bytearray(_BUFFER))
        self._held = 0  # bytes at the start of the view that belong to an incomplete frame

    def say(self, commands: bytes) -> None:
        """Send the commands through the upgrade."""
        self.wire.sendall(pack_for(self._upgrade, commands))

    def receive(self) -> int:
        """Read once and finish the complete messages; return their number."""
        view = self._view
        try:
            received = self.wire.recv_into(view[self._held :])
        except BlockingIOError:
            return 0
        if not received:
            raise SystemExit("consumer: the server closed the connection")
        total = self._held + received
        count, self._held = divmod(total, FRAME)
        end = count * FRAME
        if count:
            if view[:8] != FRAME_HEAD:
                raise SystemExit(f"consumer: unexpected frame {bytes(view[:80])!r}")
            self.say(fins(view[:end], count))
        view[: self._held] = view[end:total]
        return count


def fins(frames: memoryview, count: int) -> bytes:
    """Return the FIN commands for `count` frames."""
    middle = count // _BLOCK * _BLOCK * FRAME
    ids = chain(
        chain.from_iterable(_MANY.iter_unpack(frames[:middle])), chain.from_iterable(_ONE.iter_unpack(frames[middle:]))
    )
    return b"FIN " + b"\nFIN ".join(ids) + b"\n"


@dataclass
class Release:
    """A load of one consumer that requeues (see bench.load). The fields are the plan; everything else is state."""

    host: str
    ports: dict[str, int]
    topic: str
    channel: str
    seconds: float  # at most
    delay: int = 200  # ms of a requeue
    finish_half: bool = False  # True: finish every second message
    messages: int = 1 << 60  # at most

    def prepare(self) -> None:
        self._wire = introduce(self.host, self.ports["TCP"], "", heartbeat_interval=60_000)
        self._wire.sendall(f"SUB {self.topic} {self.channel}\n".encode())
        expect_ok(self._wire)

    def run(self) -> Outcome:
        self._wire.sendall(b"RDY 2500\n")
        began, count, held = time.perf_counter(), 0, b""
        while time.perf_counter() < began + self.seconds and count < self.messages:
            more = self._wire.recv(_READ)
            if not more:
                raise SystemExit("load: the server has hung up")
            data = held + more
            if HEARTBEAT in data:
                data = data.replace(HEARTBEAT, b"")
                self._wire.sendall(b"NOP\n")
            whole = len(data) // FRAME * FRAME
            held = data[whole:]
            frames = [data[at : at + FRAME] for at in range(0, whole, FRAME)]
            answers = [b"REQ %b %d\n" % (frame[18:34], self.delay) for frame in frames]
            if self.finish_half:
                answers[count % 2 :: 2] = [b"FIN %b\n" % frame[18:34] for frame in frames[count % 2 :: 2]]
            self._wire.sendall(b"".join(answers))
            count += len(frames)
        return Outcome(count, time.perf_counter() - began)
