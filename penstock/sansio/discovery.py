"""When a client asks the nsqlookupds for the nsqds of its topic, and how to read their responses.

Penstock's nsqlookupd adds a version to its response. The client then sends it a long poll, which is answered as soon as the
version is another one, and the next long poll after that. Polls leave such a nsqlookupd out, unless a connection was lost or
its long poll has failed. NSQ's nsqlookupd ignores the arguments `wait` and `version`, and is polled.
"""

import json
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any

from penstock.sansio.settings import Settings

MAX_REPLY = 4 * 1024 * 1024  # bytes; the reply for 10,000 nsqds
SHORTEST_S = 1.0  # between two polls while no nsqd has the topic, which may be created at any moment
LEAST_S = 0.25  # between two polls, whatever happens
FIRST_S, SOON_S = 0.5, 4.0  # between two polls after `poll_often`: 0.5, 1, 2, 4, 4 ... s
FREQUENT = 16  # polls in a minute: a failover takes up to 10 s, and the new leader registers its topics only then
WATCH_S = 30.0  # the longest wait of a long poll; up to a third less, because a fleet must not ask in step
PAUSE_S = 0.5  # from the response to a long poll to the next one, so that several changes at a time are one response
MOST_VERSION = 64  # characters
POLL = {"wait": "0s"}  # the arguments of a poll: a response at once, with its version
SILENT_S = 10.0  # between two requests to a nsqlookupd that does not answer; 0.5, 1, 2, 4, 8, 10 ... if none does


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """The addresses that a nsqlookupd names for a topic."""

    addresses: frozenset[str]  # of the nsqds that have the topic
    version: str = ""  # to be sent with a long poll; "" if the nsqlookupd answers none


class Discovery:
    """The polls of one client, which asks its `count` nsqlookupds one after another. Times are in s, by the caller's clock."""

    __slots__ = (
        "_answers", "_ask_at", "_frequent", "_gap", "_next_at", "_polled_at", "_random", "_settings", "_silent",
        "_watch_at", "_watch_gaps",
    )  # fmt: skip

    def __init__(self, settings: Settings, random: Random, count: int) -> None:
        self._settings = settings
        self._random = random
        # the latest response of each nsqlookupd, and the time of its request; it is kept while the nsqlookupd does not answer
        self._answers: list[tuple[LookupAnswer, float]] = [(LookupAnswer(frozenset()), -inf)] * count
        self._silent: dict[int, float] = {}  # nsqlookupds that do not answer, and when each was asked last
        self._watch_at: dict[int, float] = {}  # nsqlookupds that answer long polls, and when the next one may begin
        self._watch_gaps: dict[int, float] = {}  # s from a failed long poll to the next poll, if the last one failed
        self._polled_at = self._next_at = -inf
        self._ask_at = inf  # when a poll is needed earlier
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
        is_urgent = now >= self._ask_at or self._frequent
        self._ask_at = inf
        count = len(self._answers)
        asked = [one for one in range(count) if one not in self._silent and (is_urgent or one not in self._watch_at)]
        return asked + [one for one, at in self._silent.items() if now - at >= SILENT_S or len(self._silent) == count]

    def answered(self, number: int, answer: LookupAnswer | None, asked_at: float) -> dict[str, float]:
        """Note a response; None: there was none. Return the nsqds that have the topic.

        Each comes with the time of the latest request whose response names it.
        """
        if answer is None:
            self._silent[number] = asked_at
        else:
            self._silent.pop(number, None)
            self._answers[number] = answer, asked_at
            if answer.version:
                self._watch_at.setdefault(number, asked_at)
            else:
                self._watch_at.pop(number, None)
        return self._named()

    def _named(self) -> dict[str, float]:
        named: dict[str, float] = {}
        for known, at in self._answers:
            for address in known.addresses:
                named[address] = max(at, named.get(address, at))
        return named

    def end(self, now: float) -> None:
        """Note that the poll has ended, and plan the next one."""
        is_known = any(known.addresses for known, _ in self._answers)
        is_polled = len(self._silent | self._watch_at) < len(self._answers)  # there is a nsqlookupd without long polls
        interval = max(SHORTEST_S, self._settings.lookupd_poll_interval_s if is_known or not is_polled else 0.0)
        if len(self._silent) == len(self._answers):
            interval, self._gap = self._gap, min(2 * self._gap, SILENT_S)
        elif self._frequent:
            self._frequent -= 1
            interval, self._gap = min(interval, self._gap), min(2 * self._gap, SOON_S)
        else:
            self._gap = FIRST_S
            if self._silent and not is_polled:
                interval = min(interval, SILENT_S)
        self._polled_at = now
        self._next_at = now + self._jittered(interval)

    def _jittered(self, seconds: float) -> float:
        return seconds * (1 + self._random.random() * self._settings.lookupd_poll_jitter)

    # long polls

    def watch_wait(self, number: int, now: float) -> float:
        """Return the s until the next long poll of a nsqlookupd begins; infinite while it answers none."""
        return max(0.0, self._watch_at.get(number, inf) - now)

    def watch(self, number: int) -> tuple[dict[str, str], float]:
        """Begin a long poll: return the arguments of the request, and the s after which it has failed."""
        wait_s = WATCH_S * (1 - self._random.random() / 3)
        arguments = {"wait": f"{wait_s:.3f}s", "version": self._answers[number][0].version}
        return arguments, wait_s + self._settings.lookupd_poll_timeout_s

    def watched(self, number: int, answer: LookupAnswer | None, asked_at: float, now: float) -> dict[str, float]:
        """Note the response to a long poll, or with None that it has failed. Return as `answered`.

        After a failure the nsqlookupd is polled, and answers long polls again when it answers a poll.
        """
        if answer is None:
            self._watch_at.pop(number, None)
            gap = self._watch_gaps.get(number, FIRST_S)
            self._watch_gaps[number] = min(2 * gap, max(FIRST_S, self._settings.lookupd_poll_interval_s))
            self._next_at = min(self._next_at, now + self._jittered(gap))
            return self._named()
        self._watch_gaps.pop(number, None)
        self._watch_at[number] = now + PAUSE_S
        if self._frequent and answer.version != self._answers[number][0].version:
            self.ask(now)  # a lost nsqd may be back, and is dialed only after a request that was made after the loss
        return self.answered(number, answer, asked_at)


class LookupReply:
    """The body of a nsqlookupd's response while it arrives. It is bounded in size and in time."""

    __slots__ = ("_content", "_status", "_timeout_s", "_until")

    def __init__(self, status: int, encoding: str, timeout_s: float, now: float) -> None:
        """Begin. `encoding`: the Content-Encoding. Raises ValueError for a compressed body, whose size cannot be bounded."""
        if encoding.lower() != "identity":
            raise ValueError("the reply is compressed, although it was not requested")
        self._status = status
        self._content = bytearray()
        self._timeout_s, self._until = timeout_s, now + timeout_s

    def add(self, part: bytes, now: float) -> None:
        """Add a part. Raises ValueError for more than MAX_REPLY bytes, and if it took more than the timeout."""
        self._content += part
        if now > self._until:
            raise ValueError(f"the reply took more than {self._timeout_s:g} s")
        if len(self._content) > MAX_REPLY:
            raise ValueError(f"the reply has more than {MAX_REPLY} bytes")

    def answer(self) -> LookupAnswer:
        """Return the content of the whole response. Raises ValueError if it has another form."""
        return lookup_answer(bytes(self._content), is_known=self._status != 404)


def lookup_url(address: str) -> str:
    """Return the /lookup URL of a nsqlookupd that is given as host:port or as a URL."""
    base = address if "://" in address else f"http://{address}"
    return base.rstrip("/") + "/lookup"


def lookup_answer(reply: bytes, is_known: bool = True) -> LookupAnswer:
    """Return the content of a response of /lookup. Raises ValueError if it has another form.

    If the topic is not known (404), a reply of any form is right.
    """
    try:
        content: Any = json.loads(reply)
        producers = content["producers"] if is_known else ()
        addresses = frozenset(_address(str(one["broadcast_address"]), int(one["tcp_port"])) for one in producers)
        version = content.get("version")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if not is_known:
            return LookupAnswer(frozenset())
        raise ValueError(f"the reply is not that of /lookup: {error or type(error).__name__}") from None
    return LookupAnswer(addresses, version if type(version) is str and len(version) <= MOST_VERSION else "")


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
