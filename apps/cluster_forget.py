"""`penstock cluster forget --node N`: have a cluster forget a node that will not come back."""

import argparse
import json

from apps.node_client import add_address, open_client, why_refused
from shared.terminal.commands import CommandError, Commands, make_command, whole_number

MOST_NUMBER = 1023  # of a node
DETAILS = """
The node must be down. The others choose followers without it, and do not dial it. Its log is never accepted again: a node that
starts with its data directory, or with one that was recovered, is refused. A node with a new data directory may have the
number. Copies of the log stay on the other nodes until you remove them. See docs/troubleshooting/lost-node.md.

The certificate and the secret of the node are still valid. If they may be stolen, make a new authority, and give all other
nodes new certificates and another secret: penstock cluster certs NEW-DIRECTORY --nodes COUNT.
"""
STILL_GOOD = """\
Its certificate and the secret are still accepted, for a node with that number and an empty data directory. If they may be
stolen, replace the authority and the secret of all other nodes: penstock cluster certs NEW-DIRECTORY --nodes COUNT, then
docs/how-to/certificates.md#the-nodes-of-a-cluster"""
ADVICE = {
    "NODE_NOT_FOUND": "no node of the cluster has the number {node}; see http://{address}/cluster",
    "NODE_IS_CONNECTED": "node {node} is up, or was a moment ago: stop it first; a node cannot forget itself",
    "NO_CLUSTER": "nsqd at {address} is in no cluster: it has no -cluster-address",
    "CANNOT_WRITE": "nsqd at {address} cannot write to its data directory; it tries again, see its log",
}


def add_command(commands: Commands) -> None:
    """Add the command `forget` to those of `penstock cluster`."""
    forget = make_command(
        commands,
        "forget",
        run,
        "have a cluster forget a node that will not come back",
        DETAILS,
        "cluster forget --node 2",
    )
    number = whole_number(0, MOST_NUMBER)
    forget.add_argument("--node", type=number, required=True, metavar="N", help="number of the node (-node-id)")
    add_address(forget, "another node of the cluster")
    forget.add_argument("--json", action="store_true", help="print a JSON object with the number of the node")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return 0. Raises CommandError if the node is not forgotten."""
    node, address = arguments.node, arguments.nsqd_http_address
    with open_client(arguments) as client:
        answer = client.post("/cluster/forget", params={"node": node})
    if answer.status_code != 200:
        raise CommandError(why_refused(answer, ADVICE, address, node=node))
    text = f"node {node} is forgotten, by {address} and all nodes that are connected to it"
    print(json.dumps({"forgotten": node}) if arguments.json else f"{text}\n{STILL_GOOD}")
    return 0
