"""Every port of real daemons, and clients of every other protocol: they are dropped, and a log line names the protocol.

A row of the table is a port. What it does not name as `own` or `answered` is dropped: the connection closes, nothing is
executed, and one line says what came. An own client's mistake gets the answer of the original.

See docs/contributing/design/security.md.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import httpx
import msgpack
import pytest

from nsqd.cluster.wire.frames import FrameKind, encode
from shared.foreign import Foreign
from tests.admin.conftest import nsqadmin
from tests.certificates import Authority
from tests.daemons import Conversation, Daemon, nsqd, sized
from tests.processes.test_beanstalkd import beanstalk
from tests.processes.test_cluster_tls import certificates, tls

pytestmark = pytest.mark.process

COMMANDS = b"use smuggled\r\nput 0 0 9 1\r\nx\r\nADDJOB smuggled x 0\r\nPUB smuggled\n" + sized(b"x")  # in a body
HOST = b"Host: evil.example\r\n"


def client_hello() -> bytes:
    """The first bytes of a client of TLS."""
    context, outgoing = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


SENT: dict[str, bytes] = {
    "GET": b"GET /stats HTTP/1.1\r\n" + HOST + b"\r\n",
    "POST": b"POST /pub?topic=smuggled HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (HOST, len(COMMANDS), COMMANDS),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + COMMANDS,
    "RESP": b"*1\r\n$4\r\nPING\r\n*4\r\n$6\r\nADDJOB\r\n$8\r\nsmuggled\r\n$1\r\nx\r\n$1\r\n0\r\n" + COMMANDS,
    "PING": b"PING\r\n",
    "V2": b"  V2SUB smuggled c\nPUB smuggled\n" + sized(b"x"),
    "V1": b"  V1IDENTIFY\n" + sized(b"{}"),
    "put": b"put 0 0 9 28\r\nADDJOB smuggled from-a-job 0\r\n",
    "stats": b"stats\r\n",
    "TLS": client_hello(),
    "cluster": encode(FrameKind.HELLO, msgpack.packb([1, 1, "penstock", [], bytes(32)])),
    "noise": bytes(range(0xC0, 0x100)) + b"\r\n",
}
NAMES = {
    "GET": Foreign.HTTP,
    "POST": Foreign.HTTP,
    "HTTP/2": Foreign.HTTP2,
    "RESP": Foreign.RESP,
    "PING": Foreign.PING,
    "V2": Foreign.NSQ,
    "V1": Foreign.LOOKUPD,
    "put": Foreign.JOB,
    "stats": Foreign.BEANSTALK,
    "TLS": Foreign.TLS,
    "cluster": Foreign.CLUSTER,
}


@dataclass(frozen=True)
class Port:
    """The behavior of a port."""

    daemon: str
    own: tuple[str, ...] = ()  # what its own clients send: no matter here
    answered: dict[str, bytes] = field(default_factory=dict)  # own clients' mistakes, and how the answer begins
    last_words: bytes = b""  # the response to a dropped client, or its beginning
    line: str = ", which sent {}"  # the log's, with what came
    tls_line: str = ""  # the same for TLS; "": it is no other
    unknown: str = "bytes of no known protocol"  # the same for noise; "": no line


BAD_PROTOCOL = sized(b"\0\0\0\1E_BAD_PROTOCOL")
UNKNOWN, TWO_REPLIES = b"UNKNOWN_COMMAND\r\n", b"-ERR unknown command '"
BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\n"
HTTP = {"own": ("GET", "POST"), "last_words": BAD_REQUEST, "unknown": ""}
IN_TLS = {"line": "handshake failed: the peer sent {}", "unknown": "handshake failed: ", "own": ("TLS",)}
TABLE: dict[str, Port] = {
    "nsqd TCP": Port("nsqd", own=("V2",), last_words=BAD_PROTOCOL),
    "nsqd TCP after IDENTIFY": Port("nsqd", **IN_TLS),  # type: ignore[arg-type]
    "nsqd HTTP": Port("nsqd", **HTTP),  # type: ignore[arg-type]
    "nsqd HTTPS": Port("nsqd", own=("TLS",), unknown="HTTPS: handshake with 127.0.0.1 failed: "),
    "beanstalkd": Port("jobs", own=("put", "stats"), answered={"PING": UNKNOWN, "noise": UNKNOWN}),
    "beanstalkd TLS": Port("jobs", **IN_TLS),  # type: ignore[arg-type]
    "Disque": Port("jobs", own=("RESP", "PING"), answered={"stats": TWO_REPLIES + b"stats'", "noise": TWO_REPLIES}),
    "cluster": Port(
        "nsqd",
        own=("cluster",),
        line=": the peer sent {}",
        tls_line="the peer uses TLS, and this node does not",
        unknown="is not allowed here",
    ),
    "cluster TLS": Port("jobs", **IN_TLS),  # type: ignore[arg-type]
    "nsqlookupd TCP": Port("nsqlookupd", own=("V1",), last_words=sized(b"E_BAD_PROTOCOL"), line=": it sent {}"),
    "nsqlookupd HTTP": Port("nsqlookupd", **HTTP),  # type: ignore[arg-type]
    "nsqadmin HTTP": Port("nsqadmin", **HTTP),  # type: ignore[arg-type]
}


@dataclass(frozen=True)
class Running:
    """A whole set of daemons. Two nsqds share the ports, because the log writes 20 such lines in 10 s."""

    daemons: dict[str, Daemon]
    ports: dict[str, tuple[str, int]]

    def topics(self) -> list[str]:
        """All topics of all nodes."""
        found = [httpx.get(f"http://{self.daemons[name].http}/stats?format=json").json() for name in ("nsqd", "jobs")]
        return [topic["topic_name"] for one in found for topic in one["topics"]]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("cross")
    authority, own = Authority(path / "tls"), certificates(path / "nodes", 2)
    (path / "secret").write_text("the secret of this cluster")
    cluster = ("-cluster-address", "127.0.0.1:0", "-cluster-secret-file", str(path / "secret"))
    cluster = (*cluster, *authority.flags(), "-https-address", "127.0.0.1:0")
    between = [word for name, value in tls(own, 1).items() for word in (f"-{name.replace('_', '-')}", value)]
    jobs = ("-beanstalk-address", "-beanstalk-tls-address", "-disque-address")
    with ExitStack() as stack:
        enter = stack.enter_context
        lookupd = enter(Daemon("nsqlookupd"))
        node = enter(nsqd(path / "0", *cluster, "-node-id", "0", listens=("TCP", "HTTP", "HTTPS", "CLUSTER")))
        flags = [word for flag in jobs for word in (flag, "127.0.0.1:0")]
        other = enter(
            nsqd(path / "1", *cluster, *between, *flags, "-node-id", "1", listens=("HTTP", "DISQUE", "CLUSTER"))
        )
        admin = enter(nsqadmin("-nsqd-http-address", node.http))
        daemons = {"nsqd": node, "jobs": other, "nsqlookupd": lookupd, "nsqadmin": admin}
        ports = {
            **{f"nsqd {name}": _address(node, name) for name in ("TCP", "HTTP", "HTTPS")},
            "nsqd TCP after IDENTIFY": _address(node, "TCP"),
            "beanstalkd": beanstalk(other),
            "beanstalkd TLS": beanstalk(other, "BEANSTALK TLS"),
            "Disque": _address(other, "DISQUE"),
            "cluster": _address(node, "CLUSTER"),
            "cluster TLS": _address(other, "CLUSTER"),
            **{f"nsqlookupd {name}": _address(lookupd, name) for name in ("TCP", "HTTP")},
            "nsqadmin HTTP": _address(admin, "HTTP"),
        }
        yield Running(daemons, ports)


def _address(daemon: Daemon, name: str) -> tuple[str, int]:
    host, _, port = daemon.addresses[name].rpartition(":")
    return host, int(port)


def connected(running: Running, port: str) -> socket.socket:
    """A connection to the port, at the point at which its clients begin to speak."""
    if port != "nsqd TCP after IDENTIFY":
        return socket.create_connection(running.ports[port], timeout=30)
    talk = Conversation(
        running.daemons["nsqd"], b"  V2IDENTIFY\n" + sized(b'{"feature_negotiation":true,"tls_v1":true}')
    )
    frame = talk.frame()
    assert frame is not None
    assert json.loads(frame[1])["tls_v1"]
    return talk.socket


def all_of(sock: socket.socket) -> bytes:
    """Return the output until the daemon closes: in an orderly way, or by a reset."""
    said = b""
    try:
        while data := sock.recv(65536):
            said += data
    except ConnectionResetError:
        pass
    return said


@pytest.mark.parametrize("port", TABLE)
def test_what_is_foreign_is_dropped_and_named(running: Running, port: str) -> None:
    row = TABLE[port]
    daemon = running.daemons[row.daemon]
    for name, data in SENT.items():
        if name in row.own:
            continue
        with connected(running, port) as sock:
            own_port = sock.getsockname()[1]
            sock.sendall(data)
            if name in row.answered:
                assert sock.recv(65536).startswith(row.answered[name]), name
                continue
            said = all_of(sock)
        assert said.startswith(row.last_words), (name, said)
        found = NAMES.get(name)
        line = row.line.format(found) if found is not None else row.unknown
        if name == "TLS" and row.tls_line:
            line = row.tls_line
        if line:
            # HTTPS does not name the port, and the cluster logs each reason once a minute
            who = "" if port == "cluster" else "HTTPS: " if port == "nsqd HTTPS" else f"127.0.0.1:{own_port}"
            daemon.wait_until(lambda: any(line in one and who in one for one in daemon.lines), 30)  # noqa: B023
    assert "smuggled" not in running.topics()


def test_each_port_still_serves_its_own_clients(running: Running) -> None:
    with Conversation(running.daemons["nsqd"], b"  V2PUB own\n" + sized(b"x")) as talk:
        assert talk.frame() == (0, b"OK")
    for port, sent, answer in (
        ("beanstalkd", b"put 0 0 9 1\r\nx\r\n", b"INSERTED "),
        ("Disque", SENT["RESP"][:14], b"+PONG\r\n"),
        ("Disque", SENT["PING"], b"+PONG\r\n"),
        ("nsqd HTTP", b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
        ("nsqadmin HTTP", b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
        ("nsqlookupd HTTP", b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
    ):
        with socket.create_connection(running.ports[port], timeout=30) as sock:
            sock.sendall(sent)
            assert sock.recv(65536).startswith(answer), port
    assert set(running.topics()) == {"own", "default"}
