"""Work on many messages of a channel or jobs of a tube, node by node, as the steps of a task.

Without a filter a node takes the first messages of the state, until it has no more. With a filter the task lists matches some
thousands ahead, and names them by their offsets. Acting on them may move other messages to pages that were listed already, so
the task lists all again until it finds no more. When a node fails, the task continues with the next one, and fails at its end.

A redrive is a move without a topic: each dead letter goes back to the topic that it comes from. Other messages are left out.
Without another filter it needs no list until it comes to one of them: that makes one of millions of messages ten times as fast.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from admin.messages.actions import counted_of
from admin.nodes.upstreams import Refused, UpstreamError, Upstreams
from penstock.protocol.headers import DEAD_LETTER_TOPIC
from shared.json_fields import number, objects, text

MOST_CHOSEN = 10_000  # matches that are listed before the task acts on them: so the last one on a page is there still
LISTED_AT_ONCE = 1000  # messages that a node scans for one request
NAMED_AT_ONCE = 200  # offsets in one request: they are part of its URL
DONE_WORDS = {
    "finish": "finished", "requeue": "requeued", "kick": "kicked", "bury": "buried", "delete": "deleted", "release": "released",
    "move": "moved", "redrive": "moved",
}  # fmt: skip


def route_of(path: str, action: str) -> str:
    """Return the path of the route of an action, below that of the list."""
    return f"{path}/{'move' if action == 'redrive' else action}"


@dataclass(slots=True)
class _Chosen:
    """The messages of one node that match a filter, as far as they were listed."""

    offsets: list[int] = field(default_factory=list)  # that are still to be acted on
    after: str = ""  # the node's token for the next page
    is_all: bool = False  # True: the list has ended
    acted: int = 0  # messages acted on before the list had ended
    is_mixed: bool = False  # True: the first messages of the state are not all dead letters, or there are no more


@dataclass(slots=True)
class BulkWork:
    """The steps of one task. `asked` are the arguments of each action, `filters` those of a list that is filtered."""

    upstreams: Upstreams
    nodes: list[str]
    path: str  # /channel/messages or /tube/jobs; the action follows
    action: str
    state: str
    asked: dict[str, str]
    filters: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)  # of nodes that failed
    _index: int = 0  # of the current node
    _chosen: _Chosen = field(default_factory=_Chosen)
    _takes_first: bool = False  # True: nothing is listed before other messages than dead letters are found
    _most: int = LISTED_AT_ONCE  # messages in one request; fewer after a node refused with 413

    def __post_init__(self) -> None:
        if self.action == "redrive":
            self._takes_first = not self.filters
            self.filters = {"header": DEAD_LETTER_TOPIC} | self.filters

    async def step(self, count: int) -> int | None:
        """Act on up to `count` messages: see tasks.Step. Raises UpstreamError after the last node if any node failed."""
        while self._index < len(self.nodes):
            try:
                done = await self._at_node(self.nodes[self._index], min(count, self._most))
            except Refused as refusal:
                if refusal.status == 413 and self._most > 1:
                    self._most = max(1, min(count, self._most) // 4)
                    return None
                if refusal.status != 404:  # 404: the node has no such channel, or no longer
                    self.errors.append(str(refusal))
                done = 0
            except UpstreamError as failure:
                self.errors.append(f"{failure}; the last step there may have been executed")
                done = 0
            if done != 0:
                return done
            self._index += 1
            self._chosen = _Chosen()
        if self.errors:
            raise Refused("; ".join(self.errors), 502)
        return 0

    async def _at_node(self, node: str, count: int) -> int | None:
        chosen = self._chosen
        if not self.filters or (self._takes_first and not chosen.is_mixed):
            done = await self._act(node, {"state": self.state, "count": str(count)})
            chosen.is_mixed = done < count
            return done if done or not self.filters else None
        if not chosen.is_all and len(chosen.offsets) < MOST_CHOSEN:
            await self._list(node, chosen)
            return None
        if not chosen.offsets:
            if not chosen.acted:
                return 0
            self._chosen = _Chosen()
            return None
        count = min(count, NAMED_AT_ONCE)
        named = chosen.offsets[:count]
        done = await self._act(node, {"offset": ",".join(map(str, named))})
        del chosen.offsets[:count]
        chosen.acted += 0 if chosen.is_all else done
        return done or None

    async def _act(self, node: str, which: dict[str, str]) -> int:
        answer = await self.upstreams.post(node, route_of(self.path, self.action), self.asked | which)
        return counted_of(answer, DONE_WORDS[self.action])

    async def _list(self, node: str, chosen: _Chosen) -> None:
        """Add the matches on one more page of the node's list. Raises UpstreamError."""
        arguments = {name: value for name, value in self.asked.items() if name in ("topic", "channel")} | self.filters
        arguments |= {"state": self.state, "limit": str(self._most), "preview": "0"}
        arguments |= {"after": chosen.after} if chosen.after else {}
        answer = await self.upstreams.get_object(node, self.path, arguments)
        if "scanned" not in answer:  # it would act on everything
            raise Refused(f"{node} cannot filter messages: upgrade it", 501)
        chosen.offsets += [number(one.get("offset")) for one in objects(answer.get("messages"))[: self._most]]
        before, chosen.after = chosen.after, text(answer.get("next"))
        if chosen.after and chosen.after == before:
            raise Refused(f"{node} lists the same messages again and again", 502)
        chosen.is_all = not chosen.after
