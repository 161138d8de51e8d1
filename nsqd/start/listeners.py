"""Open nsqd's listeners and load the certificates that they show. No event loop is imported here."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from nsqd.options import NsqdOptions
from shared.process.daemon import StartError, listening_at_all, listening_if_given
from shared.process.listen import Listener, bind_shared, duplicate
from shared.tls.dates import CertificateDates
from shared.tls.options import load_certificates

if TYPE_CHECKING:
    import ssl

    from shared.auth.keyring import Keyring
    from shared.tls.certificates import Certificates
    from shared.tls.client import ClientCertificates
    from shared.tls.mutual import MutualCertificates


# Descriptors without the listeners: the data directory, the log with its segment and a spare one, the loops of both threads,
# one connection.
OWN_FILES = 19
LEAST_SECRET, MOST_SECRET = 16, 1024  # bytes


@dataclass(frozen=True, slots=True)
class Listeners:
    """The open listeners of a node, and its TLS certificates."""

    tcp: tuple[Listener, ...]  # one or more
    tcp_shared: Listener | None  # bound, and not listening before the node can serve: see nsqd.start.shared_port
    http: Listener | None
    https: Listener | None  # never set without certificates
    beanstalk: Listener | None
    beanstalk_tls: Listener | None  # never set without certificates
    disque: Listener | None
    disque_tls: Listener | None  # never set without certificates
    cluster: Listener | None
    secret: bytes  # of the cluster; b"": there is none
    cluster_tls: MutualCertificates | None  # for the connections to other nodes; None: they have no TLS
    certificates: Certificates | None  # for TCP and HTTPS; None: there is no TLS
    # the authorities to trust when authorization servers are asked; None: there are no such servers
    auth_tls: ssl.SSLContext | None
    keyring: Keyring | None  # the auth file; None: there is none
    lookupd_tls: ClientCertificates | None = None  # for connections to nsqlookupd; None: they have no TLS
    dates: CertificateDates | None = None  # when all of these end; None: no certificate is watched


def files_needed(options: NsqdOptions) -> int:
    """Return the number of file descriptors that nsqd opens before the first client comes."""
    jobs = (
        options.beanstalk_address,
        options.beanstalk_tls_address,
        options.disque_address,
        options.disque_tls_address,
    )
    given = (options.http_address, options.tls_cert and options.https_address)
    return (
        OWN_FILES
        + len(options.tcp_address)
        + sum(map(bool, (*given, options.tcp_shared_address, options.cluster_address, *jobs)))
    )


@contextlib.contextmanager
def open_listeners(options: NsqdOptions) -> Iterator[Listeners]:
    """Load the certificates and open the listeners; close them in the end. Raises TlsError, ListenError, StartError."""
    certificates = load_certificates(options)
    auth_tls = _auth_tls(options)
    secret, cluster_tls = _secret(options), _cluster_tls(options)
    keyring = _keyring(options)
    lookupd_tls = _lookupd_tls(options)
    dates = CertificateDates(options)
    knows_all = keyring is not None
    knows_nsq = auth_tls is not None or knows_all
    with (
        listening_at_all(options.tcp_address, knows_nsq) as tcp,
        listening_if_given(options.tcp_shared_address, knows_nsq, bind_shared) as tcp_shared,
        listening_if_given(options.http_address, knows_all) as http,
        listening_if_given(options.https_address if certificates else "", knows_all) as https,
        listening_if_given(options.beanstalk_address, knows_all) as beanstalk,
        listening_if_given(options.beanstalk_tls_address, knows_all) as beanstalk_tls,
        listening_if_given(options.disque_address, knows_all) as disque,
        listening_if_given(options.disque_tls_address, knows_all) as disque_tls,
        listening_if_given(options.cluster_address, True) as cluster,  # for nodes with the secret alone
    ):
        clients = (tcp_shared, http, https, beanstalk, beanstalk_tls, disque, disque_tls)
        yield Listeners(
            tcp, *clients, cluster, secret, cluster_tls, certificates, auth_tls, keyring, lookupd_tls, dates
        )


def again(listeners: Listeners) -> Listeners:
    """Return the same listeners with descriptors of their own: connections wait there while the others are closed.

    The shared port is bound again, and does not listen yet. Raises ListenError, OSError.
    """
    others: dict[str, Any] = {name: duplicate(one) for name, one in _single(listeners).items() if name != "tcp_shared"}
    if listeners.tcp_shared is not None:
        others["tcp_shared"] = bind_shared(listeners.tcp_shared.address)
    return replace(listeners, tcp=tuple(map(duplicate, listeners.tcp)), **others)


def _single(listeners: Listeners) -> dict[str, Listener]:
    """Return the listeners other than those of `tcp`, by field."""
    values = {one.name: getattr(listeners, one.name) for one in fields(listeners)}
    return {name: value for name, value in values.items() if isinstance(value, Listener)}


def announced(listeners: Listeners) -> Listener:
    """Return the listener whose port the node announces: the first one over TCP, or else a unix socket."""
    return next((listener for listener in listeners.tcp if listener.port >= 0), listeners.tcp[0])


def close_sockets(listeners: Listeners) -> None:
    """Close the descriptors of the listeners. Socket files stay: others may listen there."""
    for listener in (*listeners.tcp, *_single(listeners).values()):
        listener.socket.close()


def files_problem(options: NsqdOptions) -> str:
    """Return the error in the files of TLS, of the cluster's secret and of rights, or "", for --check-config."""
    from shared.tls.info import TlsError

    try:
        load_certificates(options)
        _auth_tls(options)
        _secret(options)
        _cluster_tls(options)
        _keyring(options)
        _lookupd_tls(options)
    except (TlsError, StartError) as error:
        return str(error)
    return ""


def _auth_tls(options: NsqdOptions) -> ssl.SSLContext | None:
    """Return which authorities to trust when authorization servers are asked, or None if there are none.

    The file is checked in any case, as in the original.
    """
    if not options.auth_http_address and not options.tls_root_ca_file:
        return None
    from shared.tls.certificates import client_context

    context = client_context(options.tls_root_ca_file, options.tls_min_version, options.tls_security_level)
    return context if options.auth_http_address else None


def _cluster_tls(options: NsqdOptions) -> MutualCertificates | None:
    """Return the certificates for connections to other nodes, or None if these have no TLS. Raises TlsError."""
    if not options.cluster_tls_cert:
        return None
    from shared.tls.mutual import MutualCertificates, MutualTlsFiles
    from shared.tls.node_certificates import names_problem

    files = MutualTlsFiles(options.cluster_tls_cert, options.cluster_tls_key, options.cluster_tls_ca)
    return MutualCertificates(files, partial(names_problem, options.node_number()))


def _lookupd_tls(options: NsqdOptions) -> ClientCertificates | None:
    """Return the TLS context for nsqlookupd: authority and own certificate; None: connections have no TLS. Raises TlsError."""
    if not options.lookupd_tls_root_ca_file:
        return None
    from shared.tls.client import ClientCertificates, load_client
    from shared.tls.strength import LEVEL_FLAG

    files = options.lookupd_tls_root_ca_file, options.lookupd_tls_cert, options.lookupd_tls_key
    return ClientCertificates(partial(load_client, *files, "lookupd-tls-", options.tls_security_level, LEVEL_FLAG))


def _keyring(options: NsqdOptions) -> Keyring | None:
    """Return the auth file, or None if there is none, and take the node's own token. Raises StartError."""
    if not options.auth_file and not options.auth_token_file:
        return None
    from shared.auth.keyring import open_rights

    keyring = open_rights(options.auth_file, options.auth_token_file, time.time)
    trusts_every_client = (
        options.tls_client_auth_policy in ("require-verify", "verify-if-given") and not options.tls_root_ca_file
    )
    if keyring is not None and keyring.knows_certificates and trusts_every_client:
        raise StartError(
            f"--auth-file {options.auth_file}: its [[certificate]] entries need --tls-root-ca-file with your own authority:"
            " without it, certificates of any public authority count"
        )
    return keyring


def _secret(options: NsqdOptions) -> bytes:
    """Return the cluster's secret, without the line's end; b"" if there is no cluster. Raises StartError."""
    if not options.cluster_address:
        return b""
    from shared.files import without_waiting

    try:
        with open(options.cluster_secret_file, "rb", opener=without_waiting) as file:
            secret = file.read(MOST_SECRET + 1).strip()
    except OSError as error:
        raise StartError(f"failed to read --cluster-secret-file - {error}") from None
    if not LEAST_SECRET <= len(secret) <= MOST_SECRET:
        raise StartError(
            f"--cluster-secret-file {options.cluster_secret_file}: expected {LEAST_SECRET} to {MOST_SECRET} bytes"
        )
    return secret
