"""Find a topic in one of the logs that can be read on this node, as `log` in a request names it.

Without `log` it is the log into which the node publishes. `log` is that of /topic/offsets, or only its first part, the id of
the log. It may name a log that this node has promoted, or one of which it has a replica: that is read as far as the replica was
durable when it was opened, and cannot be changed. The past of a lost node is read in this way before its log is promoted.

404 LOG_NOT_FOUND: this node has no such log. 503 LOG_OPENING: it has, and cannot read it yet. 409 OTHER_LOG: the topic's number
in the log is another one, because it was deleted and recreated; or the node has no such log, but one that has a topic of that
name.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from nsqd.core.broker import Broker
from nsqd.core.cluster_view import ReadableReplica
from nsqd.core.retention.cursors import Cursor
from nsqd.core.retention.history import History, OffsetRange, PastLog
from nsqd.core.topic import Topic
from nsqd.http.arguments import existing_topic
from nsqd.http.node import Node
from shared.http.errors import HttpError
from shared.log import log

OWN, PROMOTED, REPLICA = "own", "promoted", "replica"
IDLE = 60.0  # s after the last request until what was read of a replica is dropped
FRESH = 5.0  # s in which a replica is not read again though it has become longer
SHARE = 10  # times as long as its reading took is a replica that grows not read again
_LOG = re.compile(r"([0-9a-f]{32})(?:-([0-9]{1,19}))?")


@dataclass(frozen=True, slots=True)
class TopicInLog:
    """A topic as one log has it, with what can be read back of it and its cursors."""

    number: int
    history: History
    window: OffsetRange
    topic: Topic | None  # None: the log is a replica, and cannot be changed
    cursors: Mapping[str, Cursor]
    kind: str  # OWN, PROMOTED or REPLICA
    origin: int  # number of the node that published into the log

    def changeable(self) -> Topic:
        """Return the topic, to be changed. Raises HttpError 409 if the log is a replica."""
        if self.topic is None:
            raise HttpError(409, "READ_ONLY_LOG")
        return self.topic


def find_topic(
    node: Node, name: str, log_id: str, offset: int = 0, replica: PastLog | None = None, start: int = 0
) -> TopicInLog:
    """Return a topic in the log that `log_id` names; "": in the node's own. Runs in the trio thread. Raises HttpError.

    `offset`: the highest one that the client names; `start`: the one from which it reads. `replica`: what Replicas.open has
    returned for `log_id`.
    """
    named = _LOG.fullmatch(log_id)
    if named is None or named[1] == node.history.log_id.hex():
        return _own(node, name, log_id, offset)
    for promoted in node.broker.logs[1:]:
        history = promoted.context.history
        if history is not None and history.log_id.hex() == named[1]:
            return _checked(_of_broker(promoted, history, logged_topic(promoted, name), PROMOTED), log_id)
    if _continues(node, name, log_id) and (replica is None or _has(node, name, start)):
        return _own(node, name, log_id, offset)
    if replica is not None:
        return _checked(_of_replica(replica, name), log_id)
    if node.cluster is not None and node.cluster.is_opening(bytes.fromhex(named[1])):
        raise HttpError(503, "LOG_OPENING")
    if named[2] is None:
        raise HttpError(404, "LOG_NOT_FOUND")
    return _own(node, name, log_id, offset)


def logged_topic(broker: Broker, name: str) -> Topic:
    """Return the topic of that name, which must be in the log. Runs in the trio thread. Raises HttpError 400, 404."""
    topic = existing_topic(broker, name)
    if topic.ephemeral:
        raise HttpError(400, "EPHEMERAL_TOPIC")
    return topic


def topic_and_window(node: Node, name: str, log_id: str, offset: int = 0) -> tuple[Topic, OffsetRange]:
    """Return the topic in the node's own log, and the window of offsets that can be read. Runs in the trio thread.

    `log_id` is the id of the log whose offsets the client knows; "": it does not say. `offset`: the highest one that the client
    names. Raises HttpError 409 if the topic is in another log, unless that was restored from `log_id` and has the same messages
    up to `offset`.
    """
    topic = logged_topic(node.broker, name)
    window = node.history.window(topic.number)
    if log_id and not _names(log_id, window.log):
        end = next((end for parent, end in window.parents if _names(log_id, parent)), None)
        if end is None:
            raise HttpError(409, "OTHER_LOG", {"X-Nsq-Log": window.log})
        if offset > end:
            raise HttpError(409, "OTHER_LOG", {"X-Nsq-Log": window.log, "X-Nsq-Restored-Offset": str(end)})
    return topic, window


def _names(log_id: str, log_of_topic: str) -> bool:
    """Return True if `log_id` is that log of a topic, or the id of the log without the topic's number."""
    return log_of_topic in (log_id, f"{log_id}-{log_of_topic.rpartition('-')[2]}")


def _own(node: Node, name: str, log_id: str, offset: int) -> TopicInLog:
    topic, window = topic_and_window(node, name, log_id, offset)
    return TopicInLog(topic.number, node.history, window, topic, topic.cursors, OWN, node.broker.ids.node)


def _continues(node: Node, name: str, log_id: str) -> bool:
    """Return True if the node's own topic continues that of the log `log_id`."""
    topic = node.broker.topics.get(name)
    if topic is None or topic.ephemeral:
        return False
    return any(_names(log_id, parent) for parent, _ in node.history.window(topic.number).parents)


def _has(node: Node, name: str, offset: int) -> bool:
    """Return True if the node's own topic has the messages from an offset on."""
    return offset >= node.history.window(node.broker.topics[name].number).first


def _of_broker(broker: Broker, history: History, topic: Topic, kind: str) -> TopicInLog:
    window = history.window(topic.number)
    return TopicInLog(topic.number, history, window, topic, topic.cursors, kind, broker.ids.node)


def _of_replica(replica: PastLog, name: str) -> TopicInLog:
    topic = replica.topic(name)
    if topic is None:
        raise HttpError(404, "TOPIC_NOT_FOUND")
    window = replica.history.window(topic.number)
    return TopicInLog(topic.number, replica.history, window, None, topic.cursors, REPLICA, replica.node)


def _checked(found: TopicInLog, log_id: str) -> TopicInLog:
    """Return the log and topic that were found. Raises HttpError 409 if the topic has another number than `log_id` says."""
    if not _names(log_id, found.window.log):
        raise HttpError(409, "OTHER_LOG", {"X-Nsq-Log": found.window.log})
    return found


class ReplicaReader:
    """The replicas that are read: one at a time, in a thread when a request needs it, and dropped when none needs it.

    For the HTTP thread.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._lock = asyncio.Lock()
        self._reading: asyncio.Future[PastLog] | None = None  # also while the client that needed it is gone
        self._opened: PastLog | None = None
        self._source: ReadableReplica | None = None  # of what is open
        self._read_at = self._used = 0.0  # monotonic s
        self._took = 0.0  # s that reading what is open has taken

    async def open(self, log_id: str) -> PastLog | None:
        """Return this node's replica of the log that `log_id` names; None: it has none. Raises HttpError 503."""
        named = _LOG.fullmatch(log_id)
        if named is None or self._node.cluster is None:
            return None
        key = bytes.fromhex(named[1])
        source = await self._node.bridge.observe(lambda: self._find(key))
        if source is None:
            return None
        async with self._lock:
            if not self._is_current(key, source):
                await self._read(source)
            if self._opened is not None and not self._used:
                asyncio.get_running_loop().call_later(IDLE, self._drop)
            self._used = time.monotonic()
            return self._opened

    def _find(self, log_id: bytes) -> ReadableReplica | None:
        """Return a reader of a replica. None if there is none, or this node leads the log. Runs in the trio thread."""
        node = self._node
        assert node.cluster is not None
        try:
            return node.cluster.readable_replica(log_id)
        except KeyError:
            return None

    def _is_current(self, log_id: bytes, source: ReadableReplica) -> bool:
        """Return True if what is open is this replica, and recent enough."""
        if self._opened is None or self._source is None or self._opened.log_id != log_id:
            return False
        if self._source.files != source.files:
            return False
        fresh = max(FRESH, SHARE * self._took)
        return self._source.durable == source.durable or time.monotonic() < self._read_at + fresh

    async def _read(self, source: ReadableReplica) -> None:
        """Read a replica in a thread. Raises HttpError 503."""
        if self._reading is not None:  # the client that needed it is gone
            await asyncio.wait([self._reading])
        self._opened, began = None, time.monotonic()  # dropped before the next one takes memory
        self._reading = asyncio.ensure_future(asyncio.to_thread(source.read))
        try:
            self._opened, self._source = await asyncio.shield(self._reading), source
        except OSError as error:
            log.error("HTTP: cannot read messages back from a replica: %s", error)
            raise HttpError(503, "CANNOT_READ") from None
        finally:
            if self._reading.done():
                self._reading = None
        self._read_at = time.monotonic()
        self._took = self._read_at - began

    def _drop(self) -> None:
        """Drop what was read if no request has needed it lately."""
        left = self._used + IDLE - time.monotonic()
        if left > 0:
            asyncio.get_running_loop().call_later(left, self._drop)
        else:
            self._opened, self._used = None, 0.0
