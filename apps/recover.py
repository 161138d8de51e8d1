"""Run `penstock recover DIR --node N --from HOST:PORT`: make the data directory of a lost node from a copy of its log.

The command asks all nodes of the cluster for their copies, and fetches the longest one: so every message is recovered that was
acknowledged with two copies or more. DIR must not exist; it is written to `DIR.partial`, synced, and renamed in the end.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from apps.backup import fetch, partial_of
from apps.node_client import open_client, url_of, why_refused
from shared.counted import counted
from shared.files import sync_directory
from shared.terminal.commands import CommandError, Commands, make_command
from shared.terminal.context import CREDENTIALS, add_context
from shared.tls.client import why_failed

ASK = 5.0  # s to wait for the response of a node
WHAT = "make the data directory of a lost node from a copy of its log on another node"
DETAILS = """
All nodes are asked, and the longest copy is fetched. Stop the lost node before, and start it afterwards with DIR as -data-path
and the same -node-id.
"""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the lost node's log that another node has."""

    address: str  # host:port of that node's HTTP clients
    log_id: str
    epoch: int  # number of the last epoch in it
    end: int  # bytes of records
    incarnation: int = 0  # of the last run of the node with this log that the other node knows; 0: none

    def __str__(self) -> str:
        return f"{self.address} has log {self.log_id}, epoch {self.epoch}, {self.end} bytes"


def add_command(commands: Commands) -> None:
    """Add the command `recover` to the parser."""
    command = make_command(commands, "recover", run, WHAT, examples="recover data --node 2 --from 10.0.0.1:4151")
    command.description = f"{WHAT}.\n{DETAILS}"
    command.add_argument("directory", type=Path, metavar="DIR", help="directory to create")
    command.add_argument("--node", type=int, required=True, metavar="N", help="number of the lost node (-node-id)")
    command.add_argument(
        "--from",
        dest="nodes",
        action="append",
        required=True,
        metavar="HOST:PORT",
        help="HTTP address of a node of the cluster, which knows the others (may be given multiple times)",
    )
    command.add_argument(
        "--force",
        action="store_true",
        help="continue though some nodes do not answer: messages that only their copies have are not recovered",
    )
    add_context(command, CREDENTIALS)
    command.add_argument("--json", action="store_true", help="print a JSON object about the copy")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return 0. Raises CommandError if the directory cannot be made."""
    target: Path = arguments.directory
    partial = partial_of(target)
    with open_client(arguments) as client:
        copies, silent = find_copies(arguments.nodes, arguments.node, lambda address: _ask(client, address))
        copy = choose(copies, silent, arguments.node, arguments.force)
        if not arguments.json:
            print("\n".join(map(str, copies)), file=sys.stderr)
        count, size, _ = fetch(client, copy.address, f"{url_of(copy.address)}/backup", copy.log_id, partial)
    partial.rename(target)
    sync_directory(target.parent)
    result = {"directory": str(target), "from": copy.address, "files": count, "bytes": size, "silent": silent}
    copied = f"copied {counted(count, 'file')}, {size} bytes from {copy.address} to {target}"
    text = f"{copied}; check it with: penstock verify {target}"
    print(json.dumps(result) if arguments.json else text)
    return 0


def _ask(client: httpx.Client, address: str) -> Any:
    """Return the response of the node at an address to /cluster. Raises httpx.HTTPError, InvalidURL, ValueError."""
    answer = client.get(f"{url_of(address)}/cluster", timeout=ASK)
    if answer.status_code != 200:
        raise ValueError(why_refused(answer, {}, address))
    return answer.json()


def find_copies(nodes: list[str], number: int, ask: Callable[[str], Any]) -> tuple[list[Copy], list[str]]:
    """Ask all nodes for their copies of the log of node `number`. Returns them, and the nodes that do not answer."""
    copies: list[Copy] = []
    silent: list[str] = []
    addresses = list(nodes)  # it grows on the way, by the nodes that the others know
    for address in addresses:
        try:
            cluster = ask(address)
            _report_promoted(cluster, address, number)
            replicas = [replica for replica in cluster["replicas"] if replica["node"] == number]
            copies += [_copy(address, replica, cluster["nodes"]) for replica in replicas if replica["complete"]]
            if why := next(filter(None, map(_obstacle, replicas)), ""):
                silent.append(address)
                _warn(f"{address} cannot read its copy at present: {why}")
            others = [node["http_address"] for node in cluster["nodes"] if _is_other(node, number)]
            addresses += [other for other in dict.fromkeys(others) if other not in addresses]
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
            silent.append(address)
            _warn(f"{address} does not answer: {why_failed(error)}")
    return copies, silent


def _report_promoted(cluster: dict[str, Any], address: str, number: int) -> None:
    """Print the logs of node `number` that the node at `address` has promoted: their messages are not delivered twice."""
    if cluster.get("node") == number:
        return
    for log_id in (log["log_id"] for log in cluster.get("led", ()) if log["node"] == number):
        _warn(
            f"{address} has promoted the log {log_id} of node {number}, and delivers its messages. The node may start with an"
            " empty directory; with a copy of that log it begins another one, with the messages that the new leader lacks"
        )


def _warn(text: str) -> None:
    print(f"penstock recover: {text}", file=sys.stderr)


def _is_other(node: dict[str, Any], number: int) -> bool:
    return bool(node["http_address"]) and node["standing"] == "member" and node["node"] != number


def _obstacle(replica: dict[str, Any]) -> str:
    """Return the reason why a copy cannot be read at present, or ""."""
    return str(replica["failure"]) or ("it is being opened" if replica.get("opening") else "")


def _copy(address: str, replica: dict[str, Any], nodes: list[dict[str, Any]]) -> Copy:
    last = replica["epochs"][-1][0] if replica["epochs"] else "0" * 8
    runs = [int(node["incarnation"]) for node in nodes if node["log_id"] == replica["log_id"]]
    return Copy(address, replica["log_id"], int(last[:8], 16), int(replica["written"]), max(runs, default=0))


def choose(copies: list[Copy], silent: list[str], number: int, force: bool) -> Copy:
    """Return the longest copy. Raises CommandError if there is none, or a node without an answer may have a longer one."""
    if not copies:
        raise CommandError(f"no node that answers has a complete copy of the log of node {number}")
    if silent and not force:
        raise CommandError(
            f"{', '.join(silent)} may have a longer copy: start it or repair its disk first, or give --force if it is"
            " lost permanently"
        )
    latest = max(copies, key=lambda copy: (copy.incarnation, copy.epoch, copy.end)).log_id
    if len({copy.log_id for copy in copies}) > 1:
        _warn(f"there are copies of several logs of node {number}: taking that of its last run, {latest}")
    return max([copy for copy in copies if copy.log_id == latest], key=lambda copy: (copy.epoch, copy.end))
