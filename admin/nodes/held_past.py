"""The messages that channels of original nodes held over the last minutes, which those nodes do not report themselves.

Pages that are open sample them: at most MOST channels, once in EVERY s, for SPAN s. Callers pass the time.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator

from shared.json_fields import JsonObject

SPAN, EVERY = 300, 30  # s
MOST = 20_000  # channels
_HELD = ("depth", "in_flight_count", "deferred_count")
Key = tuple[str, str, str]  # node, topic and channel; "": the messages that no channel was given


class HeldPast:
    """Samples of the messages that each channel held."""

    def __init__(self) -> None:
        self._samples: OrderedDict[Key, deque[tuple[int, int]]] = OrderedDict()  # (s, messages), the oldest first

    def note(self, topics: Iterable[JsonObject], at: int) -> None:
        """Sample the topics of nodes, in the form of admin.nodes.merge, at a time in s."""
        for topic in topics:
            for name, part in _parts(topic):
                key = topic["node"], topic["topic_name"], name
                samples = self._samples.setdefault(key, deque())
                self._samples.move_to_end(key)
                while samples and (samples[0][0] < at - SPAN or samples[-1][0] > at):
                    samples.popleft()
                if not samples or at - samples[-1][0] >= EVERY:
                    samples.append((at, _held(part)))
        while len(self._samples) > MOST:
            self._samples.popitem(last=False)

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
        known = {name: [*one] for name, one in changes.items() if one}
        return {"channels": dict.fromkeys(changes, 0), "changes": known}

    def _change(self, topic: JsonObject, name: str, part: JsonObject, at: int) -> tuple[int, int] | None:
        samples = self._samples.get((topic["node"], topic["topic_name"], name), ())
        then, held = next((one for one in samples if at - SPAN <= one[0] < at), (at, 0))
        return (_held(part) - held, at - then) if then < at else None


def _parts(topic: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Yield the topic itself as "", and its channels by name."""
    yield "", topic
    for channel in topic["channels"] or ():
        yield channel["channel_name"], channel


def _held(part: JsonObject) -> int:
    return sum(part.get(name, 0) for name in _HELD)
