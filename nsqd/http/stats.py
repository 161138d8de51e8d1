"""GET /stats: the node's topics, channels and clients, key for key as in the original.

The snapshot is made in the trio thread, some topics at a time, so that ten thousand of them stall no turn. Percentiles are
found, and the answer is written, in the HTTP thread, topic by topic, because one call that writes them all would let no other
thread run. A picture of more than one topic is taken once at a time: requests that come meanwhile share the next one. The
reactor asks for a small picture of one topic itself, and answers it in the turn.

With `X-Nsq-Extensions: true` topics and channels have one more key: `oldest`, as in /topic/ages; and `producers` lists the
addresses that publish over HTTP, too.

See docs/contributing/design/nsq-http.md#statistics.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.broker import Broker
from nsqd.core.channel.channel import Channel
from nsqd.core.measurement.latency import Snapshot, result_of
from nsqd.core.observation.sums import (
    channel_sums,
    deliveries_by_distance,
    is_paused,
    oldest_of_channel,
    oldest_of_topic,
    topic_backend_depth,
    topic_depth,
)
from nsqd.core.reader import ReaderKind
from nsqd.core.topic import Topic
from nsqd.http.coalescing import Coalescing
from nsqd.http.node import Node
from nsqd.http.stats_client import client, http_publisher
from nsqd.http.stats_text import render
from nsqd.http.tubes import tube_figures
from nsqd.protocols.nsq.peer import Peer
from shared.auth.verbs import Verb
from shared.http.api import V1_HEADERS, text_response
from shared.http.argument import Argument, any_text
from shared.http.extensions import wants_extensions
from shared.http.route import Route, on_channel
from shared.text import go_json

BATCH = 40  # topics in one turn: about a millisecond and a half
LATENCY = "e2e_processing_latency"
MOST_CLIENTS = 32  # consumers and producers in a picture that is answered in the turn: each takes 30 us
MOST_CHANNELS = 32  # channels in such a picture


@dataclass(frozen=True, slots=True)
class StatsArguments:
    """The arguments of a request for statistics."""

    topic: str
    channel: str
    clients: bool
    memory: bool
    extended: bool = False  # with the keys that NSQ does not know


def _switch(name: str) -> Argument:
    return Argument(name, lambda text: text not in ("false", "0"), True)


class Stats:
    """The route for the statistics of the node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._coalescing: Coalescing[Response] = Coalescing()

    def routes(self) -> list[Route]:
        texts = (any_text(name, "") for name in ("format", "topic", "channel"))
        declared = (*texts, _switch("include_clients"), _switch("include_mem"))
        return [
            Route(
                "GET /stats", self.stats, on_channel(Verb.STATS), declared, "Return the statistics, as text or as JSON"
            ),
        ]

    async def stats(
        self, request: Request, format_: str, topic: str, channel: str, include_clients: bool, include_mem: bool
    ) -> Response:
        """Answer JSON with format=json, else text."""
        wanted = StatsArguments(topic, channel, include_clients, include_mem, wants_extensions(request))
        as_json = format_ == "json"
        if wanted.topic:
            return await self._answer(wanted, as_json)
        return await self._coalescing.get((wanted, as_json), lambda: self._answer(wanted, as_json))

    async def _answer(self, wanted: StatsArguments, as_json: bool) -> Response:
        figures = await self._statistics(wanted)
        if as_json:
            return Response(_written(figures), media_type="application/json; charset=utf-8", headers=V1_HEADERS)
        return text_response(render(figures, await self._node.bridge.observe(lambda: self._node.broker.wall)))

    async def _statistics(self, wanted: StatsArguments) -> dict[str, Any]:
        node = self._node
        topics = await self._topics(wanted)
        return _picture(node, wanted, topics, await self._producers(wanted) if wanted.clients else [])

    def answer_in_turn(self, topic: str, channel: str, clients: bool, memory: bool) -> bytes | None:
        """Return the JSON that `stats` answers for one topic, or None if that is for the HTTP thread. Runs in the trio thread.

        `channel`: the one that is wanted; "": all. Requests for the other thread take long, or are rare.
        """
        node, wanted = self._node, StatsArguments(topic, channel, clients, memory)
        found = node.broker.topics.get(topic)
        if found is None or len(found.channels) > MOST_CHANNELS:
            return None
        if any(each.latency is not None for each in found.channels.values()):  # its percentiles take a millisecond
            return None
        peers = node.peers()
        producers = [peer for peer in peers if peer.pub_counts] if clients else []
        if clients and len(producers) + sum(len(each.consumers) for each in found.channels.values()) > MOST_CLIENTS:
            return None
        figures = self._figures_of(
            [topic], wanted, {peer.consumer: peer for peer in peers if peer.consumer is not None}
        )
        for one in figures:
            _find_percentiles(one)
        return _written(_picture(node, wanted, figures, _clients(producers, wanted))).encode()

    async def _topics(self, wanted: StatsArguments) -> list[dict[str, Any]] | None:
        call, topics = self._node.bridge.call, self._node.broker.topics
        names = await call(lambda: [wanted.topic] if wanted.topic in topics else sorted(topics))
        if wanted.topic and names != [wanted.topic]:
            return None
        owners = await call(lambda: {peer.consumer: peer for peer in self._node.peers() if peer.consumer is not None})
        all_figures: list[dict[str, Any]] = []
        for start in range(0, len(names), BATCH):
            batch = names[start : start + BATCH]
            all_figures += await call(lambda batch=batch: self._figures_of(batch, wanted, owners))  # type: ignore[misc]
        for figures in all_figures:
            _find_percentiles(figures)
        return all_figures

    def _figures_of(self, names: list[str], wanted: StatsArguments, owners: dict[Any, Peer]) -> list[dict[str, Any]]:
        known = self._node.broker.topics
        # without tubes whose names no topic can have
        topics = [known[name] for name in names if name in known and known[name].legal]
        if wanted.channel:
            topics = [topic for topic in topics if wanted.channel in topic.channels]
        now = self._node.broker.now
        return [_topic(topic, wanted, owners, now) | self._readers(topic, now) for topic in topics]

    def _readers(self, topic: Topic, now: int) -> dict[str, Any]:
        """Return the statistics of a topic's readers that are not channels, by their word."""
        found = [
            (*_READER_FIGURES[reader.kind], reader)
            for reader in topic.readers.values()
            if reader.kind in _READER_FIGURES
        ]
        return {word: figures(self._node.broker, reader, now) for word, figures, reader in found}

    async def _producers(self, wanted: StatsArguments) -> list[dict[str, Any]]:
        """Return the connections that have published, whichever topic was asked for; and if extended, who uses HTTP."""
        call, found = self._node.bridge.call, []
        producers = await call(lambda: [peer for peer in self._node.peers() if peer.pub_counts])
        for start in range(0, len(producers), BATCH):
            batch = producers[start : start + BATCH]
            found += await call(partial(_clients, batch, wanted))
        if wanted.extended:
            found += map(http_publisher, await call(lambda: list(self._node.publishers.all())))
        return found


def _picture(
    node: Node, wanted: StatsArguments, topics: list[dict[str, Any]] | None, producers: list[dict[str, Any]]
) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "version": node.info.version,
        "health": node.health(),
        "start_time": node.info.start_time,
        "topics": topics,
    }
    if wanted.memory:
        figures["memory"] = node.memory()
    figures["producers"] = producers or None
    return figures


# For each kind of reader except channels: its word, and a function that returns the statistics of one at `now` (monotonic ns).
_READER_FIGURES: dict[ReaderKind, tuple[str, Callable[[Broker, Any, int], dict[str, int]]]] = {
    ReaderKind.WORK_QUEUE: ("tube", lambda broker, tube, now: tube_figures(broker.tubes, tube.topic_name, now)),
}


def _written(figures: dict[str, Any]) -> str:
    """Return the picture as JSON, with topics and producers encoded one by one."""
    return "{" + ",".join(f'"{key}":{_listed(value)}' for key, value in figures.items()) + "}"


def _listed(value: Any) -> str:
    return "[" + ",".join(map(go_json, value)) + "]" if isinstance(value, list) else go_json(value)


def _topic(topic: Topic, wanted: StatsArguments, owners: dict[Any, Peer], now: int) -> dict[str, Any]:
    channels = [topic.channels[name] for name in sorted(topic.channels) if wanted.channel in ("", name)]
    depth = topic_depth(topic)
    return {
        "topic_name": topic.name,
        "channels": [_channel(channel, wanted, owners, now) for channel in channels],
        "depth": depth,
        "backend_depth": topic_backend_depth(topic),
        "message_count": topic.intake.message_count,
        "message_bytes": topic.intake.message_bytes,
        "paused": is_paused(topic),
        LATENCY: [_latency(channel, now) for channel in topic.channels.values()],
        **({"oldest": oldest_of_topic(topic) if depth else 0} if wanted.extended else {}),
    }


def _channel(channel: Channel, wanted: StatsArguments, owners: dict[Any, Peer], now: int) -> dict[str, Any]:
    peers = (
        [owners[consumer] for consumer in channel.consumers.values() if consumer in owners] if wanted.clients else []
    )
    sums = channel_sums(channel)
    return {
        "channel_name": channel.name,
        "depth": sums.depth,
        "backend_depth": sums.backend_depth,
        "in_flight_count": sums.in_flight,
        "deferred_count": sums.deferred,
        "message_count": sums.messages,
        **_not_in_1_3_0(channel, sums.buried),
        "requeue_count": sums.requeued,
        "timeout_count": sums.timed_out,
        "client_count": len(channel.consumers),
        "clients": _clients(peers, wanted) if wanted.clients else None,
        "paused": sums.paused,
        LATENCY: [_latency(channel, now)],
        **({"oldest": oldest_of_channel(channel) if sums.depth else 0} if wanted.extended else {}),
    }


def _clients(peers: list[Peer], wanted: StatsArguments) -> list[dict[str, Any]]:
    return [client(peer, wanted.topic, wanted.extended) for peer in peers]


def _latency(channel: Channel, now: int) -> Snapshot | None:
    return channel.latency.snapshot(now) if channel.latency is not None else None


def _not_in_1_3_0(channel: Channel, buried: int) -> dict[str, int]:
    """Return counts that the release of 1.3.0 does not know, where they are not 0, so that other users see no new key."""
    zone, region, elsewhere = deliveries_by_distance(channel)
    counts = {
        "zone_local_msg_count": zone,
        "region_local_msg_count": region,
        "global_msg_count": elsewhere,
        "buried_count": buried,
    }
    return {key: count for key, count in counts.items() if count}


def _find_percentiles(topic: dict[str, Any]) -> None:
    """Replace the snapshots by their percentiles. A topic's are those of all its channels, wanted or not."""
    topic[LATENCY] = result_of(topic[LATENCY])
    for channel in topic["channels"]:
        channel[LATENCY] = result_of(channel[LATENCY])
