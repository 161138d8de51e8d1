"""The beginning of a conversation with nsqd, up to where PUB and SUB are welcome (specs/nsq.md a7, a8, a11).

Sans-IO. IDENTIFY; then, as far as they are asked for and granted, TLS and a compression, each of which the server
confirms with an OK through the new layer; then AUTH if the server wants it. Without a secret that is left out: the
server answers the first command with E_AUTH_FIRST.

Law: a byte behind an answer belongs to the layer that the answer brings, so nothing sent in clear ahead of TLS is
ever taken for something that came through it.

Chosen differences from go-nsq: TLS that the server does not grant is an error there is no going on from, where go-nsq
goes on in clear; a compression that is not granted is told to the log.
"""

import json
import logging
from collections.abc import Callable, Generator

from penstock.client.layers import Compression, Layer, Layers
from penstock.client.settings import Settings
from penstock.protocol import ProtocolError, nsq
from penstock.protocol.compression import Deflate, Snappy

log = logging.getLogger("penstock.client")

MAX_ANSWER = 1 << 20  # bytes; the longest is what an auth server calls the client's identity

Conversation = Generator[bytes, bytes, dict[str, object]]


class Refused(Exception):
    """The server does without something that we may not do without."""


class Introduction:
    """One connection's. It is over when `features` is there."""

    def __init__(self, settings: Settings, layers: Layers, make_tls: Callable[[], Layer]) -> None:
        self.features: dict[str, object] | None = None  # what IDENTIFY answered
        self.rest = b""  # decoded, and not taken yet; what is left at the end are the owner's frames
        self._settings = settings
        self._layers = layers
        self._make_tls = make_tls
        self._talk = self._converse()

    def begin(self) -> bytes:
        """The first words, to be sent."""
        return nsq.MAGIC_V2 + next(self._talk)

    def receive(self, data: bytes) -> tuple[list[nsq.Frame], bytes]:
        """Take what the layers have made plain. Returns the frames that are no answer, an error most likely, and what
        to send, encoded. Raises ProtocolError and Refused, and what the layers raise."""
        self.rest += data
        frames: list[nsq.Frame] = []
        output = self._layers.encode(b"")
        while self.features is None and (frame := self._next_frame()) is not None:
            if not isinstance(frame, nsq.Response):
                frames.append(frame)
            elif frame.data == nsq.HEARTBEAT:
                output += self._layers.encode(nsq.nop())
            else:
                output += self._take(frame.data)
        return frames, output

    def _next_frame(self) -> nsq.Frame | None:
        """One frame off the rest, and not a byte of what follows it."""
        if len(self.rest) < 4:
            return None
        stop = 4 + int.from_bytes(self.rest[:4])
        if len(self.rest) < stop <= 4 + MAX_ANSWER:
            return None
        frames = nsq.FrameDecoder(MAX_ANSWER).receive(self.rest[:stop])  # judges the length
        self.rest = self.rest[stop:]
        return frames[0]

    def _take(self, answer: bytes) -> bytes:
        try:
            return self._layers.encode(self._talk.send(answer))
        except StopIteration as end:
            self.features = end.value
            return b""

    def _converse(self) -> Conversation:
        """Yields what to say, and is sent the answers."""
        settings = self._settings
        features = _parse_features((yield nsq.identify(settings.identify())))
        if settings.tls_v1:
            if features.get("tls_v1") is not True:
                raise Refused("the server does not do TLS, and tls_v1 is set")
            yield from self._upgrade(self._make_tls())
        if settings.snappy and self._is_granted("snappy", features):
            yield from self._upgrade(Compression(Snappy()))
        if settings.deflate and self._is_granted("deflate", features):
            yield from self._upgrade(Compression(Deflate(settings.deflate_level)))
        if features.get("auth_required") is True and settings.auth_secret:
            yield nsq.auth(settings.auth_secret.encode())
        return features

    def _is_granted(self, compression: str, features: dict[str, object]) -> bool:
        granted = features.get(compression) is True
        if not granted:
            log.warning("the server does not do %s; going on without", compression)
        return granted

    def _upgrade(self, layer: Layer) -> Generator[bytes, bytes, None]:
        self._layers.push(layer)
        self.rest = layer.decode(self.rest)
        answer = yield b""  # unasked, the new layer says what it has to
        if answer != nsq.OK:
            raise ProtocolError(f"an upgrade was answered {answer[:60]!r}")


def _parse_features(data: bytes) -> dict[str, object]:
    if data == nsq.OK:
        return {}  # a server without feature negotiation
    try:
        features = json.loads(data)
    except (ValueError, RecursionError):  # the second for [[[[...
        features = None
    if not isinstance(features, dict):
        raise ProtocolError(f"IDENTIFY answered {data[:60]!r}")
    return features
