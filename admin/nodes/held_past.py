"""What channels of original nodes held over the last minutes, by the looks of pages: those nodes do not tell it themselves.

Only the topics of the pages that somebody looks at are noted. It is bounded: MOST channels, a look in EVERY s, for SPAN s.
Callers pass the time.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator

from shared.json_fields import JsonObject

SPAN, EVERY = 300, 30  # s
MOST = 20_000  # channels
_HELD = ("depth", "in_flight_count", "deferred_count")
Key = tuple[str, str, str]  # node, topic and channel; "": what the topic has and no channel was given


class HeldPast:
    """The messages that each channel held at some looks."""

    def __init__(self) -> None:
        self._looks: OrderedDict[Key, deque[tuple[int, int]]] = OrderedDict()  # (s, messages), the oldest first

    def note(self, topics: Iterable[JsonObject], at: int) -> None:
        """Note what the topics of nodes, in the form of admin.nodes.merge, hold at a time, in s."""
        for topic in topics:
            for name, part in _parts(topic):
                key = topic["node"], topic["topic_name"], name
                looks = self._looks.setdefault(key, deque())
                self._looks.move_to_end(key)
                while looks and (looks[0][0] < at - SPAN or looks[-1][0] > at):
                    looks.popleft()
                if not looks or at - looks[-1][0] >= EVERY:
                    looks.append((at, _held(part)))
        while len(self._looks) > MOST:
            self._looks.popitem(last=False)

    def backlogs(self, topic: JsonObject, at: int) -> list[JsonObject]:
        """Return the backlogs of a topic on a node in the form of /topics/rows. `at`: s."""
        found: list[JsonObject] = []
        for name, part in _parts(topic):
            change, seconds = self._change(topic, name, part, at) or (None, 0)
            found.append({"channel": name, "depth": part["depth"], "change": change, "seconds": seconds})
        return found

    def ages(self, topic: JsonObject, at: int) -> JsonObject:
        """Return the `channels` of a topic on a node, and their `changes`, in the form of /topic/ages. `at`: s."""
        changes = {name: self._change(topic, name, part, at) for name, part in _parts(topic) if name}
        return {
            "channels": dict.fromkeys(changes, 0),
            "changes": {name: [*one] for name, one in changes.items() if one},
        }

    def _change(self, topic: JsonObject, name: str, part: JsonObject, at: int) -> tuple[int, int] | None:
        looks = self._looks.get((topic["node"], topic["topic_name"], name), ())
        then, held = next((one for one in looks if at - SPAN <= one[0] < at), (at, 0))
        return (_held(part) - held, at - then) if then < at else None

    def __repr__(self) -> str:
        return f"<HeldPast of {len(self._looks)} channels>"


def _parts(topic: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Yield the topic itself as "", and its channels by name."""
    yield "", topic
    for channel in topic["channels"] or ():
        yield channel["channel_name"], channel


def _held(part: JsonObject) -> int:
    return sum(part.get(name, 0) for name in _HELD)
