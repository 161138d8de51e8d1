"""`penstock queues`: list the queues of Disque's clients, which are the tubes of beanstalkd's, over nsqd's HTTP API.

    penstock queues                      list all queues of a node
    penstock queues mail --json          tell all about one
    penstock queues mail --pause out     pause a queue, as PAUSE of Disque's clients does

Their jobs are printed, and acted on, by the commands for messages, with --queue.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

import httpx

from apps.messages import Refused, add_node, request, run

PAGE = 1000  # queues asked for at a time
WAYS = ("in", "out", "all", "none")
_WHAT = "list the queues of Disque's clients, which are tubes of beanstalkd's"
_MORE = (
    f"{_WHAT[0].upper()}{_WHAT[1:]}: how many jobs are in which state, and how many clients and other nodes wait for one."
    " Print the jobs of a queue with `penstock peek --queue NAME`, and act on them with `penstock kick --queue NAME`, `finish`,"
    " `requeue` and `bury`."
)


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command `queues` and its flags. In the parsed arguments, `main` is to be called; it calls `run`."""
    command = commands.add_parser("queues", help=_WHAT, description=_MORE)
    command.add_argument("queues", nargs="*", metavar="QUEUE", help="name of a queue (default: all)")
    command.add_argument(
        "--pause",
        choices=WAYS,
        help="pause these queues until that is changed, also over restarts: in (clients of Disque add no jobs), out (no jobs"
        " are handed out), all, or none",
    )
    command.add_argument("--by", default="", metavar="NAME", help="who pauses them")
    add_node(command)
    command.set_defaults(main=run, run=_queues)


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
        raise Refused(f"TUBE_NOT_FOUND: queue {name} was not found")


def _pause(client: httpx.Client, arguments: argparse.Namespace) -> None:
    if not arguments.queues:
        raise Refused("queues: --pause wants the names of queues")
    for name in arguments.queues:
        query = {"tube": name, "queue": arguments.pause} | ({"by": arguments.by} if arguments.by else {})
        request(client, "POST", "/tube/pause", query)
        if arguments.json:
            print(json.dumps({"tube_name": name, "queue_paused": arguments.pause}))
        else:
            print(f"{name}: {'resumed' if arguments.pause == 'none' else f'paused {arguments.pause}'}")


def _listed(client: httpx.Client) -> Iterator[dict[str, Any]]:
    """Yield all queues of the node, by name."""
    after = ""
    while True:
        query = {"limit": PAGE} | ({"after": after} if after else {})
        found = request(client, "GET", "/tubes", query).json()["tubes"]
        yield from found
        if len(found) < PAGE:
            return
        after = found[-1]["tube_name"]


def _described(one: dict[str, Any]) -> str:
    states = {"ready": "ready", "reserved": "out", "delayed": "delayed", "buried": "buried"}
    parts = [", ".join(f"{one[f'{state}_count']} {word}" for state, word in states.items())]
    nodes, disque = one.get("node_waiting_count", 0), one.get("disque_waiting_count", 0)
    waiting = {"of Disque": disque, "of beanstalkd": one["waiting_count"] - disque - nodes}
    parts += [f"{count} clients {whose} wait" for whose, count in waiting.items() if count]
    parts += [f"{nodes} nodes wait"] if nodes else []
    paused = one.get("queue_paused", "none")
    if paused != "none":
        parts.append(f"paused {paused}")
    elif one["pause_left"]:
        parts.append(f"paused for {one['pause_left']} s")
    return "; ".join(parts)
