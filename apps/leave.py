"""`penstock leave`: have a node transfer its logs to other nodes, and leave the cluster permanently."""

import argparse
import time
from typing import Any

import httpx

from apps.node_client import add_address, open_client, why_refused
from shared.log import escape
from shared.terminal.commands import CommandError, Commands, make_command

TIMEOUT = 10.0  # s for an answer
ASK_EVERY = 0.5  # s between two requests for the progress
SILENT_FOR = 10.0  # s until the command gives up an unresponsive node
WHAT = "have a node transfer its logs to other nodes, and leave the cluster permanently"
DETAILS = """
The node takes no messages and delivers none from then on. It waits for messages in flight at connected consumers, for half of
the limit at most, and asks nodes that have all of its logs to lead them. Then it announces that it has left, and its process
ends: make sure that nothing starts it again. A log that is not transferred within the limit stays its own; the process ends as
well, and there is a failover as for a lost node. Until then keep its data directory, which is a copy. A node that left may join
again, best with a new data directory. See docs/how-to/drain-or-remove-a-node.md.
"""
ADVICE = {
    "NO_CLUSTER": "nsqd at {address} is in no cluster: it has no -cluster-address",
    "INVALID_ARG_LIMIT": "the limit must be a duration from 1ns to 24h, such as 60s",
}
TEXTS = {
    "waiting": "waiting for {in_flight} messages in flight",
    "handing over": "transferring {count} logs",
    "telling": "notifying the other nodes",
    "left": "the node has left the cluster",
    "gave up": "{count} logs were not transferred in time: the node ends as their leader, and its disk is still a copy",
}
LACKING = (
    "the node ends, and has not left: the new leaders of these logs may lack messages that its disk has: {logs}; "
    "{count} other logs were not transferred"
)
UNCLAIMED = "; its disk has a copy of these logs, whose leader is lost and which no other node leads: {logs}"


def add_command(commands: Commands) -> None:
    """Add the command `leave` to the parser."""
    leave = make_command(commands, "leave", run, WHAT, DETAILS, "leave --nsqd-http-address 10.0.0.1:4151")
    add_address(leave, "the node that is to leave")
    leave.add_argument("--limit", default="60s", metavar="DURATION", help="how long it may take (default: 60s)")


def run(arguments: argparse.Namespace) -> int:
    """Have a node leave, print the progress, and return 0 if it has left, otherwise 1. Raises CommandError, httpx.HTTPError."""
    with open_client(arguments, TIMEOUT) as client:
        answer = client.post("/cluster/leave", params={"limit": arguments.limit})
        if answer.status_code != 200:
            raise CommandError(why_refused(answer, ADVICE, arguments.nsqd_http_address))
        return _follow(client, answer, arguments.nsqd_http_address)


def _follow(client: httpx.Client, answer: httpx.Response, address: str) -> int:
    """Print the progress until the node has left or gave up, and return the exit code. Raises CommandError."""
    last = ""
    while True:
        try:
            state = dict(answer.json())
            text = describe(state)
        except (ValueError, KeyError, TypeError):
            raise CommandError(f"{address} does not answer as an nsqd of Penstock") from None
        if text != last:
            print(text, flush=True)
            last = text
        if state["state"] in ("left", "gave up"):
            return 0 if state["state"] == "left" else 1
        time.sleep(ASK_EVERY)
        answer = _progress(client, address)


def _progress(client: httpx.Client, address: str) -> httpx.Response:
    """Ask a node for its progress, for SILENT_FOR s if it does not answer. Raises CommandError."""
    deadline = time.monotonic() + SILENT_FOR
    while True:
        try:
            return client.get("/cluster/leave")
        except httpx.HTTPError:
            if time.monotonic() > deadline:
                raise CommandError(f"nsqd at {address} no longer answers: look at /cluster of another node") from None
        time.sleep(ASK_EVERY)


def describe(state: dict[str, Any]) -> str:
    """Return a line with the progress of a node. Raises KeyError, ValueError or TypeError for the answer of another program."""
    text = TEXTS[state["state"]].format(in_flight=int(state["in_flight"]), count=len(state["logs"]))
    if state["state"] == "gave up" and state["lacking"]:
        text = LACKING.format(logs=_named(state["lacking"]), count=len(state["logs"]))
    if state["state"] in ("left", "gave up") and state["leaderless"]:
        text += UNCLAIMED.format(logs=_named(state["leaderless"]))
    return text


def _named(logs: list[Any]) -> str:
    return escape(", ".join(str(log_id)[:32] for log_id in logs))
