"""The conversation with one nsqd, from IDENTIFY on: received bytes in, frames out, and bytes to be sent.

A session answers heartbeats itself and does not pass them on. Every failure of the peer is a ConnectionLost whose text names
the address. The owner of the socket then sends the rest of `take_output` (a TLS alert) and closes.
"""

import ssl

from penstock.protocol import ProtocolError, nsq
from penstock.protocol.compression import CorruptStream
from penstock.sansio.address import server_name
from penstock.sansio.errors import ConnectionLost
from penstock.sansio.introduction import Introduction, MissingFeature
from penstock.sansio.layers import Layers, Tls
from penstock.sansio.settings import Settings
from penstock.sansio.tls import reason

MAX_FRAME_SIZE = 64 << 20  # bytes; no sane max-msg-size is above it, and memory is used only as bytes arrive


class Session:
    """One connection to an nsqd, which is identified as soon as `features` is set.

    `address`: host:port or the path of a unix socket. `tls`: `client_context(settings)`, made once for many sessions.
    """

    __slots__ = ("_decoder", "_introduction", "_layers", "_output", "_tls", "address", "features")

    def __init__(self, address: str, settings: Settings, tls: ssl.SSLContext | None = None) -> None:
        """Begin; the first bytes wait in the output."""
        self.address = address
        self.features: dict[str, object] | None = None  # the answer to IDENTIFY; None until all upgrades are made
        self._tls = tls
        self._layers = Layers()
        self._introduction: Introduction | None = Introduction(settings, self._layers, self._make_tls)
        self._decoder = nsq.FrameDecoder(MAX_FRAME_SIZE)
        self._output = [self._introduction.begin()]

    def send(self, data: bytes) -> None:
        """Add plain bytes to the output. `features` must be set before the first call. Raises ConnectionLost."""
        try:
            self._output.append(self._layers.encode(data))
        except ssl.SSLError as error:  # the connection is closed already; late answers end here
            raise self.lost(reason(error)) from error

    def receive(self, data: bytes) -> list[nsq.Frame]:
        """Return the frames that `data` completes, without heartbeats and the answers to IDENTIFY and AUTH.

        b"" is the end of the stream. Raises ConnectionLost.
        """
        if not data:
            raise self.lost("the server closed the connection")
        try:
            return self._decode(data)
        except ProtocolError as error:
            raise self.lost(f"not an nsqd: {error}") from error
        except (CorruptStream, MissingFeature) as error:
            raise self.lost(str(error), isinstance(error, MissingFeature)) from error
        except ssl.SSLError as error:
            self._output.append(self._layers.encode(b""))  # the TLS alert, so that the server's log has a reason, too
            raise self.lost(reason(error), isinstance(error, ssl.SSLCertVerificationError)) from error

    def end(self) -> None:
        """Add the closing bytes of the layers to the output: nothing follows."""
        self._output.append(self._layers.end())

    def take_output(self) -> bytes:
        """Return the bytes to send, and forget them."""
        output = self._output
        if not output:
            return b""
        data = output[0] if len(output) == 1 else b"".join(output)
        output.clear()
        return data

    def lost(self, why: str, is_final: bool = False) -> ConnectionLost:
        """Return the error of a connection that is of no more use."""
        return ConnectionLost(f"{self.address}: {why}", is_final=is_final)

    def _decode(self, data: bytes) -> list[nsq.Frame]:
        data = self._layers.decode(data)
        if self._introduction is not None:
            return self._introduce(self._introduction, data)
        frames = self._decoder.receive(data)
        if pending := self._layers.encode(b""):
            self._output.append(pending)
        if any(type(frame) is nsq.Response for frame in frames):  # rare among messages
            return self._answer_beats(frames)
        return frames

    def _introduce(self, introduction: Introduction, data: bytes) -> list[nsq.Frame]:
        frames, output = introduction.receive(data)
        if output:
            self._output.append(output)
        if introduction.features is not None:
            self.features = introduction.features
            self._introduction = None
            frames += self._answer_beats(self._decoder.receive(introduction.rest))
        return frames

    def _answer_beats(self, frames: list[nsq.Frame]) -> list[nsq.Frame]:
        """Answer the heartbeats among `frames` and return the other frames."""
        others = [frame for frame in frames if frame is not nsq.BEAT]
        for _ in range(len(frames) - len(others)):
            self.send(nsq.nop())
        return others

    def _make_tls(self) -> Tls:
        assert self._tls is not None, "settings with tls_v1 come with a context"
        try:
            return Tls(self._tls, server_name(self.address))
        except ValueError as error:
            raise MissingFeature(f"no certificate can have this name: {error}") from None
