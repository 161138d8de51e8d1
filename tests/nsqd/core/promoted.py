"""Promoted logs for tests of the core: brokers over memory stores, which are filled by publishing into them."""

from nsqd.core.broker import Broker
from nsqd.core.message.attributes import NONE, Attributes
from nsqd.core.message.ids import IdSource
from nsqd.core.shards import Attachment, Deletions, promoted_broker
from nsqd.storage.memory import MemoryStore
from tests.nsqd.core.node import SECOND, Node

ALL = 1 << 30  # steps


class PromotedLog:
    """A log that a node promotes. Unlike a real one it can be published into, as its origin did before."""

    def __init__(self, node: Node, origin: int) -> None:
        store = MemoryStore(lambda ceiling: True)
        self.node = node
        self.broker: Broker = promoted_broker(node.broker, store, IdSource(origin, 1, lambda ceiling: True))
        self.attachment: Attachment

    def publish(self, topic: str, *bodies: bytes, attributes: Attributes = NONE) -> None:
        if self.broker not in self.node.broker.logs:
            self.broker.begin(self.node.now, 1_800_000_000 * SECOND + self.node.now)
        self.broker.topic(topic).intake.publish_with(list(bodies), attributes)
        if self.broker in self.node.broker.logs:
            self.node.turn()
        else:
            self.broker.commit()

    def channels(self, topic: str, *names: str) -> None:
        for name in names:
            self.broker.topic(topic).channel(name)

    def attach(self, limit: int = ALL, deletions: Deletions | None = None) -> bool:
        """Begin the attachment. Returns True if there is more to do."""
        self.attachment = Attachment(self.node.broker, self.broker, deletions)
        return self.attach_batch(limit)

    def attach_batch(self, limit: int = 1) -> bool:
        more = self.attachment.attach_batch(limit)
        self.node.turn()
        return more

    def detach(self, limit: int = ALL) -> bool:
        more = self.attachment.detach_batch(limit)
        self.node.turn()
        return more


def promote(node: Node, origin: int, topic: str, channel: str, *bodies: bytes) -> PromotedLog:
    """A log with one channel with these messages, attached."""
    log = PromotedLog(node, origin)
    log.channels(topic, channel)
    log.publish(topic, *bodies)
    log.attach()
    return log
