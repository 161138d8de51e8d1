"""Connect to one nsqlookupd: identify, register, and ping, over a connection that is opened when it is needed.

As in the original, each dial, write and answer may take one second. After a failure the connection is closed and tried again
with the next ping or notification. The answers are bounded: a length is checked before its bytes are kept, an exchange has a
deadline however slowly its answer arrives, and a server that sends more than that is disconnected.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import trio

from penstock.protocol import ProtocolError
from penstock.protocol.framing import LengthPrefixed
from penstock.protocol.lookup import MAGIC_V1, identify, is_error, is_refusal, ping, register, registered
from shared.log import log
from shared.process.listen import ListenError, parse_address
from shared.tls.client import ClientCertificates, advised
from shared.tls.stream import HandshakeError, TlsStream

TIMEOUT = 1.0  # s for each step
MAX_REPLY = 16 * 1024  # bytes; the longest honest answer, to IDENTIFY, has some 200
CHUNK = 64 * 1024  # bytes for one receive
# Commands in one round trip. Their answers (some 100 bytes each at most) fit the sockets' buffers. Otherwise both sides would
# wait for each other, because no answer is read before all commands are sent.
BATCH = 500
MAX_HOST = 255  # characters
MAX_ERROR = 200  # bytes of a refusal in the log


class LinkError(Exception):
    """The nsqlookupd cannot be reached, or does not answer as an nsqlookupd."""


class LookupdLink:
    """The connection to one nsqlookupd. Only one task uses it."""

    def __init__(self, address: str, identity: dict[str, object], tls: ClientCertificates | None = None) -> None:
        """`tls`: the authorities to trust; None: the connection and the HTTP API are in clear text."""
        self.address = address
        self.http_url = ""  # of the nsqlookupd's HTTP API, without a path, from the response to IDENTIFY
        self._tls = tls
        self._identity = identity
        self._stream: trio.abc.Stream | None = None
        self._replies = LengthPrefixed(MAX_REPLY)

    @property
    def connected(self) -> bool:
        """Return True if the last exchange went well."""
        return self._stream is not None

    async def connect(self, registrations: Callable[[], Sequence[tuple[str, str | None]]]) -> None:
        """Dial, identify, and register everything that exists by then. Raises LinkError."""
        self._replies = LengthPrefixed(MAX_REPLY)
        try:
            with trio.fail_after(TIMEOUT):
                self._stream = await _dial(self.address, self._tls)
        except ListenError as error:  # the address is not valid; the exception's text is about listening
            raise LinkError(f"dial: {error.why}") from None
        except HandshakeError as error:
            raise LinkError(explained(f"TLS: {error}")) from None
        except (OSError, trio.TooSlowError, ValueError) as error:
            raise LinkError(f"dial: {str(error) or 'timed out'}") from None
        answers = await self._exchange(MAGIC_V1 + identify(self._identity), 1)
        self.http_url = _http_url(answers[0], self.address, self._tls is not None)
        await self.send([register(topic, channel) for topic, channel in registrations()])

    async def send(self, commands: Sequence[bytes], is_new: bool = True) -> None:
        """Send commands, and read their answers; log refused names, unless they were sent before. Raises LinkError."""
        refused: list[bytes] = []
        for start in range(0, len(commands), BATCH):
            part = commands[start : start + BATCH]
            refused += filter(is_refusal, await self._exchange(b"".join(part), len(part)))
        if refused and is_new:
            first = refused[0][:MAX_ERROR]
            log.warning("LOOKUPD(%s): it rejected %d topics and channels: %r", self.address, len(refused), first)

    async def ping(self) -> tuple[int, int] | None:
        """Ping. Return the numbers of topics and channels of this node that it has, None if unknown. Raises LinkError."""
        return registered((await self._exchange(ping(), 1))[0])

    async def close(self) -> None:
        """Close the connection at once, if there is one."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await trio.aclose_forcefully(stream)

    async def _exchange(self, data: bytes, replies: int) -> list[bytes]:
        stream = self._stream
        if stream is None:
            raise LinkError("not connected")
        try:
            with trio.fail_after(TIMEOUT):
                await stream.send_all(data)
                answers: list[bytes] = []
                while len(answers) < replies:
                    received = await stream.receive_some(CHUNK)
                    if not received:
                        raise LinkError("connection closed")
                    decoded = self._replies.receive(bytes(received))
                    _check(decoded)
                    answers += decoded
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, ProtocolError) as error:
            raise LinkError(explained(str(error) or "timed out")) from None
        if len(answers) > replies:
            raise LinkError("it sent more than one response")
        return answers


def _check(answers: Sequence[bytes]) -> None:
    """Raise LinkError for a refusal that ends the connection, because the responses after it never come."""
    for answer in answers:
        if is_error(answer):
            raise LinkError(answer[:MAX_ERROR].decode("latin-1"))


def explained(reason: str) -> str:
    """Return the reason of a failure, with advice if it is about TLS."""
    return advised(reason, "-lookupd-tls-root-ca-file", "-lookupd-tls-cert")


async def _dial(address: str, tls: ClientCertificates | None) -> trio.abc.Stream:
    """Connect, also over TLS if that is wanted. Raises OSError, ListenError, HandshakeError, ValueError."""
    parsed = parse_address(address)
    stream: trio.abc.Stream
    if parsed.path:
        stream = await trio.open_unix_socket(parsed.path)
    else:
        stream = await trio.open_tcp_stream(parsed.host or "127.0.0.1", parsed.port)
    if tls is None:
        return stream
    name = "localhost" if parsed.path else parsed.host or "127.0.0.1"  # which its certificate must have
    encrypted = TlsStream(stream, partial(tls.context.wrap_bio, server_hostname=name))
    try:
        await encrypted.do_handshake()
    except BaseException:
        await trio.aclose_forcefully(encrypted)
        raise
    return encrypted


def _http_url(answer: bytes, address: str, is_secure: bool) -> str:
    """Return the URL of the HTTP API from the answer to IDENTIFY; "" if there is none that can be used."""
    key = "https_port" if is_secure else "http_port"
    try:
        identity: dict[str, Any] = json.loads(answer)
        host, port = str(identity["broadcast_address"]), int(identity.get(key, 0))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        log.warning("LOOKUPD(%s): invalid response to IDENTIFY: %r", address, answer[:200])
        return ""
    if is_secure and port <= 0:
        log.warning(
            "LOOKUPD(%s): it has no HTTPS port, so it is not asked for channels: give it -https-address", address
        )
    if not 0 < len(host) <= MAX_HOST or not 0 < port < 65536:
        return ""
    return f"{'https' if is_secure else 'http'}://" + (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
