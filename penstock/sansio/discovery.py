"""When a client asks the nsqlookupds for the nsqds of its topic, and how to read their responses."""

import json
from random import Random
from typing import Any

from penstock.sansio.settings import Settings

MAX_REPLY = 4 * 1024 * 1024  # bytes; the reply for 10,000 nsqds
SHORTEST_S = 1.0  # between two polls while no nsqd has the topic, which may be created at any moment
LEAST_S = 0.25  # between two polls, whatever happens
FIRST_S, SOON_S = 0.5, 4.0  # between two polls after `poll_often`: 0.5, 1, 2, 4, 4 ... s
FREQUENT = 16  # polls in a minute: a failover takes up to 10 s, and the new leader registers its topics only then
SILENT_S = 10.0  # between two requests to a nsqlookupd that does not answer; 0.5, 1, 2, 4, 8, 10 ... if none does


class Discovery:
    """The polls of one client, which asks its `count` nsqlookupds one after another. Times are in s, by the caller's clock."""

    __slots__ = (
        "_answers",
        "_ask_at",
        "_frequent",
        "_gap",
        "_next_at",
        "_polled_at",
        "_random",
        "_settings",
        "_silent",
    )

    def __init__(self, settings: Settings, random: Random, count: int) -> None:
        self._settings = settings
        self._random = random
        # the latest response of each nsqlookupd, and the time of its request; it is kept while the nsqlookupd does not answer
        self._answers: list[tuple[frozenset[str], float]] = [(frozenset(), float("-inf"))] * count
        self._silent: dict[int, float] = {}  # nsqlookupds that do not answer, and when each was asked last
        self._polled_at = self._next_at = float("-inf")
        self._ask_at = float("inf")  # when a poll is needed earlier
        self._frequent = 0  # polls that still come soon
        self._gap = FIRST_S  # s between the last two of them

    def wait(self, now: float) -> float:
        """Return the s until the next poll, 0 if it is due."""
        return max(0.0, min(self._next_at, max(self._ask_at, self._polled_at + LEAST_S)) - now)

    def ask(self, at: float) -> None:
        """Let the next poll begin at this time, if it would be later: an nsqd is dialed again only if a new poll names it."""
        self._ask_at = min(self._ask_at, at)

    def poll_often(self) -> None:
        """Poll often for a minute, because an nsqd was lost.

        It may be back at another address, or another node takes over its unfinished messages.
        """
        self._frequent, self._gap = FREQUENT, FIRST_S
        self._next_at = min(self._next_at, self._polled_at + FIRST_S)

    def begin(self, now: float) -> list[int]:
        """Begin a poll, and return the numbers of the nsqlookupds to ask, those that do not answer last.

        These delay the next poll, so they are asked only every SILENT_S, unless none answers.
        """
        self._ask_at = float("inf")
        count = len(self._answers)
        due = [one for one, at in self._silent.items() if now - at >= SILENT_S or len(self._silent) == count]
        return [one for one in range(count) if one not in self._silent] + due

    def answered(self, number: int, addresses: frozenset[str] | None, asked_at: float) -> dict[str, float]:
        """Note a response; None: there was none. Return the nsqds that have the topic.

        Each comes with the time of the latest request whose response names it.
        """
        if addresses is None:
            self._silent[number] = asked_at
        else:
            self._silent.pop(number, None)
            self._answers[number] = addresses, asked_at
        named: dict[str, float] = {}
        for known, at in self._answers:
            for address in known:
                named[address] = max(at, named.get(address, at))
        return named

    def end(self, now: float) -> None:
        """Note that the poll has ended, and plan the next one."""
        is_known = any(known for known, _ in self._answers)
        interval = max(SHORTEST_S, self._settings.lookupd_poll_interval_s if is_known else 0.0)
        if len(self._silent) == len(self._answers):
            interval, self._gap = self._gap, min(2 * self._gap, SILENT_S)
        elif self._frequent:
            self._frequent -= 1
            interval, self._gap = min(interval, self._gap), min(2 * self._gap, SOON_S)
        else:
            self._gap = FIRST_S
        interval *= 1 + self._random.random() * self._settings.lookupd_poll_jitter
        self._polled_at = now
        self._next_at = now + interval


class LookupReply:
    """The body of a nsqlookupd's response while it arrives. It is bounded in size and in time."""

    __slots__ = ("_content", "_timeout_s", "_until")

    def __init__(self, encoding: str, timeout_s: float, now: float) -> None:
        """Begin. `encoding`: the Content-Encoding. Raises ValueError for a compressed body, whose size cannot be bounded."""
        if encoding.lower() != "identity":
            raise ValueError("the reply is compressed, although it was not requested")
        self._content = bytearray()
        self._timeout_s, self._until = timeout_s, now + timeout_s

    def add(self, part: bytes, now: float) -> None:
        """Add a part. Raises ValueError for more than MAX_REPLY bytes, and if it took more than the timeout."""
        self._content += part
        if now > self._until:
            raise ValueError(f"the reply took more than {self._timeout_s:g} s")
        if len(self._content) > MAX_REPLY:
            raise ValueError(f"the reply has more than {MAX_REPLY} bytes")

    def addresses(self) -> frozenset[str]:
        """Return the nsqd addresses in the whole response. Raises ValueError if it has another form."""
        return producer_addresses(bytes(self._content))


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
