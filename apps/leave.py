"""`penstock leave`: have a node transfer its logs to other nodes, and leave the cluster permanently."""

import argparse
import time
from collections.abc import Callable
from typing import Any, TypeVar

import httpx

from apps.node_client import Node, add_address, open_client, url_of
from shared.counted import counted
from shared.log import escape
from shared.terminal.commands import CommandError, Commands, ExitCode, make_command

T = TypeVar("T")

TIMEOUT = 10.0  # s for an answer
ASK = 2.0  # s for the answer of another node
ASK_EVERY = 0.5  # s between two requests for the progress
SILENT_FOR = 10.0  # s until an unresponsive node is given up, and until another node must confirm that it has left
WHAT = "have a node transfer its logs to other nodes, and leave the cluster permanently"
DETAILS = """
The node takes no messages and delivers none from then on. It waits for messages in flight at connected consumers, for half of
the limit at most, and asks nodes that have all of its logs to lead them. Then it announces that it has left, and its process
ends: make sure that nothing starts it again. A log that is not transferred within the limit stays its own; the process ends as
well, and there is a failover as for a lost node. Until then keep its data directory, which is a copy. A node that left may join
again, best with a new data directory. See docs/how-to/drain-or-remove-a-node.md.

Exit code: 0 only if another node confirms that this one has left. Otherwise 1: the last line says what to do.
"""
ADVICE = {
    "NO_CLUSTER": "nsqd at {address} is in no cluster: it has no -cluster-address",
    "INVALID_ARG_LIMIT": "the limit must be a duration from 1ns to 24h, such as 60s",
}
TEXTS = {
    "waiting": "waiting for {in_flight} in flight",
    "handing over": "transferring {count}",
    "telling": "notifying the other nodes",
    "left": "the node has left the cluster",
    "gave up": "the node ends, and has not left",
}
KEPT = "{count} not transferred in time: the node is still the leader, and its disk is a copy"
LACKING = "the leaders of these logs may lack messages that its disk has: {logs}"
UNCLAIMED = "no node leads these logs, of which its disk has a copy: {logs}"
ALONE = "it is connected to no other node, so none would know; see penstock cluster status"
RESTARTED = "nsqd at {address} was started again, and has joined again: make sure that nothing starts it, and repeat"
UNCONFIRMED = (
    "no other node confirms that node {node} has left: keep its disk, and look at penstock cluster status of another node; "
    "if that lists the node as down, penstock cluster forget --node {node}"
)


def add_command(commands: Commands) -> None:
    """Add the command `leave` to the parser."""
    leave = make_command(commands, "leave", run, WHAT, DETAILS, "leave --nsqd-http-address 10.0.0.1:4151")
    add_address(leave, "the node that is to leave")
    leave.add_argument("--limit", default="60s", metavar="DURATION", help="how long it may take (default: 60s)")


def run(arguments: argparse.Namespace) -> int:
    """Have a node leave, print the progress, and return 0 if another node confirms that it has left, otherwise 1.

    Raises CommandError, httpx.HTTPError.
    """
    with open_client(arguments, TIMEOUT) as client:
        return leave(Node(client, arguments.nsqd_http_address, ADVICE), arguments.limit)


def leave(node: Node, limit: str, sleep: Callable[[float], object] = time.sleep) -> int:
    """Have a node leave within `limit`, a duration, and return the exit code of `run`. Raises as that does."""
    number, others = _members(node.request("GET", "/cluster", {}))
    answer: httpx.Response | None = node.request("POST", "/cluster/leave", {"limit": limit})
    last = ""
    while answer is not None:
        try:
            state = dict(answer.json())
            if state["state"] == "staying":
                raise CommandError(RESTARTED.format(address=node.address))
            text = describe(state)
        except (ValueError, KeyError, TypeError):
            raise CommandError(f"{node.address} does not answer as an nsqd of Penstock") from None
        if text != last:
            print(text, flush=True)
            last = text
        if state["state"] == "gave up":
            return ExitCode.FAILED
        if state["state"] == "left":
            break
        sleep(ASK_EVERY)
        answer = _progress(node, sleep)
    if not _until(lambda: _has_left(node.client, number, others) or None, sleep):
        raise CommandError(UNCONFIRMED.format(node=number))
    if last != TEXTS["left"]:
        print(f"nsqd at {node.address} has ended, and another node confirms that it has left", flush=True)
    return ExitCode.DONE


def _members(answer: httpx.Response) -> tuple[int, list[str]]:
    """Return the number of the node that answers /cluster, and the HTTP addresses of the other members. Raises CommandError."""
    try:
        cluster = answer.json()
        own = int(cluster["node"])
        others = [one for one in cluster["nodes"] if one["node"] != own and one["standing"] == "member"]
        return own, [str(one["http_address"]) for one in others if one["http_address"]]
    except (ValueError, KeyError, TypeError):
        raise CommandError(f"{answer.url.netloc.decode()} did not answer as an nsqd in a cluster") from None


def _progress(node: Node, sleep: Callable[[float], object]) -> httpx.Response | None:
    """Ask a node for its progress; None: it has not answered for SILENT_FOR s, as when it has ended. Raises CommandError."""
    return _until(lambda: node.request("GET", "/cluster/leave", {}), sleep)


def _has_left(client: httpx.Client, number: int, others: list[str]) -> bool:
    """Return True if any of the other nodes says that a node has left."""
    for address in others:
        try:
            nodes = client.get(f"{url_of(address)}/cluster", timeout=ASK).json()["nodes"]
            if any(one["node"] == number and one["standing"] != "member" for one in nodes):
                return True
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
            continue
    return False


def _until(ask: Callable[[], T | None], sleep: Callable[[float], object]) -> T | None:
    """Return the first result of `ask` that is not None, within SILENT_FOR s and without an HTTPError; otherwise None."""
    for _ in range(int(SILENT_FOR / ASK_EVERY)):
        try:
            if (found := ask()) is not None:
                return found
        except httpx.HTTPError:
            pass
        sleep(ASK_EVERY)
    return None


def describe(state: dict[str, Any]) -> str:
    """Return a line with the progress of a node. Raises KeyError, ValueError or TypeError for the answer of another program."""
    logs = counted(len(state["logs"]), "log")
    text = TEXTS[state["state"]].format(in_flight=counted(int(state["in_flight"]), "message"), count=logs)
    left = [LACKING.format(logs=_named(state["lacking"]))] if state["lacking"] else []
    left += [UNCLAIMED.format(logs=_named(state["leaderless"]))] if state["leaderless"] else []
    if state["state"] == "gave up":
        left = [KEPT.format(count=logs), *left] if state["logs"] else left or [ALONE]
    return "; ".join([text, *left])


def _named(logs: list[Any]) -> str:
    return escape(", ".join(str(log_id)[:32] for log_id in logs))
