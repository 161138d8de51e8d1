"""Further clients for nodes that take over each other's logs: live consumers of all topics, workers, a producer with a name."""

import time
from binascii import a2b_base64
from collections.abc import Callable
from typing import BinaryIO

from tests import disque_client
from tests.daemons import Daemon
from tests.processes.cluster_load import (
    ANSWER,
    TOPICS,
    TUBE,
    Client,
    LiveConsumer,
    NsqPublisher,
    Outcome,
    Publisher,
    http_client,
    http_outcome,
)
from tests.processes.failover_books import ANY_NODE, Delivery, DuplicateBooks

_AWAY = 3.0  # s for which a worker stays at another node than its own


class LatePublisher(NsqPublisher):
    """Publishes messages that are due after a failover, too. So a killed node has unfinished messages."""

    commands = (*NsqPublisher.commands, b"DPUB nsq 2500\n")


class NamedPublisher(Publisher):
    """Publishes with a name and ascending numbers, and repeats each message until it is acknowledged. It must have one copy."""

    kind = "named"
    topic = "two"

    def __init__(self, node: int, daemon: Callable[[], Daemon], books: DuplicateBooks, life: int) -> None:
        super().__init__(node, daemon, books, life)
        self._counting = books
        self._unanswered = b""
        self._deadline = float("inf")

    def talk(self) -> None:
        with http_client(self.daemon_of()) as client:
            while not self.is_done():
                if self._unanswered:
                    self._counting.retries += 1
                else:
                    (self._unanswered,) = self.contents(1)
                place = {"topic": self.topic, "producer": self._prefix, "sequence": str(self._next)}
                answer = client.post("/pub", params=place, content=self._unanswered)
                if http_outcome(answer) is Outcome.ACKNOWLEDGED:
                    self._books.answered(
                        self.node, TOPICS[self.topic], self.topic, [self._unanswered], Outcome.ACKNOWLEDGED
                    )
                    self._unanswered = b""
                time.sleep(self.pause)

    def is_done(self) -> bool:
        """Return True if it may end: the last message is acknowledged, or was repeated for long enough."""
        return super().is_done() and (not self._unanswered or time.monotonic() > self._deadline)

    def ask_to_stop(self) -> None:
        self._deadline = time.monotonic() + ANSWER
        super().ask_to_stop()

    def wait_for_end(self) -> None:
        super().wait_for_end()
        assert not self._unanswered, f"{self._unanswered!r} was not acknowledged, however often it was repeated"


class NotingConsumer(LiveConsumer):
    """Consumes, and notes at which node."""

    def __init__(self, node: int, daemon: Callable[[], Daemon], books: DuplicateBooks, topic: str) -> None:
        super().__init__(node, daemon, books, topic)
        self._noted = books

    def came(self, message_id: bytes, content: bytes) -> None:
        self._noted.finished_at(self.node, self._topic, message_id, content)


class Worker(Client):
    """Reserves and deletes jobs at its own node, and at the next one that lives while that is gone."""

    def __init__(self, nodes: list[int], daemon: Callable[[int], Daemon], books: DuplicateBooks) -> None:
        """`nodes`: its own one, then the others."""
        super().__init__(nodes[0], lambda: daemon(nodes[0]))
        self._nodes = nodes
        self._daemon = daemon
        self._books = books

    def talk(self) -> None:
        for place, node in enumerate(self._nodes):
            try:
                sock = self._daemon(node).connect("BEANSTALK")
            except OSError:
                continue
            with sock, sock.makefile("rb") as answers:
                sock.settimeout(ANSWER)
                sock.sendall(b"watch %s\r\n" % TUBE.encode())
                until = time.monotonic() + _AWAY if place else float("inf")
                if answers.readline() == b"WATCHING 2\r\n":
                    while time.monotonic() < until and not self.stopped.is_set():
                        self._work(node, sock.sendall, answers)
                return
        raise ConnectionError("no node lives")

    def _work(self, node: int, send: Callable[[bytes], None], answers: BinaryIO) -> None:
        """Reserve a job, if there is one, and delete it."""
        send(b"reserve-with-timeout 1\r\n")
        words = answers.readline().split()
        if words == [b"TIMED_OUT"]:
            return
        if words[:1] != [b"RESERVED"]:
            raise EOFError(words)
        content = answers.read(int(words[2]) + 2)[:-2]
        if len(content) < int(words[2]):
            raise EOFError
        at, is_deleted = time.monotonic(), False
        try:
            send(b"delete %s\r\n" % words[1])
            is_deleted = answers.readline() == b"DELETED\r\n"
        finally:
            self._books.worked_at(Delivery(node, at, is_deleted), words[1], content)


class DisqueWorker(Client):
    """Fetches jobs at its own node, also those of other nodes, and acknowledges them."""

    def __init__(self, node: int, daemon: Callable[[], Daemon], books: DuplicateBooks) -> None:
        super().__init__(node, daemon)
        self._books = books

    def talk(self) -> None:
        host, _, port = self.daemon_of().addresses["DISQUE"].rpartition(":")
        with disque_client.Client((host, int(port))) as client:
            while not self.stopped.is_set():
                jobs = client.do("GETJOB", "TIMEOUT", 1000, "FROM", TUBE) or []
                if not isinstance(jobs, list):
                    raise EOFError(jobs)  # the node leaves
                at = time.monotonic()
                for _, job_id, content in jobs:
                    is_acknowledged = False
                    try:
                        is_acknowledged = client.do("ACKJOB", job_id) == 1
                    finally:
                        number = int.from_bytes(a2b_base64(job_id[23:35])[1:], "big")
                        self._books.worked_at(Delivery(ANY_NODE, at, is_acknowledged), b"%d" % number, content)


def jobs_left(daemon: Daemon) -> int:
    """Return the number of jobs at a node."""
    with daemon.connect("BEANSTALK") as sock, sock.makefile("rb") as answers:
        sock.settimeout(ANSWER)
        sock.sendall(b"stats-tube %s\r\n" % TUBE.encode())
        status, _, size = answers.readline().partition(b" ")
        if status != b"OK":
            return 0
        lines = answers.read(int(size)).decode().splitlines()
    states = ("ready", "reserved", "delayed", "buried")
    return sum(
        int(line.split()[1]) for line in lines if line.startswith(tuple(f"current-jobs-{one}:" for one in states))
    )
