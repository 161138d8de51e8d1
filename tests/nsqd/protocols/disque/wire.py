"""A client's end of a Disque peer: commands in, replies out, in virtual time. No socket."""

from __future__ import annotations

from typing import Any

from nsqd.core.limits import Limits
from nsqd.core.queues import Queues
from nsqd.protocols.disque.client import DisqueContext
from nsqd.protocols.disque.context import Alone
from nsqd.protocols.disque.ids import JobIds
from nsqd.protocols.disque.peer import Peer
from shared.process.unix_sockets import NOBODY
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.beanstalk.wire import Wire as BeanstalkWire

NUMBER = 7  # of the node
MOST_BYTES = 1 << 20

Reply = Any  # bytes of a bulk; int; None; a list; or a str: a status, or an error with its "-"


def context_of(node: Node) -> DisqueContext:
    return DisqueContext(Queues(node.broker.tubes), JobIds(b"a cluster"), Alone(NUMBER, 7711), MOST_BYTES)


def new_wire() -> Wire:
    """A client of a node of its own, the only one that the server knows."""
    wire = Wire(Node(Limits(whole_job_ids=True)))
    wire.context.clients = lambda: [wire.peer]
    return wire


def request(*words: bytes | str | int) -> bytes:
    """A command as clients send it."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def read_reply(data: bytes, at: int = 0) -> tuple[Reply, int]:
    """The reply at `at`, and where it ends."""
    end = data.index(b"\r\n", at)
    kind, text = data[at : at + 1], data[at + 1 : end]
    at = end + 2
    match kind:
        case b"+":
            return text.decode(), at
        case b"-":
            return "-" + text.decode(), at
        case b":":
            return int(text), at
        case b"_":
            return None, at
        case b"$" if text == b"-1":
            return None, at
        case b"$":
            stop = at + int(text)
            assert data[stop : stop + 2] == b"\r\n"
            return data[at:stop], stop + 2
        case b"*" if text == b"-1":
            return None, at
        case b"*" | b"%":
            items = []
            for _ in range(int(text) * (2 if kind == b"%" else 1)):
                item, at = read_reply(data, at)
                items.append(item)
            return items, at
    raise AssertionError(data[at - 20 :])


class Wire(BeanstalkWire):
    """One client. Those of one node share its context."""

    def __init__(self, node: Node, context: DisqueContext | None = None, user: int = NOBODY) -> None:
        self.context = context or context_of(node)
        super().__init__(node, user=user)
        node.turn()  # the first turn sets the wall clock

    def make_peer(self, context: object) -> Peer:
        return Peer(self.node.broker, self.context, self, self.remote_ip, "5555", self.node.now)

    def another(self) -> Wire:
        """Another client of the same node."""
        return Wire(self.node, self.context)

    def do(self, *words: bytes | str | int) -> Reply:
        """Send a command, and return its reply."""
        replies = self.replies(request(*words))
        assert len(replies) == 1, replies
        return replies[0]

    def replies(self, data: bytes = b"") -> list[Reply]:
        """Send bytes, and return all replies that came since the last call."""
        said, found, at = self.ask(data) if data else self.said(), [], 0
        while at < len(said):
            reply, at = read_reply(said, at)
            found.append(reply)
        return found

    def add(self, queue: str, body: bytes | str = b"body", *options: bytes | str | int) -> str:
        """Add a job, and return its id."""
        reply = self.do("ADDJOB", queue, body, 0, *options)
        assert isinstance(reply, str)
        assert reply.startswith("D-")
        return reply

    def get(self, *queues: str, count: int = 1, options: tuple[str | int, ...] = ()) -> list[tuple[bytes, str, bytes]]:
        """Fetch jobs without waiting."""
        found = self.do("GETJOB", "NOHANG", "COUNT", count, *options, "FROM", *queues)
        return [(queue, job_id.decode(), body) for queue, job_id, body in found or []]

    def show(self, job_id: str) -> dict[str, Reply] | None:
        found = self.do("SHOW", job_id)
        return None if found is None else dict(zip([one.decode() for one in found[::2]], found[1::2], strict=True))
