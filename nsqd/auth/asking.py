"""How the reactor has the authorization servers asked: a task for each question, its answer handed back between turns."""

from __future__ import annotations

from collections.abc import Callable

import trio

from nsqd.auth.servers import AuthServers
from nsqd.protocols.nsq.authorization import Authorization, AuthRefused, Question
from shared.log import log

OnAnswer = Callable[[Authorization | AuthRefused], None]
QUIET = 10.0  # s
MOST_LINES = 10  # about refused clients in such a time: strangers shall not fill the log


def asking(servers: AuthServers, nursery: trio.Nursery) -> Callable[[Question, OnAnswer], None]:
    """A function that asks `servers` in a task of `nursery`, and calls back with what they say, whatever it is."""

    refusals = Refusals()

    def ask(question: Question, on_answer: OnAnswer) -> None:
        nursery.start_soon(_ask, servers, refusals, question, on_answer)

    return ask


async def _ask(servers: AuthServers, refusals: Refusals, question: Question, on_answer: OnAnswer) -> None:
    answer: Authorization | AuthRefused
    try:
        answer = await servers.ask(question)
    except AuthRefused as refused:
        refusals.tell(question, refused, trio.current_time())
        answer = AuthRefused(str(refused))  # without the frames that it came through
    on_answer(answer)


class Refusals:
    """Tells the log of refused clients, in a bounded number of lines; what was left out is said with the next one."""

    def __init__(self) -> None:
        self._until = 0.0  # s; when the present stretch of QUIET ends
        self._lines = 0  # in it
        self._untold = 0

    def tell(self, question: Question, refused: AuthRefused, now: float) -> None:
        """A client was refused at `now` (s, monotonic)."""
        if now >= self._until:
            self._until, self._lines = now + QUIET, 0
        if self._lines >= MOST_LINES:
            self._untold += 1
            return
        self._lines += 1
        before = f" (and {self._untold} others before)" if self._untold else ""
        self._untold = 0
        log.warning("AUTH: client %s is refused: %s%s", question.remote_ip or "@", refused, before)
