"""`penstock chaos kill|start|freeze|thaw|partition|heal NODE`: break a node of a local set on purpose, and repair it.

`penstock up --chaos` kills, freezes and starts its own processes, and in a partition the nodes themselves stop to send to each
other: so the command needs no right that its user does not have.
"""

import argparse
import json
import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from apps.control import ask
from apps.daemon_set import HOST
from shared.terminal.commands import CommandError, Commands, make_command
from shared.tls.client import why_failed
from shared.values import SECOND, format_duration, parse_duration

TIMEOUT = 5.0  # s for a node to answer
AGAIN = 0.1  # s until a node is asked again that starts
LEAST, LONGEST = SECOND // 1000, 24 * 3600 * SECOND  # ns of --for
DATA = Path("data")  # as of `penstock up`
WHAT = "break a node of a local set on purpose, to practice a failover"
DETAILS = """
The set must be one of this machine that was started with `penstock up --chaos`, for example

    penstock up --nodes 3 --chaos

NODE is the number of a node, as on nsqadmin's page Cluster (0, 1, ...), or its name (nsqd, nsqd-2, ...; nsqd-2 is node 1).
No acknowledged message is lost by any of these. See docs/how-to/run-several-nodes.md#break-a-node-on-purpose.
"""
RUNNING = "running"
LOOKUPDS = "/config/nsqlookupd_tcp_addresses"
KINDS = {
    "kill": ("kill a node with SIGKILL, and hold it down", "start", "was killed with SIGKILL, and is held down"),
    "start": ("start a node that is down", "", "is being started"),
    "freeze": (
        "freeze a node with SIGSTOP: its connections stay open, and it says nothing",
        "thaw",
        "is frozen: its connections stay open, and it says nothing",
    ),
    "thaw": ("let a frozen node continue", "", "continues"),
    "partition": (
        "partition a node from the other nodes: neither side receives anything from the other, and clients still reach both",
        "heal",
        "is partitioned from {others}: neither side receives anything from the other",
    ),
    "heal": ("end the partitions of a node", "", "is no longer partitioned from {others}"),
}


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the set, as `penstock up` reports it."""

    number: int
    name: str
    state: str  # running, starting, frozen, held, ...
    address: str  # host:port over HTTP

    def __str__(self) -> str:
        return f"{self.name} (node {self.number})"


@dataclass(frozen=True, slots=True)
class LocalSet:
    """The set that runs, as `penstock up` reports it."""

    nodes: list[Node]
    lookupd: str  # host:port of nsqlookupd over TCP
    admin: str  # host:port of nsqadmin

    def find(self, name: str) -> Node:
        """Return the node of that number or name. Raises CommandError."""
        for node in self.nodes:
            if name in (node.name, str(node.number)):
                return node
        known = ", ".join(map(str, self.nodes))
        raise CommandError(f"{name!r} is not a node of this set; its nodes are {known}")


def add_command(commands: Commands) -> None:
    """Add the command `chaos`, with its subcommands, to the parser."""
    chaos = make_command(commands, "chaos", run, f"{WHAT}: {', '.join(KINDS)}", DETAILS, "chaos kill 1 --for 60s")
    below = chaos.add_subparsers(required=True, metavar="command")
    for kind, (what, undo, _) in KINDS.items():
        command = make_command(below, kind, run, what, DETAILS, f"chaos {kind} 1" + " --for 60s" * bool(undo))
        _add_arguments(command, kind, undo)
        command.set_defaults(program=chaos.prog, chaos_command=kind)


def _add_arguments(command: argparse.ArgumentParser, kind: str, undo: str) -> None:
    """Add the arguments of one command. `undo`: the command that undoes it, or ""."""
    command.add_argument("node", metavar="NODE", help="number or name of the node, such as 1 or nsqd-2")
    if undo:
        command.add_argument(
            "--for",
            dest="duration",
            type=_duration,
            default=0,
            metavar="DURATION",
            help=f"undo it after this time, such as 60s (default: until `penstock chaos {undo}`)",
        )
    if kind == "partition":
        command.add_argument(
            "--lookupd",
            action="store_true",
            help="also from nsqlookupd: while that is in contact with the node, its log is not promoted (not with --for)",
        )
    if kind in ("partition", "heal"):
        command.add_argument(
            "--from",
            dest="others",
            action="append",
            default=[],
            metavar="OTHER",
            help="only between NODE and this one (may be given multiple times; default: all others)",
        )
    text = "the --data of `penstock up` (default: ./data)"
    command.add_argument("--data", type=Path, default=DATA, metavar="DIR", help=text)
    command.add_argument("--json", action="store_true", help="print a JSON object about the result")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return 0. Raises CommandError if it is not possible."""
    kind, data = arguments.chaos_command, arguments.data
    duration = getattr(arguments, "duration", 0)
    local_set = _local_set(ask(data, "status"))
    node = local_set.find(arguments.node)
    others: list[Node] = []
    if kind in ("partition", "heal"):
        others = _others(local_set, node, arguments.others)
        if kind == "partition":
            _partition(node, others, duration, arguments.lookupd)
        else:
            _heal(node, others, "" if arguments.others else local_set.lookupd)
    else:
        _local_set(ask(data, kind, node.name, duration / SECOND))
    undo, watch = _undo(kind, node, arguments), f"http://{local_set.admin}/cluster"
    if arguments.json:
        about = {"command": kind, "node": node.number, "name": node.name, "seconds": duration / SECOND}
        print(json.dumps(about | {"others": [other.number for other in others], "undo": undo, "watch": watch}))
    else:
        print(f"{_report(kind, node, others, duration, undo)}\nWatch: {watch}")
    return 0


def _local_set(answer: dict[str, Any]) -> LocalSet:
    """Return the set in an answer of `penstock up`. Raises CommandError if it is a refusal."""
    try:
        if "error" in answer:
            raise CommandError(str(answer["error"]))
        nodes = [
            Node(number, str(one["name"]), str(one["state"]), f"{HOST}:{int(one['http_port'])}")
            for number, one in enumerate(answer["nodes"])
        ]
        return LocalSet(nodes, *(f"{HOST}:{int(answer[port])}" for port in ("lookupd_port", "admin_port")))
    except (KeyError, TypeError, ValueError):
        raise CommandError("the set gives an answer that is not one of this version's penstock up") from None


def _others(local_set: LocalSet, node: Node, names: Sequence[str]) -> list[Node]:
    """Return the nodes on the other side of a partition: those with the names, or all others. Raises CommandError."""
    others = [local_set.find(name) for name in dict.fromkeys(names)] or [one for one in local_set.nodes if one != node]
    if node in others:
        raise CommandError(f"{node} cannot be partitioned from itself")
    if not others:
        raise CommandError(f"{node} is the only node of this set: start one with `penstock up --nodes 3 --chaos`")
    return others


def _partition(node: Node, others: Iterable[Node], duration: int, has_lookupd: bool) -> None:
    """Partition a node from others; `has_lookupd`: nsqlookupd loses the node, too. Raises CommandError."""
    if node.state != RUNNING:
        raise CommandError(f"{node} is not running: it is {node.state}; a partition is between nodes that run")
    if has_lookupd and duration:
        raise CommandError("a partition with --lookupd does not end by itself: leave out --for, and end it with heal")
    if has_lookupd:  # before the partition: the answer may wait for copies on other nodes
        _ask(node, "PUT", LOOKUPDS, content=b"[]")
    _switch("cut", node, others, {"for": f"{duration}ns"} if duration else {})


def _heal(node: Node, others: Iterable[Node], lookupd: str) -> None:
    """End the partition of a node from others, and of one from nsqlookupd unless `lookupd` is "". Raises CommandError."""
    _switch("heal", node, others, {})
    if lookupd and node.state == RUNNING and _ask(node, "GET", LOOKUPDS).text.strip() == "[]":
        _ask(node, "PUT", LOOKUPDS, content=json.dumps([lookupd]).encode())


def _switch(route: str, node: Node, others: Iterable[Node], query: dict[str, str]) -> None:
    """Begin or end a partition on both sides, as far as they run: one side is enough. Raises CommandError."""
    for other in others:
        for one, far in ((node, other), (other, node)):
            if one.state == RUNNING:
                _ask(one, "POST", f"/debug/cluster/{route}", {"node": str(far.number)} | query)


def _ask(
    node: Node, method: str, path: str, query: dict[str, str] | None = None, content: bytes = b""
) -> httpx.Response:
    """Return the response of a node. Raises CommandError if there is none, or it is an error.

    A node that begins another log, after a long partition, closes or resets its connections: it is asked again until it serves.
    """
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            url = f"http://{node.address}{path}"
            answer = httpx.request(method, url, params=query, content=content, timeout=TIMEOUT, trust_env=False)
        except httpx.HTTPError as error:
            why = f"does not answer: {why_failed(error)}"
            is_starting = isinstance(error, httpx.ProtocolError | httpx.ReadError | httpx.WriteError)
        else:
            if answer.status_code == 200:
                return answer
            why, is_starting = f"answers {answer.status_code}: {answer.text[:200]}", "STARTING" in answer.text
        if not is_starting or time.monotonic() > deadline:
            raise CommandError(f"{node} at {node.address} {why}")
        time.sleep(AGAIN)


def _report(kind: str, node: Node, others: Sequence[Node], duration: int, undo: str) -> str:
    """Return the line about the result, and about the command that undoes it."""
    done = KINDS[kind][2].format(others=", ".join(map(str, others)))
    if not undo:
        return f"{node} {done}."
    earlier = f", for {format_duration(duration)}. To undo it earlier" if duration else ". To undo it"
    return f"{node} {done}{earlier}: {undo}"


def _undo(kind: str, node: Node, arguments: argparse.Namespace) -> str:
    """Return the command that undoes another one; "" for one that undoes."""
    undo = KINDS[kind][1]
    if not undo:
        return ""
    command = ["penstock", "chaos", undo, str(node.number)]
    if not getattr(arguments, "lookupd", False):  # only the end of all partitions makes nsqlookupd known again
        command += [part for other in getattr(arguments, "others", ()) for part in ("--from", other)]
    if arguments.data != DATA:
        command += ["--data", str(arguments.data)]
    return shlex.join(command)


def _duration(text: str) -> int:
    try:
        duration = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not LEAST <= duration <= LONGEST:
        raise argparse.ArgumentTypeError("expected a duration from 1ms to 24h")
    return duration
