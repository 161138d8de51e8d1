"""GET and POST /topic/config, and the same arguments of /topic/create: how a topic's messages are kept and given up."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.limits import Limits
from nsqd.core.topic import Topic
from nsqd.http.arguments import any_topic_name, existing_topic, topic_name
from nsqd.http.node import Node
from penstock.protocol.names import is_ephemeral
from shared.auth.verbs import Verb
from shared.http.api import empty_response, json_response, query
from shared.http.errors import HttpError
from shared.http.route import Route, on_topic
from shared.topic_config import AS_NODE, SETTINGS, TopicConfig

Change = Callable[[TopicConfig], TopicConfig]
SETTINGS_ARGUMENTS = ", ".join(f"?{name}" for name in SETTINGS)


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
                f"topic, {SETTINGS_ARGUMENTS}",
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
    for key, setting in SETTINGS.items():
        if key in arguments:
            try:
                changes[key] = None if arguments[key] == AS_NODE else setting.read(arguments[key])
            except ValueError:
                raise HttpError(400, f"INVALID_{key.upper()}") from None
    if not changes:
        return None
    if (changes.get("replicate") or 1) > 1 and not in_cluster:
        raise HttpError(400, "INVALID_REPLICATE")  # nothing could ever be published
    if is_ephemeral(arguments["topic"]):
        raise HttpError(400, "EPHEMERAL_TOPIC")  # it is in memory only, whatever the request asks for
    return lambda config: replace(config, **changes)


def _describe(name: str, config: TopicConfig, limits: Limits) -> dict[str, Any]:
    applies = {"max_attempts": limits.attempts(name)} | asdict(limits.policy) | config.own
    shown = {key: setting.show(applies[key]) for key, setting in SETTINGS.items()}
    return {"topic": name, **shown, "of_its_own": list(config.own)}
