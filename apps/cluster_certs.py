"""`penstock cluster certs DIR`: make the certificates with which the nodes of a cluster speak TLS to each other."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from shared.node_certificates import MOST_NODES

DAYS = 3650
MOST_DAYS = 36500
WHAT = "make the certificates with which the nodes of a cluster speak TLS to each other"
DETAILS = """
DIR gets a certificate authority, ca.pem and ca-key.pem, and for each node number from 0 to N-1 a certificate and its key,
node-NUMBER.pem and node-NUMBER-key.pem. Files that exist are kept: to add nodes, run the command again with a greater N. To
renew the certificate of a node, remove its two files first.

Copy to each node ca.pem and the two files of that node, and start it with

    nsqd -node-id 0 -cluster-tls-cert node-0.pem -cluster-tls-key node-0-key.pem -cluster-tls-ca ca.pem ...

No node needs ca-key.pem. With it, certificates for any node of the cluster can be made, so keep DIR on another machine.
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command `certs` to those of `penstock cluster`."""
    certs = commands.add_parser(
        "certs", help=WHAT, description=WHAT, epilog=DETAILS, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    certs.add_argument("directory", type=Path, metavar="DIR", help="directory of the files; it is created if needed")
    certs.add_argument(
        "--nodes",
        type=_number(MOST_NODES),
        required=True,
        metavar="N",
        help=f"number of nodes, 1 to {MOST_NODES}: each has the -node-id of its file, from 0 to N-1",
    )
    certs.add_argument(
        "--days",
        type=_number(MOST_DAYS),
        default=DAYS,
        metavar="D",
        help=f"number of days after which new certificates expire (default: {DAYS})",
    )
    certs.set_defaults(certs=True)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return the exit code: 0, or 1 if not all certificates could be made."""
    from apps.certificate_authority import Authority, AuthorityError  # it imports `cryptography`

    directory: Path = arguments.directory
    try:
        authority = Authority(directory, arguments.days)
        print(f"{'created' if authority.is_new else 'kept'} the certificate authority {directory / 'ca.pem'}")
        for number in range(arguments.nodes):
            is_new, ends = authority.issue(number)
            verb = "created" if is_new else "kept"
            expires = "expires" if ends > authority.now else "expired"
            print(f"{verb} {directory / f'node-{number}.pem'}, which {expires} on {ends:%Y-%m-%d}")
    except (AuthorityError, OSError) as error:
        print(f"penstock cluster certs: {error}", file=sys.stderr)
        return 1
    return 0


def _number(most: int) -> Callable[[str], int]:
    """Return a reader of a whole number from 1 to `most`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"expected a number from 1 to {most}")
        return int(text)

    return read
