"""The nsqds of one consumer: which are wanted, which are connected, when each is tried again, and how RDY is shared.

Law: every wanted address is a key of `_links` or of `_retries`; the RDYs sent never add up to more than max_in_flight.
"""

import logging
import selectors
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from penstock.client.errors import ConnectionLost
from penstock.client.flow import shares
from penstock.client.link import Link, LinkState
from penstock.client.message import Message
from penstock.client.settings import Settings
from penstock.client.tls import client_context

log = logging.getLogger("penstock.client")

TICK_S = 1.0  # how often silent links and rotations are checked when nothing happens
TURN_S = 5.0  # with more nsqds than max_in_flight: how long the chosen ones keep their RDY (as in go-nsq)
FIRST_RETRY_S, LAST_RETRY_S = 0.1, 10.0  # doubled after each failure in a row


@dataclass(slots=True)
class Retry:
    """An nsqd that is wanted and has not accepted the subscription yet."""

    at: float  # monotonic s; infinite while it is connected and answers are awaited
    delay: float  # s to wait after the next failure


class Links:
    """The connections of one consumer, by address. All times are monotonic seconds."""

    def __init__(self, topic: str, channel: str, max_in_flight: int, settings: Settings) -> None:
        self._topic = topic
        self._channel = channel
        self._max_in_flight = max_in_flight
        self._settings = settings
        self._tls = client_context(settings)
        self._wanted: frozenset[str] = frozenset()
        self._links: dict[str, Link] = {}  # connected nsqds by address
        self._retries: dict[str, Retry] = {}
        self._turn, self._turn_at = 0, 0.0
        self.lost_count = 0  # connections that broke so far
        self.selector = selectors.DefaultSelector()  # a key's data is a Link, or None for a socket of the owner

    # ---- commands

    def want(self, addresses: frozenset[str]) -> None:
        """Connect to these addresses from now on; a link to any other address stays until it breaks."""
        self._wanted = addresses
        for address in addresses - self._links.keys() - self._retries.keys():
            self._retries[address] = Retry(0.0, FIRST_RETRY_S)
        for address in self._retries.keys() - addresses:
            del self._retries[address]

    def tend(self, now: float) -> float:
        """Do what is due, and return the seconds until the next call is needed."""
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
        """Return the messages that have arrived on a link that the selector reported."""
        before = link.state
        try:
            messages = link.receive()
        except ConnectionLost as error:
            self._lose(link, error)
            return []
        if link.state is not before and link.state is LinkState.SUBSCRIBED:
            self._retries.pop(link.address, None)
            self._share()
        return messages

    def flush(self) -> None:
        """Send the queued answers of all links."""
        for link in self._links.values():
            link.flush()

    def limit(self, max_in_flight: int) -> None:
        """Share `max_in_flight` messages from now on; 0 stops the flow."""
        self._max_in_flight = max_in_flight
        self._share()

    def close(self, deadline: float) -> None:
        """Unsubscribe from all nsqds and close their connections, at the latest at `deadline`.

        Each link sends CLS, messages that still arrive are requeued, and each server gets the time to read all answers
        and close.
        """
        self._wanted = frozenset()
        self._retries.clear()
        for link in self._links.values():
            link.leave()
        self._give_back(lambda link: link.state is not LinkState.CLOSED, deadline)
        for link in self._links.values():
            link.finish_sending()
        self._give_back(lambda link: True, deadline)
        for link in [*self._links.values()]:
            self._drop(link)
        self.selector.close()

    # ---- helpers

    def _dial_one(self, now: float) -> None:
        """Dial one nsqd whose retry is due; only one, since dialing waits while the other links have messages."""
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
        """Set the RDY of every subscribed link, decreases first, so that the sum never exceeds the limit."""
        links = [link for link in self._links.values() if link.state is LinkState.SUBSCRIBED]
        plan = shares(self._max_in_flight, [link.max_rdy for link in links], self._turn)
        for link, rdy in sorted(zip(links, plan, strict=True), key=lambda pair: pair[1] - pair[0].rdy):
            link.set_rdy(rdy)

    def _give_back(self, is_awaited: Callable[[Link], bool], deadline: float) -> None:
        """Requeue all messages that arrive until no link is awaited any more; drop links that end."""
        while any(map(is_awaited, self._links.values())) and (left := deadline - monotonic()) > 0:
            for key, _ in self.selector.select(left):
                for message in self._last_of(key.data):
                    message.requeue(0)
            self.flush()

    def _last_of(self, link: Link) -> list[Message]:
        try:
            return link.receive()
        except ConnectionLost:  # the expected end of a link
            self._drop(link)
            return []
