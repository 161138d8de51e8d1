"""The cluster as nsqlookupd, or the nsqd that were named, tell it: topics, producers, and what producers have.

Every answer comes with the errors of those who gave none. Where nobody answers there is none: AllFailed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from admin.merge import Told, merged_channel, number, objects, text, topic_of
from admin.upstreams import Gathered, Upstreams

LOOKUPDS, NSQDS = "nsqlookupd", "nsqd"
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


class AllFailed(Exception):
    """Nobody answered; the text is as the original has it."""


@dataclass(frozen=True, slots=True)
class Producer:
    """An nsqd."""

    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str
    remote_address: str = ""
    remote_addresses: tuple[str, ...] = ()  # "lookupd/address", of each nsqlookupd that knows it
    region: str = ""
    zone: str = ""
    topics: tuple[tuple[str, bool], ...] = ()  # names, and whether tombstoned
    out_of_date: bool = False
    capabilities: tuple[str, ...] = ()  # beyond NSQ; of ours

    @property
    def address(self) -> str:
        """host:port of its HTTP."""
        return joined(self.broadcast_address, self.http_port)

    def json(self) -> Told:
        """As /api/nodes tells it."""
        told: Told = {
            "remote_addresses": list(self.remote_addresses) or None,
            "remote_address": self.remote_address,
            "hostname": self.hostname,
            "broadcast_address": self.broadcast_address,
            "tcp_port": self.tcp_port,
            "http_port": self.http_port,
            "version": self.version,
        }
        told |= {
            name: value for name, value in (("topology_zone", self.zone), ("topology_region", self.region)) if value
        }
        topics = [{"topic": topic, "tombstoned": tombstoned} for topic, tombstoned in self.topics]
        return told | {"topics": topics or None, "out_of_date": self.out_of_date}


@dataclass(slots=True)
class Found:
    """Something, and why it may not be all."""

    errors: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Names(Found):
    """Of topics or channels, sorted."""

    names: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Producers(Found):
    """By host name."""

    producers: list[Producer] = field(default_factory=list)


@dataclass(slots=True)
class Stats(Found):
    """Topics of nodes, as admin.merge has them."""

    topics: list[Told] = field(default_factory=list)

    def channels(self) -> dict[tuple[str, str], Told]:
        """All nodes' together, by topic and channel."""
        parts: dict[tuple[str, str], list[Told]] = {}
        for topic in self.topics:
            for channel in topic["channels"]:
                parts.setdefault((topic["topic_name"], channel["channel_name"]), []).append(channel)
        return {key: merged_channel(*key, same) for key, same in parts.items()}


class Cluster:
    """See above. Either has addresses of nsqlookupd's HTTP, or of nsqd's."""

    def __init__(self, upstreams: Upstreams, lookupds: Callable[[], tuple[str, ...]], nsqds: tuple[str, ...]) -> None:
        self.upstreams = upstreams
        self._lookupds = lookupds  # they can be changed while it runs
        self.nsqds = nsqds

    @property
    def lookupds(self) -> tuple[str, ...]:
        """Addresses."""
        return self._lookupds()

    # Queries

    async def topics(self) -> Names:
        """Of all nodes. Raises AllFailed."""
        if self.lookupds:
            gathered = await self._ask(LOOKUPDS, self.lookupds, "/topics")
            return _names(gathered, lambda told: told.get("topics"))
        gathered = await self._ask(NSQDS, self.nsqds, "/stats", {"format": "json", "include_clients": "false"})
        return _names(gathered, lambda told: [one.get("topic_name") for one in objects(told.get("topics"))])

    async def producers(self) -> Producers:
        """All of them. Raises AllFailed."""
        if not self.lookupds:
            return await self._told_by_themselves(self.nsqds)
        gathered = await self._ask(LOOKUPDS, self.lookupds, "/nodes")
        found: dict[str, Producer] = {}
        for lookupd, told in gathered.answers.items():
            for one in objects(told.get("producers")):
                producer = _producer(one)
                key = joined(producer.broadcast_address, producer.tcp_port)
                known = found.setdefault(key, producer)
                seen = f"{lookupd}/{producer.remote_address or 'N/A'}"
                found[key] = replace(known, remote_addresses=(*known.remote_addresses, seen))
        newest = max((_version(one.version) for one in found.values()), default=_version(""))
        marked = [replace(one, out_of_date=_version(one.version) < newest) for one in found.values()]
        return Producers(gathered.errors, sorted(marked, key=lambda one: one.hostname))

    async def producers_of(self, topic: str) -> Producers:
        """Those that carry the topic. Raises AllFailed."""
        if not self.lookupds:
            every = await self._told_by_themselves(self.nsqds)
            carrying = [one for one in every.producers if topic in dict(one.topics)]
            return Producers(every.errors, carrying)
        gathered = await self._ask(LOOKUPDS, self.lookupds, "/lookup", {"topic": topic})
        found: dict[str, Producer] = {}
        for told in gathered.answers.values():
            for one in objects(told.get("producers")):
                producer = _producer(one)
                found.setdefault(producer.address, producer)
        return Producers(gathered.errors, list(found.values()))

    async def stats(
        self, producers: Iterable[Producer], topic: str = "", channel: str = "", *, clients: bool = False
    ) -> Stats:
        """Of their topics, or of one. Raises AllFailed, also where there is no producer."""
        by_address = {one.address: one for one in producers}
        arguments = {"format": "json"} | {
            name: value for name, value in (("topic", topic), ("channel", channel)) if value
        }
        if not clients:
            arguments["include_clients"] = "false"
        gathered = await self._ask(NSQDS, by_address, "/stats", arguments)
        now, found = int(time.time()), []
        for address, told in gathered.answers.items():
            one = by_address[address]
            for raw in objects(told.get("topics")):
                if not topic or raw.get("topic_name") == topic:
                    found.append(topic_of(raw, address, one.hostname, now, (one.region, one.zone)))
        return Stats(gathered.errors, sorted(found, key=lambda one: str(one["hostname"])))

    async def _told_by_themselves(self, addresses: Iterable[str]) -> Producers:
        async def ask(address: str) -> Producer:
            info = await self.upstreams.get_object(address, "/info")
            arguments = {"format": "json", "include_clients": "false"}
            stats = await self.upstreams.get_object(address, "/stats", arguments)
            host, _, port = address.rpartition(":")
            topics = [(text(one.get("topic_name")), False) for one in objects(stats.get("topics"))]
            producer = replace(_producer(info), topics=tuple(topics))
            if not producer.broadcast_address:  # an old one, which does not say
                producer = replace(producer, broadcast_address=host.strip("[]"), http_port=int(port or 0))
            return producer if producer.hostname else replace(producer, hostname=host.strip("[]"))

        gathered = await self.upstreams.all_of(addresses, ask)
        _check(gathered, NSQDS)
        return Producers(gathered.errors, list(gathered.answers.values()))

    # Commands

    async def tell_lookupds(self, path: str, arguments: dict[str, str]) -> list[str]:
        """Returns the errors of those that failed. Raises AllFailed if all did, and there are some."""
        return await self._tell(LOOKUPDS, self.lookupds, path, arguments)

    async def tell_nsqds(self, producers: Iterable[Producer], path: str, arguments: dict[str, str]) -> list[str]:
        """Likewise."""
        return await self._tell(NSQDS, [one.address for one in producers], path, arguments)

    async def _tell(self, what: str, addresses: Iterable[str], path: str, arguments: dict[str, str]) -> list[str]:
        gathered = await self.upstreams.all_of(addresses, lambda one: self.upstreams.post(one, path, arguments))
        if gathered.errors and not gathered.answers:
            raise AllFailed(f"failed to query any {what}: {'; '.join(gathered.errors)}")
        return gathered.errors

    async def _ask(
        self, what: str, addresses: Iterable[str], path: str, arguments: dict[str, str] | None = None
    ) -> Gathered[Told]:
        gathered = await self.upstreams.all_of(
            addresses, lambda one: self.upstreams.get_object(one, path, arguments or {})
        )
        _check(gathered, what)
        return gathered


def joined(host: str, port: int) -> str:
    """host:port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _check(gathered: Gathered[Any], what: str) -> None:
    if not gathered.answers:
        raise AllFailed(f"failed to query any {what}: {'; '.join(gathered.errors)}")


def _names(gathered: Gathered[Told], of: Callable[[Told], Any]) -> Names:
    found: set[str] = set()
    for told in gathered.answers.values():
        names = of(told)
        if isinstance(names, list):
            found.update(text(name) for name in names if isinstance(name, str))
    return Names(gathered.errors, sorted(found))


def _producer(told: Told) -> Producer:
    names, tombstones = told.get("topics"), told.get("tombstones")
    names = names if isinstance(names, list) else []
    tombstones = tombstones if isinstance(tombstones, list) else []
    topics = [(text(name), place < len(tombstones) and tombstones[place] is True) for place, name in enumerate(names)]
    capabilities = told.get("capabilities")
    return Producer(
        hostname=text(told.get("hostname")),
        broadcast_address=text(told.get("broadcast_address")),
        tcp_port=number(told.get("tcp_port")),
        http_port=number(told.get("http_port")),
        version=text(told.get("version")),
        remote_address=text(told.get("remote_address")),
        region=text(told.get("topology_region")),
        zone=text(told.get("topology_zone")),
        topics=tuple(sorted(topics)),
        capabilities=tuple(map(text, capabilities)) if isinstance(capabilities, list) else (),
    )


def _version(text: str) -> tuple[int, int, int, bool, str]:
    """To compare by, as semantic versions are; 0.0.0 for what is none. A pre-release is before its release."""
    match = _VERSION.fullmatch(text)
    if match is None:
        return 0, 0, 0, True, ""
    return int(match[1]), int(match[2]), int(match[3]), match[4] is None, match[4] or ""
