"""How the reactor has the authorization servers asked: a task for each question, its answer handed back between turns."""

from __future__ import annotations

from collections.abc import Callable

import trio

from nsqd.auth.servers import AuthServers
from nsqd.protocols.nsq.authorization import Authorization, AuthRefused, Question
from shared.log import log

OnAnswer = Callable[[Authorization | AuthRefused], None]


def asking(servers: AuthServers, nursery: trio.Nursery) -> Callable[[Question, OnAnswer], None]:
    """A function that asks `servers` in a task of `nursery`, and calls back with what they say, whatever it is."""

    def ask(question: Question, on_answer: OnAnswer) -> None:
        nursery.start_soon(_ask, servers, question, on_answer)

    return ask


async def _ask(servers: AuthServers, question: Question, on_answer: OnAnswer) -> None:
    answer: Authorization | AuthRefused
    try:
        answer = await servers.ask(question)
    except AuthRefused as refused:
        log.warning("AUTH: client %s is refused: %s", question.remote_ip or "@", refused)
        answer = AuthRefused(str(refused))  # without the frames that it came through
    on_answer(answer)
