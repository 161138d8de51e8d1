"""TLS, snappy and deflate on a real socket: every combination, and clients that do each of them wrong."""

import gc
import json
import logging
import socket
import ssl
import struct
import tracemalloc
import weakref
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from nsqd.core.limits import Limits
from nsqd.net.connection import DRAIN_TIME, Connection
from nsqd.net.layers import READ_LIMIT
from nsqd.protocols.nsq.authorization import PUBLISH, Authorization, AuthRefused, Rule
from nsqd.protocols.nsq.peer import Peer
from nsqd.protocols.nsq.settings import Settings
from shared.foreign import Foreign
from tests.certificates import Authority
from tests.nsqd.core.node import SECOND, Node
from tests.nsqd.core.slow_store import SlowStore
from tests.nsqd.net.bench import nothing_is_left, reset, send_part
from tests.nsqd.net.secure import Client, Secure, finish_with
from tests.nsqd.protocols.nsq.wire import body, mpub

pytestmark = pytest.mark.process

CODECS = ("", "snappy", "deflate")
KINDS = [(tls, codec) for tls in (False, True) for codec in CODECS]
every_kind = pytest.mark.parametrize(("tls", "codec"), KINDS)
with_and_without_tls = pytest.mark.parametrize("tls", [False, True])
both_codecs = pytest.mark.parametrize(("tls", "codec"), [(False, "snappy"), (True, "deflate")])
every_codec = pytest.mark.parametrize("codec", CODECS)
BROKEN = b"\x17\x03\x03\x00\x20" + b"\x00" * 32  # a record
PUB = b"PUB t\n" + body(b"x")
CUT = b"PUB t\n\0\0"
TORN = [b"OK", b"E_BAD_MESSAGE PUB failed to read message body size"]  # the answers to PUB and CUT


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(Path(tmp_path_factory.mktemp("tls")))


@pytest.fixture
def bench(authority: Authority) -> Secure:
    return Secure(authority)


@every_kind
def test_publish_and_consume(bench: Secure, tls: bool, codec: str) -> None:
    client = bench.client(tls, codec)
    assert [client.agreed[name] for name in ("tls_v1", *CODECS[1:])] == [tls, codec == "snappy", codec == "deflate"]
    bodies = [b"%d" % i * 50 for i in range(2000)]
    client.say(mpub(b"t", *bodies) + b"PUB t\n" + body(b"last"))
    assert client.frames() == [b"OK", b"OK"]
    client.say(b"SUB t c\nRDY 2500\n")
    bench.turn(10)
    bench.advance(SECOND)
    ok, *messages = client.frames()
    assert ok == b"OK", "output keeps its order"
    assert [frame[26:] for frame in messages] == [*bodies, b"last"]
    client.say(b"".join(b"FIN %s\n" % frame[10:26] for frame in messages))
    assert bench.node.held() == 0
    assert nothing_is_left(bench) is False
    client.socket.close()
    bench.turn()
    assert nothing_is_left(bench)


@every_kind
def test_input_one_byte_at_a_time(bench: Secure, tls: bool, codec: str) -> None:
    client = bench.client(tls, codec)
    for byte in client.encode(PUB + b"NOP\n" + mpub(b"t", b"y", b"z")):
        client.socket.send(bytes((byte,)))
        bench.turn(1)
    assert (client.frames(), bench.published()) == ([b"OK", b"OK"], 3)


@every_kind
def test_an_error_reaches_the_client_and_the_layers_say_goodbye(bench: Secure, tls: bool, codec: str) -> None:
    client = bench.client(tls, codec)
    client.say(PUB + b"BAD\nPUB t\n" + body(b"x"))
    assert client.frames() == [b"OK", b"E_INVALID invalid command BAD"]
    assert client.ended
    if client.tls is not None:
        assert client.tls.read(1) == b""  # a close_notify came, not just the end of TCP
    bench.advance(DRAIN_TIME)
    assert nothing_is_left(bench)


@every_kind
def test_the_last_command_before_a_half_close_is_answered(bench: Secure, tls: bool, codec: str) -> None:
    client = bench.client(tls, codec)
    client.socket.send(client.encode(PUB + CUT))
    client.socket.shutdown(socket.SHUT_WR)
    bench.turn()
    assert client.frames() == TORN
    assert nothing_is_left(bench)


@every_codec
def test_close_notify_ends_the_input_like_eof(bench: Secure, codec: str) -> None:
    client = bench.client(True, codec)
    client.say_raw(client.encode(PUB + CUT) + client.goodbye())
    assert client.frames() == TORN
    assert nothing_is_left(bench)


@with_and_without_tls
def test_the_end_of_a_deflate_stream_is_no_offence(bench: Secure, tls: bool) -> None:
    """gnsq ends its stream when it closes."""
    client = bench.client(tls, "deflate")
    stream = zlib.compressobj(6, zlib.DEFLATED, -15)
    client.say_raw(client.encipher(stream.compress(PUB) + stream.flush(zlib.Z_FINISH)))
    assert (client.frames(), bench.edge.refused) == ([b"OK"], {})
    client.socket.close()
    bench.drain_all()
    assert nothing_is_left(bench)


@pytest.mark.parametrize(("garbage", "why"), [
    (b"\x00" * 50, ""), (PUB, ""), (b"\x16\x03\x01\xff\xff" + b"\x01" * 70_000, ""), (b"\xff" * 300_000, ""),
    (b"GET / HTTP/1.1\r\n\r\n", f"TLS handshake failed: the peer sent {Foreign.HTTP}: http request"),
    (b"put 0 0 9 1\r\nx\r\n", f"TLS handshake failed: the peer sent {Foreign.JOB}: wrong version number"),
    (b"nonsense", "TLS handshake failed: wrong version number"),
], ids=["zeros", "plaintext", "huge record", "flood", "HTTP", "a job", "nonsense"])  # fmt: skip
def test_what_is_no_handshake_is_closed_and_logged(
    bench: Secure, caplog: pytest.LogCaptureFixture, garbage: bytes, why: str
) -> None:
    caplog.set_level(logging.INFO)
    client = bench.asking()
    client.socket.setblocking(True)
    client.socket.settimeout(5)
    client.socket.sendall(garbage)
    client.socket.setblocking(False)
    bench.turn()
    said = client.read_network()
    assert said == b"" or said[0] == 21  # an alert, or nothing
    assert client.ended
    (line,) = [one for one in caplog.messages if one.startswith("CLIENT(")]
    assert line.endswith(f"): {why}" if why else "")
    assert bench.edge.refused == {"tls_or_compression": 1}
    bench.advance(DRAIN_TIME)
    assert nothing_is_left(bench)
    assert bench.node.broker.topics == {}


@pytest.mark.parametrize("codec", ["snappy", "deflate"])
def test_what_comes_through_tls_ahead_of_the_compression_is_not_believed(bench: Secure, codec: str) -> None:
    client = bench.asking(codec)
    client.begin_tls(bench.authority.client())
    finish_with(client, lambda: client.encipher(PUB))
    assert client.frame() == b"OK"
    client.begin_codec(codec)
    assert client.frames() == [b"OK"]
    client.say(b"PUB u\n" + body(b"x"))
    assert (client.frames(), list(bench.node.broker.topics)) == ([b"OK"], ["u"])


@every_kind
def test_who_says_goodbye_before_it_is_authorized_is_answered(authority: Authority, tls: bool, codec: str) -> None:
    bench = Secure(authority, settings=Settings(tls=True, auth_required=True))
    client = bench.client(tls, codec)
    data = client.encode(b"AUTH\n" + body(b"secret") + PUB + b"NOP\n")
    client.socket.sendall(data + (client.goodbye() if tls else b""))
    client.socket.shutdown(socket.SHUT_WR)
    bench.turn()
    assert client.frames() == []
    ((request, answered),) = bench.asked
    assert (request.secret, request.tls, request.remote_ip) == (b"secret", tls, "127.0.0.1")
    answered(Authorization("", "", bench.node.now + SECOND, (Rule(".*", (".*",), frozenset({PUBLISH})),)))
    bench.turn()
    assert client.frames() == [b'{"identity":"","identity_url":"","permission_count":1}', b"OK"]
    assert nothing_is_left(bench)


@pytest.mark.parametrize("late", [True, False])
def test_who_is_gone_before_the_authorization_server_answers_leaves_nothing(authority: Authority, late: bool) -> None:
    bench = Secure(authority, settings=Settings(auth_required=True))
    client = bench.client()
    client.say(b"AUTH\n" + body(b"secret") + PUB)
    reset(client.socket)
    ((_, answered),) = bench.asked
    if late:
        bench.turn()
        assert nothing_is_left(bench)
    answered(AuthRefused("no"))
    bench.turn()
    assert nothing_is_left(bench)
    assert bench.node.broker.topics == {}


@pytest.mark.parametrize("codec", ["", "snappy"])
@pytest.mark.parametrize("policy", ["", "require", "require-verify"])
@pytest.mark.parametrize("end", ["none shown", "good", "broken at once", "broken later", "goodbye"])
def test_the_end_of_a_handshake_whether_clients_must_show_a_certificate_or_not(
    authority: Authority, caplog: pytest.LogCaptureFixture, policy: str, codec: str, end: str
) -> None:
    """The library behind "require" is another one: it has to say the same in the same places."""
    caplog.set_level(logging.INFO)
    bench = Secure(authority, policy=policy)
    client = bench.asking(codec)
    client.begin_tls(authority.client(None if end == "none shown" else authority.issue("me")))
    finish_with(client, lambda: BROKEN if end == "broken at once" else b"")
    connection = bench.connection
    if end == "broken at once" or (end == "none shown" and policy):
        assert bench.edge.refused == {"tls_or_compression": 1}
        assert connection.peer.closing
        (line,) = [one for one in caplog.messages if one.startswith("CLIENT(")]
        assert line.startswith(f"CLIENT({connection.peer.remote_ip}:{connection.peer.port}): TLS")
        assert end != "none shown" or line.endswith(": TLS handshake failed: peer did not return a certificate")
    else:
        assert (connection.peer.introduction.tls.common_name, client.frame()) == ("me" if policy else "", b"OK")
        if codec:
            client.begin_codec(codec)
            assert client.frames() == [b"OK"]
        client.say(PUB)
        assert client.frames() == [b"OK"]
    if end == "broken later":
        client.say_raw(BROKEN)
        assert bench.edge.refused == {"tls_or_compression": 1}
    elif end == "goodbye":
        client.say_raw(client.goodbye())
        assert nothing_is_left(bench)
    client.socket.close()
    bench.drain_all()
    assert nothing_is_left(bench)


CORRUPT = [
    ("snappy", b"\xff\x06\x00\x00sNaPpX"), ("snappy", b"\x01\x08\x00\x00" + b"\0" * 8),
    ("snappy", b"\xff\x06\x00\x00sNaPpY\x01\x08\x00\x00" + b"\0" * 8),
    ("snappy", b"\xff\x06\x00\x00sNaPpY\x00\xff\xff\xff"), ("snappy", b"\xff\x06\x00\x00sNaPpY\x02\x01\x00\x00x"),
    ("deflate", b"\x07\x00\x00"), ("deflate", PUB),
]  # fmt: skip


@with_and_without_tls
@pytest.mark.parametrize(("codec", "stream"), CORRUPT)
def test_a_corrupt_stream_is_closed_without_a_word(bench: Secure, tls: bool, codec: str, stream: bytes) -> None:
    client = bench.client(tls, codec)
    client.say_raw(client.encipher(stream))
    assert client.frames() == []
    assert client.ended
    assert bench.edge.refused == {"tls_or_compression": 1}
    bench.advance(DRAIN_TIME)
    assert nothing_is_left(bench)


@every_codec
def test_a_corrupt_record_is_closed_with_an_alert_at_most(bench: Secure, codec: str) -> None:
    client = bench.client(True, codec)
    record = bytearray(client.encode(PUB))
    record[-1] ^= 1
    client.say_raw(bytes(record))
    with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
        client.read()
    assert bench.edge.refused == {"tls_or_compression": 1}
    bench.advance(DRAIN_TIME)
    assert nothing_is_left(bench)


def test_broken_records_while_output_waits_for_the_network(bench: Secure) -> None:
    """It is closing and cannot be drained yet: no heartbeat may be written to a broken TLS connection meanwhile."""
    client = bench.client(True, heartbeat_interval=1000)
    connection = bench.connection
    bench.advance(SECOND // 2)
    connection.socket = Clogged(connection.socket)
    client.say(PUB)
    client.say_raw(BROKEN)
    assert connection.peer.closing
    assert connection.backlog
    bench.advance(SECOND // 2)  # a heartbeat would be due
    assert len(bench.reactor.connections) == 1
    bench.advance(SECOND // 2)
    assert nothing_is_left(bench)  # the write deadline: one heartbeat interval


class Clogged:
    """A socket that can send nothing."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.recv, self.fileno, self.close = sock.recv, sock.fileno, sock.close

    def send(self, data: bytes) -> int:
        raise BlockingIOError


@cache
def deflate_bomb() -> bytes:
    stream = zlib.compressobj(6, zlib.DEFLATED, -15)
    return b"".join(stream.compress(bytes(1 << 20)) for _ in range(64)) + stream.flush(zlib.Z_SYNC_FLUSH)


@with_and_without_tls
def test_a_deflate_bomb_ends_at_the_longest_line(bench: Secure, tls: bool) -> None:
    client = bench.client(tls, "deflate")
    bomb = client.encipher(deflate_bomb())
    tracemalloc.start()
    client.say_raw(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * READ_LIMIT + len(bomb)
    assert client.frames() == []
    bench.advance(DRAIN_TIME)
    assert nothing_is_left(bench)


@both_codecs
def test_compressed_input_is_handled_in_slices(bench: Secure, tls: bool, codec: str) -> None:
    nops = (b"NOP " + b"x" * 1019 + b"\n") * 4096
    client, other = bench.client(tls, codec), bench.client()
    said = client.encode(nops + b"PUB last\n" + body(b"x"))
    client.socket.setblocking(True)
    client.socket.sendall(said)
    turns = served = 0
    while "last" not in bench.node.broker.topics:
        other.socket.send(PUB)
        bench.turn(1)
        turns += 1
        served += len(other.frames())
    assert turns >= len(nops) // (READ_LIMIT + 65536)
    assert served >= turns - 1


@both_codecs
def test_compressed_input_is_not_read_ahead_of_what_the_peer_has_taken(bench: Secure, tls: bool, codec: str) -> None:
    """Else a client that compresses well fills our memory: it sends quicker than we may look at it."""
    client = bench.client(tls, codec)
    filler = b"".join(b"%016x" % (i * 0x9E3779B97F4A7C15 % 2**64) + b"x" * 100 for i in range(150_000))
    data = client.encode(b"".join(b"NOP " + filler[i : i + 10_000] + b"\n" for i in range(0, len(filler), 10_000)))
    assert 4 * READ_LIMIT < len(data) < len(filler) // 4
    connection = bench.connection
    codec_object = connection.layers._codec
    for _ in range(60):
        data = send_part(client.socket, data)
        bench.turn(1)
        assert len(codec_object._input) <= 2 * READ_LIMIT


@every_kind
def test_a_consumer_that_does_not_read_does_not_stop_another(bench: Secure, tls: bool, codec: str) -> None:
    stuck = bench.client(tls, codec)
    stuck.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    noise = b"".join(struct.pack(">I", zlib.crc32(b"%d" % i)) for i in range(2500))
    bench.node.broker.topic("t").publish([noise] * 3000, 3000 * len(noise))
    stuck.say(b"SUB t c\nRDY 2500\n")
    bench.turn(40)
    healthy = bench.client(tls, codec)
    healthy.say(b"SUB t c\nRDY 100\n")
    bench.turn(20)
    got = len(healthy.frames())
    bench.turn(10)
    assert got + len(healthy.frames()) == 101
    (first, _) = bench.reactor.connections.values()
    assert first.backlog <= 400_000


@every_kind
def test_sealed_output_leaves_in_order_through_the_right_layers(authority: Authority, tls: bool, codec: str) -> None:
    bench = Secure(authority, Node(store=SlowStore))
    store, client = bench.node.store, Client(bench, bench.connect())
    client.ask(tls, codec, first=PUB)
    assert client.read_network() == b""  # the publish is not durable, and nothing overtakes its OK

    def durable() -> None:
        store.sync()
        bench.turn()

    durable()
    assert (client.frame(), json.loads(client.frame())["tls_v1"]) == (b"OK", tls)
    if tls:
        client.shake_hands(authority.client())
        assert client.frame() == b"OK"
    if codec:
        client.begin_codec(codec)
        assert client.frames() == [b"OK"]
    client.say(b"PUB t\n" + body(b"y"))
    client.say(b"BAD\n")
    assert client.frames() == []
    durable()
    assert client.frames() == [b"OK", b"E_INVALID invalid command BAD"]
    bench.drain_all()
    assert nothing_is_left(bench)


@pytest.fixture(scope="module")
def no_older_objects() -> Iterator[None]:
    """Hide all objects there are from gc.get_objects, which else returns a million of other tests."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("no_older_objects")
@pytest.mark.parametrize("end", ["client closes", "error", "reset", "corrupt", "daemon stops"])
@pytest.mark.parametrize(("tls", "codec"), [(True, ""), (False, "snappy"), (True, "deflate")])
def test_a_connection_is_freed_without_the_collector(authority: Authority, tls: bool, codec: str, end: str) -> None:
    bench = Secure(authority, Node(Limits(requeue_on_disconnect=True)))
    gc.collect()
    gc.disable()  # the daemon never collects old garbage: reference counts must do
    try:
        client = bench.client(tls, codec)
        client.say(PUB + b"SUB t c\nRDY 5\n")
        socket_object = weakref.ref(bench.connection.socket)
        if end == "client closes":
            client.socket.close()
        elif end == "error":
            client.say(b"BAD\n")
        elif end == "reset":
            reset(client.socket)
        elif end == "corrupt":
            client.say_raw(client.encipher(b"\xff" * 100) if codec else b"\xff" * 100)
        bench.drain_all()
        if end == "daemon stops":
            bench.close()
        assert end == "daemon stops" or nothing_is_left(bench)
        assert socket_object() is None
        assert [o for o in gc.get_objects() if isinstance(o, Connection | Peer) and belongs(o, bench)] == []
    finally:
        gc.enable()


def belongs(thing: Connection | Peer, bench: Secure) -> bool:
    return (thing._owner if isinstance(thing, Connection) else thing._context.broker) in (
        bench.reactor,
        bench.node.broker,
    )
