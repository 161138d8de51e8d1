"""The cluster as nsqlookupd, or the configured nsqd, describe it: topics, producers, and their stats.

Every result includes the errors of the nodes that failed. If no node answers, AllFailed is raised.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from admin.nodes.merge import entries, items, merged_channel, named, texts, topic_of
from admin.nodes.upstreams import Gathered, Refused, Upstreams
from shared.json_fields import JsonObject, all_texts, number, objects, text
from shared.version import version_words

LOOKUPDS, NSQDS = "nsqlookupd", "nsqd"
WITHOUT_CLIENTS = {"format": "json", "include_clients": "false"}
MOST_OF_A_NODE, MOST_OF_A_TOPIC = 200_000, 50_000  # topics, channels and clients that one node may list
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


class AllFailed(Exception):
    """No node answered. The text is the original's; `errors` has one for each node."""

    def __init__(self, text: str, errors: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.errors = list(errors) or [text]


@dataclass(frozen=True, slots=True)
class Producer:
    """An nsqd of the cluster, as nsqlookupd or the nsqd itself describes it."""

    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str
    remote_address: str = ""
    remote_addresses: tuple[str, ...] = ()  # "lookupd/address" for each nsqlookupd that knows it
    region: str = ""
    zone: str = ""
    topics: tuple[tuple[str, bool], ...] = ()  # names, and whether each is tombstoned
    out_of_date: bool = False
    capabilities: tuple[str, ...] = ()  # features of Penstock's nsqd beyond NSQ's
    https_port: int = 0  # 0: unknown
    penstock_version: str = ""  # "": it is an original

    TEXTS: ClassVar = ("hostname", "broadcast_address", "version", "remote_address", "penstock_version")
    PORTS: ClassVar = ("tcp_port", "http_port", "https_port")

    @property
    def address(self) -> str:
        """The host:port of this nsqd's HTTP API."""
        return joined(self.broadcast_address, self.http_port)

    @property
    def runs(self) -> str:
        """Its program and version, for people."""
        return version_words(self.version, self.penstock_version)

    def carries(self, topic: str) -> bool:
        """Return whether it has the topic, tombstoned or not."""
        return any(name == topic for name, _ in self.topics)

    def json(self) -> JsonObject:
        """Return the producer in the form of /api/nodes."""
        names = ("remote_address", "hostname", "broadcast_address", "tcp_port", "http_port", "version")
        data: JsonObject = {"remote_addresses": list(self.remote_addresses) or None}
        data |= {name: getattr(self, name) for name in names}
        data |= {"topology_zone": self.zone} if self.zone else {}
        data |= {"topology_region": self.region} if self.region else {}
        topics = [{"topic": topic, "tombstoned": tombstoned} for topic, tombstoned in self.topics]
        return data | {"topics": topics or None, "out_of_date": self.out_of_date}


@dataclass(slots=True)
class PartialResult:
    """The base of results: the errors that explain what is missing."""

    errors: list[str] = field(default_factory=list)
    memory: int = field(default=0, kw_only=True)  # bytes held by the answers that this result was made from


@dataclass(slots=True)
class TopicNames(PartialResult):
    """The names of all topics that the nodes list, sorted."""

    names: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Producers(PartialResult):
    """The nsqd of a cluster, sorted by host name."""

    producers: list[Producer] = field(default_factory=list)

    @property
    def addresses(self) -> list[str]:
        return [one.address for one in self.producers]


@dataclass(slots=True)
class Stats(PartialResult):
    """The topics of several nodes, in the form of admin.nodes.merge."""

    topics: list[JsonObject] = field(default_factory=list)

    def channels(self) -> dict[tuple[str, str], JsonObject]:
        """Return the channels by topic and name, merged over all nodes."""
        parts: dict[tuple[str, str], list[JsonObject]] = {}
        for topic in self.topics:
            for channel in topic["channels"]:
                parts.setdefault((topic["topic_name"], channel["channel_name"]), []).append(channel)
        return {key: merged_channel(*key, same) for key, same in parts.items()}


@dataclass(slots=True)
class Outcome(PartialResult):
    """The result of a command, with the errors of the nodes that failed."""

    done: int = 0  # number of nodes that did it

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(self.errors + other.errors, self.done + other.done)


class Cluster:
    """Queries and commands to the nodes of a cluster, given addresses of either nsqlookupd's HTTP or nsqd's."""

    def __init__(self, upstreams: Upstreams, lookupds: Callable[[], tuple[str, ...]], nsqds: tuple[str, ...]) -> None:
        self.upstreams = upstreams
        self._lookupds = lookupds  # a function, because they can change while nsqadmin runs
        self.nsqds = nsqds

    @property
    def lookupds(self) -> tuple[str, ...]:
        """The HTTP addresses of the nsqlookupd daemons."""
        return self._lookupds()

    # Queries

    async def topics(self) -> TopicNames:
        """Return the topics of all nodes. Raises AllFailed."""
        if self.lookupds:
            gathered = await self._ask(LOOKUPDS, self.lookupds, "/topics")
            return await self._names(gathered, lambda data: data.get("topics"))
        gathered = await self._ask(NSQDS, self.nsqds, "/stats", WITHOUT_CLIENTS)
        return await self._names(
            gathered, lambda data: [one["topic_name"] for one in named(data.get("topics"), "topic_name")]
        )

    async def _names(self, gathered: Gathered[JsonObject], names_in: Callable[[JsonObject], object]) -> TopicNames:
        collect = lambda: sorted({one for data in gathered.answers.values() for one in texts(names_in(data))})  # noqa: E731
        names = await self.upstreams.answer_budget.run_in_thread(gathered.memory, collect)
        return TopicNames(gathered.errors, names, memory=gathered.memory)

    async def producers(self) -> Producers:
        """Return all nsqd of the cluster. Raises AllFailed."""
        if not self.lookupds:
            return await self._producers_from_nsqds(self.nsqds)
        gathered = await self._ask(LOOKUPDS, self.lookupds, "/nodes")
        found: dict[str, Producer] = {}
        for lookupd, data in gathered.answers.items():
            for one in objects(data.get("producers")):
                producer = self._learned(one)
                key = joined(producer.broadcast_address, producer.tcp_port)
                known = found.setdefault(key, producer)
                registered = f"{lookupd}/{producer.remote_address or 'N/A'}"
                found[key] = replace(known, remote_addresses=(*known.remote_addresses, registered))
        newest = newest_version(one.version for one in found.values())
        marked = [replace(one, out_of_date=_version(one.version) < newest) for one in found.values()]
        return Producers(gathered.errors, sorted(marked, key=lambda one: one.hostname))

    async def producers_of(self, topic: str) -> Producers:
        """Return the producers that have the topic. Raises AllFailed."""
        if not self.lookupds:
            every = await self._producers_from_nsqds(self.nsqds)
            carrying = [one for one in every.producers if one.carries(topic)]
            return Producers(every.errors, carrying)
        gathered = await self._ask(LOOKUPDS, self.lookupds, "/lookup", {"topic": topic})
        found: dict[str, Producer] = {}
        for data in gathered.answers.values():
            for one in objects(data.get("producers")):
                producer = self._learned(one)
                found.setdefault(producer.address, producer)
        return Producers(gathered.errors, list(found.values()))

    def _learned(self, data: JsonObject) -> Producer:
        """Return a producer that nsqlookupd names, and note the port at which it is asked."""
        producer = producer_of(data)
        self.upstreams.places.note_port(producer.address, producer.https_port)
        return producer

    async def stats(
        self, producers: Iterable[Producer], topic: str = "", channel: str = "", *, clients: bool = False
    ) -> Stats:
        """Return stats of all of the producers' topics, or of one. Raises AllFailed, also if there is no producer."""
        by_address = {one.address: one for one in producers}
        arguments = {"format": "json"} if clients else dict(WITHOUT_CLIENTS)
        arguments |= {name: value for name, value in (("topic", topic), ("channel", channel)) if value}
        gathered = await self._ask(NSQDS, by_address, "/stats", arguments)
        now = int(time.time())
        merged, errors = await self.upstreams.answer_budget.run_in_thread(
            gathered.memory, lambda: _merged(gathered.answers, by_address, topic, now)
        )
        if errors and not merged:
            raise AllFailed(f"failed to query any {NSQDS}: {'; '.join(gathered.errors + errors)}")
        return Stats(gathered.errors + errors, merged, memory=gathered.memory)

    async def _producers_from_nsqds(self, addresses: Iterable[str]) -> Producers:
        async def ask(address: str) -> Producer:
            info = await self.upstreams.get_object(address, "/info")
            stats = await self.upstreams.get_object(address, "/stats", WITHOUT_CLIENTS)
            host, _, port = address.rpartition("/")[2].rpartition(":")
            names = lambda: [(text(one["topic_name"]), False) for one in named(stats.get("topics"), "topic_name")]  # noqa: E731
            topics = await self.upstreams.answer_budget.run_in_thread(stats.memory, names)
            producer = replace(producer_of(info), topics=tuple(topics))
            if not producer.broadcast_address:  # an old NSQ
                producer = replace(producer, broadcast_address=host.strip("[]"), http_port=int(port or 0))
            self.upstreams.places.note_base(producer.address, address)
            return producer if producer.hostname else replace(producer, hostname=host.strip("[]"))

        gathered = await self.upstreams.all_of(addresses, ask)
        _check(gathered, NSQDS)
        return Producers(gathered.errors, list(gathered.answers.values()))

    async def cluster_answers(self, producers: Iterable[Producer]) -> Gathered[JsonObject]:
        """Return /cluster of the nodes that are in a cluster. Raises nothing if none answers."""

        async def ask(address: str) -> JsonObject:
            try:
                return await self.upstreams.get_object(address, "/cluster")
            except Refused as refused:
                if refused.status == 404:  # it is in no cluster, or is an original
                    return {}
                raise

        gathered = await self.upstreams.all_of([one.address for one in producers], ask)
        return Gathered({address: one for address, one in gathered.answers.items() if one}, gathered.errors)

    # Commands

    async def send(self, addresses: Iterable[str], path: str, arguments: dict[str, str]) -> Outcome:
        """Run a command on the daemons at these addresses. Failures, even of all of them, do not raise, as in the original."""
        gathered = await self.upstreams.all_of(addresses, lambda one: self.upstreams.post(one, path, arguments))
        return Outcome(gathered.errors, len(gathered.answers))

    async def _ask(
        self, kind: str, addresses: Iterable[str], path: str, arguments: Mapping[str, str] | None = None
    ) -> Gathered[JsonObject]:
        gathered = await self.upstreams.objects_of(addresses, path, arguments)
        _check(gathered, kind)
        return gathered


def joined(host: str, port: int) -> str:
    """Return host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _check(gathered: Gathered[Any], kind: str) -> None:
    if not gathered.answers:
        raise AllFailed(f"failed to query any {kind}: {'; '.join(gathered.errors)}", gathered.errors)


def _merged(
    answers: Mapping[str, JsonObject], by_address: dict[str, Producer], topic: str, now: int
) -> tuple[list[JsonObject], list[str]]:  # fmt: skip
    """Return the nodes' topics, or only `topic`, in the form of admin.nodes.merge, and errors of nodes that list too many."""
    found: list[JsonObject] = []
    errors = []
    most = MOST_OF_A_TOPIC if topic else MOST_OF_A_NODE
    for address, data in answers.items():
        one = by_address[address]
        raws = [raw for raw in named(data.get("topics"), "topic_name") if not topic or raw["topic_name"] == topic]
        if sum(map(entries, raws)) > most:
            errors.append(f"{address}/stats lists more than {most} topics, channels and clients")
            continue
        found += [topic_of(raw, address, one.hostname, now, (one.region, one.zone)) for raw in raws]
    return sorted(found, key=lambda one: str(one["hostname"])), errors


def producer_of(data: JsonObject) -> Producer:
    """Return the node that /nodes or /lookup of an nsqlookupd lists, or that its own /info describes."""
    names, tombstones = items(data.get("topics")), items(data.get("tombstones"))
    marks = [mark is True for mark in tombstones[: len(names)]]
    marks += [False] * (len(names) - len(marks))
    topics = zip(all_texts(names), marks, strict=True)
    given: dict[str, Any] = {name: text(data.get(name)) for name in Producer.TEXTS}
    given |= {name: number(data.get(name)) for name in Producer.PORTS}
    return Producer(
        **given,
        region=text(data.get("topology_region")),
        zone=text(data.get("topology_zone")),
        topics=tuple(sorted(topics)),
        capabilities=tuple(map(text, items(data.get("capabilities")))),
    )


def newest_version(versions: Iterable[str]) -> tuple[int, int, int, bool, str]:
    """Return the key by which the newest of the versions compares; the key of 0.0.0 if there is none."""
    return max(map(_version, versions), default=_version(""))


def _version(text: str) -> tuple[int, int, int, bool, str]:
    """Return a key that compares semantic versions; 0.0.0 for an invalid one. A pre-release is before its release."""
    match = _VERSION.fullmatch(text)
    if match is None:
        return 0, 0, 0, True, ""
    return int(match[1]), int(match[2]), int(match[3]), match[4] is None, match[4] or ""
