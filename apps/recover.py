"""Run `penstock recover DIR --node N --from HOST:PORT`: make the data directory of a lost node from a copy of its log.

All nodes of the cluster are asked which copy they have, and the longest one is fetched: with it nothing is lost that was
acknowledged with two copies or more. DIR must not exist. It is written to `DIR.partial`, synced, and renamed in the end.
"""

import argparse
import json
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from apps.backup import leftover, unpack
from apps.node_client import AccessError, add_access, open_client, url_of, why_refused
from shared.files import sync_directory

ASK = 5.0  # s to wait for what a node knows


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


class RecoverError(Exception):
    """The directory cannot be made. The text says why and what to do."""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the `recover` command and its flags to the parser."""
    what = "make the data directory of a lost node from a copy of its log on another node"
    command = commands.add_parser(
        "recover",
        help=what,
        description=f"{what.capitalize()}. All nodes are asked, and the longest copy is fetched. Stop the lost node"
        " before, and start it afterwards with DIR as -data-path and the same -node-id.",
    )
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
        help="continue though some nodes do not answer: what only their copies have is not recovered",
    )
    add_access(command)
    command.add_argument("--json", action="store_true", help="print a JSON object about what was recovered")
    command.set_defaults(main=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return the exit code: 0, or 1 if there is no directory."""
    target: Path = arguments.directory
    partial = target.with_name(f"{target.name}.partial")
    try:
        for path in (target, partial):
            if path.exists():
                raise RecoverError(f"{path} exists: choose a new directory, or remove it")
        with open_client(arguments) as client:
            copies, silent = find_copies(arguments.nodes, arguments.node, lambda address: _ask(client, address))
            copy = choose(copies, silent, arguments.node, arguments.force)
            if not arguments.json:
                print("\n".join(map(str, copies)), file=sys.stderr)
            count, size = _fetch(client, copy, partial)
    except (RecoverError, AccessError) as error:
        print(f"penstock recover: {error}", file=sys.stderr)
        return 1
    partial.rename(target)
    sync_directory(target.parent)
    result = {"directory": str(target), "from": copy.address, "files": count, "bytes": size, "silent": silent}
    text = (
        f"copied {count} files, {size} bytes from {copy.address} to {target}; check it with: penstock verify {target}"
    )
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
    asked: set[str] = set()
    waiting = list(nodes)
    while waiting:
        address = waiting.pop(0)
        if address in asked:
            continue
        asked.add(address)
        try:
            figures = ask(address)
            _tell_promoted(figures, address, number)
            copies += [
                _copy(address, replica, figures["nodes"]) for replica in figures["replicas"] if _counts(replica, number)
            ]
            why = next(
                (_why_not(each) for each in figures["replicas"] if each["node"] == number and _why_not(each)), ""
            )
            if why:
                silent.append(address)
                print(f"penstock recover: {address} cannot read its copy at present: {why}", file=sys.stderr)
            waiting += [each["http_address"] for each in figures["nodes"] if _is_other(each, number)]
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
            silent.append(address)
            print(f"penstock recover: {address} does not answer: {error or type(error).__name__}", file=sys.stderr)
    return copies, silent


def _tell_promoted(figures: dict[str, Any], address: str, number: int) -> None:
    """Say which logs of node `number` the node at `address` has promoted: what is recovered of them is not delivered twice."""
    if figures.get("node") == number:
        return
    for log_id in (one["log_id"] for one in figures.get("led", ()) if one["node"] == number):
        print(
            f"penstock recover: {address} has promoted the log {log_id} of node {number}, and delivers its messages. The node"
            " may start with an empty directory; with a copy of that log it begins another one, with what the new leader lacks",
            file=sys.stderr,
        )


def _is_other(node: dict[str, Any], number: int) -> bool:
    return bool(node["http_address"]) and node["standing"] == "member" and node["node"] != number


def _counts(replica: dict[str, Any], number: int) -> bool:
    return replica["node"] == number and bool(replica["complete"])


def _why_not(replica: dict[str, Any]) -> str:
    """Return why a copy cannot be read at present, or ""."""
    return str(replica["failure"]) or ("it is being opened" if replica.get("opening") else "")


def _copy(address: str, replica: dict[str, Any], nodes: list[dict[str, Any]]) -> Copy:
    last = replica["epochs"][-1][0] if replica["epochs"] else "0" * 8
    runs = [int(node["incarnation"]) for node in nodes if node["log_id"] == replica["log_id"]]
    return Copy(address, replica["log_id"], int(last[:8], 16), int(replica["written"]), max(runs, default=0))


def choose(copies: list[Copy], silent: list[str], number: int, force: bool) -> Copy:
    """Return the longest copy. Raises RecoverError."""
    if not copies:
        raise RecoverError(f"no node that answers has a complete copy of the log of node {number}")
    if silent and not force:
        raise RecoverError(
            f"{', '.join(silent)} may have a longer copy: start it or repair its disk first, or give --force if it is"
            " lost permanently"
        )
    latest = max(copies, key=lambda copy: (copy.incarnation, copy.epoch, copy.end)).log_id
    if len({copy.log_id for copy in copies}) > 1:
        print(
            f"penstock recover: there are copies of several logs of node {number}: taking that of its last run, {latest}",
            file=sys.stderr,
        )
    return max([copy for copy in copies if copy.log_id == latest], key=lambda copy: (copy.epoch, copy.end))


def _fetch(client: httpx.Client, copy: Copy, partial: Path) -> tuple[int, int]:
    """Fetch a copy to the directory `partial`. Returns the number of files and bytes. Raises RecoverError."""
    url = f"{url_of(copy.address)}/backup?log={copy.log_id}"
    try:
        with client.stream("GET", url) as answer:
            if answer.status_code != 200:
                answer.read()
                raise RecoverError(why_refused(answer, {}, copy.address))
            partial.mkdir(parents=True, mode=0o700)
            return unpack(answer, partial)
    except httpx.HTTPError as error:
        raise RecoverError(f"cannot fetch the copy from {copy.address}: {error}{leftover(partial)}") from None
    except (OSError, tarfile.TarError) as error:
        raise RecoverError(f"cannot write the directory: {error}{leftover(partial)}") from None
