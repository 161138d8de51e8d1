"""The TLS with which nodes ask each other over HTTP, and are asked before they have started."""

from __future__ import annotations

import ssl

from nsqd.listeners import Listeners
from nsqd.options import NsqdOptions
from nsqd.replication.early import Early
from nsqd.replication.node_http import Trust, ask_by
from shared.tls_client import load_client
from shared.tls_options import REQUIRED


def ask_over_tls(options: NsqdOptions) -> None:
    """Ask other nodes over TLS from now on, if the cluster has certificates. Raises TlsError."""
    if not options.cluster_tls_ca:
        return
    tls = load_client(options.cluster_tls_ca, options.cluster_tls_cert, options.cluster_tls_key, "--cluster-tls-")
    if options.tls_root_ca_file:  # that of the HTTPS ports may be another one
        tls.load_verify_locations(options.tls_root_ca_file)
    ask_by(Trust(tls, options.tls_required == REQUIRED))


def early(options: NsqdOptions, listeners: Listeners) -> Early:
    """Return how this node is asked while it starts. Its certificates were loaded before. Raises OSError."""
    assert listeners.http is not None
    http, keyring = listeners.http.socket, listeners.keyring
    if listeners.https is None or not options.tls_cert:
        return Early(http, proofs=keyring)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(options.tls_cert, options.tls_key)
    if options.tls_client_auth_policy == "require-verify":
        tls.verify_mode = ssl.CERT_REQUIRED
        if options.tls_root_ca_file:
            tls.load_verify_locations(options.tls_root_ca_file)
        else:
            tls.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    port = listeners.https.port if options.tls_required == REQUIRED else 0
    return Early(http, listeners.https.socket, tls, port, keyring)
