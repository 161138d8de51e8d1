"""`penstock queues`: list the queues of Disque's clients, which are the tubes of beanstalkd's, over nsqd's HTTP API.

    penstock queues                      list all queues of a node
    penstock queues mail --json          print all counts of one
    penstock queues mail --pause out     pause a queue, as PAUSE of Disque's clients does

Their jobs are printed, and acted on, by the commands for messages, with --queue.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

import httpx

from apps.commands import CommandError, Commands, make_command
from apps.messages import add_node, request, run

PAGE = 1000  # queues asked for at a time
WAYS = ("in", "out", "all", "none")
_WHAT = "list the queues of Disque's clients, which are tubes of beanstalkd's"
_DETAILS = """
For each queue: the number of jobs in each state, and of the clients and other nodes that wait for one. Print the jobs of a
queue with `penstock peek --queue NAME`, and act on them with `penstock kick --queue NAME`, `finish`, `requeue` and `bury`.
"""


def add_command(commands: Commands) -> None:
    """Add the command `queues` to the parser."""
    command = make_command(commands, "queues", run, _WHAT)
    command.description = f"{_WHAT}.\n{_DETAILS}"
    command.add_argument("queues", nargs="*", metavar="QUEUE", help="name of a queue (default: all)")
    command.add_argument(
        "--pause",
        choices=WAYS,
        help="pause these queues until that is changed, also over restarts: in (clients of Disque add no jobs), out (no jobs"
        " are delivered), all, or none",
    )
    command.add_argument("--by", default="", metavar="NAME", help="name of the operator who pauses them")
    add_node(command)
    command.set_defaults(run=_queues)


def _queues(client: httpx.Client, arguments: argparse.Namespace) -> None:
    if arguments.pause:
        _pause(client, arguments)
        return
    missing = dict.fromkeys(arguments.queues)
    for one in _listed(client):
        name = one["tube_name"]
        if arguments.queues and name not in arguments.queues:
            continue
        missing.pop(name, None)
        print(json.dumps(one) if arguments.json else f"{name}: {_described(one)}")
    for name in missing:
        raise CommandError(f"TUBE_NOT_FOUND: queue {name} was not found")


def _pause(client: httpx.Client, arguments: argparse.Namespace) -> None:
    if not arguments.queues:
        raise CommandError("queues: --pause wants the names of queues")
    for name in arguments.queues:
        request(client, "POST", "/tube/pause", {"tube": name, "queue": arguments.pause, "by": arguments.by})
        if arguments.json:
            print(json.dumps({"tube_name": name, "queue_paused": arguments.pause}))
        else:
            print(f"{name}: {'resumed' if arguments.pause == 'none' else f'paused {arguments.pause}'}")


def _listed(client: httpx.Client) -> Iterator[dict[str, Any]]:
    """Yield all queues of the node, by name."""
    after = ""
    while True:
        found = request(client, "GET", "/tubes", {"limit": PAGE, "after": after}).json()["tubes"]
        yield from found
        if len(found) < PAGE:
            return
        after = found[-1]["tube_name"]


def _described(one: dict[str, Any]) -> str:
    parts = [
        "{ready_count} ready, {reserved_count} out, {delayed_count} delayed, {buried_count} buried".format_map(one)
    ]
    nodes, disque = one.get("node_waiting_count", 0), one.get("disque_waiting_count", 0)
    waiting = {
        "clients of Disque": disque,
        "clients of beanstalkd": one["waiting_count"] - disque - nodes,
        "nodes": nodes,
    }
    parts += [f"{count} {what} wait" for what, count in waiting.items() if count]
    paused = one.get("queue_paused", "none")
    if paused != "none":
        parts.append(f"paused {paused}")
    elif one["pause_left"]:
        parts.append(f"paused for {one['pause_left']} s")
    return "; ".join(parts)
