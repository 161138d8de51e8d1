"""A reactor with a certificate, and clients of it that speak TLS, snappy and deflate."""

import json
import socket
import ssl
import struct
from collections.abc import Callable

import pytest

from nsqd.net.admission import Admission
from nsqd.net.connection import DRAIN_TIME
from nsqd.protocols.nsq.authorization import Authorization, AuthRefused, AuthRequest
from nsqd.protocols.nsq.settings import Settings
from penstock.protocol.compression import Deflate, Snappy
from shared.tls.certificates import Certificates, TlsFiles
from tests.certificates import Authority
from tests.nsqd.core.node import Node
from tests.nsqd.net.bench import Bench, received, send_part
from tests.nsqd.protocols.nsq.wire import body


class Secure(Bench):
    """A reactor that has a certificate; `policy`: who must show one."""

    patience = 0.002  # the loopback device is quick, and idle turns are many here

    def __init__(
        self, authority: Authority, node: Node | None = None, settings: Settings | None = None, policy: str = ""
    ) -> None:
        self.authority = authority
        self.asked: list[tuple[AuthRequest, Callable[[Authorization | AuthRefused], None]]] = []
        wrap = Certificates(TlsFiles(authority.cert, authority.key, policy, authority.root)).wrap
        super().__init__(node, settings or Settings(tls=True), Admission(wrap=wrap))
        self.context.ask = lambda *asked: self.asked.append(asked)

    def asking(self, codec: str = "") -> "Client":
        """One that has asked for TLS, and for the codec if one is named, and has read the answer."""
        client = Client(self, self.connect())
        client.ask(True, codec)
        client.agreed = json.loads(client.frame())
        assert client.plain == b""
        return client

    def client(self, tls: bool = False, codec: str = "", **asked: object) -> "Client":
        client = Client(self, self.connect())
        client.identify(tls, codec, **asked)
        return client

    def drain_all(self) -> None:
        """The time to drain connections passes."""
        self.turn(12)
        self.advance(DRAIN_TIME)


class Client:
    """The other end: its own layers over a socket that never blocks."""

    def __init__(self, bench: Secure, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.bench, self.socket = bench, sock
        self.tls: ssl.SSLObject | None = None
        self.codec: Snappy | Deflate | None = None
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.plain = b""  # what came through the layers and was not asked for yet
        self.ended = False

    def ask(self, tls: bool = False, codec: str = "", first: bytes = b"", **asked: object) -> None:
        """Say IDENTIFY, behind what is said first."""
        asked |= {"feature_negotiation": True, "tls_v1": tls} | ({codec: True} if codec else {})
        self.say(first + b"IDENTIFY\n" + body(json.dumps(asked).encode()))

    def identify(self, tls: bool = False, codec: str = "", **asked: object) -> None:
        self.ask(tls, codec, **asked)
        self.agreed = json.loads(self.frame())
        if tls:
            self.shake_hands(self.bench.authority.client())
            assert self.frame() == b"OK"
        if codec:
            self.begin_codec(codec)
            assert self.frames() == [b"OK"]
        assert self.plain == b""

    def shake_hands(self, context: ssl.SSLContext) -> None:
        self.begin_tls(context)
        self.do_handshake()
        self.flush()
        self.bench.turn()

    def do_handshake(self) -> None:
        """All but its last flight, which is not sent yet."""
        for _ in range(9):
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.flush()
                self.bench.turn()
                self.read_network()

    def begin_tls(self, context: ssl.SSLContext) -> None:
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def begin_codec(self, codec: str) -> None:
        """The input after the last frame is compressed."""
        self.codec = Snappy() if codec == "snappy" else Deflate()
        self.plain = self.decompress(self.plain)

    def encode(self, data: bytes) -> bytes:
        return self.encipher(data if self.codec is None else self.codec.compress(data))

    def encipher(self, data: bytes) -> bytes:
        if self.tls is None:
            return data
        self.tls.write(data)
        return self.outgoing.read()

    def say(self, data: bytes) -> None:
        self.say_raw(self.encode(data))

    def say_raw(self, data: bytes) -> None:
        """Bytes to the network, with turns until all of them have been taken."""
        while data:
            data = send_part(self.socket, data)
            self.bench.turn(1)
        self.bench.turn()

    def goodbye(self) -> bytes:
        """Return a close_notify."""
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self.outgoing.read()

    def flush(self) -> None:
        if self.outgoing.pending:
            self.socket.sendall(self.outgoing.read())

    def read_network(self) -> bytes:
        """The raw input; that of TLS waits to be deciphered."""
        data, ended = received(self.socket)
        self.ended |= ended
        if self.tls is not None:
            self.incoming.write(data)
        return data

    def read(self) -> bytes:
        data = self.read_network()
        if self.tls is not None:
            data = b""
            try:
                while part := self.tls.read(1 << 16):
                    data += part
            except ssl.SSLWantReadError:
                pass
        return data if self.codec is None else self.decompress(data)

    def decompress(self, data: bytes) -> bytes:
        self.codec.feed(data)
        data = b""
        while self.codec.has_more:
            data += self.codec.read(1 << 20)
        return data

    def frame(self) -> bytes:
        data = self.plain + self.read()
        (size,) = struct.unpack_from(">i", data)
        self.plain = data[4 + size :]
        return data[8 : 4 + size]

    def frames(self) -> list[bytes]:
        data = self.plain + self.read()
        found, at = [], 0
        while at + 4 <= len(data):
            (size,) = struct.unpack_from(">i", data, at)
            if at + 4 + size > len(data):
                break
            found.append(data[at + 8 : at + 4 + size])
            at += 4 + size
        self.plain = data[at:]
        return found


def finish_with(client: Client, more: Callable[[], bytes]) -> None:
    client.do_handshake()
    client.say_raw(client.outgoing.read() + more())
