"""GET and POST /topic/config, and the same arguments of /topic/create: how a topic's messages are kept and given up."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.limits import Limits
from nsqd.core.retention.policy import MOST_COPIES, Durability, TopicConfig
from nsqd.core.topic import Topic
from nsqd.http.arguments import any_topic_name, existing_topic, topic_name
from nsqd.http.node import Node
from penstock.protocol.names import is_ephemeral
from penstock.protocol.nsq import MAX_ATTEMPTS
from shared.auth.verbs import Verb
from shared.checks import at_least, between
from shared.http.api import empty_response, json_response, query
from shared.http.errors import HttpError
from shared.http.route import Route, on_topic
from shared.values import format_duration, parse_duration, parse_int

Change = Callable[[TopicConfig], TopicConfig]
AS_NODE = "default"  # as a value: the topic has the node's setting


class TopicConfigRoutes:
    """The two methods that show and change how a topic's messages are kept."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route(
                "GET /topic/config",
                self.show,
                on_topic(Verb.STATS),
                "topic",
                "Return how messages of a topic are kept and given up",
            ),
            Route(
                "POST /topic/config",
                self.change,
                on_topic(Verb.CONFIGURE),
                "topic, ?durability, ?retention, ?retention_bytes, ?replicate, ?max_attempts",
                "Change them; `default` means as the node's flags say",
            ),
        ]

    async def show(self, request: Request) -> Response:
        """Answer what holds for the topic, and which parts of it are set for the topic itself."""
        name, broker = any_topic_name(query(request)), self._node.broker
        config = await self._node.bridge.call(lambda: existing_topic(broker, name).config)
        return json_response(_describe(name, config, broker.limits))

    async def change(self, request: Request) -> Response:
        """Change the settings that are given, and no others."""
        arguments = query(request)
        name, change = topic_name(arguments), read_config(arguments, bool(self._node.options.cluster_address))
        if change is None:
            raise HttpError(400, "MISSING_ARG_DURABILITY_OR_RETENTION")
        broker = self._node.broker
        await self._node.bridge.call(lambda: configure(self._node, existing_topic(broker, name), change))
        return empty_response()


def configure(node: Node, topic: Topic, change: Change) -> None:
    """Change the settings of a topic in a turn, and tell the other nodes of the cluster, if there is one."""
    topic.configure(change(topic.config))
    if node.cluster is not None:
        node.cluster.configured(topic.name, topic.config)


def changes_what_is_there(node: Node, name: str, change: Change) -> bool:
    """Return True if the settings of a topic exist here or in the cluster, and would change. Call it in a turn."""
    topic = node.broker.topics.get(name)
    known = [topic.config] if topic is not None else []
    if node.cluster is not None and (other := node.cluster.config_of(name)) is not None:
        known.append(other)
    return any(change(config) != config for config in known)


def read_config(arguments: dict[str, str], in_cluster: bool) -> Change | None:
    """Return a function that makes the changes that the arguments name in settings, or None if they change nothing.

    `in_cluster`: other nodes can have copies. Raises HttpError 400.
    """
    changes: dict[str, Any] = {}
    for key, read in _READERS.items():
        if key in arguments:
            try:
                changes[key] = None if arguments[key] == AS_NODE else read(arguments[key])
            except ValueError:
                raise HttpError(400, f"INVALID_{key.upper()}") from None
    if not changes:
        return None
    if (changes.get("replicate") or 1) > 1 and not in_cluster:
        raise HttpError(400, "INVALID_REPLICATE")  # nothing could ever be published
    if is_ephemeral(arguments["topic"]):
        raise HttpError(400, "EPHEMERAL_TOPIC")  # it is in memory only, whatever the request asks for
    return lambda config: replace(config, **changes)


def _checked(value: int, check: Callable[[int], str]) -> int:
    if why := check(value):
        raise ValueError(why)
    return value


_READERS: dict[str, Callable[[str], Any]] = {
    "durability": Durability,
    "retention": lambda text: _checked(parse_duration(text), at_least(0)),
    "retention_bytes": lambda text: _checked(parse_int(text), at_least(0)),
    "replicate": lambda text: _checked(parse_int(text), between(1, MOST_COPIES)),
    "max_attempts": lambda text: _checked(parse_int(text), between(0, MAX_ATTEMPTS)),
}


def _describe(name: str, config: TopicConfig, limits: Limits) -> dict[str, Any]:
    own, policy = {key: getattr(config, key) for key in _READERS}, config.over(limits.policy)
    return {
        "topic": name,
        "durability": policy.durability.value,
        "retention": format_duration(policy.retention),
        "retention_bytes": policy.retention_bytes,
        "replicate": policy.replicate,
        "max_attempts": limits.attempts(name) if config.max_attempts is None else config.max_attempts,
        "of_its_own": [key for key, value in own.items() if value is not None],
    }
