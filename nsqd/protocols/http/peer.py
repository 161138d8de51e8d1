"""Answer the requests of one HTTP connection in the turn, and hand the connection over at the first request of another kind.

A request is either answered here as a whole, or nothing of it has happened when the connection is handed over: the rest of
the input goes along, beginning with that request. The connection leaves once the answers to earlier requests have left, and
does not come back. Answers are byte for byte those of nsqd/http/publish.py, nsqd/http/health.py and nsqd/http/stats.py.

If the log breaks while an answer waits for it, the connection is closed without an answer, as connections over TCP are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import TYPE_CHECKING

from nsqd.core.broker import Broker
from nsqd.core.limits import MAY_BE_DELIVERED
from nsqd.core.sequence.mark import Mark
from nsqd.core.topic import Topic
from nsqd.protocols.account import Accounts
from nsqd.protocols.conversation import PlainPeer
from nsqd.protocols.credential import Proofs
from nsqd.protocols.http.head import MAX_HEAD, Request, Route, may_become, read_head
from nsqd.protocols.http.publishers import HttpPublishers
from nsqd.protocols.outbox import Outbox
from nsqd.protocols.transport import NEVER, Transport
from shared.auth.verbs import Verb
from shared.budget import FREE
from shared.process.unix_sockets import NOBODY
from shared.values import SECOND

if TYPE_CHECKING:  # a node without an auth file does not load what reads one
    from shared.auth.auth_file import Identity

# As in the HTTP thread:
HEADER_TIMEOUT = 10 * SECOND  # ns from the connection, or from a head's first byte, to the head's end
KEEP_ALIVE = 75 * SECOND  # ns that an idle connection is held
UNITS_OF_A_TURN = 1024
UNITS_OF_STATS = 256  # of a /stats, which takes up to a millisecond
UNITS_OF_A_REQUEST = 8  # so a turn answers 128 requests; a request counts one more for each of the two units below
BYTES_OF_A_UNIT = 1024
MESSAGES_OF_A_UNIT = 16
MOST_MESSAGES = 8192  # messages of an /mpub that one turn publishes; the HTTP thread publishes a larger one in slices
MAX_BODY = 1024 * 1024  # bytes: larger bodies go to the HTTP thread
MOST_KNOWN = 1024  # heads that are remembered: a client sends the same few again and again

_BEGINNING = b"HTTP/1.1 200 OK\r\ndate: %s\r\nx-content-type-options: nosniff\r\n"
PING_HEADERS = b"content-length: 2\r\ncontent-type: text/plain; charset=utf-8\r\n"
_MAY_BE_DELIVERED = b'{"message":"%s"}' % MAY_BE_DELIVERED.encode()
LOST_COPY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json; charset=utf-8\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_MAY_BE_DELIVERED), _MAY_BE_DELIVERED)
)  # the last answer to a producer whose publish has not got its copies in time
_JSON = b"content-type: application/json; charset=utf-8\r\n"
NSQ_HEADERS = PING_HEADERS + b"x-nsq-content-type: nsq; version=1.0\r\n"


@dataclass(slots=True)
class Context:
    """The data that all HTTP connections on the reactor share."""

    broker: Broker
    max_msg_size: int  # bytes
    max_body_size: int  # bytes of an /mpub
    read_binary: Callable[[bytes], list[bytes] | None]  # the messages of a binary /mpub; None: it is malformed
    is_own_host: Callable[[bytes], bool]  # whether a value of Host is ours
    is_healthy: Callable[[], bool]  # whether /ping says OK
    # the answer of /stats: of a topic, of a channel ("": all), with clients, with memory; None: it is not for the turn
    stats: Callable[[str, str, bool, bool], bytes | None]
    # called for each response with the request, the client's address and port, when its last bytes came (monotonic ns), and the
    # marks that the response waits for
    answered: Callable[[Request, str, str, int, tuple[Mark, ...]], None]
    publishers: HttpPublishers
    proofs: Proofs | None = None  # the auth file; None: every client has all rights
    accounts: Accounts | None = None  # of the identities in the auth file
    known: dict[bytes, Request] = field(default_factory=dict)  # by head
    _second: int = -1  # the time in the next two, s since the epoch
    _beginning: bytes = b""  # of all answers
    _ok: dict[bytes, bytes] = field(default_factory=dict)  # the answers OK by their headers

    def request(self, head: bytes) -> Request | None:
        """Return the request that a head begins, as `read_head` does."""
        request = self.known.get(head)
        if request is None:
            request = read_head(head, self.is_own_host)
            if request is not None:
                if len(self.known) >= MOST_KNOWN:
                    self.known.clear()
                self.known[head] = request
        return request

    def allows(self, request: Request, user: int) -> bool:
        """Return whether the sender of a request has the right to it; else the HTTP thread responds. `user`: see HttpPeer."""
        if self.proofs is None or not request.topic:
            return True
        identity = self._identity(self.proofs, request, user)
        verb = Verb.STATS if request.route is Route.STATS else Verb.PUBLISH
        return identity is not None and identity.rights.may(verb, request.topic.decode())

    def takes(self, request: Request, user: int, messages: int, size: int, now: int) -> bool:
        """Count messages of a request. Returns False if its sender may not publish them now: then the HTTP thread responds."""
        identity = self._identity(self.proofs, request, user) if self.proofs is not None else None
        if identity is None or not identity.rights.may(Verb.PUBLISH, request.topic.decode()):
            return self.proofs is None
        return self.accounts is None or not self.accounts.account(identity.name).admit(
            identity.limits, messages, size, now
        )

    def _identity(self, proofs: Proofs, request: Request, user: int) -> Identity | None:
        """Return the sender of a request: by its token, or without one by the user of its unix socket."""
        return proofs.with_token(request.token) if request.token or user == NOBODY else proofs.with_uid(user)

    def ok(self, headers: bytes) -> bytes:
        """Return the answer OK with these headers, and with the time of this turn."""
        if self.broker.agenda.wall // SECOND != self._second:
            self._set_time()
        return self._ok[headers]

    def beginning(self) -> bytes:
        """Return the beginning of any response with the status 200 in this turn, up to its first headers."""
        if self.broker.wall // SECOND != self._second:
            self._set_time()
        return self._beginning

    def _set_time(self) -> None:
        self._second = self.broker.wall // SECOND
        self._beginning = _BEGINNING % formatdate(self._second, usegmt=True).encode()
        self._ok = {headers: self._beginning + headers + b"\r\nOK" for headers in (PING_HEADERS, NSQ_HEADERS)}


class HttpPeer(PlainPeer):
    """One client of HTTP. It suspends no connection, asks for no layer, and each request shows a token of its own."""

    is_heavy = False

    __slots__ = (
        "_context", "_counts", "_due", "_input", "_last_topic", "_need", "_transport", "_units", "_user", "body_since",
        "buffered", "has_more", "outbox", "port", "remote_ip", "waiting",
    )  # fmt: skip

    def __init__(self, context: Context, transport: Transport, remote_ip: str, port: str, now: int, wall: int) -> None:
        """Begin a conversation at `now` (monotonic ns); see nsqd.net.reactor.MakePeer."""
        self._context = context
        self._transport = transport
        self.remote_ip = remote_ip
        self.port = port
        self.outbox = Outbox(transport, LOST_COPY)
        self.waiting = False  # True: the connection is being handed over
        self.has_more = False
        self.buffered = 0
        self.body_since = -1
        self._input = bytearray()  # the beginning of a request that is not complete
        self._need = 0  # bytes of `_input` without which the request cannot be complete
        self._units = 0  # units of this turn, out of UNITS_OF_A_TURN
        self._due = now + HEADER_TIMEOUT  # when the connection is closed unless something arrives
        # the topic of the last lone /pub, and the counts of its messages from this address
        self._last_topic: Topic | None = None
        self._counts = [0]
        # the machine's user who sends requests without a token by a unix socket
        self._user = NOBODY if context.proofs is None or remote_ip else transport.peer_user()

    def receive(self, data: bytes, now: int) -> None:
        if self.outbox.closing:
            return
        if self.waiting:  # input of the turn in which the connection is handed over
            self._transport.hand_over(data)
            return
        if not self._input:
            if self._answer_lone_pub(data, now):
                return
        else:
            self._input += data
            if len(self._input) < self._need:  # a large body is not copied for each of its pieces
                return
            data = bytes(self._input)
            self._input.clear()
        at = self._need = self._units = 0
        self.has_more = False
        size = len(data)
        while at < size:
            if self._units >= UNITS_OF_A_TURN:
                self.has_more = True
                break
            end = self._answer(data, at, now)
            if end <= 0:
                if end < 0:
                    self._leave(data[at:])
                    return
                break
            self._units += UNITS_OF_A_REQUEST + (end - at) // BYTES_OF_A_UNIT
            self._due = now + KEEP_ALIVE
            self.buffered, self.body_since = 0, -1
            at = end
        self._input += data[at:] if at else data
        if at == size or self.has_more:
            self.buffered, self.body_since = 0, -1

    def _answer_lone_pub(self, data: bytes, now: int) -> bool:
        """Answer a /pub that is all of the input, with a known head, at half of the cost. Return False if nothing was done."""
        context = self._context
        body_at = data.find(b"\r\n\r\n", 0, MAX_HEAD) + 4
        request = context.known.get(data[:body_at])
        if request is None or request.route is not Route.PUB or body_at + request.length != len(data):
            return False
        size = request.length
        topic = context.broker.named.get(request.topic)
        if topic is None or topic.starting or not 0 < size <= context.max_msg_size:
            return False
        if topic.shut and not topic.has_room():
            return False
        if context.proofs is not None and not context.takes(request, self._user, 1, size, now):
            return False
        topic.publish([data[body_at:]], size)
        if topic is self._last_topic:
            self._counts[0] += 1
        else:
            self._last_topic = topic
            self._counts = context.publishers.note(self.remote_ip, topic.name, 1, context.broker.wall)
        self.outbox.reply(context.ok(NSQ_HEADERS), topic.marks)
        self._due = now + KEEP_ALIVE
        context.answered(request, self.remote_ip, self.port, now, self.outbox.marks)
        return True

    def _answer(self, data: bytes, at: int, now: int) -> int:
        """Answer the request at `at`, and return where it ends; 0: it is not complete; -1: it is not for this peer."""
        body_at = data.find(b"\r\n\r\n", at, at + MAX_HEAD) + 4
        if body_at < 4:
            rest = data[at:]
            if len(rest) >= MAX_HEAD or not may_become(rest):
                return -1
            if not self.buffered:
                self.buffered, self.body_since = len(rest), -1
                self._due = now + HEADER_TIMEOUT
                self._transport.timer_changed()
            return 0
        request = self._context.request(data[at:body_at])
        if request is None:
            return -1
        end = body_at + request.length
        if end > len(data):
            if request.length > MAX_BODY or not self._could_answer(request):
                return -1
            if self.body_since < 0:
                self.buffered, self.body_since = end - at, now
                self._due = NEVER  # the reactor's deadlines for bodies count now
            self._need = end - at
            return 0
        if not self._act(request, data, body_at, end, now):
            return -1
        self._context.answered(request, self.remote_ip, self.port, now, self.outbox.marks)
        return end

    def _could_answer(self, request: Request) -> bool:
        """Return whether the request can be answered here, by its head."""
        context = self._context
        if not request.topic:
            return request.route is Route.LIVEZ or self._is_fine(request.route)
        if not context.allows(request, self._user):
            return False
        if request.route is Route.STATS:
            return True
        topic = context.broker.named.get(request.topic)
        if topic is None or topic.starting or (topic.shut and not topic.has_room()):
            return False
        most = context.max_msg_size if request.route is Route.PUB else min(context.max_body_size, MAX_BODY)
        return 0 < request.length <= most

    def _act(self, request: Request, data: bytes, at: int, end: int, now: int) -> bool:
        """Do what a complete request asks for, and answer it. Return False if nothing was done."""
        if not self._could_answer(request):
            return False
        context = self._context
        if not request.topic:
            self.outbox.reply(context.ok(PING_HEADERS))
            return True
        if request.route is Route.STATS:
            return self._show_stats(request)
        topic, body = context.broker.named[request.topic], data[at:end]
        bodies: list[bytes] | None = [body]
        if request.route is not Route.PUB:
            bodies = self._lines(body) if request.route is Route.MPUB else self._binary(body)
        if bodies is None:
            return False
        size = sum(map(len, bodies))
        if context.proofs is not None and not context.takes(request, self._user, len(bodies), size, now):
            return False
        topic.publish(bodies, size)
        context.publishers.note(self.remote_ip, topic.name, len(bodies), context.broker.wall)
        self._units += len(bodies) // MESSAGES_OF_A_UNIT
        self.outbox.reply(context.ok(NSQ_HEADERS), topic.marks)
        return True

    def _binary(self, body: bytes) -> list[bytes] | None:
        """Return the messages of a binary /mpub; None if they are too many, or if anything is wrong with them."""
        return None if int.from_bytes(body[:4], "big") > MOST_MESSAGES else self._context.read_binary(body)

    def _is_fine(self, route: Route) -> bool:
        """Return whether /ping, or /readyz, is answered with OK."""
        context = self._context
        return context.is_healthy() and not (route is Route.READYZ and context.broker.unready)

    def _show_stats(self, request: Request) -> bool:
        """Answer with the statistics of a topic. Return False if that is for the HTTP thread."""
        self._units += UNITS_OF_STATS
        context = self._context
        body = context.stats(request.topic.decode(), request.channel.decode(), request.clients, request.memory)
        if body is None or len(body) > FREE:  # a larger answer holds a share of the budget
            return False
        head = b"x-nsq-content-type: nsq; version=1.0\r\ncontent-length: %d\r\n%s" % (len(body), _JSON)
        self.outbox.reply(b"%s%s\r\n%s" % (context.beginning(), head, body))
        return True

    def _lines(self, body: bytes) -> list[bytes] | None:
        """Return the messages of an /mpub, its lines that are not empty; None if they are none, too many or too large."""
        if body.count(b"\n") >= MOST_MESSAGES:
            return None
        bodies = list(filter(None, body.split(b"\n")))
        if not 0 < len(bodies) <= MOST_MESSAGES or max(map(len, bodies)) > self._context.max_msg_size:
            return None
        return bodies

    def _leave(self, rest: bytes) -> None:
        """Have the connection handed over once all answers have left. `rest`: the input that is not answered."""
        is_slow_head = self.buffered > 0 and self.body_since < 0  # its beginning came in an earlier turn
        head_due = self._due if is_slow_head else NEVER
        self.buffered, self.body_since = len(rest), -1
        self.waiting = True
        self._due = NEVER
        self._transport.hand_over(rest, head_due)

    def receive_eof(self) -> None:
        if not self.waiting:
            self.outbox.end()

    def disconnected(self) -> None:
        self.outbox.closing = True
        self._input.clear()
        self.buffered = 0
        self.has_more = False

    def next_timer(self) -> int:
        return NEVER if self.outbox.closing else self._due

    def tick(self, now: int) -> None:
        """Close a connection on which nothing has come for too long."""
        if now >= self._due and not self.waiting:
            self.outbox.end()

    @property
    def is_stranger(self) -> bool:
        """Return True while the connection is idle, or a request has just begun to come."""
        return not (self.waiting or self.has_more or self.body_since >= 0 or self.outbox.unsent)
