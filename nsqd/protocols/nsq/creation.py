"""The topics that one client names: found, or created.

Where nsqlookupd is configured, the command that creates a topic waits, for a bounded time, until nsqlookupd knows the topic and
the topic has the channels that nsqlookupd names, as in the original. So who looks the topic up after the OK finds it. Nobody
else waits, not even for the same topic.
"""

from collections.abc import Callable

from nsqd.core.broker import Broker
from nsqd.core.channel.consumer import Consumer
from nsqd.core.topic import Topic
from nsqd.protocols.nsq.access import Waiting


class Topics:
    """See above. `await_registration` has the peer resumed when nsqlookupd knows the topic, or the time is over."""

    __slots__ = ("_await_registration", "_broker")

    def __init__(self, broker: Broker, await_registration: Callable[[str], None]) -> None:
        self._broker = broker
        self._await_registration = await_registration

    def find_or_create(self, name: str, *, may_wait: bool = True) -> Topic:
        """The topic. Raises TooMany, and Waiting if it was created just now: then the command is read again later."""
        known = name in self._broker.topics
        topic = self._broker.topic(name)
        if may_wait and not known and self._broker.directory.ask_for_channels:
            self._await_registration(name)
            raise Waiting
        return topic

    def unsubscribe(self, consumer: Consumer) -> None:
        """The client consumes no more."""
        self._broker.unsubscribe(consumer)
