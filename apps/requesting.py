"""The work of nsq_to_http: one request for each message, and the consequences of its result.

Invariant: a message is finished when an endpoint has taken it, or when -sample leaves it out; otherwise it is requeued.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Protocol
from urllib.parse import quote_plus

from apps.destinations import Destinations
from apps.timings import Status
from apps.workers import Workers
from penstock.client import Message
from shared.log import log


class Sends(Protocol):
    """The part of Sender that this module needs."""

    def send(self, url: str, body: bytes) -> None: ...
    def close_stale(self) -> None: ...


@dataclass(slots=True, eq=False)
class Item:
    """A message that waits for its request to be sent and answered."""

    message: Message
    since: float  # when the message was received or touched, in monotonic s
    address: str = ""  # as the flag gives it
    begun: float = 0.0  # when the work began, in monotonic s


@dataclass(frozen=True, slots=True)
class Result:
    """The result of the request of a message: how long it took, and the error."""

    item: Item
    seconds: float
    error: str  # "" if the endpoint took the message


class Requester:
    """Sends the requests of messages, one after the other, in a thread of its own."""

    def __init__(self, sender: Sends, errors: type[Exception], is_get: bool) -> None:
        self._sender = sender
        self._errors = errors
        self._is_get = is_get

    def work(self, item: Item) -> Result:
        """Send the request of one message."""
        begun, body, error = monotonic(), item.message.body, ""
        try:
            if self._is_get:
                self._sender.send(fill(item.address, body), b"")
            else:
                self._sender.send(item.address, body)
        except self._errors as failure:
            error = str(failure)
        return Result(item, monotonic() - begun, error)

    def idle(self) -> None:
        """Close connections that endpoints have closed."""
        self._sender.close_stale()


def fill(address: str, body: bytes) -> str:
    """Return the URL of a GET: `%s` is replaced by the query-escaped body and, as in the original, `%%` by `%`."""
    before, _, after = address.partition("%s")
    return before.replace("%%", "%") + quote_plus(body) + after.replace("%%", "%")


class Requesting:
    """The Route of nsq_to_http. `sample` says for each message whether it is sent; `names` are addresses as logged."""

    def __init__(
        self,
        choice: Destinations,
        workers: Workers[Item, Result],
        status: Status,
        names: Mapping[str, str],
        sample: Callable[[], bool],
    ) -> None:
        self._choice = choice
        self._workers = workers
        self._status = status
        self._names = names
        self._sample = sample
        self._waiting: deque[Item] = deque()
        self._in_work: set[Item] = set()

    def collect(self, now: float) -> None:
        """Answer the messages whose requests are done."""
        for result in self._workers.results():
            item = result.item
            self._in_work.discard(item)
            self._choice.mark(item.address, not result.error, result.seconds, now)
            if result.error:
                id = item.message.id.decode("ascii", "replace")
                log.warning("%s: %s; message %s requeued", self._names[item.address], result.error, id)
                item.message.requeue(backoff=True)
                continue
            item.message.finish()
            for line in self._status.add(item.address, result.seconds):
                log.info("%s", line)

    def take(self, topic: str, messages: list[Message], now: float) -> None:
        """Queue the messages of the sample, and finish the others."""
        for message in messages:
            if self._sample():
                self._waiting.append(Item(message, now))
            else:
                message.finish()

    def dispatch(self, now: float) -> None:
        """Give each waiting message to a free thread, with an address, until no thread is free."""
        while self._waiting and self._workers.free > 0:
            address = self._choice.choose(now, self._names)
            assert address is not None, "no address is ever busy"
            item = self._waiting.popleft()
            item.address, item.begun = address, now
            self._in_work.add(item)
            self._workers.submit(item)

    def touch_older(self, than: float, now: float) -> None:
        """Touch messages that wait or are in work for long."""
        for item in (*self._in_work, *self._waiting):
            if item.since < than:
                item.since = now
                item.message.touch()

    def give_back(self) -> None:
        """Requeue the messages that wait for a thread."""
        for item in self._waiting:
            item.message.requeue(0)
        self._waiting.clear()

    def abandon(self) -> None:
        """Requeue the messages in work, and end the threads."""
        for item in self._in_work:
            log.warning("%s: no answer yet, message requeued", self._names[item.address])
            item.message.requeue(0)
        self._in_work.clear()
        self._workers.close()

    @property
    def busy(self) -> bool:
        """Whether any request is in work."""
        return bool(self._in_work)
