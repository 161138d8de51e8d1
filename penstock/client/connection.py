"""One nsqd, connected and introduced: frames in, bytes out.

Heartbeats are answered here and seen by nobody else. Nothing here waits except `__init__` (dialling), `send` (a full
socket) and the `wait_...`; `receive` takes what has arrived. Every failure of the world is a ConnectionLost whose text
names the address; the owner closes then, after reading the server's last words if it wants them.
"""

import json
import select
import socket

from penstock.client.errors import ConnectionLost
from penstock.client.settings import Settings
from penstock.protocol import ProtocolError, nsq

MAX_FRAME_SIZE = 64 << 20  # no sane max-msg-size is above it; memory is used only as bytes really arrive
READ_SIZE = 65536  # below malloc's mmap threshold: a larger recv pays page faults on each call


class Connection:
    """`address` is host:port, [v6]:port, or the path of a unix socket (anything with a slash)."""

    def __init__(self, address: str, settings: Settings) -> None:
        """Connect and send IDENTIFY; its answer is awaited elsewhere, so that a silent server stalls nobody."""
        self.address = address
        self.features: dict[str, object] | None = None  # what IDENTIFY answered; None before it did
        self._settings = settings
        self._decoder = nsq.FrameDecoder(MAX_FRAME_SIZE)
        try:
            self._socket = _dial(address, settings.dial_timeout_s)
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {address}: {_reason(error)}") from error
        self._socket.setblocking(False)
        try:
            self.send(nsq.MAGIC_V2 + nsq.identify(settings.identify()))
        except ConnectionLost:
            self.close()
            raise

    def send(self, data: bytes) -> None:
        """All of `data`, waiting for the socket as long as there is progress."""
        view = memoryview(data)
        try:
            while True:
                try:
                    view = view[self._socket.send(view) :]
                except BlockingIOError:
                    if not self._wait(select.POLLOUT, self._settings.write_timeout_s):
                        raise TimeoutError("took no data in time") from None
                if not view:
                    return
        except OSError as error:
            raise self._lost(_reason(error)) from error

    def receive(self) -> list[nsq.Frame]:
        """The frames that have arrived, without heartbeats and the answer to IDENTIFY. One read, no waiting."""
        try:
            data = self._socket.recv(READ_SIZE)
        except BlockingIOError:
            return []
        except OSError as error:
            raise self._lost(_reason(error)) from error
        if not data:
            raise self._lost("the server closed the connection")
        try:
            frames = self._decoder.receive(data)
        except ProtocolError as error:
            raise self._lost(f"not an nsqd: {error}") from error
        if any(type(frame) is nsq.Response for frame in frames):  # seldom, among messages
            return self._take_own(frames)
        return frames

    def wait_readable(self, seconds: float) -> bool:
        """True as soon as `receive` would bring something, an end included."""
        return self._wait(select.POLLIN, seconds)

    def wait_identified(self) -> list[nsq.Frame]:
        """Wait for the answer to IDENTIFY. Returns frames that came with it: an error, most likely."""
        frames: list[nsq.Frame] = []
        while self.features is None and not frames:
            if not self.wait_readable(self._settings.read_timeout_s):
                raise self._lost("no answer to IDENTIFY")
            frames = self.receive()
        return frames

    def finish_sending(self) -> None:
        """Tell the server that nothing more comes; it closes when it has done all that was sent."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise self._lost(_reason(error)) from error

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def _take_own(self, frames: list[nsq.Frame]) -> list[nsq.Frame]:
        """Heartbeats answered, features read; the other frames are for the owner."""
        others: list[nsq.Frame] = []
        for frame in frames:
            if frame == _BEAT:
                self.send(nsq.nop())
            elif self.features is None and isinstance(frame, nsq.Response):
                self.features = self._parse_features(frame.data)
            else:
                others.append(frame)
        return others

    def _parse_features(self, data: bytes) -> dict[str, object]:
        if data == nsq.OK:
            return {}  # a server without feature negotiation
        try:
            features = json.loads(data)
        except ValueError:
            features = None
        if not isinstance(features, dict):
            raise self._lost(f"not an nsqd: IDENTIFY answered {data[:60]!r}")
        return features

    def _wait(self, event: int, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._socket, event)
        return bool(poll.poll(seconds * 1000))

    def _lost(self, reason: str) -> ConnectionLost:
        return ConnectionLost(f"{self.address}: {reason}")


_BEAT = nsq.Response(nsq.HEARTBEAT)


def _dial(address: str, timeout_s: float) -> socket.socket:
    if "/" in address:
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            unix.settimeout(timeout_s)
            unix.connect(address)
        except BaseException:
            unix.close()
            raise
        return unix
    host, port = split_address(address)
    tcp = socket.create_connection((host, port), timeout_s)
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return tcp


def split_address(address: str) -> tuple[str, int]:
    """host:port or [v6]:port. Raises ValueError with a reason."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"not an address, want host:port or a socket's path: {address!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def check_address(address: str) -> str:
    """The address itself, if it can be one. Raises ValueError with a reason."""
    if "/" not in address:
        split_address(address)
    return address


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
