"""`penstock cluster promote` and `forget`: what becomes of a lost node, if an operator decides.

`promote` has a node promote the log of a lost node, even if its replica may lack messages; with `forget` the cluster forgets a
node that will not come back.
"""

import argparse
import json
import time
from typing import Any

import httpx

from apps.node_client import add_address, open_client, why_refused
from shared.terminal.commands import CommandError, Commands, make_command, seconds, whole_number

MOST_NUMBER = 1023  # of a node
POLL_EVERY = 0.5  # s between two requests for the result of `promote`
FORGET_DETAILS = """
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
FORGET_ADVICE = {
    "NODE_NOT_FOUND": "no node of the cluster has the number {node}; see http://{address}/cluster",
    "NODE_IS_CONNECTED": "node {node} is up, or was a moment ago: stop it first; a node cannot forget itself",
    "NO_CLUSTER": "nsqd at {address} is in no cluster: it has no -cluster-address",
    "CANNOT_WRITE": "nsqd at {address} cannot write to its data directory; it tries again, see its log",
}
PROMOTE = "have a node promote the log of a lost node, even if its replica may lack messages"
PROMOTE_DETAILS = """
The leader of the log must be lost. A node with a complete replica promotes the log by itself, unless -failover-quorum=none;
this command is for replicas that may lack messages. Acknowledged messages that are not in the replica are not delivered, unless
the lost node comes back with its disk; finished messages whose finish is not in the replica are delivered again. The failover
is final. A majority of the nodes must vote for it, an nsqlookupd that is in contact with the leader postpones it, and a node
with a longer replica promotes the log instead. See docs/troubleshooting/lost-node.md.

Exit code: 0 if the log has a new leader, this node or another one. 1 if it has none within the limit: the reason is printed,
and the node continues to try; repeat the command to wait again.
"""
PROMOTE_ADVICE = {
    "NO_REPLICA": "nsqd at {address} has no whole copy of the log {log}; see http://{address}/cluster",
    "OWNER_IS_THERE": "the leader of the log {log} is connected: it is not lost",
    "NO_CLUSTER": "nsqd at {address} is in no cluster: it has no -cluster-address",
    "INVALID_ARG_LOG": "{log} is not a log id, which has 32 hexadecimal digits",
}


def add_commands(commands: Commands) -> None:
    """Add the commands to those of `penstock cluster`."""
    _add_forget(commands)
    _add_promote(commands)


# forget


def _add_forget(commands: Commands) -> None:
    forget = make_command(
        commands,
        "forget",
        _forget,
        "have a cluster forget a node that will not come back",
        FORGET_DETAILS,
        "cluster forget --node 2",
    )
    number = whole_number(0, MOST_NUMBER)
    forget.add_argument("--node", type=number, required=True, metavar="N", help="number of the node (-node-id)")
    add_address(forget, "another node of the cluster")
    forget.add_argument("--json", action="store_true", help="print a JSON object with the number of the node")


def _forget(arguments: argparse.Namespace) -> int:
    node, address = arguments.node, arguments.nsqd_http_address
    with open_client(arguments) as client:
        answer = client.post("/cluster/forget", params={"node": node})
    if answer.status_code != 200:
        raise CommandError(why_refused(answer, FORGET_ADVICE, address, node=node))
    text = f"node {node} is forgotten, by {address} and all nodes that are connected to it"
    print(json.dumps({"forgotten": node}) if arguments.json else f"{text}\n{STILL_GOOD}")
    return 0


# promote


def _add_promote(commands: Commands) -> None:
    promote = make_command(commands, "promote", _promote, PROMOTE, PROMOTE_DETAILS, "cluster promote --node 2")
    which = promote.add_mutually_exclusive_group(required=True)
    which.add_argument("--log", metavar="ID", help="id of the log, as in /cluster")
    number = whole_number(0, MOST_NUMBER)
    which.add_argument("--node", type=number, metavar="N", help="number of the lost node: all logs that it leads")
    add_address(promote, "the node that is to promote")
    promote.add_argument(
        "--limit", type=seconds, default="60s", metavar="DURATION", help="how long to wait for it (default: 60s)"
    )
    promote.add_argument("--json", action="store_true", help="print a JSON object with the new leader of each log")


def _promote(arguments: argparse.Namespace) -> int:
    address = arguments.nsqd_http_address
    with open_client(arguments) as client:
        logs = [arguments.log] if arguments.log is not None else _lost_logs(client, arguments.node, address)
        if not logs:
            raise CommandError(f"nsqd at {address} knows no log whose leader is node {arguments.node} and is lost")
        for log in logs:
            answer = client.post("/cluster/promote", params={"log": log})
            if answer.status_code != 200:
                raise CommandError(why_refused(answer, PROMOTE_ADVICE, address, log=log))
        leaders = _await_leaders(client, logs, address, arguments.limit)
    lines = (f"node {leader} leads the log {log}" for log, leader in leaders.items())
    print(json.dumps({"logs": leaders}) if arguments.json else "\n".join(lines))
    return 0


def _await_leaders(client: httpx.Client, logs: list[str], address: str, limit: float) -> dict[str, int]:
    """Return the new leader of each log. Raises CommandError if one has none within `limit` s, httpx.HTTPError."""
    until = time.monotonic() + limit
    while True:
        cluster = client.get("/cluster").json()
        leaders, reasons = read_leaders(cluster, logs)
        if not reasons:
            return leaders
        if time.monotonic() > until:
            waiting = "; ".join(f"the log {log}: {why}" for log, why in reasons.items())
            raise CommandError(
                f"no node has promoted it within {limit:g} s, and nsqd at {address} continues to try: {waiting}"
            )
        time.sleep(POLL_EVERY)


def read_leaders(cluster: dict[str, Any], logs: list[str]) -> tuple[dict[str, int], dict[str, str]]:
    """Return the leaders of logs by the answer of a node, and the reasons why the others have none. Raises CommandError."""
    try:
        led = {str(one["log_id"]): int(one["node"]) for one in cluster["closed"]}
        led |= {
            str(one["log_id"]): int(cluster["node"]) for one in cluster["led"] if one["state"] not in ("lost", "closed")
        }
        cases = {str(one["log_id"]): one for one in cluster["elections"]["logs"]}
        leaders, reasons = dict[str, int](), dict[str, str]()
        for log in logs:
            case = cases.get(log)
            if log in led:
                leaders[log] = led[log]
            elif case is not None and not case["leader_lost"]:
                leaders[log] = int(case["leader"])
            else:
                reasons[log] = (
                    str(case["reason"] or case["state"] or "it waits") if case else "the node has no copy of it"
                )
        return leaders, reasons
    except (ValueError, KeyError, TypeError):
        raise CommandError("the node did not answer as an nsqd in a cluster") from None


def _lost_logs(client: httpx.Client, node: int, address: str) -> list[str]:
    """Return the ids of the logs of a lost node, as the node at `address` knows them. Raises CommandError, httpx.HTTPError."""
    answer = client.get("/cluster")
    try:
        logs = answer.json()["elections"]["logs"]
        return [str(log["log_id"]) for log in logs if log["leader"] == node and log["leader_lost"]]
    except (ValueError, KeyError, TypeError):
        raise CommandError(f"{address} did not answer as an nsqd in a cluster") from None
