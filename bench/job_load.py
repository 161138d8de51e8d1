"""The load of bench/jobs.py in a process of its own: clients of beanstalkd, each with `depth` commands outstanding.

    python -m bench.job_load PORT KIND CONNECTIONS DEPTH SECONDS     KIND: put or work (reserve, then delete)

After the warm-up it prints `begin`. At the end it prints the jobs done, the seconds, and the 99th percentile of the time
from a command to its answer, in ns.
"""

from __future__ import annotations

import select
import socket
import sys
import time

BODY = b"x" * 200
PUT = b"put 0 0 60 %d\r\n%s\r\n" % (len(BODY), BODY)
RESERVE = b"reserve-with-timeout 0\r\n"
WARM_UP = 0.3  # s


class Client:
    """One connection, which puts jobs or works on them."""

    def __init__(self, port: int, works: bool, depth: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.done = 0
        self.waits: list[int] = []  # ns from a command to its answer
        self.ended = False
        self._works = works
        self._left = b""
        self._sent = 0
        self.send((RESERVE if works else PUT) * depth)

    def send(self, data: bytes) -> None:
        self._sent = time.perf_counter_ns()
        self.sock.sendall(data)

    def read(self) -> None:
        """Read the replies that have arrived, and send as many commands again."""
        data = self._left + self.sock.recv(262_144)
        self.waits.append(time.perf_counter_ns() - self._sent)
        if not self._works:
            count = data.count(b"\n")
            self.done += count
            self.send(PUT * count)
            return
        replies, at = [], 0
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
                self.done += line == b"DELETED"
                self.ended |= line not in (b"DELETED", b"NOT_FOUND")
                replies.append(RESERVE)
        self._left = data[at:]
        if replies and not self.ended:
            self.send(b"".join(replies))


def main(port: int, kind: str, connections: int, depth: int, seconds: float) -> None:
    """Run the load; see the head of this file."""
    clients = {}
    epoll = select.epoll()
    for _ in range(connections):
        client = Client(port, kind == "work", depth)
        clients[client.sock.fileno()] = client
        epoll.register(client.sock.fileno(), select.EPOLLIN)
    began = time.perf_counter()
    before, counts_from, end = 0, began + WARM_UP, began + WARM_UP + seconds
    warm = False
    while time.perf_counter() < end and not any(client.ended for client in clients.values()):
        if not warm and time.perf_counter() >= counts_from:
            warm, before = True, sum(client.done for client in clients.values())
            counts_from = time.perf_counter()
            print("begin", flush=True)
        for fd, _ in epoll.poll(0.1):
            clients[fd].read()
    took = time.perf_counter() - counts_from
    waits = sorted(wait for client in clients.values() for wait in client.waits)
    print(sum(client.done for client in clients.values()) - before, took, waits[len(waits) * 99 // 100], flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
