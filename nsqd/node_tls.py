"""The TLS with which nodes ask each other over HTTP, and are asked before they have started."""

from __future__ import annotations

from nsqd.cluster.replication.early import Early
from nsqd.cluster.replication.node_http import Trust, ask_by
from nsqd.listeners import Listeners
from nsqd.options import NsqdOptions
from shared.http.hosts import Hosts
from shared.tls_options import REQUIRED


def ask_over_tls(options: NsqdOptions, listeners: Listeners) -> None:
    """Ask other nodes over TLS from now on, if the cluster has certificates."""
    if listeners.node_tls is not None:
        ask_by(Trust(listeners.node_tls, options.tls_required == REQUIRED))


def early(options: NsqdOptions, listeners: Listeners) -> Early:
    """Return how this node is asked while it starts."""
    assert listeners.http is not None
    names = [options.broadcast_address, *options.allowed_host]
    tls = listeners.certificates.stream_context() if listeners.certificates is not None else None
    https = listeners.https
    return Early(
        listeners.http.socket,
        https.socket if https is not None else None,
        tls,
        https.port if https is not None else 0,
        options.tls_required == REQUIRED,
        listeners.keyring,
        Hosts(names).check,
    )
