"""Find or create the topics that one client names.

Where nsqlookupd is configured, the command that creates a topic waits, for a bounded time, until nsqlookupd knows the topic
and the topic has the channels that nsqlookupd names, as in the original. So a client that looks the topic up after the OK
finds it. No other command waits, not even for the same topic.
"""

from functools import partial

from nsqd.core.topic import Topic
from nsqd.protocols.nsq.access import Access, Waiting
from nsqd.protocols.nsq.context import Context
from nsqd.protocols.transport import Transport


class Topics:
    """The topics of the node, as one client may name them."""

    __slots__ = ("_access", "_transport", "_until_registered", "broker")

    def __init__(self, context: Context, transport: Transport, access: Access) -> None:
        self._access = access
        self.broker = context.broker
        self._until_registered = context.until_registered
        self._transport = transport

    def find_or_create(self, name: str, *, may_wait: bool = True) -> Topic:
        """Return the topic. Raises TooMany, and Waiting if it was created just now: then the command is read again later."""
        topic = self.broker.topics.get(name)
        if topic is not None:
            return topic
        credential, make = self._access.credential, partial(self.broker.topic, name)
        topic = credential.make_topic(name, self.broker.topics, make) if credential is not None else make()
        if may_wait and self.broker.directory.ask_for_channels:
            assert self._until_registered is not None, "a topic is registered without an nsqlookupd"
            self._transport.suspend(partial(self._until_registered, name))
            raise Waiting
        return topic
