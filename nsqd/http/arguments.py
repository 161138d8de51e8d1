"""What several routes share: arguments, whose errors NSQ spells differently from route to route, what they name, and pages."""

from collections.abc import Callable, Iterable
from functools import partial
from heapq import nsmallest
from typing import TypeVar

from starlette.requests import Request

from nsqd.core.broker import DRAINING, Broker
from nsqd.core.channel.channel import Channel
from nsqd.core.limits import NotTaken, TooMany, TopicFull
from nsqd.core.message.frame import ID_SIZE
from nsqd.core.topic import Topic
from nsqd.core.work_queue.tube import Tube
from nsqd.http.node import Node
from shared.auth.verbs import Verb
from shared.http.argument import any_text, legal_name
from shared.http.errors import HttpError

TOPIC = legal_name("topic", invalid="INVALID_TOPIC")
ANY_TOPIC = any_text("topic")
TOPIC_AND_CHANNEL = (legal_name("topic"), legal_name("channel"))
TUBE = any_text("tube")  # a tube may have a name that no topic can have
LOG = any_text("log", "")
K = TypeVar("K", str, tuple[str, str], tuple[str, str, str])


def read_message_id(text: str) -> bytes:
    """Return the id of a message. Raises ValueError."""
    if len(text) != ID_SIZE or not text.isascii():
        raise ValueError("not an id")
    return text.encode()


def page_after(keys: Iterable[K], after: K, limit: int) -> tuple[list[K], K | None]:
    """Return the first `limit` keys behind `after`, sorted, and the last of them if more follow, or else None."""
    page = nsmallest(limit + 1, (key for key in keys if key > after))
    return page[:limit], page[limit - 1] if len(page) > limit else None


def topic_to_publish_to(node: Node, request: Request, name: str) -> Topic:
    """Return the topic, as `made_topic` does. Raises HttpError as `not_taken` returns if nothing can be published to it."""
    try:
        return node.broker.admit(name, partial(made_topic, node, request))
    except TooMany as refused:
        raise not_taken(refused) from None


def check_open(broker: Broker) -> None:
    """Raise HttpError 503 while the node takes no messages."""
    try:
        broker.check_open()
    except NotTaken as refused:
        raise not_taken(refused) from None


def not_taken(refused: TooMany) -> HttpError:
    """Return the answer to a publish that is refused: 429 if the topic is full, or else 503, and the code in front of the text.

    If the node cannot write to its disk, it is DISK_FULL and TCP's reason.
    """
    text = str(refused)
    if isinstance(refused, NotTaken) and text != DRAINING:
        return HttpError(503, f"DISK_FULL {text}")
    return HttpError(429 if isinstance(refused, TopicFull) else 503, text.partition(":")[0])


def require(request: Request, verb: Verb, topic: str) -> None:
    """Raise HttpError 403 if there is an auth file, and the sender of the request may not do this to the topic.

    The declaration of a route cannot know what a request changes; this checks the right to that.
    """
    identity = getattr(request.state, "identity", None)
    if identity is not None and not identity.rights.may(verb, topic):
        raise HttpError(403, "FORBIDDEN")


def made_topic(node: Node, request: Request, name: str) -> Topic:
    """Return the topic, created if it does not exist.

    Raises HttpError 503 beyond the limit of the node, 403 beyond that of its sender.
    """
    topic = node.broker.topics.get(name)
    return topic if topic is not None else _make_for(node, request, name, node.broker.topic)


def _make_for(node: Node, request: Request, name: str, make: Callable[[str], object]) -> Topic:
    """Have `make` make a topic that does not exist, for the sender of the request. Raises HttpError as `made_topic` does."""
    topics, identity = node.broker.topics, getattr(request.state, "identity", None)

    def make_here() -> None:
        try:
            make(name)
        except TooMany:
            raise HttpError(503, "TOO_MANY_TOPICS") from None

    if node.accounts is None or identity is None:
        make_here()
        return topics[name]
    try:
        return node.accounts.account(identity.name).make_topic(identity.limits, name, topics, make_here)
    except TooMany:
        raise HttpError(403, "TOO_MANY_TOPICS") from None


def made_channel(topic: Topic, name: str) -> Channel:
    """Return the channel, created if it does not exist. Raises HttpError 503 beyond the limit."""
    try:
        return topic.channel(name)
    except TooMany:
        raise HttpError(503, "TOO_MANY_CHANNELS") from None


def existing_topic(broker: Broker, name: str) -> Topic:
    """Return the topic of that name. Raises HttpError 404 if it does not exist."""
    topic = broker.topics.get(name)
    if topic is None:
        raise HttpError(404, "TOPIC_NOT_FOUND")
    return topic


def existing_channel(broker: Broker, topic: str, channel: str) -> Channel:
    """Return the channel. Raises HttpError 404 if the topic or the channel does not exist."""
    found = existing_topic(broker, topic).channels.get(channel)
    if found is None:
        raise HttpError(404, "CHANNEL_NOT_FOUND")
    return found


def topic_or_channel(broker: Broker, topic: str, channel: str) -> Topic | Channel:
    """Return the channel, or the topic if `channel` is "". Raises HttpError 404 if it does not exist."""
    return existing_channel(broker, topic, channel) if channel else existing_topic(broker, topic)


def existing_tube(broker: Broker, name: str) -> Tube | None:
    """Return the tube; None: clients use, watch or wait for it, and it is not made. Raises HttpError 404 if there is none."""
    tubes = broker.tubes
    tube = tubes.tube(name)
    if tube is None and name not in tubes.listed.counters and not tubes.waiters.is_awaited(name):
        raise HttpError(404, "TUBE_NOT_FOUND")
    return tube


def made_tube(node: Node, request: Request, name: str) -> Tube:
    """Return the tube. One that clients only use or watch is made, which needs the right to make a topic that is new.

    Raises HttpError 404 if it does not exist, 403 without the right, and as `made_topic` does.
    """
    tubes = node.broker.tubes
    tube = existing_tube(node.broker, name)
    if tube is None and name not in node.broker.topics:
        identity = getattr(request.state, "identity", None)
        if identity is not None and not identity.rights.may_make(name):
            raise HttpError(403, "FORBIDDEN")
        _make_for(node, request, name, tubes.made)
    try:
        return tube if tube is not None else tubes.made(name)
    except TooMany:
        raise HttpError(503, "TOO_MANY_CHANNELS") from None
