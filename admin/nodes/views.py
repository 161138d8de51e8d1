"""The cluster's answers as pages show them: rows, rates, orders, and texts. Pure."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote, urlencode

from markupsafe import Markup

from admin.nodes.decoders import decode, printable, text_of
from admin.nodes.merge import fields
from admin.times import age_element, clock_element, is_old, moment, moment_element, second_element
from penstock.protocol.names import is_valid_name
from shared.counted import counted
from shared.json_fields import JsonObject, number, objects, text
from shared.values import SECOND, whole_number

PAGE = 100  # topics on a page
MOST_WHOLE = 999_999_999  # of a number in a query or a form, such as the number of a page
MOST_TEXT, MOST_HEX = 64 * 1024, 4096  # bytes of a body that are shown, and of those in hex
MOST_HEADERS = 1000  # headers shown of a message
MOST_LISTED = 1000  # cursors, schedules and batches that a page shows of a node
LONGEST_JOB_ID = 40  # characters of an id of Disque
MOST_TALKERS = 10  # identities shown of a node
UNKNOWN = "-"
EMPTY, STALLED, GROWING = 0.0, 1e18, 2e18  # in place of the seconds until a topic or channel is empty
_JOB_NUMBERS = (
    "id", "priority", "age", "time_left", "ttr", "ttl_left", "reserves", "timeouts", "releases", "buries", "kicks",
)  # fmt: skip

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row:
    """The counts of a topic or a channel. Of a topic, all but `messages` are sums over its channels."""

    name: str
    paused: bool
    depth: int  # of a topic: including its channels
    in_flight: int
    deferred: int
    messages: int
    requeued: int
    timed_out: int
    channels: int
    clients: int
    buried: int = 0
    oldest: int = 0  # ns since the epoch when the longest waiting message was published; 0: none, or unknown
    jobs: int = 0  # jobs in the tube of the same name, for clients of beanstalkd
    rate_in: float | None = None  # messages published per second; None: not known yet
    # Messages per second that left: finished, emptied or discarded, but not buried. Of a topic: the mean over its channels.
    rate_out: float | None = None
    # Decrease of the messages that wait or are in flight, per second; of a topic: in its slowest part, if that is known.
    gain: float | None = None
    paused_channels: int = 0  # how many channels of the topic are paused
    slowest: int | None = None  # of a topic: the messages that wait in its slowest part; None: it is taken as a whole

    COUNTS: ClassVar[tuple[str, ...]] = (  # fields that are columns of nsqd's /topics/rows, too
        "depth", "in_flight", "deferred", "messages", "requeued", "timed_out", "channels", "clients", "buried", "oldest",
        "jobs",
    )  # fmt: skip

    @property
    def drain(self) -> str:
        """The time until it is empty at the current rate, as text; "growing" or "stalled" if it does not drain."""
        return time_to_drain(self._drained, self.gain)

    @property
    def drain_rank(self) -> float | None:
        """The number by which rows sort by `drain`: see the function of this name."""
        return drain_rank(self._drained, self.gain)

    @property
    def is_growing(self) -> bool:
        """Whether it does not drain but grows."""
        return self.drain_rank == GROWING

    @property
    def _drained(self) -> int:
        return self.depth if self.slowest is None else self.slowest

    @property
    def held(self) -> int:
        """The number of messages in any state, without the buried ones."""
        return self.depth + self.in_flight + self.deferred


def drain_rank(depth: int, gain: float | None) -> float | None:
    """Return the seconds until it is empty, EMPTY, STALLED or GROWING, which are larger than any; None if unknown.

    `gain`: decrease of the messages held, per second; None: unknown.
    """
    if not depth:
        return EMPTY
    if gain is None:
        return None
    return min(depth / gain, STALLED / 2) if gain > 0 else GROWING if gain < 0 else STALLED


def time_to_drain(depth: int, gain: float | None) -> str:
    """Return the time to drain `depth` messages as text. `gain`: decrease in messages per second."""
    rank = drain_rank(depth, gain)
    if rank is None:
        return UNKNOWN
    return {EMPTY: "empty", STALLED: "stalled", GROWING: "growing"}.get(rank) or duration(rank * 1e9)


def channel_row(data: JsonObject) -> Row:
    """Return the row of a channel in the form of admin.nodes.merge."""
    return Row(
        data["channel_name"], data["paused"], data["depth"], data["in_flight_count"], data["deferred_count"],
        data["message_count"], data["requeue_count"], data["timeout_count"], 0, data["client_count"],
        buried=data.get("buried_count", 0),
    )  # fmt: skip


def topic_row(name: str, parts: Iterable[JsonObject]) -> Row:
    """Return the row of a topic from its parts on the nodes. `messages` counts publishes; the rest sums up the channels."""
    nodes = list(parts)
    channels = [channel for node in nodes for channel in node["channels"] or ()]
    depth, messages = sum(one["depth"] for one in (*nodes, *channels)), sum(node["message_count"] for node in nodes)
    in_flight, deferred, requeued, timed_out, clients = (
        sum(one[f"{name}_count"] for one in channels)
        for name in ("in_flight", "deferred", "requeue", "timeout", "client")
    )
    names, paused = ({one["channel_name"] for one in channels if is_all or one["paused"]} for is_all in (True, False))
    return Row(
        name, any(one["paused"] for one in nodes), depth, in_flight, deferred, messages, requeued, timed_out,
        channels=len(names), clients=clients, paused_channels=len(paused),
    )  # fmt: skip


def absent_row(name: str) -> Row:
    """Return the row of a topic that no node has."""
    return Row(name, False, **dict.fromkeys(Row.COUNTS, 0))


def with_rates(row: Row, before: Row | None, seconds: float) -> Row:
    """Return the row with its rates since `before`. A `gain` over a longer time, if it is known, stays.

    A node that was restarted counts from 0; the row then stays without rates.
    """
    if before is None or seconds <= 0 or row.messages < before.messages:
        return row
    came = row.messages - before.messages
    kept = row.held + row.buried - before.held - before.buried
    left = came - kept / max(1, row.channels)  # each channel gets each message
    gain = (before.held - row.held) / seconds if row.gain is None else row.gain
    return replace(row, rate_in=came / seconds, rate_out=max(0.0, left / seconds), gain=gain)


def with_rate(row: Row, name: str, value: float) -> Row:
    """Return the row with `value` as its `rate_in`, `rate_out` or `gain`."""
    return replace(row, **{name: value})  # type: ignore[arg-type]


def left_out(rows: Sequence[object], most: int, kind: str) -> list[str]:
    """Return the notice about the rows beyond `most`, which the page does not show."""
    more = len(rows) - most
    return [f"{counted(more, f'more {kind}')} not shown. Export the table for all rows."] if more > 0 else []


def page_of(rows: Sequence[T], page: int) -> tuple[Sequence[T], int, int]:
    """Return the rows of that page, the page's number, and the number of pages."""
    pages = max(1, -(-len(rows) // PAGE))
    page = min(max(1, page), pages)
    return rows[(page - 1) * PAGE : page * PAGE], page, pages


# Messages


def message_view(data: JsonObject) -> JsonObject:
    """Return a message of /channel/messages as a page shows it: as text or in hex, and decoded if the format is known."""
    body = body_of(data)[:MOST_TEXT]
    is_cut = number(data.get("body_size")) > len(body)
    shown = text_of(body, is_cut)
    times, counts = (
        ("timestamp", "ready_at", "times_out_at", "buried_at"),
        ("offset", "attempts", "failures", "body_size"),
    )
    numbers = {name: number(data.get(name)) for name in (*times, *counts)}
    return (
        numbers
        | {
            "id": text(data.get("id")),
            "reason": text(data.get("reason")),
            "headers": {
                text(name): text(value) for name, value in islice(fields(data.get("headers")).items(), MOST_HEADERS)
            },
            "text": printable(shown or ""),
            "is_binary": shown is None,
            "waits": data.get("waiting_for_copies") is True,  # other nodes have no copies yet, so the body is not shown
            "shown": len(body),
            "cut": is_cut,
            "decoded": decode(body, is_cut),
            "hex": hex_of(body[:MOST_HEX]),
        }
    )


def job_view(data: JsonObject) -> JsonObject:
    """Return a job of /tube/jobs as a page shows it."""
    others = {
        "disque_id": text(data.get("disque_id"))[:LONGEST_JOB_ID],
        "has_ttl": "ttl_left" in data,
        "is_at_most_once": data.get("ttr") == 0,
    }
    return message_view(data) | {name: number(data.get(name)) for name in _JOB_NUMBERS} | others


def body_of(data: JsonObject) -> bytes:
    """Return the body of a message of /channel/messages, as far as the node has sent it."""
    try:
        return (
            base64.b64decode(data["body_base64"], validate=True)
            if "body_base64" in data
            else text(data.get("body")).encode()
        )
    except (ValueError, TypeError):
        return b""


def hex_of(body: bytes) -> str:
    """Return a hex dump: lines of an offset, 16 bytes, and their printable characters."""
    lines = []
    for at in range(0, len(body), 16):
        part = body[at : at + 16]
        printable = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:06x}  {part.hex(' '):<47}  {printable}")
    return "\n".join(lines)


def traits(client: JsonObject) -> list[str]:
    """Return the properties of a client's connection, as text."""
    found = [name for name in ("tls", "snappy", "deflate") if client[name]]
    found += [f"sampled {client['sample_rate']} %"] if client["sample_rate"] else []
    found += [f"authorized {client['auth_identity']}".strip()] if client["authed"] else []
    return found + [client[name] for name in ("topology_region", "topology_zone") if client.get(name)]


# Texts


def count(value: int) -> str:
    """Return a number with commas: 1,234,567."""
    return f"{value:,}"


def rate(value: float | None) -> str:
    """Return a rate per second as text."""
    if value is None:
        return UNKNOWN
    return f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def percent(value: float) -> str:
    """Return a quantile in percent: 99.9 %."""
    return f"{value * 100:g} %"


def duration(ns: float) -> str:
    """Return a duration in the largest unit of which it has at least one."""
    for unit, size in (("d", 86_400e9), ("h", 3_600e9), ("min", 60e9), ("s", 1e9), ("ms", 1e6)):
        if ns >= size:
            return f"{ns / size:.1f} {unit}"
    return f"{ns / 1e3:.0f} us"


def age(then: int, now: int) -> str:
    """Return the duration from `then` to `now`, both in ns since the epoch; - for none."""
    return duration(max(0, now - then)) if then else UNKNOWN


def lasting(since: int, now: int) -> Markup | str:
    """Return the duration as an element with the time when it began, both in ns since the epoch; - for none."""
    return age_element(since, age(since, now))


def size(value: int) -> str:
    """Return a number of bytes with a decimal unit."""
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= one:
            return f"{value / one:.1f} {unit}"
    return f"{value} B"


def whole(value: str, otherwise: int = 1, most: int = MOST_WHOLE) -> int:
    """Return a number in a query, or `otherwise` if the text is no whole number up to `most`."""
    try:
        return whole_number(value, 0, most)
    except ValueError:
        return otherwise


def segment(value: str) -> str:
    """Quote one segment of a path: the # of an ephemeral name must not begin a fragment."""
    return quote(value, safe="")


def arguments(given: dict[str, object]) -> str:
    """Return a query string without the empty arguments."""
    return urlencode({name: value for name, value in given.items() if value})


FILTERS: dict[str, Callable[..., Any]] = {
    "count": count, "counted": counted, "rate": rate, "percent": percent, "duration": duration, "bytes": size,
    "segment": segment, "arguments": arguments, "traits": traits, "age": age, "lasting": lasting, "moment": moment_element,
    "second": second_element, "clock": clock_element, "is_old": is_old, "moment_text": moment, "is_topic": is_valid_name,
}  # fmt: skip


def reader_rows(data: Mapping[str, list[JsonObject]], topic: str) -> list[JsonObject]:
    """Return rows of cursors, the largest lag first. `data` is by node; `topic` is used where a cursor names none."""
    rows = [
        {
            "topic": topic or text(one.get("topic")), "name": text(one.get("name")), "node": node,
            "owner": text(one.get("owner")), "offset": number(one.get("offset")), "lag": number(one.get("lag")),
            "gone": number(one.get("gone")), "hold": text(one.get("hold")), "updated": number(one.get("updated")),
        }
        for node, cursors in data.items()
        for one in cursors[:MOST_LISTED]
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row["lag"], row["topic"], row["name"], row["node"]))


def schedule_rows(data: Mapping[str, list[JsonObject]]) -> list[JsonObject]:
    """Return rows of schedules, by topic and name. `data` is by node. Times are ns since the epoch; 0: none."""
    rows = [
        {
            "topic": text(one.get("topic")), "name": text(one.get("name")), "node": node, "when": _when(one),
            "next": 0 if one.get("paused") else number(one.get("next")) * SECOND,
            "last": number(one.get("last")) * SECOND, "missed": text(one.get("missed")),
        }
        for node, schedules in data.items()
        for one in schedules[:MOST_LISTED]
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (row["topic"], row["name"], row["node"]))


def batch_rows(data: Mapping[str, list[JsonObject]]) -> list[JsonObject]:
    """Return rows of batches, those that changed last first. `data` is by node. Times are ns since the epoch.

    `buried` is None until the batch is done.
    """
    rows = [
        {
            "name": text(one.get("batch")), "node": node, "state": text(one.get("state")),
            "members": number(one.get("members")), "buried": number(one["buried"]) if "buried" in one else None,
            "follow_ups": number(one.get("follow_ups")), "created": number(one.get("created")) * SECOND,
            "changed": number(one.get("changed")) * SECOND,
        }
        for node, batches in data.items()
        for one in batches[:MOST_LISTED]
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row["changed"], row["name"], row["node"]))


def _when(schedule: JsonObject) -> str:
    if schedule.get("every"):
        return f"every {text(schedule['every'])}"
    return text(schedule.get("at")) or f"{text(schedule.get('cron'))} {text(schedule.get('timezone'))}".strip()


@dataclass(frozen=True, slots=True)
class Talker:
    """An identity of the auth file, and its use of one node since the node started."""

    name: str
    connections: int
    in_flight: int
    messages: int  # published
    bytes: int  # of their bodies
    throttled: int  # how often a connection was not read
    throttled_ms: int
    refused: int


def top_talkers(answer: JsonObject) -> list[Talker]:
    """Return the identities that published the most bytes, the first one first. `answer`: that of /identities."""
    found = [
        Talker(text(one.get("name")), *(number(one.get(name)) for name in Talker.__slots__[1:]))
        for one in objects(answer.get("identities"))[: 10 * MOST_TALKERS]
    ]
    return sorted(found, key=lambda one: (-one.bytes, one.name))[:MOST_TALKERS]
