"""The nsqds of one consumer: which are wanted, which are connected, who is tried again when, and how RDY is shared.

Law: every wanted address is a key of `_links` or of `_retries`; the RDYs sent never add up to more than max_in_flight.
"""

import logging
import selectors
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from penstock.client.errors import ConnectionLost
from penstock.client.flow import shares
from penstock.client.link import Link, State
from penstock.client.message import Message
from penstock.client.settings import Settings
from penstock.client.tls import client_context

log = logging.getLogger("penstock.client")

TICK_S = 1.0  # how often silence and turns are looked at when nothing happens
TURN_S = 5.0  # with more nsqds than max_in_flight: how long the chosen ones keep their RDY (go-nsq: the same)
FIRST_RETRY_S, LAST_RETRY_S = 0.1, 10.0  # doubled after each failure in a row


@dataclass(slots=True)
class Retry:
    """An nsqd that is wanted and has not subscribed us yet."""

    at: float  # monotonic; infinite while it is connected and answers are awaited
    delay: float  # s, behind the next failure


class Links:
    """All times are monotonic seconds."""

    def __init__(self, topic: str, channel: str, max_in_flight: int, settings: Settings) -> None:
        self._topic = topic
        self._channel = channel
        self._max_in_flight = max_in_flight
        self._settings = settings
        self._tls = client_context(settings)
        self._wanted: frozenset[str] = frozenset()
        self._links: dict[str, Link] = {}  # connected, by address
        self._retries: dict[str, Retry] = {}
        self._turn, self._turn_at = 0, 0.0
        self.lost_count = 0  # connections that broke so far
        self.selector = selectors.DefaultSelector()  # its keys' data is a Link, or None for what the owner registers

    # ---- commands

    def want(self, addresses: frozenset[str]) -> None:
        """Connect to these from now on. A link to another one stays while it lives."""
        self._wanted = addresses
        for address in addresses - self._links.keys() - self._retries.keys():
            self._retries[address] = Retry(0.0, FIRST_RETRY_S)
        for address in self._retries.keys() - addresses:
            del self._retries[address]

    def tend(self, now: float) -> float:
        """Do what is due, and return for how many seconds nothing will be."""
        for link in [*self._links.values()]:
            if link.lost or link.is_silent(now):
                self._lose(link, link.lost or f"{link.address}: nothing heard for {self._settings.read_timeout_s:g} s")
        self._dial_one(now)
        if now >= self._turn_at:
            self._turn, self._turn_at = self._turn + 1, now + TURN_S
            self._share()
        due = min((retry.at for retry in self._retries.values()), default=now + TICK_S)
        return max(0.0, min(TICK_S, due - now))

    def receive(self, link: Link) -> list[Message]:
        """What has arrived over a link that the selector named."""
        before = link.state
        try:
            messages = link.receive()
        except ConnectionLost as error:
            self._lose(link, error)
            return []
        if link.state is not before and link.state is State.SUBSCRIBED:
            self._retries.pop(link.address, None)
            self._share()
        return messages

    def flush(self) -> None:
        """Send the answers that wait."""
        for link in self._links.values():
            link.flush()

    def limit(self, max_in_flight: int) -> None:
        """Share this many from now on; 0 stops the flow."""
        self._max_in_flight = max_in_flight
        self._share()

    def close(self, deadline: float) -> None:
        """CLS, give back what still arrives, and wait until the servers have heard all answers and close."""
        self._wanted = frozenset()
        self._retries.clear()
        for link in self._links.values():
            link.leave()
        self._give_back(lambda link: link.state is not State.CLOSED, deadline)
        for link in self._links.values():
            link.finish_sending()
        self._give_back(lambda link: True, deadline)
        for link in [*self._links.values()]:
            self._drop(link)
        self.selector.close()

    # ---- helpers

    def _dial_one(self, now: float) -> None:
        """One at a time: dialling waits, and the other links have messages."""
        address = next((address for address, retry in self._retries.items() if retry.at <= now), None)
        if address is None:
            return
        try:
            link = Link(address, self._topic, self._channel, self._settings, self._tls)
        except ConnectionLost as error:
            self._retry(address, error)
            return
        self._links[address] = link
        self._retries[address].at = float("inf")
        self.selector.register(link, selectors.EVENT_READ, link)

    def _lose(self, link: Link, error: object) -> None:
        self._drop(link)
        self.lost_count += 1
        if link.address in self._wanted:
            self._retry(link.address, error)
        self._share()

    def _drop(self, link: Link) -> None:
        self.selector.unregister(link)
        link.close()
        del self._links[link.address]

    def _retry(self, address: str, error: object) -> None:
        retry = self._retries.setdefault(address, Retry(0.0, FIRST_RETRY_S))
        log.warning("%s; trying again in %g s", error, retry.delay)
        retry.at = monotonic() + retry.delay
        retry.delay = min(2 * retry.delay, LAST_RETRY_S)

    def _share(self) -> None:
        """RDY for everyone subscribed; those that lose some come first, so that the sum is kept at every moment."""
        links = [link for link in self._links.values() if link.state is State.SUBSCRIBED]
        plan = shares(self._max_in_flight, [link.max_rdy for link in links], self._turn)
        for link, rdy in sorted(zip(links, plan, strict=True), key=lambda pair: pair[1] - pair[0].rdy):
            link.set_rdy(rdy)

    def _give_back(self, is_awaited: Callable[[Link], bool], deadline: float) -> None:
        """Requeue whatever comes, until no link is awaited any more. Links that end are dropped."""
        while any(map(is_awaited, self._links.values())) and (left := deadline - monotonic()) > 0:
            for key, _ in self.selector.select(left):
                for message in self._last_of(key.data):
                    message.requeue(0)
            self.flush()

    def _last_of(self, link: Link) -> list[Message]:
        try:
            return link.receive()
        except ConnectionLost:  # the expected end
            self._drop(link)
            return []
