"""The work of nsq_to_nsq: batches of messages to destinations, and the consequences of the answers.

Invariant: a batch is in work at one destination, and each of its messages is answered once: finished after the OK, requeued
otherwise. A failed MPUB has published nothing, unless the connection broke and the OK with it: then messages may come
twice, and none is lost.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from apps.destinations import Destinations
from apps.json_filter import Drop, JsonFilter
from apps.timings import Status
from apps.workers import Workers
from penstock.client import Message, Producer, PublishError
from shared.log import log

CONNECTIONS = 4  # to each destination: one MPUB on each is on its way, so that latency does not bound the rate
BATCH_MESSAGES = 1000
BATCH_BYTES = 1 << 20  # well below nsqd's max-body-size of 5 MB; a larger message is sent alone
QUICK_S = 1.0  # a connection that breaks sooner may have been broken by what was sent
OF_ONE = ("E_BAD_MESSAGE", "E_BAD_BODY")  # a single message may be the reason, because of its size


@dataclass(slots=True, eq=False)
class Batch:
    """Messages that are published together."""

    topic: str  # of the destination
    messages: list[Message]
    bodies: list[bytes]
    address: str = ""  # the destination
    since: float = 0.0  # when the messages were received or touched, in monotonic s
    begun: float = 0.0  # when the work began, in monotonic s


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of publishing a batch: messages in neither set were published."""

    batch: Batch
    seconds: float
    refused: frozenset[int]  # indexes of messages that the destination does not take
    failed: frozenset[int]  # indexes of messages whose publish failed, or is unconfirmed
    reason: str  # the last error


class Publisher:
    """One connection to one destination, used by one thread; the producer connects when the first batch comes."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def work(self, batch: Batch) -> Outcome:
        """Publish the batch, in parts if a part of it is refused, so that a bad message fails alone."""
        begun = monotonic()
        refused: set[int] = set()
        failed: set[int] = set()
        reason = ""
        parts = [(0, len(batch.bodies))]
        while parts:
            start, stop = parts.pop()
            error, may_be_one = self._publish(batch.topic, batch.bodies[start:stop])
            if not error:
                continue
            reason = error
            if not may_be_one:
                failed.update(range(start, stop), *(range(*part) for part in parts))
                break
            if stop - start == 1:
                refused.add(start)
            else:
                middle = (start + stop) // 2
                parts += [(middle, stop), (start, middle)]
        return Outcome(batch, monotonic() - begun, frozenset(refused), frozenset(failed), reason)

    def idle(self) -> None:
        """Answer heartbeats."""
        self._producer.poll()

    def _publish(self, topic: str, bodies: list[bytes]) -> tuple[str, bool]:
        """Return the error, "" if there is none, and whether a single one of the messages may be the reason."""
        begun = monotonic()
        try:
            self._producer.connect()
        except PublishError as error:
            return str(error), False
        try:
            self._producer.publish_many(topic, bodies)
        except PublishError as error:
            # An nsqd that refuses a large message may reset the connection before its error is read.
            broke = not error.code and monotonic() - begun < QUICK_S
            return str(error), broke or error.code in OF_ONE
        return "", False


@dataclass(slots=True)
class Waiting:
    """The messages of one topic that are in no batch yet."""

    topic: str  # of the destination
    messages: list[Message] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)  # the published form of each message
    since: float = 0.0  # when the first message was received or touched, in monotonic s

    def next_batch(self, most: int) -> Batch:
        """Remove and return the first messages: at most `most`, and at most BATCH_BYTES unless the first is larger."""
        count = min(most, len(self.bodies))
        if sum(map(len, self.bodies[:count])) > BATCH_BYTES:
            count = self._fitting(count)
        batch = Batch(self.topic, self.messages[:count], self.bodies[:count], since=self.since)
        del self.messages[:count], self.bodies[:count]
        return batch

    def _fitting(self, most: int) -> int:
        size = 0
        for count in range(most):
            size += len(self.bodies[count])
            if size > BATCH_BYTES:
                return max(1, count)
        return most


class Republishing:
    """The Route of nsq_to_nsq. `topics` maps a source topic to the one at the destination, `workers` an address to threads.

    `keep` is the filter, if there is one; `most` is the number of messages in a batch.
    """

    def __init__(
        self,
        topics: Mapping[str, str],
        choice: Destinations,
        workers: Mapping[str, Workers[Batch, Outcome]],
        status: Status,
        keep: JsonFilter | None,
        most: int,
    ) -> None:
        self._waiting = {source: Waiting(topic) for source, topic in topics.items()}
        self._turn = deque(self._waiting.values())  # whose messages are dispatched next
        self._choice = choice
        self._workers = workers
        self._status = status
        self._keep = keep
        self._most = min(most, BATCH_MESSAGES)
        self._in_work: set[Batch] = set()
        self.undecodable = 0  # messages that were finished because they are no JSON object

    # ---- commands, in the order of a turn (see Route)

    def collect(self, now: float) -> None:
        """Answer the messages of the batches that threads have done."""
        for address, workers in self._workers.items():
            for outcome in workers.results():
                self._settle(address, outcome, now)

    def take(self, topic: str, messages: list[Message], now: float) -> None:
        """Queue messages, those that the filter passes; answer the others."""
        waiting = self._waiting[topic]
        if not waiting.messages:
            waiting.since = now
        if self._keep is None:
            waiting.messages += messages
            waiting.bodies += [message.body for message in messages]
            return
        for message in messages:
            body = self._keep.apply(message.body)
            if isinstance(body, Drop):
                self._drop(message, body)
            else:
                waiting.messages.append(message)
                waiting.bodies.append(body)

    def dispatch(self, now: float) -> None:
        """Make batches for destinations that have a free connection."""
        for _ in range(len(self._turn)):
            waiting = self._turn[0]
            self._turn.rotate(-1)
            while waiting.bodies:
                address = self._free_address(now)
                if address is None:
                    return
                batch = waiting.next_batch(self._most)
                batch.address, batch.begun = address, now
                self._in_work.add(batch)
                self._workers[address].submit(batch)

    def touch_older(self, than: float, now: float) -> None:
        """Touch messages that wait or are in work for long."""
        held: Iterable[Batch | Waiting] = (*self._in_work, *self._waiting.values())
        for one in held:
            if one.since < than:
                one.since = now
                for message in one.messages:
                    message.touch()

    def give_back(self) -> None:
        """Requeue the messages that are in no batch yet."""
        for waiting in self._waiting.values():
            for message in waiting.messages:
                message.requeue(0)
            waiting.messages.clear()
            waiting.bodies.clear()

    def abandon(self) -> None:
        """Requeue the messages in work, and end the threads."""
        for batch in self._in_work:
            log.warning("%s: no answer for %d messages, requeued", batch.address, len(batch.messages))
            for message in batch.messages:
                message.requeue(0)
        self._in_work.clear()
        for workers in self._workers.values():
            workers.close()

    @property
    def busy(self) -> bool:
        """Whether any batch is in work."""
        return bool(self._in_work)

    def log_drops(self) -> None:
        """Log how many messages were finished because they are no JSON."""
        if self.undecodable:
            log.info("dropped %d messages that are no JSON objects", self.undecodable)

    # ---- helpers

    def _free_address(self, now: float) -> str | None:
        free = [address for address, workers in self._workers.items() if workers.free > 0]
        return self._choice.choose(now, free) if free else None

    def _settle(self, address: str, outcome: Outcome, now: float) -> None:
        batch = outcome.batch
        self._in_work.discard(batch)
        self._choice.mark(address, not outcome.failed, outcome.seconds, now)
        for line in self._status.add(address, now - batch.begun, len(batch.messages)):
            log.info("%s", line)
        if not outcome.reason:
            for message in batch.messages:
                message.finish()
            return
        bad = len(outcome.refused) + len(outcome.failed)
        log.warning("%s: %d of %d messages requeued: %s", address, bad, len(batch.messages), outcome.reason)
        for index, message in enumerate(batch.messages):
            if index in outcome.refused:
                message.requeue()  # the destination works, so the others do not have to wait
            elif index in outcome.failed:
                message.requeue(backoff=True)
            else:
                message.finish()

    def _drop(self, message: Message, why: Drop) -> None:
        if why is Drop.NO_FIELD:
            log.error(
                "missing field to check required value, message %s requeued", message.id.decode("ascii", "replace")
            )
            message.requeue(backoff=True)
            return
        if why is Drop.UNDECODABLE:
            self.undecodable += 1
            log.error(
                "unable to decode JSON, message dropped: %s (%d so far)", _excerpt(message.body), self.undecodable
            )
        message.finish()


def _excerpt(body: bytes) -> str:
    shown = body[:60].decode("utf-8", "replace")
    return ascii(shown) + ("..." if len(body) > 60 else "")
