"""`penstock chaos kill|start|freeze|thaw|partition|heal NODE`: break a node of a local set on purpose, and mend it again.

It works on the set of a `penstock up --chaos` alone: that one kills, freezes and starts its processes, and the nodes
themselves are silent towards each other, so it needs no right that its user does not have.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from apps.control import NoSetError, ask
from apps.daemon_set import HOST
from shared.values import SECOND, format_duration, parse_duration

TIMEOUT = 5.0  # s for a node to answer
AGAIN = 0.1  # s until a node is asked again that starts
LEAST, LONGEST = SECOND // 1000, 24 * 3600 * SECOND  # ns of --for
DATA = Path("data")  # as of `penstock up`
WHAT = "break a node of a local set on purpose, to rehearse what follows"
DETAILS = """
The set must be one of this machine that was started with `penstock up --chaos`, for example

    penstock up --nodes 3 --chaos

NODE is the number of a node, as on nsqadmin's page Cluster (0, 1, ...), or its name (nsqd, nsqd-2, ...; nsqd-2 is node 1).
No acknowledged message is lost by any of these. See docs/operations/several-nodes.md#break-a-node-on-purpose.
"""
RUNNING = "running"
LOOKUPDS = "/config/nsqlookupd_tcp_addresses"
START_ONE = "start one with `penstock up --nodes 3 --chaos`, or name the directory of the one that runs with --data"
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
        "cut a node off from the other nodes: neither side hears the other, and clients still reach both",
        "heal",
        "is cut off from {others}: neither side hears the other",
    ),
    "heal": ("end the partitions of a node", "", "is no longer cut off from {others}"),
}


class ChaosError(Exception):
    """The command is not possible. The text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the set, as `penstock up` and the node itself know it."""

    number: int
    name: str
    state: str  # running, starting, frozen, held, ...
    address: str  # host:port over HTTP

    def __str__(self) -> str:
        return f"{self.name} (node {self.number})"


@dataclass(frozen=True, slots=True)
class LocalSet:
    """The set that runs, as it says of itself."""

    nodes: list[Node]
    lookupd: str  # host:port of nsqlookupd over TCP
    admin: str  # host:port of nsqadmin

    def find(self, word: str) -> Node:
        """Return the node of that number or name. Raises ChaosError."""
        for node in self.nodes:
            if word in (node.name, str(node.number)):
                return node
        known = ", ".join(map(str, self.nodes))
        raise ChaosError(f"{word!r} is not a node of this set; its nodes are {known}")


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command `chaos`, with those below it, to the parser."""
    chaos = commands.add_parser(
        "chaos",
        help=f"{WHAT}: {', '.join(KINDS)}",
        description=f"{WHAT.capitalize()}.",
        epilog=DETAILS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    below = chaos.add_subparsers(required=True, metavar="command")
    for kind, (help_text, undo, _) in KINDS.items():
        command = below.add_parser(
            kind,
            help=help_text,
            description=f"{help_text[:1].upper()}{help_text[1:]}.",
            epilog=DETAILS,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        _add_arguments(command, kind, undo)
        command.set_defaults(main=run, chaos_command=kind)


def _add_arguments(command: argparse.ArgumentParser, kind: str, undo: str) -> None:
    """Add the arguments of one command. `undo`: the command that undoes it; "": none does."""
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
            help="also from nsqlookupd: while that hears the node, the others leave its log alone (not with --for)",
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
    command.add_argument(
        "--data",
        type=Path,
        default=DATA,
        metavar="DIR",
        help="directory that `penstock up` was given (default: ./data)",
    )
    command.add_argument("--json", action="store_true", help="print a JSON object about what was done")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return the exit code: 0, or 1 if it is not possible."""
    kind, data = arguments.chaos_command, arguments.data
    duration = getattr(arguments, "duration", 0)
    try:
        there = _local_set(ask(data, "status"))
        node = there.find(arguments.node)
        others: list[Node] = []
        if kind in ("partition", "heal"):
            others = _others(there, node, arguments.others)
            if kind == "partition":
                _partition(node, others, duration, arguments.lookupd)
            else:
                _heal(node, others, "" if arguments.others else there.lookupd)
        else:
            _local_set(ask(data, kind, node.name, duration / SECOND))
    except NoSetError as error:
        return _failed(f"{error}: {START_ONE}")
    except ChaosError as error:
        return _failed(str(error))
    undo = _undo(kind, node, arguments)
    if arguments.json:
        about = {"command": kind, "node": node.number, "name": node.name, "seconds": duration / SECOND}
        about |= {"others": [other.number for other in others], "undo": undo, "watch": f"http://{there.admin}/cluster"}
        print(json.dumps(about))
    else:
        print(_report(kind, node, others, duration, undo))
        print(f"Watch: http://{there.admin}/cluster")
    return 0


def _local_set(answer: dict[str, Any]) -> LocalSet:
    """Return the set that an answer tells of. Raises ChaosError if it is a refusal."""
    try:
        if "error" in answer:
            raise ChaosError(str(answer["error"]))
        nodes = [
            Node(number, str(one["name"]), str(one["state"]), f"{HOST}:{int(one['http_port'])}")
            for number, one in enumerate(answer["nodes"])
        ]
        return LocalSet(nodes, *(f"{HOST}:{int(answer[port])}" for port in ("lookupd_port", "admin_port")))
    except (KeyError, TypeError, ValueError):
        raise ChaosError("the set gives an answer that is not one of this version's penstock up") from None


def _others(there: LocalSet, node: Node, words: Sequence[str]) -> list[Node]:
    """Return the nodes that a partition is from: those that were named, or all others. Raises ChaosError."""
    others = [there.find(word) for word in dict.fromkeys(words)] or [one for one in there.nodes if one != node]
    if node in others:
        raise ChaosError(f"{node} cannot be cut off from itself")
    if not others:
        raise ChaosError(f"{node} is the only node of this set: start one with `penstock up --nodes 3 --chaos`")
    return others


def _partition(node: Node, others: Iterable[Node], duration: int, has_lookupd: bool) -> None:
    """Begin the silence between a node and others; `has_lookupd`: nsqlookupd loses the node, too. Raises ChaosError."""
    if node.state != RUNNING:
        raise ChaosError(f"{node} is not running: it is {node.state}; a partition is between nodes that run")
    if has_lookupd and duration:
        raise ChaosError("a partition with --lookupd does not end by itself: leave out --for, and end it with heal")
    if has_lookupd:  # before the silence: the answer may wait for copies on other nodes
        _ask(node, "PUT", LOOKUPDS, content=b"[]")
    _switch("cut", node, others, {"for": f"{duration}ns"} if duration else {})


def _heal(node: Node, others: Iterable[Node], lookupd: str) -> None:
    """End the silence between a node and others. `lookupd`: is made known to the node again; "": none. Raises ChaosError."""
    _switch("heal", node, others, {})
    if lookupd and node.state == RUNNING and _ask(node, "GET", LOOKUPDS).text.strip() == "[]":
        _ask(node, "PUT", LOOKUPDS, content=json.dumps([lookupd]).encode())


def _switch(route: str, node: Node, others: Iterable[Node], query: dict[str, str]) -> None:
    """Begin or end a silence on both sides, as far as they run: that of one side is enough. Raises ChaosError."""
    for other in others:
        for one, far in ((node, other), (other, node)):
            if one.state == RUNNING:
                _ask(one, "POST", f"/debug/cluster/{route}", {"node": str(far.number)} | query)


def _ask(
    node: Node, method: str, path: str, query: dict[str, str] | None = None, content: bytes = b""
) -> httpx.Response:
    """Return what a node answers. Raises ChaosError if it does not, or refuses.

    A node that begins another log, because it was cut off for long, closes or resets its connections: it is asked again until
    it serves.
    """
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            url = f"http://{node.address}{path}"
            answer = httpx.request(method, url, params=query, content=content, timeout=TIMEOUT, trust_env=False)
        except httpx.HTTPError as error:
            why, is_starting = (
                f"does not answer: {error or type(error).__name__}",
                isinstance(error, httpx.ProtocolError | httpx.ReadError | httpx.WriteError),
            )
        else:
            if answer.status_code == 200:
                return answer
            why, is_starting = f"answers {answer.status_code}: {answer.text[:200]}", "STARTING" in answer.text
        if not is_starting or time.monotonic() > deadline:
            raise ChaosError(f"{node} at {node.address} {why}")
        time.sleep(AGAIN)


def _report(kind: str, node: Node, others: Sequence[Node], duration: int, undo: str) -> str:
    """Return the line that says what was done, and what undoes it."""
    done = KINDS[kind][2].format(others=", ".join(map(str, others)))
    if not undo:
        return f"{node} {done}."
    if duration:
        return f"{node} {done}, for {format_duration(duration)}. To undo it earlier: {undo}"
    return f"{node} {done}. To undo it: {undo}"


def _undo(kind: str, node: Node, arguments: argparse.Namespace) -> str:
    """Return the command that undoes another one; "": it is one that undoes."""
    undo = KINDS[kind][1]
    if not undo:
        return ""
    words = ["penstock", "chaos", undo, str(node.number)]
    if not getattr(arguments, "lookupd", False):  # which only the end of all partitions brings back
        words += [word for other in getattr(arguments, "others", ()) for word in ("--from", other)]
    if arguments.data != DATA:
        words += ["--data", str(arguments.data)]
    return shlex.join(words)


def _failed(why: str) -> int:
    print(f"penstock chaos: {why}", file=sys.stderr)
    return 1


def _duration(text: str) -> int:
    try:
        duration = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not LEAST <= duration <= LONGEST:
        raise argparse.ArgumentTypeError("expected a duration from 1ms to 24h")
    return duration
