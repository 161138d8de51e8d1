"""`penstock read` and `cursors`: the messages that a topic retains, over nsqd's HTTP API.

    penstock read audit --from 2026-11-21T10:00:00Z --json     print all messages that a topic retains, finished or not
    penstock read audit --cursor archive                       print the messages since the last time
    penstock read audit --all-nodes --from=-1h                 print those of all nodes of a cluster, also of lost ones
    penstock cursors audit                                     list the cursors, and how far behind they are

Each body is printed unchanged, with a newline; with --json, each message is a JSON object on a line. The exit code is 0, 1 if
nsqd refuses or cannot be reached, or 2 for wrong arguments.
"""

import argparse
import base64
import json
import sys
from collections.abc import Iterator
from functools import partial
from heapq import merge
from itertools import islice
from typing import Any, BinaryIO

import httpx

from apps.node_client import REFUSALS, add_address, open_client, url_of
from apps.past import LogAt, find_log, log_at, logs_of, members
from shared.counted import counted
from shared.log import escape
from shared.terminal.commands import CommandError, Commands, ExitCode, NoAnswer, WrongArguments, make_command
from shared.terminal.output import body_line
from shared.tls.client import why_failed

PAGE = 1000  # messages asked for at a time
PAGE_BYTES = 8 * 1024 * 1024  # bytes of bodies asked for at a time
WAIT = 30_000  # ms that nsqd waits for more messages, with --follow
UNLIMITED = 1 << 60  # messages
_READ_DETAILS = """
In a cluster, the log of a lost node has a new leader, or at least a replica. --log reads one log at a node that has it, by its
offsets: its id is `log` in /topic/offsets and `log_id` in /cluster. --all-nodes reads all logs of the topic; each line of
--json then has the `log`, and the `node` that published into it. --cursor first prints the messages that the cursor has not
read of the log that the node had before a failover.
"""
ADVICE = {
    "OFFSET_GONE": "the messages have expired, or the topic retains none: see /topic/offsets and /topic/config?retention=24h",
    "OFFSET_IN_FUTURE": "no message with this offset was published yet",
    "TOPIC_NOT_FOUND": "penstock topics lists the existing ones",
}


def add_commands(commands: Commands) -> None:
    """Add the commands to the parser. Both run `run`, which calls the function in the argument `run`."""
    _add_read(commands)
    _add_cursors(commands)


def _add_read(commands: Commands) -> None:
    read = _command(
        commands, "read", "print the messages that a topic retains, finished or not", "read audit --from=-1h --json"
    )
    read.description = f"{read.description}.\n{_READ_DETAILS}"
    read.add_argument(
        "--from",
        dest="start",
        metavar="PLACE",
        help="start: an offset, a time, -15m (as --from=-15m), earliest or latest (default: earliest)",
    )
    read.add_argument(
        "--cursor",
        metavar="NAME",
        help="start at this cursor, which nsqd stores, and advance it past the printed messages",
    )
    read.add_argument("--owner", metavar="NAME", help="owner of the cursor, if it has one")
    read.add_argument("--to", metavar="PLACE", help="end: an offset or a time (default: the end of the topic)")
    read.add_argument(
        "-n", "--limit", type=_count, default=0, metavar="N", help="maximum number of messages to print (default: all)"
    )
    read.add_argument("-f", "--follow", action="store_true", help="wait for further messages")
    which = read.add_mutually_exclusive_group()
    which.add_argument(
        "--log", metavar="ID", help="the log to read, at any node of the cluster that has it (default: the node's own)"
    )
    which.add_argument(
        "--all-nodes", action="store_true", help="read all logs of the cluster that have the topic, merged by time"
    )
    read.set_defaults(run=_read)


def _add_cursors(commands: Commands) -> None:
    cursors = _command(
        commands, "cursors", "list the cursors of a topic, and their lag", "cursors audit\ncursors audit --delete me"
    )
    cursors.add_argument("--delete", metavar="NAME", help="delete this cursor")
    cursors.add_argument("--owner", metavar="NAME", help="owner of the cursor to delete, if it has one")
    cursors.set_defaults(run=_cursors)


def run(arguments: argparse.Namespace) -> int:
    """Run the command, and return 0, or 1 if a node gave no answer. Raises CommandError, httpx.HTTPError."""
    with open_client(arguments) as client:
        return int(arguments.run(client, arguments))


def _read(client: httpx.Client, arguments: argparse.Namespace) -> int:
    if arguments.follow and arguments.to:
        raise WrongArguments("use either --follow or --to")
    if arguments.cursor and arguments.start:
        raise WrongArguments("use either --from or --cursor")
    silent: dict[str, str] = {}
    try:
        for message in (_of_all_nodes if arguments.all_nodes else _of_one_log)(client, arguments, silent):
            _print(message, arguments.json)
    finally:
        for address, why in silent.items():
            print(f"penstock: incomplete: {address}: {why}", file=sys.stderr)
    return ExitCode.FAILED if silent else ExitCode.DONE


def _of_one_log(
    client: httpx.Client, arguments: argparse.Namespace, silent: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield messages of one log: the node's own, or that which --log names. `silent`: gets the nodes without an answer."""
    has_progress = sys.stderr.isatty() and not sys.stdout.isatty()
    address, log, left = arguments.nsqd_http_address, "", arguments.limit or UNLIMITED
    if arguments.log:
        ask = partial(_asked, client, silent)
        found = find_log(ask, members(ask, address), arguments.topic, arguments.log)
        if found is None:
            raise CommandError(
                f"no node that answers has a log {arguments.log} with that topic: see /cluster of the nodes"
            )
        address, log = found.address, found.log
    if arguments.cursor and not arguments.log:
        for message in _of_predecessors(client, arguments, silent):
            left -= 1
            yield message
    start = arguments.start or "earliest"
    if arguments.cursor:
        start = _cursor_start(client, address, arguments, log)
    yield from _messages(client, address, arguments, log, start, arguments.to, left, has_progress, arguments.follow)
    if has_progress:
        print(file=sys.stderr)


def _of_predecessors(
    client: httpx.Client, arguments: argparse.Namespace, silent: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield the messages that the cursor has not read of earlier logs of the node. Raises CommandError."""
    ask, address = partial(_asked, client, silent), arguments.nsqd_http_address
    own, left = log_at(ask, address, arguments.topic), arguments.limit or UNLIMITED
    for log in own.parents if own is not None else ():
        found = find_log(ask, members(ask, address), arguments.topic, log)
        if found is None:
            continue
        query = {"topic": arguments.topic, "log": log}
        cursors = request(client, "GET", "/topic/cursors", query, found.address).json()["cursors"]
        offset = next((cursor["offset"] for cursor in cursors if cursor["name"] == arguments.cursor), found.next)
        if max(offset, found.first) >= found.next:
            continue
        if found.kind == "replica":
            raise CommandError(
                f"cursor {arguments.cursor} has not read offsets {offset} to {found.next} of the log {log} that the node had"
                f" before, which no node has promoted: read them with --log {log} --from {offset}"
            )
        start = _cursor_start(client, found.address, arguments, log)
        for message in _messages(client, found.address, arguments, log, start, None, left):
            left -= 1
            yield message


def _of_all_nodes(
    client: httpx.Client, arguments: argparse.Namespace, silent: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield the messages of all logs that have the topic, by the time of their publish. Raises CommandError.

    `silent`: gets the nodes without an answer.
    """
    if arguments.follow or arguments.cursor:
        raise WrongArguments("--all-nodes goes with neither --follow nor --cursor")
    if any(place and place.isdecimal() for place in (arguments.start, arguments.to)):
        raise WrongArguments("an offset belongs to one log: name it with --log, or give a time")
    ask, topic = partial(_asked, client, silent), arguments.topic
    addresses = members(ask, arguments.nsqd_http_address)
    logs = logs_of(ask, addresses, topic)
    if not silent.keys() ^ set(addresses):
        raise NoAnswer("; ".join(f"{address}: {silent.pop(address)}" for address in addresses))
    if not logs:
        raise CommandError("TOPIC_NOT_FOUND: no node that answers retains messages of the topic")

    def read(one: LogAt) -> Iterator[dict[str, Any]]:
        end = arguments.to or str(one.next)
        start = arguments.start or "earliest"
        for message in _messages(client, one.address, arguments, one.log, start, end, arguments.limit or UNLIMITED):
            yield message | {"log": one.log, "node": one.origin}

    return islice(merge(*map(read, logs), key=lambda message: int(message["timestamp"])), arguments.limit or None)


def _messages(
    client: httpx.Client,
    address: str,
    arguments: argparse.Namespace,
    log: str,
    start: str,
    end: str | None,
    left: int,
    has_progress: bool = False,
    follow: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield `left` messages of a log at most, from `start` to `end`, and move the cursor, if any, past the yielded ones."""
    while left:
        query = {"topic": arguments.topic, "from": start, "to": end, "log": log, "wait_ms": WAIT if follow else None}
        query |= {"limit": min(left, PAGE), "max_bytes": PAGE_BYTES}
        answer = request(client, "GET", "/topic/read", query, address)
        log = answer.headers["x-nsq-log"]
        lines = answer.content.splitlines()
        left -= len(lines)
        yield from map(json.loads, lines)
        start, last = answer.headers["x-nsq-next-offset"], int(answer.headers["x-nsq-end-offset"])
        if arguments.cursor and lines:
            moved = {
                "topic": arguments.topic,
                "name": arguments.cursor,
                "owner": arguments.owner,
                "to": start,
                "log": log,
            }
            request(client, "POST", "/topic/cursor", moved, address)
        if has_progress:
            print(f"\roffset {start} of {last}", end="", file=sys.stderr, flush=True)
        if not follow and (int(start) >= last or not lines):
            return


def _asked(client: httpx.Client, silent: dict[str, str], address: str, path: str, query: dict[str, str]) -> Any:
    """Return the JSON of a node's response to a GET; None for an error, or no response, which is noted in `silent`."""
    try:
        answer = client.get(url_of(address) + path, params=query)
        return answer.json() if answer.status_code == 200 else None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        silent[address] = why_failed(error)
        return None


def _cursor_start(client: httpx.Client, address: str, arguments: argparse.Namespace, log: str) -> str:
    """Return the cursor's offset, or "earliest" if retention has passed it. Creates a missing cursor.

    Raises CommandError if the cursor belongs to another owner.
    """
    name, owner = arguments.cursor, arguments.owner
    query = {"topic": arguments.topic, "log": log}
    for one in request(client, "GET", "/topic/cursors", query, address).json()["cursors"]:
        if one["name"] != name:
            continue
        if one["owner"] and one["owner"] != owner:
            raise CommandError(f"cursor {name} belongs to {one['owner']}: give --owner {one['owner']} to advance it")
        if one["gone"]:
            print(
                f"penstock: {counted(one['gone'], 'message')} expired before cursor {name} read them", file=sys.stderr
            )
            return "earliest"
        return str(one["offset"])
    made = request(client, "POST", "/topic/cursor", query | {"name": name, "owner": owner}, address)
    return str(made.json()["offset"])


def _cursors(client: httpx.Client, arguments: argparse.Namespace) -> int:
    if arguments.delete:
        query = {"topic": arguments.topic, "name": arguments.delete, "owner": arguments.owner}
        request(client, "POST", "/topic/cursor/delete", query)
        print(json.dumps({"deleted": arguments.delete}) if arguments.json else f"deleted cursor {arguments.delete}")
        return 0
    for one in request(client, "GET", "/topic/cursors", {"topic": arguments.topic}).json()["cursors"]:
        if arguments.json:
            print(json.dumps(one))
            continue
        gone = f", {one['gone']} of them expired" if one["gone"] else ""
        owner = f", owner {one['owner']}" if one["owner"] else ""
        print(escape(f"{one['name']}: offset {one['offset']}, lag {one['lag']}{gone}{owner}"))
    return 0


def request(client: httpx.Client, method: str, path: str, query: dict[str, Any], address: str = "") -> httpx.Response:
    """Return the response of a node, or of the one that the user has named. Raises CommandError, httpx.HTTPError.

    Arguments in `query` that are None or "" are left out.
    """
    url = url_of(address) + path if address else path
    given = {name: value for name, value in query.items() if value not in (None, "")}
    answer = client.request(method, url, params=given, headers={"Accept": "application/x-ndjson"})
    if answer.status_code == 200 and (path != "/topic/read" or "x-nsq-log" in answer.headers):
        return answer
    try:
        why = str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        what = f"{client.base_url} answered {answer.status_code} to {path}"
        raise CommandError(f"{what}: it may not be an nsqd of Penstock") from None
    advice = {**REFUSALS, **ADVICE}.get(why, "").format(address=client.base_url.netloc.decode())
    raise CommandError(f"{why}: {advice}" if advice else why)


def _print(message: dict[str, Any], as_json: bool) -> None:
    out: BinaryIO = sys.stdout.buffer
    if as_json:
        line = json.dumps(message).encode() + b"\n"
    elif "body_base64" in message:
        line = body_line(base64.b64decode(message["body_base64"]))
    else:
        line = body_line(message.get("body", "").encode("utf-8", "surrogatepass"))
    out.write(line)
    out.flush()


def _command(commands: Commands, name: str, what: str, examples: str) -> argparse.ArgumentParser:
    command = make_command(commands, name, run, what, examples=examples)
    command.add_argument("topic", help="name of the topic")
    add_node(command)
    return command


def add_node(command: argparse.ArgumentParser) -> None:
    """Add the arguments with the node's address, and with the form of the output."""
    add_address(command)
    command.add_argument("--json", action="store_true", help="print one JSON object per line")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 12:
        raise argparse.ArgumentTypeError("expected a whole number")
    return int(text)
