"""Topics with settings in a simulated cluster, in a share of the runs: groups in order, messages with an end, and any limits.

* No message of a group is delivered while an earlier one of it waits that was acknowledged in the same log.
* No message is delivered after its time to live, by the clock of the node that delivers it.
* Nothing is lost, except for messages with an end.

While all is taken out at the end of a round, the topics have no settings but the time to live.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING

from nsqd.core.channel.channel import Channel
from nsqd.core.message.attributes import NONE, Attributes
from nsqd.core.message.frame import STAMP
from shared.topic_config import Ordering, TopicConfig
from tests.nsqd.any_config import CHOICES, HARMLESS, any_config
from tests.nsqd.core.node import SECOND
from tests.simulation.books import Publish

if TYPE_CHECKING:
    from tests.simulation.cluster import ClusterRun
    from tests.simulation.cluster_node import ClusterNode

ORDERED, BRIEF, LIMITED = "ordered", "brief", "limited"
TTL, SHORT_TTL = 20 * SECOND, 5 * SECOND


class Governed:
    def __init__(self, run: ClusterRun, random: Random) -> None:
        self._run, self._random = run, random
        self.is_on = random.random() < 0.25
        self.topics = {
            ORDERED: TopicConfig(ordering=Ordering.GROUP, retry=random.choice(CHOICES["retry"])),
            BRIEF: TopicConfig(ttl=TTL), LIMITED: any_config(random, HARMLESS, len(HARMLESS)),
        } if self.is_on else {}  # fmt: skip
        self._groups: defaultdict[str, list[Publish]] = defaultdict(list)
        self._group_of: dict[int, str] = {}  # by number of the publish
        self._is_relaxed = False
        self._out_together: set[int] = set()  # numbers of the publishes that were delivered without order

    def attributes(self, publish: Publish) -> Attributes:
        """Return the attributes of a message that is published now."""
        if publish.topic == BRIEF and self._random.random() < 0.5:
            return Attributes((("ttl", f"{SHORT_TTL // SECOND}s"),))
        if publish.topic not in (ORDERED, LIMITED):
            return NONE
        group = f"{publish.log_id.hex()} {self._random.randrange(3)}"
        if publish.topic == ORDERED:
            self._group_of[publish.number] = group
            self._groups[group].append(publish)
        return Attributes((("group", group), ("priority", self._random.choice("0459"))))

    def has_end(self, publish: Publish) -> bool:
        return publish.topic == BRIEF

    def handed_over(self, topic: str, frames: list[bytes], wall: int) -> None:
        """Judge the age of messages that leave for a consumer at `wall`, ns since the epoch of the node."""
        for frame in frames if topic == BRIEF else ():
            age = wall - int.from_bytes(frame[STAMP], "big")
            assert age <= TTL, f"delivered {age} ns after its publish"
            self._run.books.counts["delivered before their end"] += 1

    def delivered(self, publish: Publish, channel: Channel) -> None:
        """Judge the place of a message in its group, unless it was delivered while `relax` took the order away.

        After a failover it may be redelivered together with others of its group that were in flight with it.
        """
        group = self._group_of.get(publish.number)
        if group is None or _has_moved(publish):
            return
        if self._is_relaxed or channel.settings.ordering is not Ordering.GROUP:
            self._out_together.add(publish.number)
        if publish.number in self._out_together:
            return
        self._run.books.counts["delivered in order"] += 1
        for earlier in self._groups[group]:
            if earlier is publish:
                return
            waits = earlier.acked and not earlier.finished and earlier.log_id == publish.log_id
            if waits and not _has_moved(earlier) and not self._run.books.lost_by(earlier):
                raise AssertionError(f"delivered before an earlier one of its group: {publish}; {earlier}")

    def relax(self, node: ClusterNode, relaxed: bool) -> None:
        """Deliver all messages of a node without order and limits, or as before."""
        self._is_relaxed = relaxed
        for name, config in self.topics.items():
            if name != BRIEF:
                node.broker.topics[name].configure(TopicConfig() if relaxed else config)


def _has_moved(publish: Publish) -> bool:
    """Return True if a message is in another log than the one that it was published into."""
    return bool(publish.former or publish.others)
