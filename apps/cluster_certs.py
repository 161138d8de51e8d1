"""`penstock cluster certs DIR`: make the certificates for TLS, of all ports and of the nodes of a cluster to each other."""

import argparse
import re
import shlex
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from shared.terminal.commands import CommandError, Commands, make_command, whole_number
from shared.tls.node_certificates import MOST_NODES

if TYPE_CHECKING:
    from datetime import datetime

    from apps.certificate_authority import Authority

DAYS = 3650
MOST_DAYS = 36500
SERVER, ADMIN = "server", "nsqadmin"  # the files of the daemons
CLIENT = "client"  # the client that gets a certificate if none is named
WHAT = "make the certificates for TLS: of the daemons, of their clients, and of the nodes of a cluster"
DETAILS = """
DIR gets a certificate authority, ca.pem and ca-key.pem, and certificates with their keys:

    server.pem, server-key.pem
        for all ports of nsqd and nsqlookupd: it has the names localhost,
        127.0.0.1, ::1 and those of --host; nsqd also shows it to nsqlookupd
    nsqadmin.pem, nsqadmin-key.pem
        the same for nsqadmin, which shows it to nsqd and nsqlookupd; only
        nsqadmin gets them
    NAME.pem, NAME-key.pem
        for each --client (default: client): NAME is its common name
    node-0.pem, node-0-key.pem
        with --nodes N for each -node-id from 0 to N-1: for the ports of
        -cluster-address only

With --nodes alone only those of the nodes are made. Files that exist are kept: to add some, run the command again. To renew
one, remove its two files first.

The command prints how the daemons are started with these files. The nodes of a cluster need

    nsqd -node-id 0 -cluster-tls-cert node-0.pem
         -cluster-tls-key node-0-key.pem -cluster-tls-ca ca.pem ...

No daemon needs ca-key.pem. With it, every certificate can be made, so keep DIR on another machine, and copy to each machine
only the files that it needs.
"""
_HOST = re.compile(r"(?=.{1,253}\Z)(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_-]{1,63})*")
_CLIENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}")


def add_command(commands: Commands) -> None:
    """Add the command `certs` to those of `penstock cluster`."""
    certs = make_command(commands, "certs", run, WHAT, DETAILS, "cluster certs certs --nodes 3 --host 10.0.0.1")
    certs.add_argument("directory", type=Path, metavar="DIR", help="directory of the files; it is created if needed")
    certs.add_argument(
        "--nodes",
        type=whole_number(1, MOST_NODES),
        default=0,
        metavar="N",
        help=f"number of nodes of a cluster, 1 to {MOST_NODES}: each has the -node-id of its file, from 0 to N-1",
    )
    certs.add_argument(
        "--host",
        type=_host,
        action="append",
        default=[],
        metavar="HOST",
        help="DNS name or IP address by which the daemons are reached (may be given multiple times)",
    )
    certs.add_argument(
        "--client",
        type=_client,
        action="append",
        default=[],
        metavar="NAME",
        help=f"name of a client (may be given multiple times; default: {CLIENT})",
    )
    certs.add_argument(
        "--days",
        type=whole_number(1, MOST_DAYS),
        default=DAYS,
        metavar="D",
        help=f"number of days after which new certificates expire (default: {DAYS})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return 0. Raises CommandError if not all certificates could be made."""
    from apps.certificate_authority import Authority  # it imports `cryptography`

    directory: Path = arguments.directory
    is_for_all_ports = bool(arguments.host or arguments.client or not arguments.nodes)
    clients = arguments.client or [CLIENT]
    try:
        authority = Authority(directory, arguments.days)
        print(f"{'created' if authority.is_new else 'kept'} the certificate authority {directory / 'ca.pem'}")
        for number in range(arguments.nodes):
            _report(authority, directory / f"node-{number}.pem", *authority.issue(number))
        if is_for_all_ports:
            for name in (SERVER, ADMIN):
                _report(authority, directory / f"{name}.pem", *authority.issue_server(arguments.host, name))
            for name in clients:
                _report(authority, directory / f"{name}.pem", *authority.issue_client(name))
    except OSError as error:
        raise CommandError(str(error)) from None
    if is_for_all_ports:
        print("\nStart the daemons, and a client, with these flags:\n")
        for command in examples(directory, clients[0]):
            print("    " + shlex.join(command))
    return 0


def examples(directory: Path, client: str) -> Iterator[list[str]]:
    """Yield the commands that start a set on this machine with TLS at every port, and a client, as lists of arguments."""

    def at(name: str) -> str:
        return str(directory / name)

    own, trusted = ["-tls-cert", at(f"{SERVER}.pem"), "-tls-key", at(f"{SERVER}-key.pem")], at("ca.pem")
    known = [*own, "-tls-client-auth-policy", "require-verify", "-tls-root-ca-file", trusted]
    yield ["nsqlookupd", *known, "-https-address", "127.0.0.1:4162"]
    lookupd = ["-lookupd-tls-root-ca-file", trusted, "-lookupd-tls-cert", own[1], "-lookupd-tls-key", own[3]]
    yield ["nsqd", *known, "-lookupd-tcp-address", "127.0.0.1:4160", *lookupd]
    cert, key = at(f"{ADMIN}.pem"), at(f"{ADMIN}-key.pem")
    asks = ["-http-client-tls-root-ca-file", trusted, "-http-client-tls-cert", cert, "-http-client-tls-key", key]
    found = ["-lookupd-http-address", "https://127.0.0.1:4162", "-nsqd-https"]
    serves = ["-tls-cert", cert, "-tls-key", key, "-tls-required", "-https-address", "127.0.0.1:4172"]
    yield ["nsqadmin", *serves, *found, *asks]
    files = {"tls_root_ca_file": trusted, "tls_cert": at(f"{client}.pem"), "tls_key": at(f"{client}-key.pem")}
    options = ["-consumer-opt=tls_v1", *(f"-consumer-opt={name},{path}" for name, path in files.items())]
    yield ["nsq_tail", "-topic", "TOPIC", *found[:2], *options]


def _report(authority: "Authority", path: Path, is_new: bool, ends: "datetime") -> None:
    expires = "expires" if ends > authority.now else "expired"
    print(f"{'created' if is_new else 'kept'} {path}, which {expires} on {ends:%Y-%m-%d}")


def _host(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        if _HOST.fullmatch(text) is None:
            raise argparse.ArgumentTypeError("expected a DNS name or an IP address, without a port") from None
    return text.lower()


def _client(text: str) -> str:
    """Read the name of a client, which is also that of its file."""
    is_taken = text in ("ca", SERVER, ADMIN) or text.startswith("node-") or text.endswith("-key")
    if is_taken or _CLIENT.fullmatch(text) is None:
        wanted = "expected up to 63 letters, digits and . _ -, but not ca, server, nsqadmin, node-... or ...-key"
        raise argparse.ArgumentTypeError(wanted)
    return text
