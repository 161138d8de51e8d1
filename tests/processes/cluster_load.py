"""Clients that load the nodes of a cluster by HTTP, NSQ's protocol and beanstalkd's, and the record of each message's outcome.

Each message has a content of its own, so a duplicate differs from two messages. Clients never retry: a message
without a response may be there or not.
"""

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import httpx

from tests.daemons import MESSAGE, OK, Conversation, Daemon, several, sized

TOPICS = {"two": 2, "three": 3, "nsq": 1}  # by name: the copies that the topic asks for
TUBE = "jobs"
CHANNEL = "kept"  # the books are compared with it
LIVE = "live"  # is consumed meanwhile
ANSWER = 90.0  # s: a node is paused for 40 at most
_DRAIN = 20.0  # s for the next message
_JOBS = 50  # that are reserved at a time


class Outcome(Enum):
    """The response to a publish."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"  # it must never be delivered
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Books:
    """The record of publishes and deliveries. Threads add to it."""

    acknowledged: dict[bytes, str] = field(default_factory=dict)  # content to the topic
    refused: set[bytes] = field(default_factory=set)
    answers: Counter[tuple[int, int, Outcome]] = field(default_factory=Counter)  # by node, copies and outcome
    ids: dict[tuple[str, bytes], bytes] = field(default_factory=dict)  # delivered bodies, by topic and message id
    twice: list[str] = field(default_factory=list)  # an id with two contents, or a content with two ids
    finished: set[tuple[str, bytes]] = field(default_factory=set)  # deliveries to LIVE that were finished
    duplicates: int = 0  # deliveries of what had been finished
    delivered: set[bytes] = field(default_factory=set)  # to CHANNEL, and jobs
    _known: dict[bytes, tuple[str, bytes]] = field(default_factory=dict)  # by content
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answered(self, node: int, copies: int, topic: str, contents: Iterable[bytes], outcome: Outcome) -> None:
        """Note the outcome of some messages."""
        with self._lock:
            for content in contents:
                self.answers[node, copies, outcome] += 1
                if outcome is Outcome.ACKNOWLEDGED:
                    self.acknowledged[content] = topic
                elif outcome is Outcome.REFUSED:
                    self.refused.add(content)

    def came(self, topic: str, message_id: bytes, content: bytes) -> None:
        """Note a delivery."""
        with self._lock:
            key = topic, message_id
            if self.ids.setdefault(key, content) != content:
                self.twice.append(f"{key} is {self.ids[key]!r} and {content!r}")
            if self._known.setdefault(content, key) != key:
                self.twice.append(f"{content!r} is {self._known[content]} and {key}")

    def came_live(self, topic: str, message_id: bytes, content: bytes) -> None:
        """Note a delivery to a consumer that finishes it now."""
        self.came(topic, message_id, content)
        with self._lock:
            self.duplicates += (topic, message_id) in self.finished
            self.finished.add((topic, message_id))

    def came_last(self, topic: str, message_id: bytes, content: bytes) -> None:
        """Note a delivery of what was kept to the end."""
        self.came(topic, message_id, content)
        with self._lock:
            self.duplicates += content in self.delivered
            self.delivered.add(content)

    @property
    def lost(self) -> set[bytes]:
        """Return what was acknowledged and not delivered."""
        return self.acknowledged.keys() - self.delivered


class Client(threading.Thread):
    """Talks to one node until it is stopped, over a connection that it makes again when it breaks."""

    def __init__(self, node: int, daemon: Callable[[], Daemon]) -> None:
        """`daemon`: returns the process that is the node at present."""
        super().__init__(daemon=True)
        self.node = node
        self.daemon_of = daemon
        self.stopped = threading.Event()
        self.failure: BaseException | None = None  # which is no fault of the network

    def run(self) -> None:
        try:
            while not self.is_done():
                try:
                    self.talk()
                except (OSError, EOFError, httpx.TransportError):
                    time.sleep(0.05)
        except BaseException as error:
            self.failure = error
            raise

    def talk(self) -> None:
        """Connect and work until stopped. Raises OSError, EOFError, httpx.TransportError."""
        raise NotImplementedError

    def is_done(self) -> bool:
        """Return True if it must not connect again."""
        return self.stopped.is_set()

    def ask_to_stop(self) -> None:
        """Have it end after the request that is in progress."""
        self.stopped.set()

    def wait_for_end(self) -> None:
        """Wait until it has ended, and check that nothing unexpected was answered."""
        self.join(2 * ANSWER)
        assert not self.is_alive(), "a client waits indefinitely"
        assert self.failure is None


class Publisher(Client):
    """Publishes one request after the other."""

    kind = ""
    pause = 0.04  # s between two publishes of one client, so that all have their share of the machine

    def __init__(self, node: int, daemon: Callable[[], Daemon], books: Books, life: int) -> None:
        """`life`: a number that makes the contents differ from those of other publishers of this kind and node."""
        super().__init__(node, daemon)
        self._books = books
        self._prefix = f"{node}.{self.kind}.{life}."
        self._next = 0

    def contents(self, count: int) -> list[bytes]:
        """Return `count` new contents."""
        self._next += count
        return [f"{self._prefix}{number}".encode() for number in range(self._next - count, self._next)]

    def publish(self, topic: str, copies: int, contents: Sequence[bytes], send: Callable[[], Outcome]) -> None:
        """Send some messages, and note their outcome."""
        outcome = Outcome.UNKNOWN
        try:
            outcome = send()
        finally:
            self._books.answered(self.node, copies, topic, contents, outcome)
        self.stopped.wait(self.pause)


class HttpPublisher(Publisher):
    """/pub and /mpub to the topics that ask for two and three copies."""

    kind = "http"

    def talk(self) -> None:
        with http_client(self.daemon_of()) as client:
            while not self.stopped.is_set():
                for topic, count in (("two", 1), ("three", 1), ("two", 3), ("three", 3)):
                    contents = self.contents(count)
                    path = "/mpub" if count > 1 else "/pub"
                    self.publish(
                        topic,
                        TOPICS[topic],
                        contents,
                        lambda path=path, topic=topic, contents=contents: http_outcome(  # type: ignore[misc]
                            client.post(path, params={"topic": topic}, content=b"\n".join(contents))
                        ),
                    )


def http_client(daemon: Daemon) -> httpx.Client:
    """Return a client of a node. It reads no authorities for TLS, which takes 20 ms."""
    return httpx.Client(base_url=f"http://{daemon.http}", timeout=ANSWER, verify=False)


def http_outcome(answer: httpx.Response) -> Outcome:
    if answer.status_code == 200:
        return Outcome.ACKNOWLEDGED
    assert answer.status_code == 503, answer.text
    return Outcome.REFUSED if answer.text == '{"message":"NOREPL"}' else Outcome.UNKNOWN


class NsqPublisher(Publisher):
    """PUB, MPUB and DPUB of a connection that asks for two copies by IDENTIFY."""

    kind = "nsq"
    commands: tuple[bytes, ...] = (b"PUB nsq\n", b"MPUB nsq\n", b"DPUB nsq 50\n")

    def talk(self) -> None:
        identify = b"  V2IDENTIFY\n" + sized(b'{"feature_negotiation": true, "replicate": 2}')
        with Conversation(self.daemon_of(), identify, ANSWER) as connection:
            connection.frame()
            while not self.stopped.is_set():
                for command in self.commands:
                    contents = self.contents(3 if command.startswith(b"MPUB") else 1)
                    data = several(*contents) if len(contents) > 1 else sized(contents[0])
                    self.publish(
                        "nsq",
                        2,
                        contents,
                        lambda data=command + data: self._send(connection, data),  # type: ignore[misc]
                    )

    @staticmethod
    def _send(connection: Conversation, data: bytes) -> Outcome:
        connection.send(data)
        try:
            frame = connection.frame()
        except AssertionError:  # it ended within a frame
            frame = None
        if frame is None:
            raise EOFError
        if frame == OK:
            return Outcome.ACKNOWLEDGED
        return Outcome.REFUSED if b" NOREPL: " in frame[1] and b"may be delivered" not in frame[1] else Outcome.UNKNOWN


class JobPublisher(Publisher):
    """put-replicated of two and three copies."""

    kind = "job"

    def talk(self) -> None:
        with self.daemon_of().connect("BEANSTALK") as sock, sock.makefile("rb") as answers:
            sock.settimeout(ANSWER)
            sock.sendall(b"use %s\r\n" % TUBE.encode())
            answers.readline()
            while not self.stopped.is_set():
                for copies in (2, 3):
                    (content,) = contents = self.contents(1)
                    data = b"put-replicated %d 0 0 60 %d\r\n%s\r\n" % (copies, len(content), content)

                    def send(data: bytes = data) -> Outcome:
                        sock.sendall(data)
                        line = answers.readline()
                        if not line:
                            raise EOFError
                        if line.startswith(b"INSERTED "):
                            return Outcome.ACKNOWLEDGED
                        return Outcome.REFUSED if line == b"DRAINING\r\n" else Outcome.UNKNOWN

                    self.publish(TUBE, copies, contents, send)


class LiveConsumer(Client):
    """Consumes a channel of a topic, and finishes each message."""

    def __init__(self, node: int, daemon: Callable[[], Daemon], books: Books, topic: str) -> None:
        super().__init__(node, daemon)
        self._books = books
        self._topic = topic
        self._connection: Conversation | None = None

    def talk(self) -> None:
        words = b"  V2SUB %s %s\nRDY 50\n" % (self._topic.encode(), LIVE.encode())
        with Conversation(self.daemon_of(), words, ANSWER) as self._connection:
            connection = self._connection
            while not self.stopped.is_set():
                try:
                    frame = connection.frame()
                except AssertionError as error:
                    raise EOFError from error
                if frame is None:
                    raise EOFError
                if frame[0] == MESSAGE:
                    message_id, content = frame[1][10:26], frame[1][26:]
                    connection.send(b"FIN %s\n" % message_id)
                    self.came(message_id, content)

    def came(self, message_id: bytes, content: bytes) -> None:
        """Note a message that is finished now."""
        self._books.came_live(self._topic, message_id, content)

    def ask_to_stop(self) -> None:
        super().ask_to_stop()
        with contextlib.suppress(AttributeError, OSError):  # there is no connection
            self._connection.socket.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]


# the end


def summary(books: Books) -> dict[str, int]:
    """Return what the books count."""
    return {
        "acknowledged": len(books.acknowledged),
        "refused": len(books.refused),
        "finished meanwhile": len(books.finished),
        "lost": len(books.lost),
        "ids twice": len(books.twice),
        "duplicates": books.duplicates,
    }


def prepare(daemon: Daemon) -> None:
    """Make the topics and channels of a node. A tube is made by its first job."""
    with http_client(daemon) as client:
        for topic, copies in TOPICS.items():
            client.post("/topic/create", params={"topic": topic, "replicate": str(copies)}).raise_for_status()
            for channel in (CHANNEL, LIVE):
                client.post("/channel/create", params={"topic": topic, "channel": channel}).raise_for_status()


def jobs_of(content: bytes) -> str:
    """Return the name under which the books keep the job ids of the node that published a job."""
    return f"{TUBE} of {content.split(b'.')[0].decode()}"


def drain(daemon: Daemon, books: Books) -> None:
    """Take all messages and jobs that a node has, and note them."""
    with http_client(daemon) as client:
        for topic in TOPICS:
            while count := _held(client, topic):
                _drain_topic(daemon, topic, count, books)
    _drain_jobs(daemon, books)


def _held(client: httpx.Client, topic: str) -> int:
    """Return how many messages CHANNEL has, whatever they wait for."""
    url = f"/stats?format=json&topic={topic}&channel={CHANNEL}&include_clients=false"
    (channel,) = client.get(url).json()["topics"][0]["channels"]
    return sum(channel[name] for name in ("depth", "in_flight_count", "deferred_count"))


def _drain_topic(daemon: Daemon, topic: str, count: int, books: Books) -> None:
    words = b"  V2SUB %s %s\nRDY 500\n" % (topic.encode(), CHANNEL.encode())
    with Conversation(daemon, words, _DRAIN) as consumer:
        assert consumer.frame() == OK
        for _ in range(count):
            message = consumer.message()
            books.came_last(topic, message.id, message.body)
            consumer.send(b"FIN %s\n" % message.id)
        consumer.send(b"CLS\n")
        while (frame := consumer.frame()) is not None and frame[0] == MESSAGE:
            pass  # it stays in flight and is redelivered
        assert frame == (0, b"CLOSE_WAIT"), frame


def _drain_jobs(daemon: Daemon, books: Books) -> None:
    with daemon.connect("BEANSTALK") as sock, sock.makefile("rb") as answers:
        sock.settimeout(_DRAIN)
        sock.sendall(b"watch %s\r\nignore default\r\n" % TUBE.encode())
        assert answers.readline() == b"WATCHING 2\r\n"
        assert answers.readline() == b"WATCHING 1\r\n"
        reserved = [b""]
        while reserved:
            sock.sendall(b"reserve-with-timeout 0\r\n" * _JOBS)
            reserved = []
            for line in (answers.readline().split() for _ in range(_JOBS)):
                if line != [b"TIMED_OUT"]:
                    assert line[0] == b"RESERVED", line
                    content = answers.read(int(line[2]) + 2)[:-2]
                    books.came_last(jobs_of(content), line[1], content)
                    reserved.append(line[1])
            sock.sendall(b"".join(b"delete %s\r\n" % number for number in reserved))
            assert all(answers.readline() == b"DELETED\r\n" for _ in reserved)
