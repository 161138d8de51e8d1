"""AUTH in conversation: when it is required or allowed, and that a late response changes nothing but the time.

See docs/contributing/design/nsq-protocol.md#auth.
"""

from collections.abc import Callable
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.protocols.nsq.authorization import PUBLISH, SUBSCRIBE, Authorization, AuthRefused, Rule
from nsqd.protocols.nsq.settings import Settings
from shared.tls.info import TlsInfo
from tests.cases import each
from tests.effort import tries
from tests.nsqd.core.node import SECOND, Node
from tests.nsqd.protocols.nsq.wire import ERROR, MESSAGE, Wire, body, mpub

AUTH = Settings(auth_required=True, tls=True)
X = body(b"x")
REFUSED = AuthRefused("the server is down")
HELLO = b'{"identity":"ann","identity_url":"","permission_count":%d}'


def allow(wire: Wire, *rules: Rule, ttl: int = 3600 * SECOND) -> Authorization:
    return Authorization("ann", "", wire.node.now + ttl, rules)


def rule(topic: str = ".*", channels: tuple[str, ...] = (".*",), *permissions: str) -> Rule:
    return Rule(topic, channels, frozenset(permissions or (PUBLISH, SUBSCRIBE)))


def answered(wire: Wire, answer: Authorization | AuthRefused) -> Wire:
    """The servers answer the pending request."""
    (request,) = wire.requests
    assert request.secret == b"secret"
    wire.requests.clear()
    wire.answer(answer)
    wire.node.turn()
    return wire


def authorized(*rules: Rule, ttl: int = 3600 * SECOND, node: Node | None = None) -> Wire:
    wire = Wire(node, AUTH).send(b"AUTH\n" + body(b"secret"))
    assert answered(wire, allow(wire, *rules, ttl=ttl)).replies() == [HELLO % len(rules)]
    return wire


# AUTH itself


def test_the_request_names_the_client() -> None:
    wire = Wire(settings=AUTH).send(b"AUTH\n" + body(b"secret"))
    (request,) = wire.requests
    assert (request.remote_ip, request.tls, request.common_name) == ("10.0.0.1", False, "")
    wire = Wire(settings=AUTH)
    wire.peer.upgraded(TlsInfo("TLS1.3", "", "", True, "somebody"))
    wire.send(b"AUTH\n" + body(b"secret"))
    (request,) = wire.requests
    assert (request.tls, request.common_name) == (True, "somebody")


def test_auth_that_is_not_required_and_commands_that_need_none() -> None:
    wire = Wire().send(b"AUTH\n" + body(b"secret"))
    assert wire.frames() == [(ERROR, b"E_AUTH_DISABLED AUTH disabled")]
    assert wire.peer.closing
    assert wire.requests == []
    (answer,) = (
        Wire(settings=AUTH).send(b"NOP\nIDENTIFY\n" + body(b'{"feature_negotiation":true}') + b"NOP\n").replies()
    )
    assert b'"auth_required":true' in answer


BAD = [
    (b"AUTH x\n", b"E_INVALID AUTH invalid number of parameters"),
    (b"AUTH \n", b"E_INVALID AUTH invalid number of parameters"),
    (b"AUTH\n\0\0\0\0", b"E_BAD_BODY AUTH invalid body size 0"),
    (b"AUTH\n\xff\xff\xff\xff", b"E_BAD_BODY AUTH invalid body size -1"),
    (b"AUTH\n\x7f\xff\xff\xff", b"E_BAD_BODY AUTH body too big 2147483647 > 5242880"),
    (b"AUTH\n\0", b"E_BAD_BODY AUTH failed to read body size"),  # and then the input ends
    (b"AUTH\n\0\0\0\4x", b"E_BAD_BODY AUTH failed to read body"),
    (b"PUB bad!\n" + X, b'E_BAD_TOPIC PUB topic name "bad!" is not valid'),  # names are checked before permissions
    (b"SUB t bad!\n", b'E_BAD_CHANNEL SUB channel name "bad!" is not valid'),
]


@each("said, error", BAD)
def test_bad_auth(said: bytes, error: bytes) -> None:
    wire = Wire(settings=AUTH).send(said)
    wire.peer.receive_eof()
    assert wire.frames() == [(ERROR, error)]
    assert wire.requests == []


def test_auth_once_and_before_sub_only() -> None:
    again = b"AUTH\n" + body(b"secret")
    assert authorized(rule()).send(again).replies() == [b"E_INVALID AUTH already set"]
    assert authorized(rule()).send(b"SUB t c\n" + again).replies() == [b"OK", b"E_INVALID cannot AUTH in current state"]


@each("answer, error", [
    (lambda wire: REFUSED, b"E_AUTH_FAILED AUTH failed"), (allow, b"E_UNAUTHORIZED AUTH no authorizations found"),
])  # fmt: skip
def test_the_reason_of_a_refusal_is_not_sent(
    answer: Callable[[Wire], Authorization | AuthRefused], error: bytes
) -> None:
    wire = Wire(settings=AUTH).send(b"AUTH\n" + body(b"secret"))
    assert answered(wire, answer(wire)).frames() == [(ERROR, error)]
    assert wire.peer.closing


# what needs it

NEEDS = [(b"PUB t\n" + X, "PUB"), (mpub(b"t", b"1"), "MPUB"), (b"DPUB t 5\n" + X, "DPUB"), (b"SUB t c\n", "SUB")]


@each("command, name", NEEDS)
def test_auth_first(command: bytes, name: str) -> None:
    wire = Wire(settings=AUTH).send(command)
    assert wire.frames() == [(ERROR, f"E_AUTH_FIRST AUTH required before {name}".encode())]
    assert wire.node.broker.topics == {}


FORBIDDEN = [
    rule("^u$"),
    rule("t", ("^d$",)),  # a channel that the empty name of a publish does not match either
    rule("t", ()),
    rule("t", (".*",), "none"),
]


@each("given_rule", FORBIDDEN)
@each("command, name", NEEDS)
def test_what_is_not(command: bytes, name: str, given_rule: Rule) -> None:
    wire = authorized(given_rule).send(command)
    channel = "c" if name == "SUB" else ""
    assert wire.frames() == [(ERROR, f'E_UNAUTHORIZED AUTH failed for {name} on "t" "{channel}"'.encode())]
    assert wire.peer.closing
    assert wire.node.broker.topics == {}


def test_each_permission_and_each_name_for_itself() -> None:
    for permission, command in ((PUBLISH, b"SUB t c\n"), (SUBSCRIBE, b"PUB t\n" + X)):
        assert authorized(rule(".*", (".*",), permission)).send(command).replies()[0].startswith(b"E_UNAUTHORIZED")
    wire = authorized(rule("^t$", ("^c?$",)))
    assert wire.send(b"PUB t\n" + X + b"PUB t\n" + X).replies() == [b"OK", b"OK"]
    assert wire.send(b"SUB t d\n").replies() == [b'E_UNAUTHORIZED AUTH failed for SUB on "t" "d"']
    refused = authorized(rule("^u$")).send(b"MPUB t\n\xff\xff\xff\xfb").replies()
    assert refused == [b'E_UNAUTHORIZED AUTH failed for MPUB on "t" ""'], "before its body is looked at"


# time


def published(wire: Wire) -> dict[str, int]:
    return {topic.name: topic.intake.message_count for topic in wire.node.broker.topics.values()}


@each("command, name", NEEDS)
@each("answer, error", [
    (lambda wire: allow(wire, rule()), "OK"), (lambda wire: REFUSED, "E_AUTH_FAILED AUTH failed"),
    (allow, 'E_UNAUTHORIZED AUTH failed for {name} on "t" "{channel}"'),
    (lambda wire: allow(wire, rule("^other$")), 'E_UNAUTHORIZED AUTH failed for {name} on "t" "{channel}"'),
])  # fmt: skip
def test_after_its_time_it_is_asked_again_and_the_answer_counts(
    command: bytes, name: str, answer: Callable[[Wire], Authorization | AuthRefused], error: str
) -> None:
    wire = authorized(rule(), ttl=SECOND)
    wire.node.now += SECOND  # at that moment it still holds
    if name != "SUB":
        assert wire.send(command * 2).replies() == [b"OK", b"OK"]  # known, and so on the fast path
    wire.node.now += 1
    before = published(wire)
    assert wire.send(command).replies() == []
    said = error.format(name=name, channel="c" if name == "SUB" else "").encode()
    assert answered(wire, answer(wire)).replies() == [said]
    assert wire.peer.closing is (said != b"OK")
    if said != b"OK":
        assert published(wire) == before
    elif name != "SUB":
        assert wire.send(command).replies() == [b"OK"]
        assert wire.requests == []


def test_a_topic_revoked_by_a_request_about_another() -> None:
    wire = authorized(rule("[tu]"), ttl=SECOND)
    wire.send((b"PUB t\n" + X) * 2).frames()
    wire.node.now += SECOND + 1
    wire.send(b"PUB u\n" + X)
    assert answered(wire, allow(wire, rule("u"))).replies() == [b"OK"]
    assert wire.send(b"PUB t\n" + X).replies() == [b'E_UNAUTHORIZED AUTH failed for PUB on "t" ""']
    assert wire.node.broker.topics["t"].intake.message_count == 2


def test_a_subscription_flows_on_after_its_time_also_while_a_command_waits() -> None:
    node = Node()
    wire = authorized(rule(), ttl=SECOND, node=node)
    wire.send(b"SUB t c\nRDY 1\n").frames()
    node.now += 2 * SECOND
    node.publish("t", b"x")
    ((_, message_id, _),) = wire.advance(300).messages()
    wire.send(b"TOUCH %s\nFIN %s\n" % (message_id, message_id))
    assert node.held() == 0
    assert wire.requests == []
    wire.send(b"PUB t\n" + X)
    node.publish("t", b"meanwhile")
    assert [kind for kind, _ in wire.frames()] == [MESSAGE]
    wire.advance(30_000)
    assert b"_heartbeat_" in [data for _, data in wire.frames()]


# waiting


def test_input_is_kept_while_it_waits_and_done_once_and_replies_before_it_do_not_wait() -> None:
    wire = Wire(settings=AUTH).send(b"AUTH\n" + body(b"secret") + b"PUB t\n" + body(b"1"))
    for byte in b"PUB t\n" + body(b"2") + b"NO":
        wire.send(bytes((byte,)))
    assert wire.peer.waiting
    assert wire.replies() == []
    answered(wire, allow(wire, rule()))
    assert wire.replies() == [HELLO % 1, b"OK", b"OK"]
    wire.send(b"P\nPUB t\n" + body(b"3"))
    assert wire.replies() == [b"OK"]
    assert wire.node.broker.topics["t"].intake.message_count == 3
    wire = Wire(settings=AUTH).send(b"AUTH\n" + body(b"secret"))
    wire.advance(15_000)  # longer than a first command may take
    assert not wire.peer.closing
    assert answered(wire, allow(wire, rule())).replies() == [HELLO % 1]
    assert wire.send(b"PUB t\n" + X).replies() == [b"OK"]
    assert wire.node.broker.refused == {}


def test_gone_while_it_waits_or_its_channel() -> None:
    wire = authorized(rule(), ttl=SECOND)
    wire.node.now += SECOND + 1
    wire.send(b"PUB t\n" + X + b"PUB t\n" + X)
    wire.peer.disconnected()
    assert wire.peer.closing
    assert wire.node.broker.topics == {}
    assert len(wire.peer._buffer) == 0
    wire = authorized(rule(), ttl=SECOND)
    wire.send(b"SUB t c\n").frames()
    wire.node.now += SECOND + 1
    wire.send(b"PUB t\n" + X)
    wire.node.broker.topics["t"].delete_channel("c")
    assert wire.peer.closing
    wire.peer.disconnected()
    wire.node.broker.check()


# a late answer changes nothing but the time

SECRETS = st.sampled_from([b"good", b"good", b"old", b"old", b"fickle", b"empty", b"no"])
TOPICS = st.sampled_from([b"t", b"t", b"t", b"tt", b"u", b"t!"])


@st.composite
def commands(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from("AAPPPMMDSNIRX"))
    topic = draw(TOPICS)
    return {
        "A": b"AUTH\n" + body(draw(SECRETS)), "P": b"PUB " + topic + b"\n" + body(b"one"),
        "M": mpub(topic, b"1", b"22"), "D": b"DPUB " + topic + b" 7\n" + body(b"later"), "S": b"SUB " + topic + b" c\n",
        "N": b"NOP\n", "I": b"IDENTIFY\n" + body(b"{}"), "R": b"RDY 1\n", "X": draw(st.binary(max_size=3)) + b"\n",
    }[kind]  # fmt: skip


def play(script: list[bytes], cuts: list[int], late: list[bool]) -> tuple[object, ...]:
    """Say the script, cut as told; `late`: whether the servers answer only after the piece that follows."""
    wire = Wire(Node(seed=5), AUTH)
    asked: list[bytes] = []

    def answer_all() -> None:
        while wire.requests:
            (request,) = wire.requests
            wire.requests.clear()
            asked.append(request.secret)
            if not wire.peer.closing:
                wire.answer(said_to(wire, request.secret, len(asked)))

    data = b"".join(script)
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for number, (start, stop) in enumerate(pairwise(edges)):
        wire.peer.receive(data[start:stop], wire.node.now)
        if not (late and late[number % len(late)]):
            answer_all()
    answer_all()
    wire.node.turn()
    frames = wire.frames()
    wire.node.broker.check()
    counts = {name: topic.intake.message_count for name, topic in wire.node.broker.topics.items()}
    # An MPUB whose head comes in pieces may ask once more for permissions that hold no time at all.
    return (
        [data for kind, data in frames if kind != MESSAGE], set(asked), counts, wire.peer.closing, wire.peer.pub_counts,
    )  # fmt: skip


def said_to(wire: Wire, secret: bytes, count: int) -> Authorization | AuthRefused:
    """Old ones are asked about again with each command that needs it, a fickle one too, and is allowed less in the end."""
    if secret == b"no":
        return REFUSED
    if secret == b"empty":
        return allow(wire)
    if secret == b"fickle" and count > 1:
        return allow(wire, rule("^tt$"), ttl=-1)
    return allow(wire, rule("^tt?$"), ttl=3600 * SECOND if secret == b"good" else -1)


@settings(max_examples=tries(80, in_short=30))
@given(
    st.lists(commands(), max_size=10).map(lambda rest: [b"AUTH\n" + body(b"old"), *rest])
    | st.lists(commands(), max_size=8),
    st.lists(st.integers(0, 300), max_size=6),
    st.lists(st.booleans(), max_size=5),
)
def test_late_answers_change_no_replies(script: list[bytes], cuts: list[int], late: list[bool]) -> None:
    at_once = play(script, list(range(300)), [])
    assert play(script, [], []) == at_once
    assert play(script, cuts, late) == at_once
    assert play(script, cuts, [True]) == at_once


def test_the_property_sees_waits_that_matter() -> None:
    script = [b"AUTH\n" + body(b"fickle"), *[b"PUB t\n" + X] * 4]
    frames, asked, counts, closing, _ = play(script, [], [])
    assert frames == [HELLO % 1, b'E_UNAUTHORIZED AUTH failed for PUB on "t" ""']
    assert (asked, counts, closing) == ({b"fickle"}, {}, True)
