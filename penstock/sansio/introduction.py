"""The beginning of a conversation with nsqd, until PUB and SUB are legal.

The module is sans-IO. The client sends IDENTIFY; then come TLS and a compression, as far as they are requested and
granted, each of which the server confirms with an OK through the new layer; then AUTH if the server requires it. Without
a secret, AUTH is left out, and the server answers the first command with E_AUTH_FIRST.

The bytes after a response belong to the layer that the response adds, so bytes that were sent in clear before TLS are never
taken for decrypted ones.

Chosen differences from go-nsq: TLS that the server does not grant is a fatal error, where go-nsq continues in clear; a
compression that is not granted is logged.

See docs/contributing/design/nsq-protocol.md#identify.
"""

import json
import logging
from collections.abc import Callable, Generator

from penstock.protocol import ProtocolError, nsq
from penstock.protocol.compression import Deflate, Snappy
from penstock.sansio.layers import Compression, Layer, Layers
from penstock.sansio.settings import Settings

log = logging.getLogger("penstock.client")

MAX_ANSWER = 1 << 20  # bytes; the longest response holds an auth server's description of the client
MOST_BEATS = 100  # heartbeats during an introduction: a server with more of them answers nothing

Conversation = Generator[bytes, bytes, dict[str, object]]


class MissingFeature(Exception):
    """The server does not offer something that the settings require."""


class Introduction:
    """The introduction of one connection. It is over when `features` is set."""

    def __init__(self, settings: Settings, layers: Layers, make_tls: Callable[[], Layer]) -> None:
        self.features: dict[str, object] | None = None  # the answer to IDENTIFY, once all upgrades are made
        self.rest = b""  # decoded and not handled yet; at the end the frames that follow the introduction
        self._settings = settings
        self._layers = layers
        self._make_tls = make_tls
        self._beats = 0
        self._talk = self._converse()

    def begin(self) -> bytes:
        """Return the first bytes to send."""
        return nsq.MAGIC_V2 + next(self._talk)

    def receive(self, data: bytes) -> tuple[list[nsq.Frame], bytes]:
        """Handle bytes that the layers have decoded.

        Return the frames that are not an answer (most likely an error) and the encoded bytes to send. Raises
        ProtocolError, MissingFeature, and the errors of the layers.
        """
        self.rest += data
        frames: list[nsq.Frame] = []
        output = self._layers.encode(b"")
        while self.features is None and (frame := self._next_frame()) is not None:
            if not isinstance(frame, nsq.Response):
                frames.append(frame)
            elif frame.data == nsq.HEARTBEAT:
                self._beats += 1
                if self._beats > MOST_BEATS:
                    raise ProtocolError("heartbeats without an answer")
                output += self._layers.encode(nsq.nop())
            else:
                output += self._handle_answer(frame.data)
        return frames, output

    def _next_frame(self) -> nsq.Frame | None:
        """Take one frame off `rest`, and no byte of what follows it; None if it is not complete."""
        if len(self.rest) < 4:
            return None
        if self.rest.startswith(b"HTTP"):
            raise ProtocolError("it speaks HTTP; its TCP address is another one")
        stop = 4 + int.from_bytes(self.rest[:4])
        if len(self.rest) < stop <= 4 + MAX_ANSWER:
            return None
        frames = nsq.FrameDecoder(MAX_ANSWER).receive(self.rest[:stop])  # it checks the length
        self.rest = self.rest[stop:]
        return frames[0]

    def _handle_answer(self, answer: bytes) -> bytes:
        try:
            return self._layers.encode(self._talk.send(answer))
        except StopIteration as end:
            self.features = end.value
            return b""

    def _converse(self) -> Conversation:
        """Yield the bytes to send next, receive the server's answers, and return the features."""
        settings = self._settings
        features = _parse_features((yield nsq.identify(settings.identify())))
        if settings.tls_v1:
            if features.get("tls_v1") is not True:
                raise MissingFeature("the server does not support TLS, and tls_v1 is set")
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
            log.warning("the server does not support %s; continuing without it", compression)
        return granted

    def _upgrade(self, layer: Layer) -> Generator[bytes, bytes, None]:
        self._layers.push(layer)
        self.rest = layer.decode(self.rest)
        answer = yield b""  # the new layer sends what it has to on its own
        if answer != nsq.OK:
            raise ProtocolError(f"an upgrade was answered {answer[:60]!r}")


def _parse_features(data: bytes) -> dict[str, object]:
    if data == nsq.OK:
        return {}  # a server without feature negotiation
    try:
        features = json.loads(data)
    except (ValueError, RecursionError):  # RecursionError is for [[[[...
        features = None
    if not isinstance(features, dict):
        raise ProtocolError(f"IDENTIFY answered {data[:60]!r}")
    return features
