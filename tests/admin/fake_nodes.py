"""Nodes that list messages and act on them, without a socket: they answer like nsqd."""

import asyncio
import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from admin.nodes.answer_budget import Answer, AnswerBudget
from admin.nodes.upstreams import Gathered, Refused, UpstreamError, Upstreams


@dataclass
class FakeNode:
    """A channel at one node. `messages` has the publish times of those in the state, by offset, in the node's order."""

    messages: dict[int, int]
    failure: UpstreamError | None = None  # raised instead of an answer
    hangs: bool = False
    has_filters: bool = True
    most: int = 1000  # messages that it can read at once
    # True: a page begins after a number of messages, as in a retry queue, and not after the last one
    counts: bool = False
    acted: list[int] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)

    def list_messages(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(arguments)
        limit, after = int(arguments["limit"]), arguments.get("after", "")
        if limit > self.most:
            raise Refused("413", 413)
        offsets = list(self.messages)
        start = (int(after) if self.counts else offsets.index(int(after)) + 1) if after else 0
        page = offsets[start : start + limit]
        answer: dict[str, Any] = {"total": len(offsets), "counts": {"ready": len(offsets), "buried": 1}}
        if start + limit < len(offsets):
            answer["next"] = str(start + limit if self.counts else page[-1])
        if arguments.keys() & {"contains", "header"} and self.has_filters:
            answer["scanned"] = len(page)
            page = [one for one in page if arguments.get("contains", "") in str(one)]
        return answer | {"messages": [{"offset": one, "timestamp": self.messages[one]} for one in page]}

    def act(self, path: str, arguments: dict[str, Any]) -> dict[str, int]:
        if "offset" in arguments:
            chosen = [int(one) for one in arguments["offset"].split(",")]
        else:
            chosen = list(self.messages)[: int(arguments["count"])]
        if len(chosen) > self.most:
            raise Refused("413", 413)
        found = [one for one in chosen if self.messages.pop(one, None) is not None]
        self.acted += found
        return {{"kick": "kicked", "move": "moved"}[path.rpartition("/")[2]]: len(found)}


class FakeUpstreams:
    """Asks nodes by their names."""

    def __init__(self, **nodes: FakeNode) -> None:
        self.nodes = nodes

    async def get_object(self, address: str, path: str, arguments: dict[str, Any]) -> dict[str, Any]:
        node = self.nodes[address]
        if node.failure is not None:
            raise node.failure
        if node.hangs:
            await asyncio.Event().wait()
        return node.list_messages(arguments)

    async def post(self, address: str, path: str, arguments: dict[str, Any]) -> bytes:
        node = self.nodes[address]
        if node.failure is not None:
            raise node.failure
        return json.dumps(node.act(path, arguments)).encode()


def queries_of(**nodes: FakeNode) -> Any:
    fallback = SimpleNamespace(stale=dict)
    return SimpleNamespace(direct=FakeUpstreams(**nodes), fallback=fallback)


def upstreams_of(**nodes: FakeNode) -> Upstreams:
    return cast(Upstreams, FakeUpstreams(**nodes))


@dataclass
class Answering:
    """Upstreams whose nodes answer at once, as `answer` says of an address and a request; the others do not answer."""

    objects_of = Upstreams.objects_of
    alive: Collection[str]
    answer: Callable[[str, str, Any], dict[str, Any]]
    silent: dict[str, float] = field(default_factory=dict)  # these repeat their last answers: for how many seconds
    answer_budget: AnswerBudget = field(default_factory=lambda: AnswerBudget(1000))

    async def get_object(self, address: str, path: str, arguments: Any = None) -> Answer:
        return Answer(self.answer(address, path, arguments), 0)

    async def all_of(self, addresses: Iterable[str], ask: Any) -> Gathered[Answer]:
        return Gathered({one: await ask(one) for one in addresses if one in self.alive})

    def stale(self) -> dict[str, float]:
        return self.silent
