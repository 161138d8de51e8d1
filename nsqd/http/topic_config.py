"""GET and POST /topic/config, and the same arguments of /topic/create: how a topic's messages are kept, delivered and given up.

With `channel`, the request is about the settings of one channel, which may not exist yet. Those hold there instead of the
topic's: `default` means as the topic. They remain when the channel is deleted.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.limits import Limits
from nsqd.core.topic import Topic
from nsqd.http.arguments import ANY_TOPIC, TOPIC, existing_topic, require
from nsqd.http.node import Node
from penstock.protocol.names import is_ephemeral
from shared.auth.verbs import Verb
from shared.http.api import empty_response, json_response
from shared.http.argument import Argument, legal_name
from shared.http.errors import HttpError
from shared.http.route import Route, on_topic
from shared.topic_config import AS_NODE, NO_TOPIC, OF_CHANNELS, SETTINGS, Setting, TopicConfig

Change = Callable[[TopicConfig], TopicConfig]
CHANNEL = legal_name("channel", "")
UNCHANGED = object()  # in place of the value of a setting


def _argument(name: str, setting: Setting) -> Argument:
    def read(text: str) -> Any:
        return None if text == AS_NODE else setting.read(text)

    return Argument(name, read, UNCHANGED, f"{setting.expected}, or {AS_NODE}", f"INVALID_{name.upper()}")


SETTINGS_ARGUMENTS = tuple(_argument(*one) for one in SETTINGS.items())


class TopicConfigRoutes:
    """The two methods that show and change how a topic's messages are kept."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route("GET /topic/config", self.show, on_topic(Verb.STATS), (ANY_TOPIC, CHANNEL),
                  "Return how messages of a topic are kept, delivered and given up"),
            Route("POST /topic/config", self.change, on_topic(Verb.CONFIGURE), (TOPIC, CHANNEL, *SETTINGS_ARGUMENTS),
                  "Change them; `default` means as the node's flags say"),
        ]  # fmt: skip

    async def show(self, request: Request, topic: str, channel: str) -> Response:
        """Answer what holds for the topic or the channel, and which parts of it are set for itself."""
        broker = self._node.broker
        config = await self._node.bridge.call(lambda: existing_topic(broker, topic).config)
        return json_response(_describe(topic, channel, config, broker.limits))

    async def change(self, request: Request, topic: str, channel: str, **settings: Any) -> Response:
        """Change the settings that are given, and no others."""
        change = change_to(topic, settings, bool(self._node.options.cluster_address), channel)
        if change is None:
            raise HttpError(400, "MISSING_ARG_SETTING")
        check_dead_letter(request, settings)
        broker = self._node.broker
        await self._node.bridge.call(lambda: configure(self._node, existing_topic(broker, topic), change))
        return empty_response()


def check_dead_letter(request: Request, settings: dict[str, Any]) -> None:
    """Raise HttpError 403 if the settings have messages published to a topic to which the sender may not publish."""
    target = settings["dead_letter"]
    if target not in (UNCHANGED, None, NO_TOPIC):
        require(request, Verb.PUBLISH, target)


def configure(node: Node, topic: Topic, change: Change) -> None:
    """Change the settings of a topic in a turn, and notify the other nodes of the cluster, if there is one."""
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


def change_to(topic: str, settings: dict[str, Any], in_cluster: bool, channel: str = "") -> Change | None:
    """Return a function that makes the changes in settings, by name, or None if all are UNCHANGED.

    `in_cluster`: other nodes can have copies. `channel`: the settings are its own; "": the topic's. Raises HttpError 400, also
    from the function.
    """
    changes = {name: value for name, value in settings.items() if value is not UNCHANGED}
    if not changes:
        return None
    if (changes.get("replicate") or 1) > 1 and not in_cluster:
        raise HttpError(400, "INVALID_REPLICATE")  # nothing could ever be published
    if is_ephemeral(topic):
        raise HttpError(400, "EPHEMERAL_TOPIC")  # it is in memory only, whatever the request asks for
    if changes.get("dead_letter") == topic:
        raise HttpError(400, "DEAD_LETTER_TO_ITSELF")
    if not channel:
        return lambda config: replace(config, **changes)
    if not changes.keys() <= set(OF_CHANNELS):
        raise HttpError(400, "NOT_OF_CHANNELS")

    def change(config: TopicConfig) -> TopicConfig:
        try:
            return config.with_channel(channel, replace(config.channels.get(channel, TopicConfig()), **changes))
        except ValueError:
            raise HttpError(400, "TOO_MANY_CHANNELS_CONFIGURED") from None

    return change


def _describe(topic: str, channel: str, config: TopicConfig, limits: Limits) -> dict[str, Any]:
    applies = {"max_attempts": limits.attempts(topic)} | asdict(limits.policy) | config.of(channel).own
    names = OF_CHANNELS if channel else tuple(SETTINGS)
    shown = {name: SETTINGS[name].show(applies.get(name, SETTINGS[name].default)) for name in names}
    own = config.channels.get(channel, TopicConfig()) if channel else config
    named = {"channel": channel} if channel else {"channels": sorted(config.channels)}
    return {"topic": topic, **shown, "of_its_own": list(own.own), **named}
