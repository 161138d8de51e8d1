"""nsqlookupd's TCP protocol V1: one connection's bytes in, replies out.

Pure: no socket, clock or log. `receive(data, now)` takes bytes cut anywhere and returns the replies to send. The work is
linear in the bytes, however they are cut. A reply is an int32 length and text, without NSQ's frame type. Every error of the
original is fatal: its reply is the last one, and `closing` becomes True. E_REGISTER_FAILED, which the original lacks, is not
fatal: the producer keeps what it has registered. (nsqlookupd/lookup_protocol_v1.go)

See docs/contributing/design/nsqlookupd.md#tcp-protocol.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol

from lookupd.producers import UNIX, Full, Peer, PeerInfo, host_of
from lookupd.registry import Registry
from penstock.protocol.names import is_valid_name
from shared.auth.verbs import Verb
from shared.foreign import describe
from shared.process.unix_sockets import NOBODY
from shared.text import without_surrogates

if TYPE_CHECKING:  # without an auth file, what reads one is not loaded
    from shared.auth.auth_file import Identity

MAGIC = b"  V1"
MAX_LINE = 1024  # bytes, including the newline; the longest honest line, UNREGISTER with two names, has 142
MAX_BODY = 64 * 1024  # bytes of IDENTIFY's JSON; honest ones have about 150. The original accepts any int32.
MAX_TEXT = 255  # characters of a text in IDENTIFY's JSON, because texts are kept; a host name has at most 253

_INT32 = Struct(">i")
MOST_CAPABILITIES, MOST_CAPABILITY = 32, 64  # the number of capabilities, and the characters of each
MOST_NODE_ID = 1023
_LOG_ID = re.compile(r"[0-9a-f]{32}")
_IDENTITY_FIELDS: dict[str, type] = {
    "remote_address": str,  # checked like the others, then overwritten
    "hostname": str,
    "broadcast_address": str,
    "tcp_port": int,
    "http_port": int,
    "version": str,
}


class ClientError(Exception):
    """The peer made an error. The arguments are the reply to send, and further text for the log."""


class Session:
    """The protocol's state of one connection."""

    __slots__ = (
        "_answer", "_buffer", "_expect", "_hang_up", "_identity", "_idle", "_note", "_peer", "_proofs", "_registry",
        "_remote", "_scanned", "_size", "_token", "_user", "failure",
    )  # fmt: skip

    def __init__(
        self,
        registry: Registry,
        remote_address: str,
        answer: bytes,
        note: Callable[[str], None],
        hang_up: Callable[[], None] = lambda: None,
        proofs: Proofs | None = None,
        user: int = NOBODY,
    ) -> None:
        """`proofs`: the auth file; None: every peer has all rights. `user`: the number of the user at a unix socket."""
        self._registry = registry
        self._remote = remote_address
        self._answer = answer  # the reply to IDENTIFY: identifies this nsqlookupd
        self._note = note  # called with a line for the log on every change of the registry
        self._hang_up = hang_up  # ends the connection, soon
        self._proofs = proofs
        self._token = b""  # of IDENTIFY
        self._user = user
        self._identity: Identity | None = None  # of the peer, in the auth file
        self._peer: Peer | None = None  # set by IDENTIFY, once
        self._buffer = bytearray()  # received, not yet parsed; at most one chunk more than the awaited item
        self._scanned = 0  # bytes at the buffer's start that hold no newline
        self._size = 0  # bytes of the awaited body
        self._expect: Callable[[int], bytes | None] = self._magic  # takes one item off the buffer; None: incomplete
        self._idle = 0  # commands that registered nothing, since `fetch_idle`
        self.failure = ""  # the error of the peer that ended the conversation, or ""

    # Commands

    def receive(self, data: bytes, now: int) -> bytes:
        """Take bytes and return replies. After an error, further bytes are ignored."""
        if self.closing:
            return b""
        self._buffer += data
        replies = []
        try:
            while (reply := self._expect(now)) is not None:
                if reply:
                    replies.append(_framed(reply))
        except ClientError as error:
            replies.append(self._fail(error))
        return b"".join(replies)

    def refuse(self, reply: bytes) -> bytes:
        """End the conversation with an error before the first command. Returns the reply to send."""
        return self._fail(ClientError(reply))

    def end(self) -> bytes:
        """Note that the peer sends no more. Returns the error reply if it stopped in the middle of a body, otherwise b""."""
        if not self.closing and self._expect == self._body_size:
            return self._fail(ClientError(b"E_BAD_BODY IDENTIFY failed to read body size"))
        if not self.closing and self._expect == self._body:
            return self._fail(ClientError(b"E_BAD_BODY IDENTIFY failed to read body"))
        return b""

    def rights_changed(self) -> None:
        """Identify the peer again, and end the connection if its rights have changed: the auth file has."""
        if self._proofs is None or self._identity is None:
            return
        before, self._identity = self._identity, self._find_identity(self._proofs)
        if self._identity is None or self._identity.rights != before.rights:
            self._hang_up()  # it connects again, and registers what it may

    def fetch_idle(self) -> int:
        """Return the number of commands since the last call that registered nothing. An honest nsqd sends few of them."""
        idle, self._idle = self._idle, 0
        return idle

    def disconnected(self) -> None:
        """Remove the registrations of the connection, which is closed. May be called twice."""
        if self._peer is not None:
            self._registry.disconnect(self._peer)
            self._peer = None

    # Queries

    @property
    def closing(self) -> bool:
        """True after an error: the caller sends what was returned, then closes."""
        return bool(self.failure)

    @property
    def identified(self) -> bool:
        """True once the peer has sent a valid IDENTIFY."""
        return self._peer is not None

    @property
    def info(self) -> PeerInfo | None:
        """The identity of the peer; None before IDENTIFY."""
        return self._peer.info if self._peer is not None else None

    # Parsers of the next item: each takes its item off the buffer and returns the reply, b"" for no reply

    def _magic(self, now: int) -> bytes | None:
        if len(self._buffer) < len(MAGIC):
            return None
        if not self._buffer.startswith(MAGIC):
            raise ClientError(b"E_BAD_PROTOCOL", f": it sent {describe(bytes(self._buffer))}")
        self._consume(len(MAGIC))
        self._expect = self._line
        return b""

    def _line(self, now: int) -> bytes | None:
        end = self._buffer.find(b"\n", self._scanned, MAX_LINE)
        if end < 0:
            if len(self._buffer) >= MAX_LINE:
                raise ClientError(b"E_INVALID line too long")
            self._scanned = len(self._buffer)
            return None
        self._scanned = 0
        command, *params = self._consume(end + 1).strip().split(b" ")
        return self._execute(command, params, now)

    def _body_size(self, now: int) -> bytes | None:
        if len(self._buffer) < _INT32.size:
            return None
        (self._size,) = _INT32.unpack(self._consume(_INT32.size))
        # Checked before any byte of the body is kept; a negative size crashes the original.
        if not 0 <= self._size <= MAX_BODY:
            raise ClientError(b"E_BAD_BODY IDENTIFY failed to read body")
        self._expect = self._body
        return b""

    def _body(self, now: int) -> bytes | None:
        if len(self._buffer) < self._size:
            return None
        self._expect = self._line
        return self._identify(self._consume(self._size), now)

    # Commands of the protocol

    def _execute(self, command: bytes, params: list[bytes], now: int) -> bytes:
        if command == b"PING":
            return self._ping(params, now)
        if command == b"IDENTIFY":
            if self._peer is not None:
                raise ClientError(b"E_INVALID cannot IDENTIFY again")
            self._expect = self._body_size
            return b""
        if command == b"REGISTER":
            return self._register(params)
        if command == b"UNREGISTER":
            return self._unregister(params)
        raise ClientError(b"E_INVALID invalid command " + command)

    def _ping(self, params: list[bytes], now: int) -> bytes:
        """Answer OK, with the numbers of topics and channels that the peer has registered if it asks for `registered`."""
        self._idle += 1
        if self._peer is None:
            return b"OK"
        self._registry.ping(self._peer, now)
        if params[:1] != [b"registered"]:
            return b"OK"
        return b"OK %d %d" % (len(self._peer.topics), len(self._peer.channels))

    def _identify(self, body: bytes, now: int) -> bytes:
        info = parse_identity(body, self._remote)
        if self._proofs is not None:
            self._token = _token_of(body)
            self._identity = self._find_identity(self._proofs)
            if self._identity is None and self._token:
                host = host_of(self._remote)
                self._proofs.note_failure("" if host == UNIX else host)
            if self._identity is None or not self._identity.rights.any_of(Verb.REGISTER):
                raise ClientError(b"E_UNAUTHORIZED IDENTIFY needs the auth_token of a user who may register")
            if not self._identity.rights.may(Verb.REPLICATE):
                info = replace(info, node_id=None, cluster="", cluster_address="", log_id="")
        try:
            self._peer = self._registry.identify(info, now, self._hang_up)
        except Full as full:
            raise ClientError(b"E_IDENTIFY_FAILED IDENTIFY failed %b" % str(full).encode()) from None
        # !r: the peer chose these texts, and they must not be able to write lines of their own into the log.
        self._note(
            f"IDENTIFY Address:{info.broadcast_address!r} TCP:{info.tcp_port} HTTP:{info.http_port} "
            f"Version:{info.version!r}"
        )
        return self._answer

    def _find_identity(self, proofs: Proofs) -> Identity | None:
        """Return the identity of the peer: by its token, or without one by its user."""
        return proofs.with_token(self._token) if self._token else proofs.with_uid(self._user)

    def _register(self, params: list[bytes]) -> bytes:
        peer, topic, channel = self._arguments(b"REGISTER", params)
        if self._identity is not None and not self._identity.rights.may(Verb.REGISTER, topic, channel):
            self._idle += 1
            return b"E_REGISTER_FAILED REGISTER failed UNAUTHORIZED"
        try:
            if self._registry.register(peer, topic, channel):
                self._note(f"REGISTER topic:{topic} channel:{channel}")
            else:
                self._idle += 1
        except Full as full:
            self._idle += 1
            return b"E_REGISTER_FAILED REGISTER failed %b" % str(full).encode()
        return b"OK"

    def _unregister(self, params: list[bytes]) -> bytes:
        self._idle += 1
        peer, topic, channel = self._arguments(b"UNREGISTER", params)
        if channel:
            known = self._registry.unregister_channel(peer, topic, channel)
        else:
            known = self._registry.unregister_topic(peer, topic)
        if known:
            self._note(f"UNREGISTER topic:{topic} channel:{channel}")
        return b"OK"

    def _arguments(self, command: bytes, params: list[bytes]) -> tuple[Peer, str, str]:
        """Return the producer, the topic, and the channel or "". Further parameters are ignored. Raises ClientError."""
        if self._peer is None:
            raise ClientError(b"E_INVALID client must IDENTIFY")
        if not params:
            raise ClientError(b"E_INVALID %b insufficient number of params" % command)
        topic, channel = params[0], params[1] if len(params) > 1 else b""
        if not is_valid_name(topic.decode("latin-1")):
            raise ClientError(b"E_BAD_TOPIC %b topic name '%b' is not valid" % (command, topic))
        if channel and not is_valid_name(channel.decode("latin-1")):
            raise ClientError(b"E_BAD_CHANNEL %b channel name '%b' is not valid" % (command, channel))
        return self._peer, topic.decode("ascii"), channel.decode("ascii")

    # Helpers

    def _consume(self, count: int) -> bytes:
        consumed = bytes(self._buffer[:count])
        del self._buffer[:count]  # moves an offset, not the bytes
        return consumed

    def _fail(self, error: ClientError) -> bytes:
        reply: bytes = error.args[0]
        self.failure = ascii(reply.decode("utf-8", "replace"))[1:-1] + "".join(error.args[1:])
        self._buffer.clear()
        return _framed(reply)


def _token_of(body: bytes) -> bytes:
    """Return the token in IDENTIFY's JSON, which was read before; b"": there is none."""
    token = json.loads(body.decode("utf-8", "replace")).get("auth_token")
    return token.encode("utf-8", "replace") if isinstance(token, str) else b""


class Proofs(Protocol):
    """The auth file, as a session needs it (shared/auth/keyring.py)."""

    def with_token(self, secret: bytes) -> Identity | None:
        """Return the identity with this token, or None."""

    def with_uid(self, number: int) -> Identity | None:
        """Return the identity of the machine's user of that number, who connects by a unix socket."""

    def note_failure(self, address: str) -> None:
        """Count a wrong token from an address."""


def parse_identity(body: bytes, remote_address: str) -> PeerInfo:
    """Read IDENTIFY's JSON as Go does: keys in any case, null is absent, unknown keys are ignored. Raises ClientError."""
    try:
        decoded = json.loads(body.decode("utf-8", "replace"), parse_constant=_no_constant)
        fields = _known_fields(decoded)
    except (ValueError, RecursionError):  # malformed, a wrong type, a number beyond int64, or nested too deeply
        raise ClientError(b"E_BAD_BODY IDENTIFY failed to decode JSON body") from None
    fields["remote_address"] = remote_address
    fields.setdefault("hostname", "")
    if not all(fields.get(name) for name in _IDENTITY_FIELDS if name != "hostname"):
        raise ClientError(b"E_BAD_BODY IDENTIFY missing fields")
    if any(isinstance(value, str) and len(value) > MAX_TEXT for value in fields.values()):
        raise ClientError(b"E_BAD_BODY IDENTIFY field longer than %d characters" % MAX_TEXT)
    assert isinstance(decoded, dict)
    return PeerInfo(
        **fields,
        topology_zone=_text(decoded.get("topology_zone")),
        topology_region=_text(decoded.get("topology_region")),
        node_id=_number(decoded.get("node_id"), 0, MOST_NODE_ID),
        cluster=_text(decoded.get("cluster")),
        cluster_address=_text(decoded.get("cluster_address")),
        log_id=_log_id(decoded.get("log_id")),
        https_port=_number(decoded.get("https_port"), 1, 65535) or 0,
        capabilities=_capabilities(decoded.get("capabilities")),
        penstock_version=_text(decoded.get("penstock_version")),
    )


def _text(value: object) -> str:
    """Return a text, or "" if the value is invalid: release 1.3.0 ignores the key, whatever it holds."""
    return without_surrogates(value) if isinstance(value, str) and len(value) <= MAX_TEXT else ""


def _number(value: object, least: int, most: int) -> int | None:
    """Return a node number or a port, or None if the value is invalid."""
    return value if type(value) is int and least <= value <= most else None


def _log_id(value: object) -> str:
    """Return the id of a log, or "" if the value is invalid."""
    return value if isinstance(value, str) and _LOG_ID.fullmatch(value) else ""


def _capabilities(value: object) -> tuple[str, ...]:
    """Return the capabilities, or () if the value is invalid."""
    if not isinstance(value, list) or len(value) > MOST_CAPABILITIES:
        return ()
    return tuple(
        name for name in value if isinstance(name, str) and is_valid_name(name) and len(name) <= MOST_CAPABILITY
    )


def _known_fields(decoded: object) -> dict[str, Any]:
    """Return the fields of PeerInfo that the JSON contains. Raises ValueError for a wrong type."""
    if decoded is None:
        return {}
    if not isinstance(decoded, dict):
        raise ValueError("not an object")
    fields: dict[str, Any] = {}
    for key, value in decoded.items():
        kind = _IDENTITY_FIELDS.get(key.lower())
        if kind is None or value is None:
            continue
        if type(value) is not kind:  # not isinstance, because true is no port
            raise ValueError(key)
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError(key)
        fields[key.lower()] = without_surrogates(value) if isinstance(value, str) else value
    return fields


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _framed(reply: bytes) -> bytes:
    return _INT32.pack(len(reply)) + reply
