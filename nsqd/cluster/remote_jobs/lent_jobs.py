"""The services of a node for clients of other nodes: loans, commands about jobs, kept acknowledgements."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from nsqd.cluster.remote_jobs.job_frames import pack_number, unpack_loan, unpack_number
from nsqd.cluster.remote_jobs.job_owners import ALLOWED, KEPT, KEPT_WITH_RIGHTS, MOST_REQUEST, JobOwners, TubeOwners
from nsqd.cluster.remote_jobs.lending import Lending
from nsqd.cluster.wire.frames import KIND_AT, FrameKind
from nsqd.cluster.wire.part import Part
from nsqd.net.promised import HttpReplies
from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.beanstalk.guest import Guest, read_request
from nsqd.protocols.credential import of_another_node
from nsqd.protocols.disque import resp
from nsqd.protocols.disque.client import COPIES_TOO_LATE
from nsqd.protocols.disque.peer import Peer
from nsqd.protocols.transport import Fact, Transport
from shared.process.unix_sockets import NOBODY

if TYPE_CHECKING:
    from nsqd.cluster.membership.cluster import Cluster
    from nsqd.cluster.wire.link import Link
    from nsqd.core.broker import Broker
    from nsqd.protocols.disque.client import DisqueContext

P = TypeVar("P", Peer, Guest)
NOT_ALLOWED = b"-ERR other nodes may not ask that\r\n"
# frames that depend on records of their turn
_PROMISING = frozenset((FrameKind.BODY, FrameKind.LOAN, FrameKind.SAID))


class LentJobs(Part):
    """The jobs that a node lends and borrows. It takes part in the reactor's turns by `turn` and `replies`."""

    takes = range(FrameKind.WANT, FrameKind.SAID + 1)
    shown_as = "lending"

    def __init__(
        self,
        broker: Broker,
        cluster: Cluster,
        flush: Callable[[], None],
        context: DisqueContext,
        tubes_context: BeanstalkContext | None = None,
    ) -> None:
        """Take part in the cluster from now on.

        `flush` lets the connections to other nodes queue their output; `context` is that of the node's own clients of Disque,
        `tubes_context` that of those of beanstalkd; None: it has none.
        """
        self._broker, self._flush = broker, flush
        tubes_context = tubes_context or BeanstalkContext()
        # other nodes send the rights of their clients with each command, and audit their actions
        self._for_others = replace(context, proofs=None, audit=None, until_registered=None, has_limits=False)
        self._tubes_for_others = replace(tubes_context, proofs=None, audit=None, until_registered=None)
        self._asked: list[_Asked[Any]] = []  # commands of other nodes that wait for the disk
        self._held: deque[_Held] = deque()  # of the turns whose ack conditions are not met, or after such a turn
        self.lending = Lending(context.queues, cluster.links, self._execute)
        self.owners = JobOwners(cluster, self.lending, context.queues, context.ids)
        context.others = self.owners
        tubes_context.others = TubeOwners(self.owners, self.lending, context.ids)
        cluster.add(self)

    def figures(self) -> dict[str, int]:
        kept = filter(None, map(self._broker.tubes.tube, (KEPT, KEPT_WITH_RIGHTS)))
        lending = self.lending
        return {
            "lent": lending.lent,
            "borrowed": lending.borrowed,
            "returned": lending.returned,
            "kept": sum(tube.jobs.count for tube in kept),
            "dropped": self.owners.dropped,
        }

    def admitted(self, link: Link) -> None:
        self.lending.now = self._broker.now
        self.lending.admitted(link)

    def closed(self, link: Link) -> None:
        self.lending.closed(link.node.number, link)

    def attached(self, broker: Broker) -> None:
        self.owners.apply_kept(broker)

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        self.lending.now = self._broker.now
        self.lending.receive(link, kind, content)
        if kind is FrameKind.SAID:
            self.lending.conclude()

    def _execute(self, rights: bytes, request: bytes, then: Callable[[bytes], None]) -> None:
        """Do a command of a client of another node, if the client has the right on the tube of the job."""
        begin = self._begin_disque if request.startswith(b"*") else self._begin_beanstalk
        asked: _Asked[Any] | None = begin(rights, request, lambda reply: then(self.owners.checked(reply)))
        if asked is None:
            then(NOT_ALLOWED)
        elif not asked.answered():
            self._asked.append(asked)

    def _begin_disque(self, rights: bytes, request: bytes, then: Callable[[bytes], None]) -> _Asked[Peer] | None:
        try:
            found = resp.read_request(request, 0, MOST_REQUEST)
        except resp.ProtocolError:
            return None
        if isinstance(found, int) or not found[0] or found[0][0].lower() not in ALLOWED:
            return None
        asked = _Asked(lambda end: Peer(self._broker, self._for_others, end, "", "", self._broker.now), rights, then)
        asked.peer.authorized = True
        asked.peer.receive(request, self._broker.now)
        return asked

    def _begin_beanstalk(self, rights: bytes, request: bytes, then: Callable[[bytes], None]) -> _Asked[Guest] | None:
        words = read_request(request)
        if words is None:
            return None
        make_guest = partial(Guest, self._broker, self._tubes_for_others)
        asked = _Asked(lambda end: make_guest(end, "", "", self._broker.now), rights, then)
        asked.peer.do(*words)
        return asked

    def turn(self) -> None:
        """Do what is due, within a turn."""
        self.lending.now = self._broker.now
        self.lending.resume()
        for asked in self._asked:
            asked.retry_if_due(self._broker.now)
        self.lending.keep_unplaced()
        self.lending.conclude()
        self.owners.tick(self._broker.now)

    def replies(self) -> HttpReplies | None:
        """Send frames that wait for no ack condition. Return those to send when the conditions of this turn are met, or None.

        The group of the turn is written, so nothing may change from now on.
        """
        lending = self.lending
        if self._asked:
            self._asked = [asked for asked in self._asked if not asked.answered()]
        lending.announce()
        output = lending.take_output()
        if not output:
            return None
        held, is_sent = _Held(), False
        for link, frame in output:
            if frame[KIND_AT] in _PROMISING:
                held.frames.append((link, frame))
            else:
                link.send_first(frame)
                is_sent = True
        if is_sent:
            self._flush()
        if not held.frames:
            return None
        self._held.append(held)
        return HttpReplies(partial(self._send, held), partial(self._drop, held), partial(self._give_up, held))

    def _send(self, held: _Held) -> None:
        """Send the frames that are ready. Loans are numbered, so none is sent before an earlier one."""
        held.is_ready = True
        while self._held and self._held[0].is_ready:
            for link, frame in self._held.popleft().frames:
                link.send_first(frame)
        self._flush()

    def _give_up(self, held: _Held) -> None:
        """Send it without the copies, except jobs that are delivered once at most: they are lost.

        Clients that wait for the copies of a job get an error.
        """
        held.frames = [(link, without_id(frame)) for link, frame in without_final(held.frames)]
        self._send(held)

    def _drop(self, held: _Held) -> None:
        """Send nothing of it: the log cannot be written."""
        held.frames = []
        self._send(held)


@dataclass(slots=True)
class _Held:
    """Frames to other nodes that are sent when the ack conditions of one turn are met."""

    frames: list[tuple[Link, bytes]] = field(default_factory=list)
    is_ready: bool = False


def without_final(frames: Iterable[tuple[Link, bytes]]) -> list[tuple[Link, bytes]]:
    """Leave out the loans of jobs that are delivered once at most, with the parts of their bodies."""
    left: list[tuple[Link, bytes]] = []
    parts: list[tuple[Link, bytes]] = []  # BODY frames of the next loan
    for link, frame in frames:
        kind = frame[KIND_AT]
        parts.append((link, frame))
        if kind != FrameKind.BODY:
            left += parts if kind != FrameKind.LOAN or unpack_loan(frame[KIND_AT + 1 :], b"").retry else []
            parts = []
    return left


def without_id(frame: bytes) -> bytes:
    """Return the frame, or the one with an error in its place if it answers an ADDJOB with the id of the job."""
    if frame[KIND_AT] == FrameKind.SAID:
        serial, reply = unpack_number(frame[KIND_AT + 1 :])
        if reply.startswith(b"+D-"):
            return pack_number(FrameKind.SAID, serial, resp.error(COPIES_TOO_LATE))
    return frame


class _Asked(Generic[P]):
    """One command of a client of another node. Implements nsqd.protocols.transport.Transport."""

    is_scarce = False

    def __init__(self, make_peer: Callable[[Transport], P], rights: bytes, then: Callable[[bytes], None]) -> None:
        """`rights`: those of the client, as Rights.dump has them."""
        self._then: Callable[[bytes], None] = then
        self.peer: P = make_peer(self)
        if rights:
            self.peer.credential = of_another_node(rights, self.peer, self)

    def answered(self) -> bool:
        """Pass the reply on, if it is complete."""
        reply = b"".join(self.peer.take_output())
        if reply:
            self.peer.disconnected()
            self._then(reply)
        return bool(reply)

    def retry_if_due(self, now: int) -> None:
        """Do what is due at `now` (monotonic ns): the command may wait for nodes that can have a copy."""
        if self.peer.next_timer() <= now:
            self.peer.tick(now)
        if self.peer.has_more:
            self.peer.receive(b"", now)

    def output_ready(self) -> None:
        """Do nothing: `answered` looks whether there is output."""

    def timer_changed(self) -> None:
        """Do nothing: each turn calls `retry_if_due`."""

    def peer_user(self) -> int:
        return NOBODY

    def record_fact(self, fact: Fact, client: str, text: str = "") -> None:
        pass

    def never(self, *_: object, **__: object) -> None:
        raise AssertionError("a command of another node has no connection of its own")

    note_foreign = upgrade = suspend = meter = hand_over = never
