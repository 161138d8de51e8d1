"""HTTP in the turn: answers in order, requests cut anywhere, and a connection that leaves with all that is not answered."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.sequence.mark import Mark
from nsqd.protocols.account import Accounts
from nsqd.protocols.http.head import Request
from nsqd.protocols.http.peer import (
    HEADER_TIMEOUT,
    KEEP_ALIVE,
    MAX_BODY,
    MOST_KNOWN,
    MOST_MESSAGES,
    NSQ_HEADERS,
    UNITS_OF_A_REQUEST,
    UNITS_OF_A_TURN,
    Context,
    HttpPeer,
)
from nsqd.protocols.http.publishers import HttpPublishers
from nsqd.protocols.transport import NEVER
from shared.budget import FREE
from shared.process.unix_sockets import NOBODY
from tests.cases import each
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.rights.proofs import SIDECAR, Proofs, token
from tests.nsqd.protocols.transport import StillTransport

ANSWERS_OF_A_TURN = UNITS_OF_A_TURN // UNITS_OF_A_REQUEST
HOST = b"Host: localhost\r\n"
OK = b"HTTP/1.1 200 OK"
PING = b"GET /ping HTTP/1.1\r\n" + HOST + b"\r\n"
STATS = b"GET /stats?format=json&topic=t&channel=c&include_clients=false HTTP/1.1\r\n" + HOST + b"\r\n"
ODD = b"GET /odd HTTP/1.1\r\n" + HOST + b"\r\n"


def pub(body: bytes, topic: bytes = b"t", route: bytes = b"pub") -> bytes:
    return b"POST /%s?topic=%s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s" % (route, topic, HOST, len(body), body)


def binary(count: int, body: bytes) -> bytes:
    """A binary /mpub. This test's node separates the messages by commas, and finds one that ends in ! malformed."""
    data = count.to_bytes(4, "big") + body
    return b"POST /mpub?topic=t&binary=true HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s" % (HOST, len(data), data)


class Wire(StillTransport):
    """A client of HTTP, and the peer's transport. The topics t and u exist."""

    def __init__(self, proofs: Proofs | None = None, user: int = NOBODY) -> None:
        super().__init__(user)
        self.node = Node()
        for name in ("t", "u"):
            self.node.broker.topic(name)
        self.healthy = True
        self.stats: bytes | None = b'{"topics":[]}'
        self.answered: Counter[bytes] = Counter()
        self.publishers = HttpPublishers()
        self.context = Context(
            self.node.broker,
            1000,
            5000,
            lambda body: None if body.endswith(b"!") else body[4:].split(b","),
            lambda host: host == b"localhost",
            lambda: self.healthy,
            lambda *_: self.stats,
            self._answered,
            self.publishers,
            proofs,
        )
        self.head_due = NEVER
        self.rest: bytes | None = None  # not None: the connection was handed over with this
        self.ip = "10.0.0.1" if user == NOBODY else ""
        self.peer = HttpPeer(self.context, self, self.ip, "5555", self.node.now, self.node.broker.wall)

    def _answered(self, request: Request, ip: str, port: str, came: int, marks: tuple[Mark, ...]) -> None:
        assert (ip, port, came) == (self.ip, "5555", self.node.now)
        assert marks is self.peer.outbox.marks
        self.answered[request.target] += 1

    def hand_over(self, rest: bytes, head_due: int = NEVER) -> None:
        assert self.rest is None
        self.rest, self.head_due = rest, head_due

    def befall(self, change: str) -> None:
        """Change the node or the topic, so that /pub can no longer be answered in the turn."""
        broker = self.node.broker
        if change == "drain":
            broker.drain(1)
        elif change == "ignore":
            broker.set_copies(0)
        elif change == "delete":
            broker.delete_topic("t")
        elif change == "start":
            broker.named[b"t"].starting = True

    def send(self, data: bytes) -> list[bytes]:
        """Return the responses to this input."""
        self.peer.receive(data, self.node.now)
        output = self.peer.take_output()
        while self.peer.has_more:
            self.peer.receive(b"", self.node.now)
            output += self.peer.take_output()
        self.node.turn()
        return output

    def published(self) -> list[bytes]:
        """The bodies of topic t, in order."""
        _, inbox = self.node.subscribe("t", "c", ready=2500)
        self.node.turn()
        return [delivery.body for delivery in inbox.take()]


def test_a_publish_is_answered_and_delivered_and_an_mpub_publishes_its_lines() -> None:
    wire = Wire()
    (answer,) = wire.send(pub(b"hello"))
    assert answer.startswith(OK)
    assert answer.endswith(b"x-nsq-content-type: nsq; version=1.0\r\n\r\nOK")
    assert b"\r\ndate: " in answer
    assert wire.answered == {b"/pub?topic=t": 1}
    assert len(wire.send(pub(b"a\n\nb\nc\n", route=b"mpub")) + wire.send(binary(2, b"a,bc"))) == 2
    assert wire.published() == [b"hello", b"a", b"b", b"c", b"a", b"bc"]
    assert wire.rest is None
    (answer,) = wire.send(PING)
    assert b"x-nsq-content-type" not in answer


@each("request_", [
    ODD, pub(b""), pub(b"x" * 1001), pub(b"x", topic=b"other"), pub(b"\n\n", route=b"mpub"),
    pub(b"a\n" + b"x" * 1001, route=b"mpub"), pub(b"x\n" * 2501, route=b"mpub"), b"  V2", b"x" * 10_000,
    b"POST /pub?topic=t HTTP/1.1\r\n" + b"Accept: " + b"x" * 5000,
])  # fmt: skip
def test_what_is_not_for_this_peer_leaves_as_it_came_and_nothing_has_happened(request_: bytes) -> None:
    wire = Wire()
    assert len(wire.send(pub(b"before") + request_)) == 1
    assert wire.rest == request_
    assert wire.peer.waiting
    assert wire.published() == [b"before"]
    assert list(wire.node.broker.topics) == ["t", "u"]


def test_a_body_that_is_coming_counts_as_buffered_until_it_is_complete_also_behind_a_full_turn() -> None:
    wire = Wire()
    whole = pub(b"x" * 900)
    assert wire.send(whole[:100]) == []
    assert wire.peer.buffered == len(whole)
    assert wire.peer.body_since == wire.node.now
    assert wire.peer.next_timer() == NEVER
    assert len(wire.send(whole[100:])) == 1
    assert wire.peer.buffered == 0
    assert wire.peer.next_timer() == wire.node.now + KEEP_ALIVE
    wire = Wire()
    first, second = pub(b"x" * 900), pub(b"y" * 800)
    wire.send(first[:-3])
    wire.peer.receive(first[-3:] + PING * (ANSWERS_OF_A_TURN - 1) + second[:-10], wire.node.now)
    assert wire.peer.has_more
    assert wire.peer.buffered == 0
    wire.node.now += 1
    wire.send(b"")
    assert (wire.peer.buffered, wire.peer.body_since) == (len(second), wire.node.now)


def test_one_turn_answers_a_bounded_number_of_requests_and_takes_no_large_ones() -> None:
    wire = Wire()
    wire.peer.receive(PING * (ANSWERS_OF_A_TURN + 1), wire.node.now)
    assert len(wire.peer.take_output()) == ANSWERS_OF_A_TURN
    assert wire.peer.has_more
    assert len(wire.send(b"")) == 1
    wire.peer.receive(STATS * 100, wire.node.now)
    assert 1 <= len(wire.peer.take_output()) <= 5
    assert wire.peer.has_more
    wire = Wire()
    wire.context.max_body_size = 10 * MAX_BODY
    head = b"POST /mpub?topic=t HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % (MAX_BODY + 1)
    assert wire.send(head + b"x") == []
    assert wire.rest == head + b"x"
    wire = Wire()
    wire.context.max_body_size = MAX_BODY
    wire.send(pub(b"x\n" * (MOST_MESSAGES + 1), route=b"mpub"))
    assert wire.rest is not None
    assert wire.published() == []


def test_a_silent_client_is_closed_and_what_it_sends_then_is_dropped() -> None:
    wire = Wire()
    assert wire.peer.next_timer() == wire.node.now + HEADER_TIMEOUT
    wire.node.now += HEADER_TIMEOUT - 1
    wire.peer.tick(wire.node.now)
    wire.send(PING)
    wire.node.now += KEEP_ALIVE - 1
    wire.peer.tick(wire.node.now)
    assert not wire.peer.outbox.closing
    wire.send(b"GET /pi")
    assert wire.peer.next_timer() == wire.node.now + HEADER_TIMEOUT
    wire.node.now += HEADER_TIMEOUT
    wire.peer.tick(wire.node.now)
    assert wire.peer.outbox.closing
    assert wire.send(PING) == []
    wire = Wire()
    wire.send(b"POST /pub?to")
    wire.node.now += HEADER_TIMEOUT
    wire.peer.tick(wire.node.now)
    assert wire.peer.next_timer() == NEVER  # its time has passed: the reactor would call again and again
    for _ in range(10):
        wire.send(b"x" * 10_000)
    assert len(wire.peer._input) < 100


def test_a_head_that_comes_byte_by_byte_has_no_longer_than_another() -> None:
    wire = Wire()
    due = wire.peer.next_timer()
    for byte in PING[:-1]:
        wire.node.now += 1
        wire.send(bytes((byte,)))
    assert wire.peer.next_timer() <= due + 1
    wire = Wire()
    wire.send(PING + b"GET /pi")
    assert wire.peer.next_timer() == wire.node.now + HEADER_TIMEOUT, "one behind other requests"


def test_a_half_read_head_leaves_with_the_time_that_is_left_to_it_and_counts_as_buffered_until_it_has_left() -> None:
    slow, prompt = Wire(), Wire()
    slow.send(ODD[:3])
    due = slow.peer.next_timer()
    slow.node.now += HEADER_TIMEOUT - 1
    slow.send(ODD[3:])
    assert (slow.rest, slow.head_due) == (ODD, due)
    prompt.send(PING[:-1])
    prompt.send(PING[-1:] + ODD[:9])
    assert (prompt.rest, prompt.head_due, prompt.peer.buffered) == (ODD[:9], NEVER, 9)
    prompt.peer.disconnected()
    assert prompt.peer.buffered == 0


def test_statistics_of_a_topic_are_answered_with_their_length_or_leave() -> None:
    wire = Wire()
    (answer,) = wire.send(STATS)
    assert answer.startswith(OK)
    assert b"\r\ncontent-length: 13\r\n" in answer
    assert answer.endswith(b'\r\n\r\n{"topics":[]}')
    for stats in (None, b"x" * (FREE + 1)):
        wire = Wire()
        wire.stats = stats
        assert wire.send(STATS) == []
        assert wire.rest == STATS


@each("route, when_unready", [(b"ping", 1), (b"livez", 1), (b"readyz", 0)])
@each("change", ["drain", "ignore"])
def test_health_is_answered_while_it_is_good(route: bytes, when_unready: int, change: str) -> None:
    wire = Wire()
    request = PING.replace(b"ping", route)
    assert len(wire.send(request)) == 1
    wire.befall(change)
    assert len(wire.send(request)) == when_unready
    sick = Wire()
    sick.healthy = False
    assert len(sick.send(request)) == (route == b"livez")


def test_the_end_of_input_ends_the_connection_after_the_answers() -> None:
    wire = Wire()
    wire.peer.receive(PING, wire.node.now)
    wire.peer.receive_eof()
    assert wire.peer.outbox.closing
    assert len(wire.peer.take_output()) == 1


def test_heads_are_remembered_but_not_without_bound() -> None:
    wire = Wire()
    for number in range(MOST_KNOWN + 10):
        wire.send(b"GET /ping HTTP/1.1\r\n" + HOST + b"User-Agent: %d\r\n\r\n" % number)
    assert 0 < len(wire.context.known) <= MOST_KNOWN


REQUESTS = st.lists(
    st.one_of(
        st.just(PING),
        st.binary(min_size=1, max_size=60).map(pub),
        st.lists(st.binary(max_size=9), max_size=5).map(lambda lines: pub(b"\n".join(lines), route=b"mpub")),
        st.sampled_from([ODD, pub(b""), b"nonsense\r\n\r\n", pub(b"x", topic=b"other")]),
    ),
    max_size=6,
).map(b"".join)


@given(data=REQUESTS, cuts=st.lists(st.integers(0, 600), max_size=5))
def test_requests_mean_the_same_however_they_are_cut(data: bytes, cuts: list[int]) -> None:
    whole, pieces = Wire(), Wire()
    expected = whole.send(data)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    found = []
    for start, end in pairwise(places):
        if pieces.rest is not None:  # the reactor reads no more from it
            pieces.rest += data[start:end]
        elif start < end:
            found += pieces.send(data[start:end])
    assert len(found) == len(expected)  # they differ in their dates only
    assert [answer.endswith(NSQ_HEADERS + b"\r\nOK") for answer in found] == [
        answer.endswith(NSQ_HEADERS + b"\r\nOK") for answer in expected
    ]
    assert pieces.rest == whole.rest
    assert pieces.answered == whole.answered
    assert pieces.published() == whole.published()


LONE = st.sampled_from([pub(b"a"), pub(b"bc"), pub(b"a", b"u"), pub(b"x" * 1000), pub(b"a\nb", route=b"mpub"), PING])
LAST = st.sampled_from([pub(b""), pub(b"x" * 1001), pub(b"x", topic=b"other"), ODD, pub(b"abc") + PING, pub(b"a")[:-1]])


@given(
    requests=st.lists(LONE, max_size=8), last=LAST, change=st.sampled_from(["", "drain", "delete", "start", "ignore"])
)
def test_a_lone_request_is_answered_like_one_in_pieces(requests: list[bytes], last: bytes, change: str) -> None:
    alone, pieces = Wire(), Wire()
    for request in [*requests, *requests, last]:
        if request is last:
            alone.befall(change)
            pieces.befall(change)
        found = alone.send(request)
        assert [answer[-9:] for answer in found] == [
            answer[-9:] for part in (request[:1], request[1:]) for answer in pieces.send(part)
        ]
        assert alone.peer.next_timer() == pieces.peer.next_timer()
        assert (alone.peer.has_more, alone.peer.buffered) == (pieces.peer.has_more, pieces.peer.buffered)
    assert alone.rest == pieces.rest
    assert alone.answered == pieces.answered
    assert [one[:3] for one in alone.publishers.all()] == [one[:3] for one in pieces.publishers.all()]
    assert alone.published() == pieces.published()


@each("change", ["drain", "delete", "start", "ignore"])
def test_a_known_request_is_not_answered_when_the_node_or_its_topic_has_changed(change: str) -> None:
    wire = Wire()
    assert len(wire.send(pub(b"x")) + wire.send(pub(b"y"))) == 2
    wire.befall(change)
    assert wire.send(pub(b"z")) == []
    assert wire.rest == pub(b"z")


# who sends it


def shown(data: bytes, secret: bytes) -> bytes:
    return data.replace(HOST, HOST + b"Authorization: Bearer " + secret + b"\r\n")


@each("user, secret, topic, is_allowed", [
    (SIDECAR, b"", b"work", True),
    (SIDECAR, b"", b"orders", False),
    (SIDECAR + 1, b"", b"work", False),
    (NOBODY, b"", b"work", False),
    (SIDECAR, token("orders"), b"orders", True),  # a token counts instead of the user
    (SIDECAR, token("orders"), b"work", False),
    (SIDECAR, b"guess", b"work", False),
    (NOBODY, token("worker"), b"work", True),
])  # fmt: skip
def test_a_user_is_known_without_a_token(user: int, secret: bytes, topic: bytes, is_allowed: bool) -> None:
    wire = Wire(Proofs("orders", "worker"), user)
    wire.node.broker.topic(topic.decode())
    data = pub(b"x", topic)
    for _ in range(2 if is_allowed else 1):  # the head is known by the second
        wire.send(shown(data, secret) if secret else data)
    assert wire.answered.total() == (2 if is_allowed else 0)
    assert (wire.rest is None) is is_allowed  # the HTTP thread refuses it


def test_a_user_loses_its_rights_with_the_auth_file() -> None:
    proofs = Proofs()
    wire = Wire(proofs, SIDECAR)
    wire.node.broker.topic("work")
    wire.send(pub(b"x", b"work"))
    proofs.set(has_socket=False)
    wire.send(pub(b"x", b"work"))
    assert wire.answered.total() == 1
    assert wire.rest == pub(b"x", b"work")


# identities that have limits


def authorized(request: bytes, name: str = "orders") -> bytes:
    """The request, with the token of that identity, to the topic `orders`."""
    head, _, rest = request.partition(b"\r\n\r\n")
    return b"%s\r\nAuthorization: Bearer %s\r\n\r\n%s" % (head, token(name), rest)


def limited(**limits: int) -> Wire:
    wire = Wire()
    wire.node.broker.topic("orders")
    wire.context.proofs, wire.context.accounts = Proofs("orders", **limits), Accounts()
    return wire


def test_what_is_published_is_counted_for_who_sends_it_and_may() -> None:
    wire = limited()
    one = authorized(pub(b"12345", b"orders"))
    assert len(wire.send(one) + wire.send(one) + wire.send(one + one)) == 4
    assert len(wire.send(authorized(pub(b"a\nbc\n", b"orders", b"mpub")))) == 1
    use = wire.context.accounts.account("orders").figures()
    assert (use.messages, use.bytes) == (6, 23)
    for request_ in (pub(b"1", b"orders"), authorized(pub(b"1", b"other")), authorized(pub(b"1", b"orders"), "worker")):
        again = limited(messages=10)
        again.node.broker.topic("other")
        assert again.send(request_) == []
        assert again.rest == request_
        assert sum(one.messages for one in again.context.accounts.figures()) == 0


@each("request_", [pub(b"1", b"orders"), pub(b"1\n2", b"orders", b"mpub")])
def test_who_is_over_its_rate_is_for_the_http_thread_to_refuse(request_: bytes) -> None:
    wire = limited(messages=10)
    for _ in range(2):
        assert len(wire.send(authorized(pub(b"\n".join([b"x"] * 5), b"orders", b"mpub")))) == 1
    request_ = authorized(request_)
    assert len(wire.send(request_)) == 1  # in full, though it is more than there is
    topic = wire.node.broker.topics["orders"]
    before = topic.intake.message_count
    assert wire.send(request_) == []
    assert wire.rest == request_
    assert topic.intake.message_count == before
    assert wire.context.accounts.account("orders").figures().refused == 0  # the HTTP thread counts it
