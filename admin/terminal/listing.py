"""`penstock topics`, `channels`, `tubes`, `clients`, `producers`: what all nodes hold, summed up over the nodes."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import asdict

from admin.nodes.cluster import WITHOUT_CLIENTS
from admin.nodes.merge import LONGEST_NAME
from admin.nodes.overview import MOST_NAMES
from admin.nodes.publishers import arguments_for
from admin.nodes.upstreams import Gathered
from admin.nodes.views import duration
from admin.terminal.arguments import add_command, name_of
from admin.terminal.channel_counts import ChannelClients, ChannelCounts, StatsAnswer, summed
from admin.terminal.session import Session
from admin.times import UNKNOWN
from shared.json_fields import JsonObject, number, objects, text
from shared.terminal.commands import CommandError, Commands, WrongArguments, whole_number
from shared.terminal.output import Column, Row, numbers, print_rows
from shared.values import SECOND

COUNTS = ("channels", "clients", "depth", "in_flight", "deferred", "buried", "messages")
PAGE, MOST_TUBES = 1000, 100_000  # tubes in one answer, and of a node
MOST_LISTED = 1_000_000
SINCE = """
Messages, requeued and timed out are counted since the start of each node: they begin at 0 with it.
"""
PAUSES = ("in", "out", "all", "none")  # of a queue: PAUSE of Disque's clients
_TUBES = ("ready", "reserved", "delayed", "buried", "waiting", "using", "watching")
_CLIENT = ("topic", "channel", "client_id", "hostname", "remote_address", "user_agent")


def _is_in_trouble(row: Row) -> str:
    return "red" if row.get("buried") else ""


def _duration(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else duration(seconds * SECOND)


def _age(oldest: int) -> float | None:
    """Return the age in s of a message that was published at `oldest` (ns since the epoch); None for 0."""
    return round(max(0, time.time_ns() - oldest) / SECOND, 3) if oldest else None


def _paused(row: Row) -> str:
    return "yellow" if row.get("paused") not in (False, None, "none", "") else ""


OLDEST = Column("oldest", text=_duration, is_number=True)  # in JSON: s
TOPICS = (
    Column("topic"), *numbers("channels", "clients", "depth", "in_flight", "deferred"),
    Column("buried", is_number=True, style=_is_in_trouble), *numbers("messages"), Column("paused", style=_paused),
)  # fmt: skip
CHANNELS = (
    Column("topic"), Column("channel"), *numbers("clients", "depth"), OLDEST, *numbers("in_flight", "deferred"),
    Column("buried", is_number=True, style=_is_in_trouble), *numbers("requeued", "timed_out", "messages"),
    Column("paused", style=_paused),
)  # fmt: skip
TUBES = (
    Column("tube"), *numbers("ready"), OLDEST, *numbers("reserved", "delayed"),
    Column("buried", is_number=True, style=_is_in_trouble), *numbers("waiting", "using", "watching", "jobs"),
    Column("paused", style=_paused),
)  # fmt: skip
CLIENTS = (
    Column("topic"), Column("channel"), Column("client_id", "CLIENT"), Column("remote_address", "ADDRESS"),
    *numbers("in_flight", "ready", "finished", "requeued"), Column("node"), Column("user_agent"),
)  # fmt: skip
PRODUCERS = (
    Column("topic"), Column("client_id", "CLIENT"), Column("remote_address", "ADDRESS"), *numbers("messages"), Column("node"),
    Column("user_agent"),
)  # fmt: skip


def add_commands(commands: Commands) -> None:
    """Add the commands to the parser."""
    topics = add_command(
        commands,
        "topics",
        _topics,
        "list topics with their counts",
        "topics\ntopics orders --sort depth -n 10\ntopics --json",
    )
    topics.epilog = f"{topics.epilog}{SINCE}"
    topics.add_argument("pattern", nargs="?", default="", metavar="TEXT", help="only topics whose names contain it")
    _add_order(topics, TOPICS)
    channels = add_command(
        commands, "channels", _channels, "list channels with their counts", "channels\nchannels orders"
    )
    channels.epilog = f"{channels.epilog}{SINCE}"
    channels.add_argument(
        "topic", nargs="?", type=name_of, default="", metavar="TOPIC", help="only channels of this topic"
    )
    _add_order(channels, CHANNELS)
    for name in ("tubes", "queues"):
        what = "list the tubes of beanstalkd's clients, which are the queues of Disque's"
        tubes = add_command(commands, name, _tubes, what, f"{name}\n{name} mail --json\n{name} mail --pause out")
        tubes.add_argument("names", nargs="*", default=[], metavar="NAME", help="only these")
        text = "pause these queues until that is changed, as PAUSE of Disque's clients does: in (clients add no jobs), out (no"
        tubes.add_argument("--pause", choices=PAUSES, help=f"{text} jobs are delivered), all or none")
        tubes.add_argument("--by", default="", metavar="NAME", help="name of the operator who pauses them")
        _add_order(tubes, TUBES)
    for name, run, columns in (("clients", _clients, CLIENTS), ("producers", _producers, PRODUCERS)):
        what = "list the consumers of channels" if name == "clients" else "list the connections that publish"
        command = add_command(commands, name, run, what, f"{name}\n{name} orders")
        command.add_argument(
            "topic", nargs="?", type=name_of, default="", metavar="TOPIC", help="only those of this topic"
        )
        if name == "clients":
            command.add_argument(
                "channel", nargs="?", type=name_of, default="", metavar="CHANNEL", help="only those of this channel"
            )
        _add_order(command, columns)


def _add_order(command: argparse.ArgumentParser, columns: tuple[Column, ...]) -> None:
    keys = [column.key for column in columns]
    command.add_argument(
        "--sort", choices=keys, metavar="COLUMN", help=f"column to sort by, numbers from the largest: {', '.join(keys)}"
    )
    command.add_argument("-n", "--limit", type=whole_number(1, MOST_LISTED), metavar="N", help="print the first N rows")


def _print(rows: Iterable[Row], columns: tuple[Column, ...], arguments: argparse.Namespace, nothing: str) -> int:
    """Print the rows in the order of --sort, and return 0."""
    listed = list(rows)
    column = next((one for one in columns if one.key == arguments.sort), None)
    if column is not None:
        least: Any = -1 if column.is_number else ""
        listed.sort(key=lambda row: least if (value := row[column.key]) is None else value, reverse=column.is_number)
    print_rows(listed[: arguments.limit], columns, as_json=arguments.json, nothing=nothing)
    return 0


# Topics and channels


async def _topics(session: Session, arguments: argparse.Namespace) -> int:
    await session.producers()
    found = (await session.queries.overview(COUNTS)).now
    if found.errors and not found.answered:
        raise session.failure(found.errors)
    session.take(found)
    is_exact = len(found.paused) < MOST_NAMES  # nodes list no more
    wanted = arguments.pattern.lower()
    names = [name for name in sorted(found.names) if wanted in name.lower()]
    counts = [[found.columns[column].get(name, 0) for name in names] for column in COUNTS]
    rows = (
        {
            "topic": name,
            **dict(zip(COUNTS, values, strict=True)),
            "paused": name in found.paused or (False if is_exact else None),
        }
        for name, *values in zip(names, *counts, strict=True)
    )
    return _print(rows, TOPICS, arguments, "no topics")


async def _channels(session: Session, arguments: argparse.Namespace) -> int:
    addresses = [one.address for one in await session.producers(arguments.topic)]
    asked = WITHOUT_CLIENTS | ({"topic": arguments.topic} if arguments.topic else {})
    answers = await session.decoded(addresses, "/stats", asked, StatsAnswer[ChannelCounts])
    rows = [
        {"topic": topic, **asdict(counts), "oldest": _age(counts.oldest)}
        for (topic, _), counts in summed(answers.values()).items()
    ]
    return _print(rows, CHANNELS, arguments, "no channels")


# Tubes


async def _tubes(session: Session, arguments: argparse.Namespace) -> int:
    nodes = await session.penstock_nodes()
    if arguments.pause:
        return await _pause(session, nodes, arguments)
    gathered: Gathered[list[JsonObject]] = await session.direct.all_of(nodes, lambda node: _tubes_at(session, node))
    session.noted(gathered)
    sums: dict[str, Counter[str]] = {}
    paused: dict[str, str] = {}
    oldest: dict[str, int] = {}
    for one in (one for listed in gathered.answers.values() for one in listed):
        name = text(one.get("tube_name"))[:LONGEST_NAME]
        sums.setdefault(name, Counter()).update({key: number(one.get(f"{key}_count")) for key in (*_TUBES, "job")})
        if since := number(one.get("oldest")):
            oldest[name] = min(since, oldest.get(name, since))
        state = text(one.get("queue_paused")) or "none"
        paused[name] = (
            state
            if state != "none"
            else f"{left} s"
            if (left := number(one.get("pause_left")))
            else paused.get(name, "none")
        )
    rows = [
        {
            "tube": name, **{key: counts[key] for key in _TUBES}, "oldest": _age(oldest.get(name, 0)),
            "jobs": counts["job"], "paused": paused[name],
        }
        for name, counts in sorted(sums.items())
        if not arguments.names or name in arguments.names
    ]  # fmt: skip
    kind = arguments.program.rpartition(" ")[2]  # tubes or queues
    _print(rows, TUBES, arguments, "" if arguments.names else f"no {kind}")
    if absent := set(arguments.names) - sums.keys():
        raise CommandError(f"{kind[:-1]} {min(absent)} was not found: see penstock {kind}")
    return 0


async def _tubes_at(session: Session, node: str) -> list[JsonObject]:
    """Return all tubes of a node. Raises UpstreamError."""
    found: list[JsonObject] = []
    after = ""
    while len(found) < MOST_TUBES:
        page = objects(
            (await session.direct.get_object(node, "/tubes", {"limit": str(PAGE), "after": after})).get("tubes")
        )
        found += page
        following = text(page[-1].get("tube_name")) if page else after
        if len(page) < PAGE or following <= after:
            break
        after = following
    return found


async def _pause(session: Session, nodes: list[str], arguments: argparse.Namespace) -> int:
    if not arguments.names:
        raise WrongArguments("--pause needs the names of queues")
    for name in arguments.names:
        done = await session.post(nodes, "/tube/pause", {"tube": name, "queue": arguments.pause, "by": arguments.by})
        row = {"tube": name, "paused": arguments.pause, "nodes": len(done)}
        print_rows([row], [Column("tube"), Column("paused"), *numbers("nodes")], as_json=arguments.json)
    return 0


# Clients


async def _clients(session: Session, arguments: argparse.Namespace) -> int:
    addresses = [one.address for one in await session.producers(arguments.topic)]
    asked = {"format": "json"} | {name: arg for name in ("topic", "channel") if (arg := getattr(arguments, name))}
    answers = await session.decoded(addresses, "/stats", asked, StatsAnswer[ChannelClients])
    rows = [
        {"topic": topic, "channel": channel.channel, **asdict(client), "node": node}
        for node, answer in answers.items()
        for topic, channel in answer.each()
        for client in channel.clients or ()
    ]
    rows.sort(key=lambda row: [str(row[key]) for key in _CLIENT])
    return _print(rows, CLIENTS, arguments, "no consumers are connected")


async def _producers(session: Session, arguments: argparse.Namespace) -> int:
    addresses = [one.address for one in await session.producers(arguments.topic)]
    gathered = await session.gather(addresses, "/stats", arguments_for(arguments.topic))
    rows = [row for node, answer in gathered.answers.items() for row in _publishers(node, answer, arguments.topic)]
    rows.sort(key=lambda row: (-row["messages"], row["topic"], row["remote_address"]))
    return _print(rows, PRODUCERS, arguments, "no connection has published")


def _publishers(node: str, answer: JsonObject, topic: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each connection and topic in a node's /stats."""
    for one in objects(answer.get("producers")):
        client = {key: text(one.get(key)) for key in ("client_id", "hostname", "remote_address", "user_agent")}
        for counted in objects(one.get("pub_counts")):
            if topic in ("", counted.get("topic")):
                yield {
                    "topic": text(counted.get("topic")),
                    **client,
                    "messages": number(counted.get("count")),
                    "node": node,
                }
