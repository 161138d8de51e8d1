"""A crowd: thousands of subscribed connections on one epoll, which answers heartbeats and handles single messages.

It is not made for throughput, since it parses frames in Python. Heartbeats stay at NSQ's default of 30 s, as those of
real consumers.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from struct import Struct

from bench.outcome import Outcome
from bench.wire import HEARTBEAT, connect, expect_ok, greeting

_READ = 65536  # bytes
_EVENTS = 512  # connections served between two looks at the clock
_TOGETHER = 100  # connections that are greeted before the first answer is read
_SIZE = Struct(">i")
_MESSAGE = Struct(">iiqH16s")  # size, type, timestamp, attempts, id
_MESSAGE_TYPE = b"\0\0\0\2"


@dataclass(frozen=True, slots=True)
class Message:
    """One delivery of a message to a member."""

    attempts: int
    id: bytes
    body: bytes


class Member:
    """One connection of the crowd, subscribed to one channel."""

    __slots__ = ("number", "rest", "sock")

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.sock = sock
        self.number = number  # in order of subscription, from 0
        self.rest = b""  # the beginning of an incomplete frame


class Crowd:
    """The connections of a crowd.

    `receive(member, messages, now)` returns the bytes to send back; `now` is monotonic ns, taken after the read.
    """

    def __init__(self, host: str, port: int, receive: Callable[[Member, list[Message], int], bytes]) -> None:
        self._address = (host, port)
        self._receive = receive
        self._epoll = select.epoll()
        self.members: dict[int, Member] = {}  # by file descriptor

    def subscribe(self, wishes: Iterable[tuple[str, str, int, dict[str, int]]]) -> None:
        """Add a member for each (topic, channel, rdy, settings for IDENTIFY)."""
        remaining = iter(wishes)
        while group := list(islice(remaining, _TOGETHER)):
            sockets = [connect(*self._address) for _ in group]
            for sock, (topic, channel, _, settings) in zip(sockets, group, strict=True):
                sock.sendall(greeting(**settings) + f"SUB {topic} {channel}\n".encode())
            for sock, (_, _, rdy, _) in zip(sockets, group, strict=True):
                expect_ok(sock, times=2)
                self.members[sock.fileno()] = Member(sock, len(self.members))
                self._epoll.register(sock.fileno(), select.EPOLLIN)
                sock.sendall(f"RDY {rdy}\n".encode())
            self.serve(0)  # a slow server takes minutes for all, and the first members need their heartbeats answered

    def serve(self, seconds: float) -> None:
        """Receive and answer for `seconds`; 0: handle only what has arrived."""
        end = time.monotonic() + seconds
        while True:
            for fd, _ in self._epoll.poll(max(0.0, end - time.monotonic()), _EVENTS):
                self._serve(self.members[fd])
            if time.monotonic() >= end:
                return

    def _serve(self, member: Member) -> None:
        data = member.sock.recv(_READ)
        now = time.monotonic_ns()
        if not data:
            raise SystemExit(f"crowd: the server closed connection {member.number}")
        frames, member.rest = split(member.rest + data)
        messages = [_message(frame) for frame in frames if frame[4:8] == _MESSAGE_TYPE]
        reply = self._receive(member, messages, now) if messages else b""
        others = [frame for frame in frames if frame[4:8] != _MESSAGE_TYPE]
        if others:
            if others != [HEARTBEAT] * len(others):
                raise SystemExit(f"crowd: unexpected {others!r}")
            reply += b"NOP\n"
        if reply:
            member.sock.sendall(reply)


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """Split into complete frames and the rest."""
    frames = []
    start = 0
    while len(data) - start >= 4:
        end = start + 4 + _SIZE.unpack_from(data, start)[0]
        if end > len(data):
            break
        frames.append(data[start:end])
        start = end
    return frames, data[start:]


def _message(frame: bytes) -> Message:
    _, _, _, attempts, id = _MESSAGE.unpack_from(frame)
    return Message(attempts, id, frame[_MESSAGE.size :])


@dataclass
class Idle:
    """A load of consumers of a channel without messages (see bench.load). The fields are the plan; everything else is state."""

    host: str
    ports: dict[str, int]
    topic: str
    channel: str
    connections: int
    seconds: float

    def prepare(self) -> None:
        self._crowd = Crowd(self.host, self.ports["TCP"], _refuse)
        self._crowd.subscribe((self.topic, self.channel, 1, {}) for _ in range(self.connections))

    def run(self) -> Outcome:
        self._crowd.serve(self.seconds)
        return Outcome(0, self.seconds)


def _refuse(member: Member, messages: list[Message], now: int) -> bytes:
    raise SystemExit("idle: a message came")
