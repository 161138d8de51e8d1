"""Describe the node to its HTTP clients, to nsqlookupd and to other nodes."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from nsqd.http.node import Info
from nsqd.options import NsqdOptions
from nsqd.start.listeners import Listeners, announced
from shared.auth.own_token import own_token
from shared.process.daemon import broadcast_address
from shared.process.listen import WILDCARDS, Listener, display, parse_address
from shared.version import NSQ_VERSION, PENSTOCK_VERSION

if TYPE_CHECKING:
    from nsqd.cluster.wire.visit import Visits

CAPABILITIES = ["log"]  # nsqlookupd passes them on; `log`: topics can be read back by offset


def node_info(options: NsqdOptions, listeners: Listeners) -> Info:
    """Return the content of /info for HTTP clients."""
    hostname = socket.gethostname()
    return Info(
        version=NSQ_VERSION,
        broadcast_address=broadcast_address(
            options.broadcast_address, [announced(listeners), listeners.http, listeners.https], hostname
        ),
        hostname=hostname,
        http_port=options.broadcast_http_port or (listeners.http.port if listeners.http else 0),
        tcp_port=options.broadcast_tcp_port or announced(listeners).port,
        start_time=int(time.time()),
        https_port=(options.broadcast_https_port or listeners.https.port) if listeners.https else 0,
    )


def cluster_address(listeners: Listeners, info: Info) -> str:
    """Return host:port where other nodes of the cluster reach this one; "" if it is in none."""
    return _reached_at(listeners.cluster, info)


def as_visitor(options: NsqdOptions, listeners: Listeners) -> Visits:
    """Return the visits by which nodes of the cluster ask each other for logs, also before this node has read its own."""
    from nsqd.cluster.wire.handshake import Credentials
    from nsqd.cluster.wire.node_identity import visitor
    from nsqd.cluster.wire.visit import Visits

    assert listeners.cluster is not None
    own = visitor(options.node_number(), listeners.cluster.address)
    return Visits(Credentials(options.cluster_name, listeners.secret, own), listeners.cluster_tls)


def disque_address(listeners: Listeners, info: Info) -> str:
    """Return host:port where clients of Disque reach this node; "" if there is no port for them."""
    return _reached_at(listeners.disque or listeners.disque_tls, info)


def _reached_at(listener: Listener | None, info: Info) -> str:
    """Return host:port where others reach a listener of this node; "" if there is none, or it is a unix socket."""
    if listener is None or not listener.port:
        return ""
    host = parse_address(listener.address).host
    return display(info.broadcast_address if host in WILDCARDS else host, listener.port)


def lookup_identity(options: NsqdOptions, listeners: Listeners, info: Info, log_id: bytes) -> dict[str, object]:
    """Return the content of IDENTIFY for nsqlookupd. `log_id`: of the log that the node publishes into."""
    identity: dict[str, object] = {
        "version": info.version,
        "tcp_port": info.tcp_port,
        "http_port": info.http_port,
        "hostname": info.hostname,
        "broadcast_address": info.broadcast_address,
        "node_id": options.node_number(),  # an addition, like the next three: the original ignores them
        "capabilities": CAPABILITIES,
        "penstock_version": PENSTOCK_VERSION,
    }
    if info.https_port:
        identity["https_port"] = info.https_port
    if options.topology_region or options.topology_zone:  # the release of 1.3.0 does not know these keys
        identity |= {"topology_region": options.topology_region, "topology_zone": options.topology_zone}
    if token := own_token():
        identity["auth_token"] = token
    if address := cluster_address(listeners, info):
        identity |= {"cluster": options.cluster_name, "cluster_address": address, "log_id": log_id.hex()}
    return identity
