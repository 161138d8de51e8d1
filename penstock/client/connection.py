"""One connection to an nsqd, from dialing and IDENTIFY on: it sends bytes and receives frames.

The connection answers heartbeats itself and does not pass them on. Only `__init__` (dialing), `send` (a full socket) and
the `wait_...` methods wait; `receive` takes what has arrived, and handshakes make progress with it. Every failure of the
network or the peer is a ConnectionLost whose text names the address. The owner closes the connection then, after it has
read the server's last frames if it wants them.
"""

import select
import socket
import ssl
from contextlib import suppress

from penstock.client.dial import dial, server_name
from penstock.client.errors import ConnectionLost
from penstock.client.introduction import Introduction, Refused
from penstock.client.layers import Layers, Tls
from penstock.client.settings import Settings
from penstock.client.tls import reason
from penstock.protocol import ProtocolError, nsq
from penstock.protocol.compression import CorruptStream

MAX_FRAME_SIZE = 64 << 20  # bytes; no sane max-msg-size is above it, and memory is used only as bytes arrive
READ_SIZE = 65536  # bytes; below malloc's mmap threshold, above which each recv pays page faults


class Connection:
    """One nsqd that is connected, and identified as soon as `features` is set.

    `address` is as in `dial`; `tls` is `client_context(settings)`, made once for many connections.
    """

    def __init__(self, address: str, settings: Settings, tls: ssl.SSLContext | None = None) -> None:
        """Connect and send IDENTIFY; raises ConnectionLost.

        The answer to IDENTIFY is awaited elsewhere, so that a silent server does not block the caller.
        """
        self.address = address
        self.features: dict[str, object] | None = None  # the answer to IDENTIFY; None until all upgrades are made
        self._settings = settings
        self._tls = tls
        self._layers = Layers()
        self._introduction: Introduction | None = Introduction(settings, self._layers, self._make_tls)
        self._decoder = nsq.FrameDecoder(MAX_FRAME_SIZE)
        try:
            self._socket = dial(address, settings.dial_timeout_s)
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {address}: {reason(error)}") from error
        try:
            self._send_encoded(self._introduction.begin())
        except ConnectionLost:
            self.close()
            raise

    def send(self, data: bytes) -> None:
        """Send all of `data`, waiting for the socket as long as it makes progress.

        `features` must be set before the first call. Raises ConnectionLost.
        """
        try:
            encoded = self._layers.encode(data)
        except ssl.SSLError as error:  # the connection is closed already; late answers end here
            raise self._lost(reason(error)) from error
        self._send_encoded(encoded)

    def receive(self) -> list[nsq.Frame]:
        """Return the frames that have arrived, without heartbeats and the answers to IDENTIFY and AUTH.

        It reads the socket once and does not wait. Raises ConnectionLost.
        """
        try:
            data = self._socket.recv(READ_SIZE)
        except BlockingIOError:
            return []
        except OSError as error:
            raise self._lost(reason(error)) from error
        if not data:
            raise self._lost("the server closed the connection")
        return self._decode(data)

    def wait_readable(self, seconds: float) -> bool:
        """Wait for at most `seconds` until `receive` would return frames or raise; return False after that time."""
        return self._wait(select.POLLIN, seconds)

    def wait_identified(self) -> list[nsq.Frame]:
        """Wait for the answer to IDENTIFY. Return the frames that came with it: most likely an error."""
        frames: list[nsq.Frame] = []
        while self.features is None and not frames:
            if not self.wait_readable(self._settings.read_timeout_s):
                raise self._lost("no answer to IDENTIFY")
            frames = self.receive()
        return frames

    def finish_sending(self) -> None:
        """Tell the server that nothing more comes; it closes the connection when it has handled all that was sent."""
        self._send_encoded(self._layers.end())
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise self._lost(reason(error)) from error

    def close(self) -> None:
        """Close the connection without waiting; closing it again does nothing."""
        with suppress(OSError):  # either side closed it already
            self._socket.send(self._layers.end())
        self._socket.close()

    def fileno(self) -> int:
        """Return the socket's file descriptor, for selectors."""
        return self._socket.fileno()

    def _decode(self, data: bytes) -> list[nsq.Frame]:
        """Decode `data` into frames and send what the layers have to send themselves. Raises ConnectionLost."""
        try:
            data = self._layers.decode(data)
            if self._introduction is not None:
                return self._introduce(self._introduction, data)
            frames = self._decoder.receive(data)
        except ProtocolError as error:
            raise self._lost(f"not an nsqd: {error}") from error
        except (CorruptStream, Refused) as error:
            raise self._lost(str(error)) from error
        except ssl.SSLError as error:
            with suppress(OSError):  # send the TLS alert, so that the server's log has a reason too
                self._socket.send(self._layers.encode(b""))
            raise self._lost(reason(error)) from error
        self._send_encoded(self._layers.encode(b""))
        if any(type(frame) is nsq.Response for frame in frames):  # rare among messages
            return self._answer_beats(frames)
        return frames

    def _introduce(self, introduction: Introduction, data: bytes) -> list[nsq.Frame]:
        frames, output = introduction.receive(data)
        self._send_encoded(output)
        if introduction.features is not None:
            self.features = introduction.features
            self._introduction = None
            frames += self._answer_beats(self._decoder.receive(introduction.rest))
        return frames

    def _answer_beats(self, frames: list[nsq.Frame]) -> list[nsq.Frame]:
        """Answer the heartbeats among `frames` and return the other frames."""
        others = [frame for frame in frames if frame != _BEAT]
        for _ in range(len(frames) - len(others)):
            self.send(nsq.nop())
        return others

    def _make_tls(self) -> Tls:
        assert self._tls is not None, "settings with tls_v1 come with a context"
        try:
            return Tls(self._tls, server_name(self.address))
        except ValueError as error:
            raise Refused(f"no certificate can have this name: {error}") from None

    def _send_encoded(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                try:
                    view = view[self._socket.send(view) :]
                except BlockingIOError:
                    if not self._wait(select.POLLOUT, self._settings.write_timeout_s):
                        raise TimeoutError("took no data in time") from None
        except OSError as error:
            raise self._lost(reason(error)) from error

    def _wait(self, event: int, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._socket, event)
        return bool(poll.poll(seconds * 1000))

    def _lost(self, reason: str) -> ConnectionLost:
        return ConnectionLost(f"{self.address}: {reason}")


_BEAT = nsq.Response(nsq.HEARTBEAT)
