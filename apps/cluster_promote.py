"""`penstock cluster promote`: have a node promote the log of a lost node, even if its replica may lack messages."""

import argparse
import json
import sys

import httpx

from apps.cluster_forget import number_of_node
from apps.node_client import AccessError, add_address, open_client, why_refused

WHAT = "have a node promote the log of a lost node, even if its replica may lack messages"
DETAILS = """
The leader of the log must be lost. A node with a complete replica promotes the log by itself, unless -failover-quorum=none;
this command is for replicas that may lack messages. Acknowledged messages that are not in the replica are not delivered, unless
the lost node comes back with its disk; finished messages whose finish is not in the replica are delivered again. The failover
is final. A majority of the nodes must vote for it, an nsqlookupd that is in contact with the leader postpones it, and a node
with a longer replica promotes the log instead. /cluster shows the result; see docs/operations/lost-node.md.
"""
ADVICE = {
    "NO_REPLICA": "nsqd at {address} has no whole copy of the log {log}; see http://{address}/cluster",
    "OWNER_IS_THERE": "the leader of the log {log} is connected: it is not lost",
    "NO_CLUSTER": "nsqd at {address} is in no cluster: it has no -cluster-address",
    "INVALID_ARG_LOG": "{log} is not a log id, which has 32 hexadecimal digits",
}


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command `promote` to those of `penstock cluster`."""
    promote = commands.add_parser(
        "promote", help=WHAT, description=WHAT, epilog=DETAILS, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    which = promote.add_mutually_exclusive_group(required=True)
    which.add_argument("--log", metavar="ID", help="id of the log, as in /cluster")
    which.add_argument(
        "--node", type=number_of_node, metavar="N", help="number of the lost node: all logs that it leads"
    )
    add_address(promote, "the node that is to promote")
    promote.add_argument("--json", action="store_true", help="print a JSON object with the ids of the logs")
    promote.set_defaults(main=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return the exit code: 0, or 1 if it cannot."""
    address = arguments.nsqd_http_address
    try:
        with open_client(arguments) as client:
            logs = [arguments.log] if arguments.log is not None else _lost_logs(client, arguments.node)
            for log in logs:
                answer = client.post("/cluster/promote", params={"log": log})
                if answer.status_code != 200:
                    return _failed(why_refused(answer, ADVICE, address, log=log))
    except AccessError as error:
        return _failed(str(error))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return _failed(f"cannot ask nsqd at {address}: {error}")
    except (ValueError, KeyError, TypeError):
        return _failed(f"{address} did not answer as an nsqd in a cluster")
    if not logs:
        return _failed(f"nsqd at {address} knows no log whose leader is node {arguments.node} and is lost")
    text = f"nsqd at {address} is a candidate for {', '.join(logs)}; see http://{address}/cluster"
    print(json.dumps({"logs": logs}) if arguments.json else text)
    return 0


def _lost_logs(client: httpx.Client, node: int) -> list[str]:
    """Return the ids of the logs of a lost node, as a node knows them.

    Raises httpx.HTTPError, ValueError, KeyError, TypeError.
    """
    logs = client.get("/cluster").json()["elections"]["logs"]
    return [str(one["log_id"]) for one in logs if one["leader"] == node and one["leader_lost"]]


def _failed(why: str) -> int:
    print(f"penstock cluster promote: {why}", file=sys.stderr)
    return 1
