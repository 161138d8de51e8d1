"""The task that pushes the node's metrics to statsd: one report an interval, its packets spread over the interval.

It runs in the trio thread, between turns: after a millisecond of collecting it lets a turn run. UDP packets may get lost,
and the statsd daemon may be down: one line in the log says so, and the task continues.
"""

import socket
import time
from collections import deque
from collections.abc import Callable

import trio

from nsqd.core.broker import Broker
from nsqd.option_values import statsd_prefix
from nsqd.options import NsqdOptions
from nsqd.statsd.report import Report
from shared.log import log

SLICE = 0.001  # s of collecting in a row
MARGIN = 1.0  # s at the end of an interval in which nothing is sent, as in the original
RESOLVE_TIMEOUT = 1.0  # s to resolve the name of the host: the original's DialTimeout


class Pusher:
    """The task of a node that reports to statsd."""

    def __init__(
        self, options: NsqdOptions, host: str, port: int, broker: Broker, memory: Callable[[], dict[str, int]]
    ) -> None:
        """Set up the task. `host` and `port` (HTTP) are those that are broadcast; `memory` returns the process's metrics."""
        self._options = options
        self._prefix = statsd_prefix(options.statsd_prefix, host, port)
        self._broker = broker
        self._memory = memory
        self._failure = ""  # why the last push failed, wholly or in part; "": it did not fail
        self._last: Report | None = None

    async def run(self) -> None:
        """Push a report every interval until cancelled."""
        interval = self._options.statsd_interval / 1e9
        log.info("STATSD: pushing stats to %s every %g s", self._options.statsd_address, interval)
        due = trio.current_time()
        try:
            while True:
                due = max(due + interval, trio.current_time())  # an interval that took longer is not made up for
                await trio.sleep_until(due)
                self._last = await self._report()
                await self._push(self._last.packets.pop_packets(), max(0.0, interval - MARGIN))
        finally:
            log.info("STATSD: closing")

    async def _report(self) -> Report:
        """Return a report of all topics and channels, collected in slices."""
        options = self._options
        report = Report(self._prefix, options.statsd_udp_packet_size, self._last, options.statsd_exclude_ephemeral)
        rest = trio.current_time() + SLICE
        for name in sorted(self._broker.topics):
            topic = self._broker.topics.get(name)
            if topic is None:  # the topic was deleted during the last pause
                continue
            for _ in report.topic(topic, time.monotonic_ns()):
                if trio.current_time() > rest:
                    await trio.lowlevel.checkpoint()
                    rest = trio.current_time() + SLICE
        if options.statsd_mem_stats:
            report.memory(self._memory())
        return report

    async def _push(self, packets: list[bytes], spread: float) -> None:
        """Send the packets, evenly over `spread` seconds. When the daemon stops, the remaining ones leave at once."""
        try:
            sock = await _connect(self._options.statsd_address)
        except (OSError, ValueError) as error:  # the address cannot be resolved or reached, or is not valid
            self._say(f"failed to create UDP socket to statsd({self._options.statsd_address}) - {error}")
            return
        failure = ""
        waiting, began = deque(packets), trio.current_time()
        with sock:
            try:
                for place in range(len(packets)):
                    await trio.sleep_until(began + place * spread / len(packets))
                    failure = _send(sock, waiting.popleft()) or failure
            finally:
                for packet in waiting:
                    _send(sock, packet)
        self._say(f"cannot send to {self._options.statsd_address} - {failure}" if failure else "")

    def _say(self, failure: str) -> None:
        """Log a failure when it begins and when it is over."""
        if failure and not self._failure:
            log.error("STATSD: %s", failure)
        elif self._failure and not failure:
            log.info("STATSD: pushing to %s works again", self._options.statsd_address)
        self._failure = failure


def _send(sock: socket.socket, packet: bytes) -> str:
    """Send a packet. Return why it could not be sent, or ""."""
    try:
        sock.send(packet)
    except OSError as error:  # no process listens there, or the packet is too long
        return str(error)
    return ""


async def _connect(address: str) -> socket.socket:
    """Return a UDP socket that sends to `address` without waiting. Raises OSError or ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon:
        raise ValueError("missing port in address")
    if port.isdecimal() and int(port) > 65535:  # the system would take the port modulo 65536
        raise ValueError(f"invalid port {port}")
    found = []
    with trio.move_on_after(RESOLVE_TIMEOUT):
        found = await trio.socket.getaddrinfo(host.strip("[]") or "127.0.0.1", port, type=socket.SOCK_DGRAM)
    failure = "the name did not resolve in time"
    for family, kind, protocol, _, target in found:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            sock.connect(target)  # for UDP this only notes the address
        except OSError as error:
            sock.close()
            failure = str(error)
        else:
            return sock
    raise OSError(failure)
