"""Have the authorization servers asked for the reactor: a task for each request hands its answer back between turns."""

from __future__ import annotations

from collections.abc import Callable

import trio

from nsqd.auth.servers import AuthServers
from nsqd.protocols.nsq.authorization import Authorization, AuthRefused, AuthRequest
from shared.log import log

OnAnswer = Callable[[Authorization | AuthRefused], None]
QUIET = 10.0  # s
MOST_LINES = 10  # lines about refused clients in that time: strangers must not fill the log


def asking(servers: AuthServers, nursery: trio.Nursery) -> Callable[[AuthRequest, OnAnswer], None]:
    """Return a function that asks `servers` in a task of `nursery`, and calls back with the answer or the refusal."""
    refusals = Refusals()
    return lambda request, on_answer: nursery.start_soon(_ask, servers, refusals, request, on_answer)


async def _ask(servers: AuthServers, refusals: Refusals, request: AuthRequest, on_answer: OnAnswer) -> None:
    answer: Authorization | AuthRefused
    try:
        answer = await servers.ask(request)
    except AuthRefused as refused:
        refusals.log_refusal(request, refused, trio.current_time())
        answer = AuthRefused(str(refused))  # a new exception, without the frames that the first one came through
    on_answer(answer)


class Refusals:
    """Logs refused clients in a bounded number of lines; the next line says how many were left out."""

    def __init__(self) -> None:
        self._until = 0.0  # s, monotonic: when the present period of QUIET ends
        self._lines = 0  # lines in that period
        self._left_out = 0

    def log_refusal(self, request: AuthRequest, refused: AuthRefused, now: float) -> None:
        """Log that a client was refused at `now` (s, monotonic), unless there were too many."""
        if now >= self._until:
            self._until, self._lines = now + QUIET, 0
        if self._lines >= MOST_LINES:
            self._left_out += 1
            return
        self._lines += 1
        before = f" (and {self._left_out} others before)" if self._left_out else ""
        self._left_out = 0
        log.warning("AUTH: rejected client %s: %s%s", request.remote_ip or "@", refused, before)
