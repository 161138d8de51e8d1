"""Handle PUB, MPUB and DPUB of one client, each with its fast shape and its exact reading.

The permission for a topic is checked once: `_permitted_topics` remembers it. An MPUB is collected as it arrives, and a large
one is published in slices over several turns.

If IDENTIFY agreed on `deduplication`, a command line may end in a key, or in a producer and a sequence. Messages that were
published under that key or sequence before are not published again, and the OK waits for what the first one's OK waited for
(nsqd/core/sequence/dedup.py). In an MPUB the key is that of all its messages together, and the sequence is that of the first:

    PUB <topic> [<key> | <producer> <sequence>]
    DPUB <topic> <ms> [...]
    MPUB <topic> [...]

If IDENTIFY agreed on `headers`, HPUB, HDPUB and HMPUB are the same commands with headers for their messages
(penstock/protocol/headers.py) between the line and what follows it.
"""

from dataclasses import replace
from functools import partial

from nsqd.core.broker import Broker
from nsqd.core.limits import HeaderRefused, TooMany
from nsqd.core.message.attributes import NONE, Attributes
from nsqd.core.message.frame import OK
from nsqd.core.topic import Topic
from nsqd.protocols.nsq import fast
from nsqd.protocols.nsq.access import Access
from nsqd.protocols.nsq.batch import SLICE, MpubBatch
from nsqd.protocols.nsq.commands import (
    BYTES_OF_A_BODY,
    DPUB_BODY,
    INT32,
    PUB_BODY,
    Later,
    MpubScan,
    parse_number,
    read_attributes,
    read_body,
    read_headers,
    read_mpub_count,
    read_name,
)
from nsqd.protocols.nsq.creation import Topics
from nsqd.protocols.nsq.errors import WireError
from nsqd.protocols.nsq.settings import Settings
from nsqd.protocols.outbox import Outbox
from penstock.protocol.headers import Headers
from shared.values import MILLISECOND

COST_OF_DELAY, COST_OF_TOPIC = 16, 64  # of a DPUB, and of a new topic, in messages of an MPUB
MOST_KNOWN = 256  # topics that a connection remembers: honest producers have a few
_PUB, _MPUB = b"PUB ", b"MPUB "


class Publisher:
    """The publishing side of one client.

    Commands take (words of the line, buffer, where the command began, where its line ended, now) and return where the next one
    begins; they raise WireError, NeedMore and Waiting. `headers`: those of the command's messages.
    """

    __slots__ = (
        "_access", "_batch_topic", "_broker", "_last_line", "_last_topic", "_outbox", "_permitted_topics", "_settings",
        "_spent", "_topics", "batch", "copies", "counts", "deduplicates", "scan", "size", "takes_headers",
    )  # fmt: skip

    def __init__(self, broker: Broker, topics: Topics, settings: Settings, access: Access, outbox: Outbox) -> None:
        self._broker = broker
        self._topics = topics
        self._settings = settings
        self._access = access
        self._outbox = outbox
        # Topics whose names need no check: all topics of the node or, where each needs a permission, those published to.
        self._permitted_topics: dict[bytes, Topic] = {} if settings.auth_required else broker.named
        # the topic of the last fast PUB, and its line with the newline: most clients publish to the same topic again
        self._last_topic: Topic | None = None
        self._last_line = b""
        self.counts: dict[str, int] = {}  # messages published, by topic
        self.size = 0  # bytes of their bodies
        self.scan: MpubScan | None = None  # an MPUB whose messages are still coming; None: there is none
        # a large MPUB that is complete and is published in slices; None: there is none
        self.batch: MpubBatch | None = None
        self._batch_topic = ""  # the topic's name of that batch
        self._spent = 0  # messages, and equal costs, since Later last ended this client's share of a turn
        self.deduplicates = self.takes_headers = False  # as IDENTIFY agreed
        self.copies = 0  # that each publish asks for, as IDENTIFY agreed; 0: as many as the topic does

    def repeat(self, data: bytes, now: int) -> bool:
        """Publish `data` if it is exactly one PUB, of the common shape, to the topic of the last fast PUB.

        Returns False if the input must be read command by command. This takes half the time of `fast`, and is how nearly all
        clients publish that wait for each OK.
        """
        topic, line = self._last_topic, self._last_line
        if topic is None or not data.startswith(line):
            return False
        body_at = len(line) + 4
        size = len(data) - body_at
        if not 0 < size <= self._settings.max_msg_size or INT32.unpack_from(data, body_at - 4)[0] != size:
            return False
        outbox = self._outbox
        if now >= self._access.until or self.scan or self.batch or outbox.closing:
            return False
        if topic.shut and not topic.has_room():
            return False
        topic.publish([data[body_at:]], size)
        self.counts[topic.name] += 1
        self.size += size
        outbox.reply(OK, topic.marks)
        return True

    def fast(self, data: bytes, start: int, now: int) -> int:
        """Publish a whole PUB or MPUB of the common shape to a known topic. Return its end; 0: it must be read exactly."""
        if now >= self._access.until or self.copies:
            return 0
        settings = self._settings
        if data.startswith(_PUB, start):
            one = fast.pub(data, start, settings.max_msg_size)
            topic = self._permitted_topics.get(one[0]) if one else None
            if one is None or topic is None or (topic.shut and not topic.has_room()):
                return 0
            self._publish(topic, [one[1]], len(one[1]))
            if topic is not self._last_topic:
                self._last_topic, self._last_line = topic, b"PUB %s\n" % one[0]
            return one[2]
        if data.startswith(_MPUB, start):
            many = fast.mpub(data, start, settings.max_msg_size, settings.max_body_size)
            topic = self._permitted_topics.get(many[0]) if many else None
            if many is None or topic is None or (topic.shut and not topic.has_room()):
                return 0
            if len(many[1]) > SLICE:
                self._begin(topic.name, MpubBatch(many[1]))
            else:
                self._publish(topic, many[1], many[2])
            return self._spend(len(many[1]), many[3])
        return 0

    def with_headers(self, words: list[bytes], data: bytes, start: int, at: int, now: int) -> int:
        """Handle HPUB, HDPUB and HMPUB: headers, and the rest of the command without the H."""
        headers, at = read_headers(data, start, at)
        publish = {b"HPUB": self.pub, b"HDPUB": self.dpub, b"HMPUB": self.mpub}[words[0]]
        return publish(words, data, start, at, now, headers)

    def pub(self, words: list[bytes], data: bytes, start: int, at: int, now: int, headers: Headers = ()) -> int:
        """Handle PUB: a topic and a body."""
        if len(words) < 2:
            raise WireError("E_INVALID", "PUB insufficient number of parameters")
        name = read_name(words[1], "E_BAD_TOPIC", "PUB topic")
        attributes = self._attributes(words[2:], "PUB", headers)
        body, end = read_body(data, start, at, PUB_BODY, self._settings.max_msg_size)
        self._access.check("PUB", name, "", now)
        self._publish(self._topic(name, "PUB"), [body], len(body), attributes)
        return self._spend(1, end)

    def _attributes(self, words: list[bytes], command: str, headers: Headers) -> Attributes:
        """Return the headers, and the attributes in words that the original ignores: none without deduplication."""
        attributes = read_attributes(words, command) if self.deduplicates else NONE
        return replace(attributes, headers=headers) if headers else attributes

    def dpub(self, words: list[bytes], data: bytes, start: int, at: int, now: int, headers: Headers = ()) -> int:
        """Handle DPUB: a topic, a delay in ms, and a body."""
        if len(words) < 3:
            raise WireError("E_INVALID", "DPUB insufficient number of parameters")
        name = read_name(words[1], "E_BAD_TOPIC", "DPUB topic")
        delay = parse_number(words[2])
        if delay is None:
            raise WireError("E_INVALID", b"DPUB could not parse timeout " + words[2])
        longest = self._settings.max_req_timeout // MILLISECOND
        if delay > longest:
            raise WireError("E_INVALID", f"DPUB timeout {delay} out of range 0-{longest}")
        attributes = self._attributes(words[3:], "DPUB", headers)
        body, end = read_body(data, start, at, DPUB_BODY, self._settings.max_msg_size)
        self._access.check("DPUB", name, "", now)
        topic = self._topic(name, "DPUB")
        if delay:
            self._publish_with(topic, "DPUB", [body], attributes, now + delay * MILLISECOND)
            self.size += len(body)
        else:
            self._publish(topic, [body], len(body), attributes, "DPUB")
        return self._spend(COST_OF_DELAY, end)

    def mpub(self, words: list[bytes], data: bytes, start: int, at: int, now: int, headers: Headers = ()) -> int:
        """Handle MPUB: a topic and many bodies."""
        if len(words) < 2:
            raise WireError("E_INVALID", "MPUB insufficient number of parameters")
        name = read_name(words[1], "E_BAD_TOPIC", "E_BAD_TOPIC MPUB topic")  # the original's text repeats the code, too
        attributes = self._attributes(words[2:], "MPUB", headers)
        self._access.check("MPUB", name, "", now)
        self._topic(name, "MPUB")
        settings = self._settings
        count, at = read_mpub_count(data, start, at, settings.max_body_size)
        self.scan = MpubScan(name, count, settings.max_msg_size, settings.max_body_size, attributes)
        self.scan.memory = INT32.unpack_from(data, at - 8)[0] + count * BYTES_OF_A_BODY
        return self.continue_mpub(self.scan, data, at, now)

    def continue_mpub(self, scan: MpubScan, data: bytes, at: int, now: int) -> int:
        """Take more of an MPUB's messages, and publish them when all have arrived. Raises Later, NeedMore, InDebt."""
        before = len(scan.bodies)
        at = scan.feed(data, at)
        if not scan.complete:
            raise Later(at) if len(scan.bodies) - before == SLICE else scan.need(data, at)
        self._access.check_debt(now, at)
        self.scan = None
        self._access.check_again("MPUB", scan.topic)
        if len(scan.bodies) > SLICE:
            self._begin(scan.topic, MpubBatch(scan.bodies, scan.attributes))
        else:
            # a scan cannot be read again, so this command does not wait
            topic = self._topic(scan.topic, "MPUB", may_wait=False)
            self._publish(topic, scan.bodies, scan.size, scan.attributes, "MPUB")
        return self._spend(len(scan.bodies), at)

    def published(self) -> tuple[int, int]:
        """Return the number of messages that this client has published, and the bytes of their bodies."""
        more = self.batch.left if self.batch is not None else (0, 0)
        return sum(self.counts.values()) + more[0], self.size + more[1]

    def _spend(self, cost: int, end: int) -> int:
        """Account for a command that ends at `end`, and return `end`. Raises Later after a SLICE: enough for a turn."""
        self._spent += cost
        if self._spent >= SLICE:
            self._spent = 0
            raise Later(end)
        return end

    def _begin(self, name: str, batch: MpubBatch) -> None:
        """Hand a complete large MPUB to `publish_more`."""
        self.batch = batch
        self._batch_topic = name

    def publish_more(self, batch: MpubBatch, at: int) -> int:
        """Publish the next slice of a large MPUB; OK follows the last. Raises Later if there is more, and WireError."""
        self.batch = None
        self._access.check_again("MPUB", self._batch_topic)
        topic = self._topic(self._batch_topic, "MPUB", may_wait=False)
        try:
            count = 0 if batch.skip_duplicates(topic) else batch.publish(topic)
        except HeaderRefused as refused:
            raise WireError("E_MPUB_FAILED", f"MPUB failed {refused}") from None
        self.size += batch.last_size
        if batch.is_done:
            self._published(topic, count)
            return at
        self.batch = batch
        self.counts[topic.name] = self.counts.get(topic.name, 0) + count
        raise Later(at)

    def forget_topics(self) -> None:
        """Forget the known topics, because the permissions may have changed or the client is gone."""
        self._last_topic = None
        if self._settings.auth_required:
            self._permitted_topics.clear()

    def _topic(self, name: str, command: str, *, may_wait: bool = True) -> Topic:
        try:
            topic = self._broker.admit(name, partial(self._make, may_wait))
            if self.copies:
                topic.ask_for_copies(self.copies)
        except TooMany as refused:
            raise WireError(f"E_{command}_FAILED", f"{command} failed {refused}") from None
        if self._settings.auth_required:
            if len(self._permitted_topics) >= MOST_KNOWN:
                self._permitted_topics.clear()  # so deleted topics among them are not kept forever
            self._permitted_topics[name.encode()] = topic
        return topic

    def _make(self, may_wait: bool, name: str) -> Topic:
        self._spent += COST_OF_TOPIC
        return self._topics.find_or_create(name, may_wait=may_wait)

    def _publish(
        self, topic: Topic, bodies: list[bytes], size: int, attributes: Attributes = NONE, command: str = "PUB"
    ) -> None:
        self.size += size
        if attributes is NONE:
            topic.publish(bodies, size)
            self._published(topic, len(bodies))
        else:
            self._publish_with(topic, command, bodies, attributes)

    def _publish_with(
        self, topic: Topic, command: str, bodies: list[bytes], attributes: Attributes, due: int = 0
    ) -> None:
        try:
            known = topic.publish_with(bodies, attributes, due)
        except HeaderRefused as refused:
            raise WireError(f"E_{command}_FAILED", f"{command} failed {refused}") from None
        self._published(topic, len(bodies) - known)

    def _published(self, topic: Topic, count: int) -> None:
        self.counts[topic.name] = self.counts.get(topic.name, 0) + count
        self._outbox.reply(OK, topic.marks if not self.copies else topic.ask_for_copies(self.copies))
