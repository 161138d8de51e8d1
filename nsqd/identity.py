"""What the node says of itself: to its HTTP clients, and to nsqlookupd."""

import socket
import time

from nsqd.doors import Doors
from nsqd.http.node import Info
from nsqd.options import NsqdOptions
from shared.daemon import broadcast_address
from shared.version import NSQ_VERSION

CAPABILITIES = ["log"]  # as nsqlookupd passes them on: topics are read back by offset


def node_info(options: NsqdOptions, doors: Doors) -> Info:
    """What HTTP clients are told."""
    hostname = socket.gethostname()
    return Info(
        version=NSQ_VERSION,
        broadcast_address=broadcast_address(options.broadcast_address, [doors.tcp, doors.http, doors.https], hostname),
        hostname=hostname,
        http_port=options.broadcast_http_port or (doors.http.port if doors.http else 0),
        tcp_port=options.broadcast_tcp_port or doors.tcp.port,
        start_time=int(time.time()),
    )


def lookup_identity(options: NsqdOptions, info: Info) -> dict[str, object]:
    """What nsqlookupd is told."""
    identity: dict[str, object] = {
        "version": info.version,
        "tcp_port": info.tcp_port,
        "http_port": info.http_port,
        "hostname": info.hostname,
        "broadcast_address": info.broadcast_address,
        "node_id": options.node_number(),  # this and the next: the original ignores them
        "capabilities": CAPABILITIES,
    }
    if options.topology_region or options.topology_zone:  # the release of 1.3.0 does not know them
        identity |= {"topology_region": options.topology_region, "topology_zone": options.topology_zone}
    return identity
