"""One connection in conversation: replies, errors to the letter, buffering, heartbeats.

See docs/contributing/design/nsq-protocol.md.
"""

import json
import struct

from nsqd.core.limits import Limits
from nsqd.protocols.nsq.settings import Settings
from nsqd.protocols.transport import Fact
from shared.foreign import Foreign
from tests.cases import each
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.nsq.wire import ERROR, MESSAGE, RESPONSE, Wire, body, mpub

SMALL = Settings(max_msg_size=100, max_body_size=200, max_rdy_count=50)
I32 = struct.Struct(">i").pack


def subscriber(rdy: int = 0, node: Node | None = None, identify: dict[str, object] | None = None) -> Wire:
    wire = Wire(node)
    if identify is not None:
        wire.send(b"IDENTIFY\n" + body(json.dumps(identify).encode()))
    wire.send(b"SUB t c\nRDY %d\n" % rdy)
    assert wire.replies()[-1] == b"OK"
    return wire


# the handshake


def test_nothing_is_said_before_four_bytes_and_silence_ends_the_connection() -> None:
    wire = Wire(magic=False)
    assert wire.send(b"  V").replies() == []
    assert wire.send(b"2").replies() == []
    assert wire.send(b"NOP\nPUB t\n" + body(b"x")).replies() == [b"OK"]
    assert not wire.foreign
    wire = Wire(magic=False).advance(9_990)
    assert not wire.peer.closing
    assert wire.advance(20).peer.closing


@each("sent, foreign", [
    (b"  V1more", [Foreign.LOOKUPD]), (b"\0\0\0\0more", None), (b"PUB more", None), (b"GET / HTTP/1.1\r\n", [Foreign.HTTP]),
    (b"\x16\x03\x01\x02", [Foreign.TLS]),
])  # fmt: skip
def test_another_magic_is_a_bad_protocol_and_is_logged(sent: bytes, foreign: list[Foreign] | None) -> None:
    wire = Wire(magic=False)
    assert wire.send(sent).frames() == [(ERROR, b"E_BAD_PROTOCOL")]
    assert wire.peer.closing
    assert foreign is None or wire.foreign == [("TCP", str(kind)) for kind in foreign]


# errors, to the letter

NOT_DECODED = [
    b"[]", b"{", b"[" * 150, b'{"client_id":1}', b'{"tls_v1":1}', b'{"snappy":"yes"}', b'{"heartbeat_interval":1.0}',
    b'{"sample_rate":NaN}', b'{"sample_rate":2147483648}',
]  # fmt: skip
INVALID = b"E_BAD_BODY IDENTIFY %s (%d) is invalid"
OUT_OF_RANGE = [
    (b"heartbeat interval", 999), (b"heartbeat interval", 60001), (b"output buffer timeout", 24), (b"output buffer size", 63),
    (b"sample rate", 100), (b"msg timeout", 999),
]  # fmt: skip
FATAL = [
    (b"\n", b"E_INVALID invalid command "),
    (b"pub t\n", b"E_INVALID invalid command pub"),
    (b"BOGUS x y\n", b"E_INVALID invalid command BOGUS"),
    (b"GET / HTTP/1.1\r\n", b"E_INVALID invalid command GET"),
    (b"IDENTIFY\n" + I32(0), b"E_BAD_BODY IDENTIFY invalid body size 0"),
    (b"IDENTIFY\n" + I32(-1), b"E_BAD_BODY IDENTIFY invalid body size -1"),
    (b"IDENTIFY\n" + I32(201), b"E_BAD_BODY IDENTIFY body too big 201 > 200"),
    *((b"IDENTIFY\n" + body(text), b"E_BAD_BODY IDENTIFY failed to decode JSON body") for text in NOT_DECODED),
    *(
        (b"IDENTIFY\n" + body(b'{"%s":%d}' % (name.replace(b" ", b"_"), number)), INVALID % (name, number))
        for name, number in OUT_OF_RANGE
    ),
    (b"AUTH\n" + body(b"s"), b"E_AUTH_DISABLED AUTH disabled"),
    (b"AUTH x\n" + body(b"s"), b"E_INVALID AUTH invalid number of parameters"),
    (b"AUTH\n" + I32(0), b"E_BAD_BODY AUTH invalid body size 0"),
    (b"SUB t\n", b"E_INVALID SUB insufficient number of parameters"),
    (b"SUB t! c\n", b'E_BAD_TOPIC SUB topic name "t!" is not valid'),
    (b"SUB t c\x01\n", b'E_BAD_CHANNEL SUB channel name "c\\x01" is not valid'),
    (b"SUB .. c\n", b'E_BAD_TOPIC SUB topic name ".." is not valid'),
    (b"SUB  t c\n", b'E_BAD_TOPIC SUB topic name "" is not valid'),
    (b"PUB\n", b"E_INVALID PUB insufficient number of parameters"),
    (b"PUB " + b"t" * 65 + b"\n", b'E_BAD_TOPIC PUB topic name "' + b"t" * 65 + b'" is not valid'),
    (b"PUB \xc3\xa9\xff\n", b'E_BAD_TOPIC PUB topic name "\xc3\xa9\\xff" is not valid'),
    (b"PUB \xe2\x80\xaeg\n", b'E_BAD_TOPIC PUB topic name "\\u202eg" is not valid'),
    (b"PUB t\n" + I32(0), b"E_BAD_MESSAGE PUB invalid message body size 0"),
    (b"PUB t\n" + I32(-5), b"E_BAD_MESSAGE PUB invalid message body size -5"),
    (b"PUB t\n" + I32(101), b"E_BAD_MESSAGE PUB message too big 101 > 100"),
    (b"MPUB\n", b"E_INVALID MPUB insufficient number of parameters"),
    (b"MPUB t!\n", b'E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "t!" is not valid'),
    (b"MPUB t\n" + I32(0), b"E_BAD_BODY MPUB invalid body size 0"),
    (b"MPUB t\n" + I32(201), b"E_BAD_BODY MPUB body too big 201 > 200"),
    (b"MPUB t\n" + I32(20) + I32(0), b"E_BAD_BODY MPUB invalid message count 0"),
    (b"MPUB t\n" + I32(20) + I32(40), b"E_BAD_BODY MPUB invalid message count 40"),
    (b"MPUB t\n" + I32(20) + I32(2) + body(b"x") + I32(0), b"E_BAD_MESSAGE MPUB invalid message(1) body size 0"),
    (b"MPUB t\n" + I32(20) + I32(1) + I32(101), b"E_BAD_MESSAGE MPUB message too big 101 > 100"),
    (b"DPUB t\n", b"E_INVALID DPUB insufficient number of parameters"),
    (b"DPUB t! 1\n", b'E_BAD_TOPIC DPUB topic name "t!" is not valid'),
    (b"DPUB t x\n", b"E_INVALID DPUB could not parse timeout x"),
    (b"DPUB t -1\n", b"E_INVALID DPUB could not parse timeout -1"),
    (b"DPUB t 3600001\n", b"E_INVALID DPUB timeout 3600001 out of range 0-3600000"),
    (b"DPUB t 1\n" + I32(101), b"E_BAD_MESSAGE DPUB message too big 101 > 100"),
    *(
        (line + b"\n", b"E_INVALID cannot %s in current state" % line.split()[0])
        for line in (b"RDY 1", b"FIN 0123456789abcdef", b"REQ 0123456789abcdef 0", b"TOUCH 0123456789abcdef", b"CLS")
    ),
]
FATAL_SUBSCRIBED = [
    (b"SUB t c\n", b"E_INVALID cannot SUB in current state"),
    (b"IDENTIFY\n", b"E_INVALID cannot IDENTIFY in current state"),
    (b"AUTH\n", b"E_INVALID cannot AUTH in current state"),
    (b"RDY x\n", b"E_INVALID RDY could not parse count x"),
    (b"RDY -1\n", b"E_INVALID RDY could not parse count -1"),
    (b"RDY 51\n", b"E_INVALID RDY count 51 out of range 0-50"),
    (b"RDY 18446744073709551615\n", b"E_INVALID RDY count -1 out of range 0-50"),
    (b"FIN\n", b"E_INVALID FIN insufficient number of params"),
    (b"FIN 123\n", b"E_INVALID invalid message ID"),
    (b"REQ 0123456789abcdef\n", b"E_INVALID REQ insufficient number of params"),
    (b"REQ 123 0\n", b"E_INVALID invalid message ID"),
    (b"REQ 0123456789abcdef x\n", b"E_INVALID REQ could not parse timeout x"),
    (b"TOUCH\n", b"E_INVALID TOUCH insufficient number of params"),
    (b"TOUCH 123\n", b"E_INVALID invalid message ID"),
    (b"CLS\nCLS\n", b"E_INVALID cannot CLS in current state"),
]
NOT_FATAL = [
    (b"FIN 0123456789abcdef\n", b"E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight"),
    (b"FIN 0123456 89aINdef\n", b"E_INVALID invalid message ID"),
    (b"FIN FIN FIN FIN FI\n", b"E_INVALID invalid message ID"),
    (b"FIN FINFINFINFINFIN!\n", b"E_FIN_FAILED FIN FINFINFINFINFIN! failed ID not in flight"),
    (b"REQ 0123456789abcdef 0\n", b"E_REQ_FAILED REQ 0123456789abcdef failed ID not in flight"),
    (b"TOUCH 0123456789abcdef\n", b"E_TOUCH_FAILED TOUCH 0123456789abcdef failed ID not in flight"),
]


@each("line, error", FATAL)
def test_fatal_errors(line: bytes, error: bytes) -> None:
    wire = Wire(settings=SMALL)
    assert wire.send(line + b"PUB t\n" + body(b"never")).frames() == [(ERROR, error)]
    assert wire.peer.closing
    assert sum(topic.intake.message_count for topic in wire.node.broker.topics.values()) == 0
    wire.node.broker.check()


@each("line, error", FATAL_SUBSCRIBED)
def test_fatal_errors_of_a_subscriber(line: bytes, error: bytes) -> None:
    wire = Wire(settings=SMALL)
    wire.send(b"SUB t c\n")
    assert wire.send(line).frames()[-1] == (ERROR, error)
    assert wire.peer.closing


@each("line, error", NOT_FATAL)
def test_errors_that_are_survived(line: bytes, error: bytes) -> None:
    wire = Wire(settings=SMALL)
    wire.send(b"SUB t c\n")
    assert wire.send(line).frames()[-1] == (ERROR, error)
    assert wire.peer.closing == error.startswith(b"E_INVALID")


@each(
    "start, error",
    [
        (b"IDENTIFY\n", b"E_BAD_BODY IDENTIFY failed to read body size"),
        (b"IDENTIFY\n" + I32(5) + b"{", b"E_BAD_BODY IDENTIFY failed to read body"),
        (b"PUB t\n\0", b"E_BAD_MESSAGE PUB failed to read message body size"),
        (b"PUB t\n" + I32(5) + b"abc", b"E_BAD_MESSAGE PUB failed to read message body"),
        (b"MPUB t\n", b"E_BAD_BODY MPUB failed to read body size"),
        (b"MPUB t\n" + I32(20), b"E_BAD_BODY MPUB failed to read message count"),
        (b"MPUB t\n" + I32(20) + I32(2) + body(b"x"), b"E_BAD_MESSAGE MPUB failed to read message(1) body size"),
        (b"MPUB t\n" + I32(20) + I32(1) + I32(9) + b"x", b"E_BAD_MESSAGE MPUB failed to read message body"),
    ],
)
def test_input_that_ends_in_the_middle(start: bytes, error: bytes) -> None:
    wire = Wire()
    wire.send(start)
    wire.peer.receive_eof()
    assert wire.frames() == [(ERROR, error)]
    assert wire.node.broker.topics.get("t") is None or wire.node.broker.topics["t"].intake.message_count == 0


def test_input_that_ends_or_a_line_beyond_the_buffer_is_dropped_without_a_word() -> None:
    for start in (b"", b"NOP\n", b"PU"):
        wire = Wire()
        wire.send(start)
        wire.peer.receive_eof()
        assert wire.frames() == []
        assert wire.peer.closing
    wire = Wire()
    assert wire.send(b"NOP " + b"x" * 16379 + b"\n").frames() == []
    assert wire.send(b"x" * 16383).frames() == []
    assert not wire.peer.closing
    assert wire.send(b"x").frames() == []
    assert wire.peer.closing


# IDENTIFY


def test_identify_answers_in_the_original_order_if_it_is_asked_to() -> None:
    assert Wire().send(b"IDENTIFY\n" + body(b'{"client_id":"a"}')).replies() == [b"OK"]
    assert Wire().send(b"IDENTIFY\n" + body(b"null")).replies() == [b"OK"]
    asked = b'{"Feature_Negotiation":true,"MSG_TIMEOUT":2000,"unknown":[1],"output_buffer_size":-1,"tls_v1":true}'
    (answer,) = Wire().send(b"IDENTIFY\n" + body(asked)).replies()
    assert answer == (
        b'{"max_rdy_count":2500,"version":"1.3.0","max_msg_timeout":900000,"msg_timeout":2000,"tls_v1":false,'
        b'"deflate":false,"deflate_level":6,"max_deflate_level":6,"snappy":false,"sample_rate":0,'
        b'"auth_required":false,"output_buffer_size":1,"output_buffer_timeout":0}'
    )


def test_the_first_identify_says_the_name_and_how_messages_are_delivered() -> None:
    wire = Wire()
    assert (wire.peer.introduction.identity.client_id, wire.peer.introduction.identity.hostname) == (
        "10.0.0.1",
        "10.0.0.1",
    )
    wire.send(b"IDENTIFY\n" + body(b'{"hostname":"h"}'))
    assert (wire.peer.introduction.identity.client_id, wire.peer.introduction.identity.hostname) == ("", "h")
    wire = Wire()
    for timeout in (1000, 5000):
        wire.send(b"IDENTIFY\n" + body(b'{"msg_timeout":%d}' % timeout))
    wire.send(b"SUB t c\nRDY 1\nPUB t\n" + body(b"x"))
    wire.frames()
    assert wire.advance(1020).messages()[0][0] == 2  # timed out after the first one's second


def test_a_sub_is_refused_without_heartbeats_beyond_the_consumers_of_a_channel_and_on_a_shared_port() -> None:
    wire = Wire()
    wire.send(b"IDENTIFY\n" + body(b'{"heartbeat_interval":-1}'))
    assert wire.send(b"SUB t c\n").replies()[-1] == b"E_INVALID cannot SUB with heartbeats disabled"
    node, settings = Node(), Settings(max_channel_consumers=1)
    assert Wire(node, settings).send(b"SUB t c\n").replies() == [b"OK"]
    refused = Wire(node, settings).send(b"SUB t c\n").replies()
    assert refused == [b"E_SUB_FAILED SUB failed consumers for t:c exceeds limit of 1"]
    wire = Wire(settings=Settings(publish_only=True))
    assert wire.send(b"PUB t\n" + body(b"x") + b"SUB t c\n").replies() == [
        b"OK",
        b"E_SUB_FAILED SUB failed several nsqd share this port for producers: "
        b"find each of them by nsqlookupd or its own address",
    ]
    assert wire.peer.closing
    assert "c" not in wire.node.broker.topics["t"].channels


# publishing and consuming


def test_carriage_returns_extra_words_and_commands_in_a_row() -> None:
    wire = Wire()
    data = b"PUB t\r\n" + body(b"1") + b"PUB t extra words\n" + body(b"2") + mpub(b"t", b"3", b"44") + b"NOP\r\n"
    frames = wire.send(data + b"SUB t c extra\nRDY\n").frames()
    assert [data for kind, data in frames if kind == RESPONSE] == [b"OK"] * 4
    assert [data[26:] for kind, data in frames if kind == MESSAGE] == [b"1"]
    assert wire.peer.consumer.ready == 1


def test_a_delay_of_dpub_wraps_and_that_of_req_is_clamped() -> None:
    wire = subscriber(1)
    wire.send(b"DPUB t 50\n" + body(b"x") + b"DPUB t 18446744073709551617\n" + body(b"wrapped"))
    assert wire.replies() == [b"OK", b"OK"]
    (message,) = wire.advance(30).messages()
    assert message[2] == b"wrapped"
    wire = subscriber(1)
    (message,) = wire.send(b"PUB t\n" + body(b"x")).messages()
    wire.send(b"REQ %s 99999999999\n" % message[1])
    assert wire.replies() == []
    assert wire.node.channel("t", "c").deferred_count == 1
    wire.node.advance(3_600_000 * 1_000_000 + 20_000_000)
    assert wire.messages()[0][0] == 2


def test_cls_drains_and_a_deleted_channel_closes_its_connections() -> None:
    wire = subscriber(2)
    first, second = wire.send(mpub(b"t", b"1", b"2", b"3")).messages()
    assert wire.send(b"CLS\n").replies() == [b"CLOSE_WAIT"]
    assert wire.send(b"RDY 5\n").frames() == []
    assert wire.send(b"FIN %s\n" % first[1] + b"REQ %s 0\n" % second[1]).frames() == []
    assert not wire.peer.closing
    assert wire.node.channel("t", "c").depth == 2
    wire, other = subscriber(1), subscriber(1)
    wire.node.broker.topic("t").delete_channel("c")
    assert wire.peer.closing
    other.peer.disconnected()
    assert other.node.channel("t", "c").consumers == {}
    other.node.broker.check()


# output buffering and heartbeats


def test_a_full_window_rdy_0_a_full_buffer_and_a_heartbeat_flush() -> None:
    node = Node()
    wire = subscriber(2, node)
    node.publish("t", b"x")
    assert wire.frames() == []
    node.publish("t", b"y")
    assert [m[2] for m in wire.messages()] == [b"x", b"y"]
    wire.send(b"RDY 10\n")
    node.publish("t", b"z")
    assert wire.frames() == []
    assert [m[2] for m in wire.send(b"RDY 0\n").messages()] == [b"z"]
    node = Node()
    wire = subscriber(100, node, {"output_buffer_size": 64})
    node.publish("t", b"x" * 10)
    assert wire.frames() == []
    node.publish("t", b"y" * 20)
    assert len(wire.messages()) == 2
    node = Node()
    wire = subscriber(100, node, {"output_buffer_timeout": -1, "heartbeat_interval": 1000})
    node.publish("t", b"x")
    assert wire.advance(900).frames() == []
    assert [kind for kind, _ in wire.advance(150).frames()] == [MESSAGE, RESPONSE]


def test_heartbeats_and_silence() -> None:
    wire, lazy, off = Wire(), Wire(), Wire()
    for one, interval in ((wire, 1000), (lazy, 1000), (off, -1)):
        assert one.send(b"IDENTIFY\n" + body(b'{"heartbeat_interval":%d}' % interval)).replies() == [b"OK"]
    assert wire.advance(999).replies() == []
    assert wire.advance(2).replies() == [b"_heartbeat_"]
    wire.send(b"NOP\n")
    assert wire.advance(1990).replies() == [b"_heartbeat_"]
    assert not wire.peer.closing
    assert wire.advance(20).peer.closing
    assert lazy.advance(1003).replies() == [b"_heartbeat_"]  # the reactor comes late, as it may
    assert not lazy.peer.closing
    assert lazy.advance(1000).replies() == [b"_heartbeat_"], "a second one before it is given up"
    assert lazy.peer.closing
    off.node.advance(3600 * 1_000_000_000)
    assert off.advance(1).replies() == []
    assert not off.peer.closing


def test_a_client_that_does_not_read_is_given_no_more_and_wants_no_timer() -> None:
    node = Node()
    wire = subscriber(2500, node)
    wire.pending = 1 << 20
    node.publish("t", *[b"x" * 1000] * 2000)
    assert node.channel("t", "c").in_flight_count == 0
    wire.pending = 0
    wire.peer.network_ready()
    node.turn()
    assert 0 < node.channel("t", "c").in_flight_count < 1000  # 256 KiB at once
    wire = Wire()
    wire.pending = 1
    wire.node.advance(3600 * 1_000_000_000)
    wire.peer.tick(wire.node.now)
    assert wire.peer.closing
    assert wire.peer.next_timer() > wire.node.now + 3600 * 1_000_000_000


def test_after_a_quiet_time_a_lone_message_is_sent_at_once() -> None:
    """The original's ticker keeps a tick that found nothing to send for the next message."""
    wire = Wire()
    wire.send(b"SUB t c\nRDY 10\n")
    topic = wire.node.broker.topic("t")
    wire.frames()
    topic.publish([b"first"], 5)
    wire.node.turn()
    wire.advance(249)
    assert wire.messages() == []
    wire.advance(1)
    assert len(wire.messages()) == 1
    topic.publish([b"soon after"], 10)
    wire.node.turn()
    assert wire.messages() == []
    wire.advance(250)
    assert len(wire.messages()) == 1
    wire.advance(1000)
    topic.publish([b"after a rest"], 12)
    wire.node.turn()
    assert len(wire.messages()) == 1


@each("again", [False, True])
def test_a_client_that_an_operator_disconnects_gives_back_what_it_has(again: bool) -> None:
    node = Node(Limits(requeue_on_disconnect=again))
    wire, other = subscriber(2, node), subscriber(0, node)
    node.publish("t", b"1", b"2", b"3")
    (_, first, _), _ = wire.messages()
    wire.send(b"FIN %s\n" % first)
    channel = node.channel("t", "c")
    assert (channel.in_flight_count, channel.depth) == (2, 0)
    assert wire.peer.disconnect() == 2
    assert wire.peer.closing
    assert (channel.in_flight_count, channel.depth, channel.requeue_count) == (0, 2, 2)
    assert list(channel.consumers.values()) == [other.peer.consumer]
    assert wire.frames()[-1] == (ERROR, b"E_INVALID disconnected by an operator")
    assert wire.peer.disconnect() == 0
    wire.peer.disconnected()
    other.send(b"RDY 2\n")
    assert [(attempts, text) for attempts, _, text in other.messages()] == [(2, b"2"), (2, b"3")]
    node.broker.check()


# the log about a client


def test_the_log_has_the_beginning_the_errors_and_the_end() -> None:
    wire = Wire()
    wire.send(b"SUB t c\nFIN 0123456789abcdef\nNIX\n")
    failed = [text for fact, text in wire.facts if fact is Fact.FAILED]
    assert failed == ["E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight", "E_INVALID invalid command NIX"]
    assert wire.node.broker.client_errors == {("nsq", "E_FIN_FAILED"): 1, ("nsq", "E_INVALID"): 1}
    assert wire.peer.errors == 2
    cut_off, endless, silent = Wire().send(b"PUB t\n\0\0\0\x09abc"), Wire().send(b"x" * 20000), Wire().send(b"NOP\n")
    cut_off.peer.receive_eof()
    assert cut_off.facts[-1] == (Fact.FAILED, "E_BAD_MESSAGE PUB failed to read message body")
    assert endless.facts[-1][1].startswith("failed to read command - ")
    assert silent.advance(60_001).facts[-1] == (Fact.FAILED, "failed to read command - i/o timeout")
    wire = Wire()
    wire.send(b"IDENTIFY\n" + body(b'{"client_id":"me","user_agent":"go-nsq/1.1.0"}'))
    wire.peer.disconnected()
    wire.peer.disconnected()
    text = "{ClientID:me Hostname: HeartbeatInterval:30000 UserAgent:go-nsq/1.1.0}"
    assert wire.facts == [(Fact.JOINED, ""), (Fact.IDENTIFIED, text), (Fact.LEFT, "")]
