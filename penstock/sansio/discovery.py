"""When a client asks the nsqlookupds for the nsqds of its topic, and what their answers mean."""

import json
from collections.abc import Iterable
from random import Random
from typing import Any

from penstock.sansio.settings import Settings

MAX_REPLY = 4 * 1024 * 1024  # bytes; the reply for 10,000 nsqds
SHORTEST_S = 1.0  # between two polls: while no nsqd has the topic, which may be created at any moment, or after `hurry`
SOON_S = 4.0  # between two polls at most, for HURRIED polls after `hurry`: 1, 2, 4, 4 ... s
HURRIED = 16  # a minute; another node takes the log of a lost one over within 10 s, and registers its topics only then


class Discovery:
    """The polls of one client. All times are in s, by the caller's clock."""

    __slots__ = ("_gap", "_hurried", "_next_at", "_polled_at", "_random", "_settings", "addresses")

    def __init__(self, settings: Settings, random: Random) -> None:
        self._settings = settings
        self._random = random
        self.addresses: frozenset[str] = frozenset()  # as the latest poll found them
        self._polled_at = self._next_at = float("-inf")
        self._hurried = 0  # polls that still come soon
        self._gap = SHORTEST_S  # s between the last two of them

    def wait(self, now: float) -> float:
        """Return the s until the next poll, 0 if it is due."""
        return max(0.0, self._next_at - now)

    def hurry(self) -> None:
        """Poll soon, and often for a minute, because an nsqd went away.

        It may be back at another address, or another node takes its log over and delivers what it owes.
        """
        self._hurried, self._gap = HURRIED, SHORTEST_S
        self._next_at = min(self._next_at, self._polled_at + SHORTEST_S)

    def polled(self, answers: Iterable[frozenset[str] | None], now: float) -> frozenset[str]:
        """Return the nsqds that have the topic, as a poll that ended at `now` found them.

        `answers`: one of each nsqlookupd; None: it did not answer, and then all addresses known so far are kept.
        """
        known = self.addresses
        self.addresses = frozenset().union(*(known if answer is None else answer for answer in answers))
        interval = self._settings.lookupd_poll_interval_s
        if self._hurried:
            self._hurried, self._gap = self._hurried - 1, min(2 * self._gap, SOON_S)
            interval = min(interval, self._gap)
        interval *= 1 + self._random.random() * self._settings.lookupd_poll_jitter
        self._polled_at = now
        self._next_at = now + (max(interval, SHORTEST_S) if self.addresses else SHORTEST_S)
        return self.addresses

    def __repr__(self) -> str:
        return f"<Discovery: {len(self.addresses)} nsqds>"


class Reply:
    """The body of a nsqlookupd's answer while it arrives. It is bounded in size and in time."""

    __slots__ = ("_content", "_timeout_s", "_until")

    def __init__(self, encoding: str, timeout_s: float, now: float) -> None:
        """Begin. `encoding`: the Content-Encoding. Raises ValueError for a packed answer, whose size cannot be bounded."""
        if encoding.lower() != "identity":
            raise ValueError("the reply is compressed, although it was not requested")
        self._content = bytearray()
        self._timeout_s, self._until = timeout_s, now + timeout_s

    def add(self, part: bytes, now: float) -> None:
        """Add a part. Raises ValueError for more than MAX_REPLY bytes, and if it took more than the time-out."""
        self._content += part
        if now > self._until:
            raise ValueError(f"the reply took more than {self._timeout_s:g} s")
        if len(self._content) > MAX_REPLY:
            raise ValueError(f"the reply has more than {MAX_REPLY} bytes")

    def addresses(self) -> frozenset[str]:
        """Return the nsqd addresses in the whole answer. Raises ValueError if it has another form."""
        return producer_addresses(bytes(self._content))


def lookup_headers(settings: Settings) -> dict[str, str]:
    """Return the headers of a question to a nsqlookupd. A secret that no header can have is left out."""
    headers = {"Accept-Encoding": "identity"}  # the size of a packed reply cannot be bounded while it arrives
    secret = settings.auth_secret
    if secret and settings.lookupd_authorization and secret.isascii() and secret.isprintable():
        headers["Authorization"] = f"Bearer {secret}"
    return headers


def lookup_url(address: str) -> str:
    """Return the /lookup URL of a nsqlookupd that is given as host:port or as a URL."""
    base = address if "://" in address else f"http://{address}"
    return base.rstrip("/") + "/lookup"


def producer_addresses(reply: bytes) -> frozenset[str]:
    """Return the nsqd addresses in the JSON of /lookup. Raises ValueError if it has another form."""
    try:
        producers: Any = json.loads(reply)["producers"]
        return frozenset(_address(str(one["broadcast_address"]), int(one["tcp_port"])) for one in producers)
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"the reply is not that of /lookup: {error or type(error).__name__}") from None


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
