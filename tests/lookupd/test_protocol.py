"""nsqlookupd's TCP protocol V1: bytes in, bytes out."""

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lookupd.producers import Limits, PeerInfo
from lookupd.protocol import MAX_BODY, MAX_LINE, Session
from lookupd.registry import Registry
from shared.foreign import Foreign
from shared.process.unix_sockets import NOBODY
from tests.cases import each
from tests.nsqd.protocols.rights.proofs import SIDECAR, Proofs, token

NOW = 1_700_000_000_000_000_000
ANSWER = b'{"broadcast_address":"127.0.0.1"}'
ANSWERED = b"\x00\x00\x00\x21" + ANSWER
OK = b"\x00\x00\x00\x02OK"
NODE = b'{"broadcast_address":"node","hostname":"host","tcp_port":4150,"http_port":4151,"version":"1.3.0"}'
IDENTIFY = b"IDENTIFY\n\x00\x00\x00\x61" + NODE


def a_session() -> tuple[Registry, Session, list[str]]:
    registry = Registry(300, 45)
    notes: list[str] = []
    return registry, Session(registry, "10.0.0.1:5001", ANSWER, notes.append), notes


def framed(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


def identify(body: bytes) -> bytes:
    return b"IDENTIFY\n" + framed(body)


def node_with(**more: object) -> bytes:
    """The body of an IDENTIFY of the node, with these fields."""
    return json.dumps(json.loads(NODE) | more).encode()


def ends_with(sent: bytes, error: bytes) -> None:
    """`sent`, after the magic, is answered with this error last; then nothing is answered."""
    registry, session, _ = a_session()
    replies = session.receive(b"  V1" + sent, NOW)
    assert replies.endswith(framed(error)), replies
    assert session.closing
    assert session.receive(b"PING\n", NOW) == session.end() == b""
    session.disconnected()
    assert registry.registrations() == {}
    registry.check()


LOG_ID = "0123456789abcdef" * 2


@each("sent_fields, kept", [
    *(({"https_port": port}, {"https_port": port}) for port in (4152, 65535)),
    *(({"https_port": one}, {"https_port": 0}) for one in (0, 65536, -1, True, "4152", None, 1.5, [1])),
    ({"node_id": 7, "capabilities": ["log"]}, {"node_id": 7, "capabilities": ("log",)}),
    ({"node_id": 0, "capabilities": []}, {"node_id": 0, "capabilities": ()}),
    *(({"penstock_version": one}, {"penstock_version": kept}) for one, kept in (("0.1.0", "0.1.0"), ("x" * 256, ""), (1, ""))),
    ({"node_id": 1024, "capabilities": "log"}, {"node_id": None, "capabilities": ()}),
    ({"node_id": True, "capabilities": ["log", 7, "a b", "x" * 65, None]}, {"node_id": None, "capabilities": ("log",)}),
    ({"node_id": None, "capabilities": ["log"] * 33}, {"node_id": None, "capabilities": ()}),
    *(({"topology_zone": zone, "topology_region": "r"}, {"topology_zone": kept, "topology_region": "r"})
      for zone, kept in (("z", "z"), (7, ""), (None, ""), ("z" * 256, ""), ("\ud800", "\ufffd"))),
    *(({"node_id": 7, "cluster": "c", "cluster_address": "n:4154", "log_id": log},
       {"node_id": 7, "cluster": "c", "log_id": kept})
      for log, kept in ((LOG_ID, LOG_ID), ("AB" * 16, ""), ("ab" * 15, ""), ("ab" * 16 + "\n", ""), (7, ""))),
    ({"remote_address": "1.2.3.4:5"}, {"remote_address": "10.0.0.1:5001"}),  # the socket says where it is
])  # fmt: skip
def test_extensions_of_identify(sent_fields: dict[str, object], kept: dict[str, object]) -> None:
    registry, session, _ = a_session()
    assert session.info is None
    assert session.receive(b"  V1" + identify(node_with(**sent_fields)) + b"REGISTER t\n", NOW) == ANSWERED + OK
    (info,) = registry.producers("t", NOW) or []
    assert info == session.info
    assert {name: getattr(info, name) for name in kept} == kept
    registry.check()


def test_a_refused_peer_gets_one_error_and_its_input_is_ignored() -> None:
    _, session, _ = a_session()
    assert session.refuse(b"E_TLS_REQUIRED why") == framed(b"E_TLS_REQUIRED why")
    assert session.closing
    assert (session.receive(b"  V1PING\n", 0), session.end(), session.failure) == (b"", b"", "E_TLS_REQUIRED why")


def test_a_producers_life() -> None:
    registry, session, notes = a_session()
    assert session.receive(b"  V1", NOW) == b""
    assert session.receive(IDENTIFY, NOW) == ANSWERED
    assert session.identified
    assert session.receive(b"REGISTER t c\n", NOW) == OK
    assert registry.producers("t", NOW) == [PeerInfo("10.0.0.1:5001", "host", "node", 4150, 4151, "1.3.0")]
    assert session.receive(b"UNREGISTER t c\nUNREGISTER t\n", NOW) == OK + OK
    assert registry.producers("t", NOW) == []
    session.disconnected()
    session.disconnected()
    assert registry.nodes(NOW) == []
    assert session.end() == b""
    assert not session.failure
    assert notes == [
        "IDENTIFY Address:'node' TCP:4150 HTTP:4151 Version:'1.3.0'", "REGISTER topic:t channel:c",
        "UNREGISTER topic:t channel:c", "UNREGISTER topic:t channel:",
    ]  # fmt: skip
    registry.check()


def test_ping_is_answered_before_identify_and_refreshes_after_it() -> None:
    registry, session, _ = a_session()
    assert session.receive(b"  V1PING\n" + IDENTIFY, NOW) == OK + ANSWERED
    assert session.receive(b"PING and more\n", NOW + 301) == OK
    assert len(registry.nodes(NOW + 601)) == 1
    assert registry.nodes(NOW + 602) == []
    registry.check()


def test_a_ping_may_ask_how_much_is_registered() -> None:
    """The original answers OK, as to every PING."""
    registry, session, _ = a_session()
    assert session.receive(b"  V1PING registered\n" + IDENTIFY, NOW) == OK + ANSWERED
    session.receive(b"REGISTER t c\nREGISTER t d\nREGISTER u\n", NOW)
    assert session.receive(b"PING registered\n", NOW) == framed(b"OK 2 2")
    registry.delete_topic("t")
    assert session.receive(b"PING registered\nPING\nPING REGISTERED\n", NOW) == framed(b"OK 1 0") + OK + OK


@each("line", [b"PING\r\n", b" PING \n", b"\tPING\r\r\n"])
def test_lines_are_trimmed(line: bytes) -> None:
    _, session, _ = a_session()
    assert session.receive(b"  V1" + line, NOW) == OK


def test_another_magic_is_refused() -> None:
    for magic, kind in (
        (b"  V2", Foreign.NSQ), (b"GET ", Foreign.HTTP), (b"\x16\x03\x01\x02", Foreign.TLS),
        (b"\0\0\0\0", "bytes of no known protocol"),
    ):  # fmt: skip
        _, session, _ = a_session()
        assert session.receive(magic[:3], NOW) == b""
        assert session.receive(magic[3:] + b"/ HTTP/1.1", NOW) == framed(b"E_BAD_PROTOCOL")
        assert session.closing
        assert session.failure == f"E_BAD_PROTOCOL: it sent {kind}"


def test_wrong_tokens_are_counted_and_hold_up_no_right_one() -> None:
    proofs, right = Proofs("node"), token("node").decode()

    def is_taken(**shown: str) -> bool:
        session = Session(Registry(300, 45), "10.0.0.1:5001", ANSWER, lambda line: None, proofs=proofs)
        answer = session.receive(b"  V1" + identify(node_with(**shown)), NOW)
        assert answer == ANSWERED or answer[4:].startswith(b"E_UNAUTHORIZED ")
        return answer == ANSWERED

    for _ in range(30):
        assert not is_taken()  # shows nothing, so guesses nothing
    assert is_taken(auth_token=right)
    for _ in range(20):
        assert not is_taken(auth_token="pst_" + "w" * 43)
    assert proofs.is_blocked("10.0.0.1")
    assert is_taken(auth_token=right)
    proofs.now += 10
    assert not proofs.is_blocked("10.0.0.1")


@each("sent, error", [
    (b"\n", b"E_INVALID invalid command "), (b"ping\n", b"E_INVALID invalid command ping"),
    (b"LOOKUP x\n", b"E_INVALID invalid command LOOKUP"), (b"REGISTER t\n", b"E_INVALID client must IDENTIFY"),
    (b"UNREGISTER\n", b"E_INVALID client must IDENTIFY"),
    (IDENTIFY + b"IDENTIFY\n", b"E_INVALID cannot IDENTIFY again"),
    (IDENTIFY + b"REGISTER \n", b"E_INVALID REGISTER insufficient number of params"),
    (IDENTIFY + b"UNREGISTER\n", b"E_INVALID UNREGISTER insufficient number of params"),
    (IDENTIFY + b"REGISTER  c\n", b"E_BAD_TOPIC REGISTER topic name '' is not valid"),
    (IDENTIFY + b"REGISTER t! c!\n", b"E_BAD_TOPIC REGISTER topic name 't!' is not valid"),
    (IDENTIFY + b"REGISTER \xff\xfe\n", b"E_BAD_TOPIC REGISTER topic name '\xff\xfe' is not valid"),
    (IDENTIFY + b"REGISTER ..\n", b"E_BAD_TOPIC REGISTER topic name '..' is not valid"),
    (IDENTIFY + b"UNREGISTER t c!\n", b"E_BAD_CHANNEL UNREGISTER channel name 'c!' is not valid"),
    (b"X" * MAX_LINE, b"E_INVALID line too long"),
])  # fmt: skip
def test_every_error_is_the_last_word(sent: bytes, error: bytes) -> None:
    ends_with(sent, error)


MISSING = b"E_BAD_BODY IDENTIFY missing fields"
MALFORMED = b"E_BAD_BODY IDENTIFY failed to decode JSON body"


@each("body, error", [
    *((node_with(**change), MISSING)
      for change in ({"broadcast_address": ""}, {"version": None}, {"tcp_port": 0}, {"http_port": 0})),
    *((node_with(**change), MALFORMED) for change in (
        {"tcp_port": "4150"}, {"tcp_port": 4150.0}, {"tcp_port": True}, {"http_port": 2**63}, {"hostname": 5},
        {"remote_address": 5})),
    *((node_with(**{name: "x" * 256}), b"E_BAD_BODY IDENTIFY field longer than 255 characters")
      for name in ("hostname", "broadcast_address", "version")),  # what would be kept is bounded
    *((body, MALFORMED) for body in (
        b"", b"{", b"[]", b"[" * MAX_BODY, b'{"a":NaN}', b'{"tcp_port":' + b"9" * 5000 + b"}", b"\xef\xbb\xbf{}",
        NODE + b"x")),
    (b"null", MISSING), (b"{}", MISSING),
])  # fmt: skip
def test_identify_checks_each_field_and_survives_any_body(body: bytes, error: bytes) -> None:
    ends_with(identify(body), error)


@each("size", [b"\x00\x01\x00\x01", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00"])
def test_an_impossible_body_size_is_refused_before_the_body(size: bytes) -> None:
    ends_with(b"IDENTIFY\n" + size, b"E_BAD_BODY IDENTIFY failed to read body")


def test_identify_reads_json_as_go_does() -> None:
    registry, session, _ = a_session()
    body = b'{"Broadcast_Address":"\\ud800\xff","hostname":null,"TCP_PORT":-1,"http_port":2,"version":"v","more":[1.5]}'
    assert session.receive(b"  V1" + identify(body), NOW) == ANSWERED
    (node,) = registry.nodes(NOW)
    assert node.info == PeerInfo("10.0.0.1:5001", "", "\ufffd\ufffd", -1, 2, "v")


def test_a_peers_text_writes_no_line_of_its_own_into_the_log() -> None:
    _, session, notes = a_session()
    session.receive(b"  V1" + identify(node_with(version="1\nFATAL: x")) + b"\xff\x1b[0m\r\n", NOW)
    assert notes == ["IDENTIFY Address:'node' TCP:4150 HTTP:4151 Version:'1\\nFATAL: x'"]
    assert session.failure == "E_INVALID invalid command \\ufffd\\x1b[0m"


@each("sent, error", [
    *((sent, b"") for sent in (b"", b"  V", b"  V1PIN")),
    (b"  V1IDENTIFY\n\x00\x00", framed(b"E_BAD_BODY IDENTIFY failed to read body size")),
    (b"  V1IDENTIFY\n\x00\x00\x00\x05abcd", framed(b"E_BAD_BODY IDENTIFY failed to read body")),
])  # fmt: skip
def test_stopping_in_the_middle(sent: bytes, error: bytes) -> None:
    _, session, _ = a_session()
    assert session.receive(sent, NOW) == b""
    assert session.end() == error


LINES = st.sampled_from(
    [
        IDENTIFY, IDENTIFY, b"PING\n", b"REGISTER t c\n", b"REGISTER t\r\n", b"UNREGISTER t c\n", b"UNREGISTER t\n",
        b"REGISTER  t\n", b"REGISTER a!\n", b"\n", b"IDENTIFY\n\xff\xff\xff\xff", b"IDENTIFY\n\x00\x00\x00\x02{}",
        b"REGISTER t" + b" " * MAX_LINE + b"\n", b"X" * (MAX_LINE - 1) + b"\n", b"\x00\x01", b"IDENT",
    ]
)  # fmt: skip


@given(
    st.sampled_from([b"  V1", b"  V1", b"  V1", b"  V2", b""]),
    st.lists(LINES, max_size=8),
    st.lists(st.integers(0, 1500), max_size=30),
)
def test_however_the_input_is_cut_the_output_is_the_same(magic: bytes, lines: list[bytes], cuts: list[int]) -> None:
    sent = magic + b"".join(lines)
    whole_registry, whole, _ = a_session()
    cut_registry, cut, _ = a_session()
    edges = sorted({0, len(sent), *(at for at in cuts if at < len(sent))})
    replies = b"".join(cut.receive(sent[start:end], NOW) for start, end in pairwise(edges))
    assert replies + cut.end() == whole.receive(sent, NOW) + whole.end()
    assert (cut.closing, cut.identified, cut.failure) == (whole.closing, whole.identified, whole.failure)
    assert cut_registry.registrations() == whole_registry.registrations()
    cut_registry.check()


@given(st.binary(max_size=200))
def test_no_bytes_whatever_are_a_bug(noise: bytes) -> None:
    registry, session, _ = a_session()
    session.receive(b"  V1" + IDENTIFY + noise, NOW)
    session.end()
    session.disconnected()
    registry.check()


def test_a_registration_beyond_the_limit_is_refused_and_the_others_stay() -> None:
    registry = Registry(300, 45, Limits(per_producer=2))
    session = Session(registry, "10.0.0.1:5001", ANSWER, lambda text: None)
    refused = framed(b"E_REGISTER_FAILED REGISTER failed a producer carries 2 topics and channels at most")
    sent = b"REGISTER t c\nREGISTER u\nREGISTER t\nUNREGISTER t c\nREGISTER u\n"
    assert session.receive(b"  V1" + IDENTIFY + sent, NOW) == ANSWERED + OK + refused + OK + OK + OK
    assert not session.closing
    assert registry.topics() == ["t", "u"]


def test_a_producer_without_a_slot_gets_an_error_and_is_closed() -> None:
    registry = Registry(300, 45, Limits(producers=1))
    registry.ping(registry.identify(PeerInfo("10.0.0.2:1", "", "b", 1, 1, "v"), NOW), NOW)
    session = Session(registry, "10.0.0.1:5001", ANSWER, lambda text: None)
    refused = framed(b"E_IDENTIFY_FAILED IDENTIFY failed 1 producers are connected")
    assert session.receive(b"  V1" + IDENTIFY + b"REGISTER t\n", NOW) == refused
    assert session.closing
    assert not session.identified
    registry.check()


def test_commands_that_register_nothing_are_counted() -> None:
    session = Session(Registry(300, 45, Limits(per_producer=3)), "10.0.0.1:5001", ANSWER, lambda text: None)
    session.receive(b"  V1PING\n" + IDENTIFY + b"REGISTER t c\nREGISTER u\n", NOW)
    assert (session.fetch_idle(), session.fetch_idle()) == (1, 0)
    session.receive(b"REGISTER t c\nREGISTER v\nUNREGISTER u\nUNREGISTER u\nREGISTER v\n", NOW)
    assert session.fetch_idle() == 4


def with_a_user() -> Proofs:
    """An auth file with a token that may register everything, and a user of a unix socket who may register the topic t."""
    proofs = Proofs("node")
    proofs.file.sockets = Proofs.parsed("""
[[role]]
name = "t"
rules = [{ verbs = ["register"], topics = ["t"] }]
[[socket]]
name = "sidecar"
uid = 990
roles = ["t"]
""").sockets
    return proofs


REFUSED = framed(b"E_UNAUTHORIZED IDENTIFY needs the auth_token of a user who may register")
NOT_ALLOWED = framed(b"E_REGISTER_FAILED REGISTER failed UNAUTHORIZED")


@each("user, secret, said", [
    (SIDECAR, None, ANSWERED + OK + NOT_ALLOWED), (SIDECAR + 1, None, REFUSED), (NOBODY, None, REFUSED),
    (SIDECAR, token("node"), ANSWERED + OK + OK),  # a token counts instead of the user
    (SIDECAR, b"wrong", REFUSED), (NOBODY, token("node"), ANSWERED + OK + OK),
])  # fmt: skip
def test_a_peer_on_a_unix_socket_is_known_by_its_user(user: int, secret: bytes | None, said: bytes) -> None:
    session = Session(Registry(300, 45), "@1", ANSWER, lambda text: None, proofs=with_a_user(), user=user)
    shown = {"auth_token": secret.decode()} if secret is not None else {}
    assert session.receive(b"  V1" + identify(node_with(**shown)) + b"REGISTER t\nREGISTER u\n", NOW) == said


def test_a_peer_whose_user_is_not_known_any_more_is_hung_up_on() -> None:
    proofs, ended = with_a_user(), []
    session = Session(Registry(300, 45), "@1", ANSWER, lambda text: None, lambda: ended.append(1), proofs, SIDECAR)
    session.receive(b"  V1" + IDENTIFY, NOW)
    session.rights_changed()
    assert ended == []
    proofs.set("node", has_socket=False)
    session.rights_changed()
    assert ended == [1]
