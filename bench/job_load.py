"""The load of bench/job_server.py in a process of its own: clients of job servers, each with `depth` commands outstanding.

    python -m bench.job_load LANGUAGE PORT KIND CONNECTIONS DEPTH SECONDS

LANGUAGE: a key of LANGUAGES; KIND: put, work (fetch a job, then finish it) or cycle (put a job, then do the same). DEPTH
counts for put alone.

After the warm-up it prints `begin`. At the end it prints the jobs done, the seconds, and the 99th percentile of the time
from a command to its answer, in ns.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

BODY = b"x" * 200
QUEUE = b"jobs"
WARM_UP = 0.3  # s
COPIES = 3  # of each job of the language disque-3
_ID_SIZE = 40  # bytes of Disque's job ids


@dataclass(slots=True)
class Answer:
    """The next commands of a client that works, after some replies."""

    send: bytes
    rest: bytes  # of a reply that is not complete
    done: int = 0  # jobs
    ended: bool = False  # there was no job


@dataclass(frozen=True, slots=True)
class Language:
    """The commands by which a protocol puts, fetches and finishes jobs."""

    put: bytes  # its reply is one line
    refusal: bytes  # is in those replies to it that refuse, and in no other
    fetch: bytes
    answer: Callable[[bytes], Answer]  # for the replies to `fetch` and to the commands that followed


def command(*parts: bytes) -> bytes:
    """Return a command of Disque's protocol, an array of bulk strings."""
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


# beanstalkd

_RESERVE = b"reserve-with-timeout 0\r\n"


def _answer_beanstalkd(data: bytes) -> Answer:
    replies, at, done, ended = [], 0, 0, False
    while (end := data.find(b"\r\n", at)) >= 0:
        line = data[at:end]
        if line.startswith(b"RESERVED"):
            _, job, size = line.split()
            if len(data) < end + 4 + int(size):
                break
            replies.append(b"delete %s\r\n" % job)
            at = end + 4 + int(size)
        else:
            at = end + 2
            done += line == b"DELETED"
            ended |= line not in (b"DELETED", b"NOT_FOUND")
            replies.append(_RESERVE)
    return Answer(b"".join(replies), data[at:], done, ended)


# Disque

_GET = command(b"GETJOB", b"NOHANG", b"FROM", QUEUE)
_JOB = b"*1\r\n*3\r\n$4\r\n%s\r\n$40\r\n" % QUEUE  # before the id of a job
_JOB_SIZE = len(_JOB) + _ID_SIZE + len(b"\r\n$200\r\n\r\n") + len(BODY)
_ACKED = b":1\r\n"
_ACK = b"*2\r\n$6\r\nACKJOB\r\n$40\r\n%s\r\n"


def _answer_disque(data: bytes) -> Answer:
    replies, at, done = [], 0, 0
    while at < len(data):
        if data.startswith(_JOB, at) and len(data) >= at + _JOB_SIZE:
            begin = at + len(_JOB)
            replies.append(_ACK % data[begin : begin + _ID_SIZE])
            at += _JOB_SIZE
        elif data.startswith(_ACKED, at):
            at, done = at + len(_ACKED), done + 1
            replies.append(_GET)
        elif data.startswith(_JOB, at) or _JOB.startswith(data[at:]) or _ACKED.startswith(data[at:]):
            break  # the rest is still to come
        else:
            return Answer(b"", b"", done, ended=True)
    return Answer(b"".join(replies), data[at:], done)


LANGUAGES = {
    "beanstalkd": Language(b"put 0 0 60 %d\r\n%s\r\n" % (len(BODY), BODY), b"_", _RESERVE, _answer_beanstalkd),
    "disque": Language(command(b"ADDJOB", QUEUE, BODY, b"0"), b" ", _GET, _answer_disque),
    "disque-3": Language(
        command(b"ADDJOB", QUEUE, BODY, b"0", b"REPLICATE", b"%d" % COPIES), b" ", _GET, _answer_disque
    ),
}


class Puts:
    """The commands of a client that puts jobs: bytes in, bytes out, as for the other two kinds."""

    def __init__(self, language: Language, depth: int) -> None:
        self.done = 0  # jobs
        self.ended = False  # True: there was no job to fetch
        self._language = language
        self.first = language.put * depth  # what it sends at first

    def next(self, data: bytes) -> bytes:
        """Return the commands that follow these bytes of replies; b"": more of them have to come."""
        if self._language.refusal in data:
            sys.exit(f"job_load: refused: {data[:200]!r}")
        count = data.count(b"\n")
        self.done += count
        return self._language.put * count


class Works:
    """The commands of a client that fetches jobs and finishes them."""

    def __init__(self, language: Language, depth: int) -> None:
        self.done = 0
        self.ended = False
        self._language = language
        self._rest = b""  # of a reply that is not complete
        self.first = language.fetch * depth

    def next(self, data: bytes) -> bytes:
        """Return the next commands for the replies in `data`, as Puts does."""
        answer = self._language.answer(self._rest + data)
        self._rest = answer.rest
        self.done += answer.done
        self.ended |= answer.ended or not data
        return b"" if self.ended else answer.send


class Cycles:
    """The commands of a client that puts a job, fetches one and finishes it, again and again."""

    def __init__(self, language: Language, depth: int = 1) -> None:
        """Begin with a put. `depth` is always 1: each command waits for the reply to the one before."""
        self._puts, self._works = Puts(language, 1), Works(language, 1)
        self.first = self._puts.first
        self._is_put = True  # the command that waits for its reply is a put

    @property
    def done(self) -> int:
        return self._works.done

    @property
    def ended(self) -> bool:
        return self._works.ended

    def next(self, data: bytes) -> bytes:
        """Return the next commands for the replies in `data`, as Puts does."""
        if self._is_put:
            self._is_put = not self._puts.next(data)
            return b"" if self._is_put else self._works.first
        before = self._works.done
        send = self._works.next(data)
        self._is_put = self._works.done > before
        return self._puts.first if self._is_put else send


Load = Puts | Works | Cycles
KINDS: dict[str, Callable[[Language, int], Load]] = {"put": Puts, "work": Works, "cycle": Cycles}


class Client:
    """One connection with a load of its own."""

    def __init__(self, port: int, load: Load) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.load = load
        self.waits: list[int] = []  # ns from a command to its answer
        self._sent = 0
        self.send(load.first)

    def send(self, data: bytes) -> None:
        self._sent = time.perf_counter_ns()
        self.sock.sendall(data)

    def read(self) -> None:
        """Read the replies that have arrived, and send as many commands again."""
        data = self.sock.recv(262_144)
        self.waits.append(time.perf_counter_ns() - self._sent)
        if not data:
            sys.exit("job_load: the server has closed a connection")
        if commands := self.load.next(data):
            self.send(commands)


def main(language: str, port: int, kind: str, connections: int, depth: int, seconds: float) -> None:
    """Run the load; see the head of this file."""
    clients = {}
    epoll = select.epoll()
    for _ in range(connections):
        client = Client(port, KINDS[kind](LANGUAGES[language], depth))
        clients[client.sock.fileno()] = client
        epoll.register(client.sock.fileno(), select.EPOLLIN)
    began = time.perf_counter()
    before, counts_from, end = 0, began + WARM_UP, began + WARM_UP + seconds
    warm = False
    while time.perf_counter() < end and not any(client.load.ended for client in clients.values()):
        if not warm and time.perf_counter() >= counts_from:
            warm, before = True, sum(client.load.done for client in clients.values())
            counts_from = time.perf_counter()
            print("begin", flush=True)
        for fd, _ in epoll.poll(0.1):
            clients[fd].read()
    took = time.perf_counter() - counts_from
    waits = sorted(wait for client in clients.values() for wait in client.waits)
    print(
        sum(client.load.done for client in clients.values()) - before, took, waits[len(waits) * 99 // 100], flush=True
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]))
