"""`penstock cluster promote`: have a node promote the log of a lost node, even if its replica may lack messages."""

import argparse
import json

import httpx

from apps.cluster_forget import MOST_NUMBER
from apps.node_client import add_address, open_client, why_refused
from shared.terminal.commands import CommandError, Commands, make_command, whole_number

WHAT = "have a node promote the log of a lost node, even if its replica may lack messages"
DETAILS = """
The leader of the log must be lost. A node with a complete replica promotes the log by itself, unless -failover-quorum=none;
this command is for replicas that may lack messages. Acknowledged messages that are not in the replica are not delivered, unless
the lost node comes back with its disk; finished messages whose finish is not in the replica are delivered again. The failover
is final. A majority of the nodes must vote for it, an nsqlookupd that is in contact with the leader postpones it, and a node
with a longer replica promotes the log instead. /cluster shows the result; see docs/troubleshooting/lost-node.md.
"""
ADVICE = {
    "NO_REPLICA": "nsqd at {address} has no whole copy of the log {log}; see http://{address}/cluster",
    "OWNER_IS_THERE": "the leader of the log {log} is connected: it is not lost",
    "NO_CLUSTER": "nsqd at {address} is in no cluster: it has no -cluster-address",
    "INVALID_ARG_LOG": "{log} is not a log id, which has 32 hexadecimal digits",
}


def add_command(commands: Commands) -> None:
    """Add the command `promote` to those of `penstock cluster`."""
    promote = make_command(commands, "promote", run, WHAT, DETAILS, "cluster promote --node 2")
    which = promote.add_mutually_exclusive_group(required=True)
    which.add_argument("--log", metavar="ID", help="id of the log, as in /cluster")
    number = whole_number(0, MOST_NUMBER)
    which.add_argument("--node", type=number, metavar="N", help="number of the lost node: all logs that it leads")
    add_address(promote, "the node that is to promote")
    promote.add_argument("--json", action="store_true", help="print a JSON object with the ids of the logs")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return 0. Raises CommandError if the node refuses, or no log is lost."""
    address = arguments.nsqd_http_address
    with open_client(arguments) as client:
        logs = [arguments.log] if arguments.log is not None else _lost_logs(client, arguments.node, address)
        for log in logs:
            answer = client.post("/cluster/promote", params={"log": log})
            if answer.status_code != 200:
                raise CommandError(why_refused(answer, ADVICE, address, log=log))
    if not logs:
        raise CommandError(f"nsqd at {address} knows no log whose leader is node {arguments.node} and is lost")
    text = f"nsqd at {address} is a candidate for {', '.join(logs)}; see http://{address}/cluster"
    print(json.dumps({"logs": logs}) if arguments.json else text)
    return 0


def _lost_logs(client: httpx.Client, node: int, address: str) -> list[str]:
    """Return the ids of the logs of a lost node, as the node at `address` knows them. Raises CommandError, httpx.HTTPError."""
    answer = client.get("/cluster")
    try:
        logs = answer.json()["elections"]["logs"]
        return [str(log["log_id"]) for log in logs if log["leader"] == node and log["leader_lost"]]
    except (ValueError, KeyError, TypeError):
        raise CommandError(f"{address} did not answer as an nsqd in a cluster") from None
