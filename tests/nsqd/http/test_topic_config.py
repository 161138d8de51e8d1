"""/topic/config: its arguments and answers, restarts, an OK that waits as configured, and /topic/create."""

from types import SimpleNamespace
from typing import Any

from nsqd.http.topic_config import SETTINGS_ARGUMENTS, change_to, changes_what_is_there
from shared.topic_config import OF_CHANNELS, SETTINGS, TopicConfig
from tests.cases import each
from tests.local_node import LocalNode
from tests.nsqd.http import asking
from tests.nsqd.http.asking import get, post

NODES_OWN = {name: one.show(one.default) for name, one in SETTINGS.items() if one.default is not None} | {
    "durability": "always", "retention": "0s", "retention_bytes": 0, "replicate": 1, "max_attempts": 0,
    "of_its_own": [], "channels": [],
}  # fmt: skip


def refused(node: LocalNode, path: str, **arguments: str) -> Any:
    return asking.reply_of(asking.ask(node, "POST", path, **arguments))


def reply_of(node: LocalNode, topic: str) -> dict[str, Any]:
    found = get(node, "/topic/config", topic=topic)
    assert found.pop("topic") == topic
    return found


def test_a_topic_is_kept_as_the_node_says_until_it_has_its_own_word(node: LocalNode) -> None:
    assert (post(node, "/topic/create", topic="plain").status_code, reply_of(node, "plain")) == (200, NODES_OWN)
    post(node, "/topic/config", topic="plain", retention="90m")
    assert reply_of(node, "plain") == NODES_OWN | {"retention": "1h30m0s", "of_its_own": ["retention"]}
    post(node, "/topic/config", topic="plain", durability="os", retention_bytes="1000")
    own = {"durability": "os", "retention": "1h30m0s", "retention_bytes": 1000}
    assert reply_of(node, "plain") == NODES_OWN | own | {"of_its_own": ["durability", "retention", "retention_bytes"]}
    assert post(node, "/topic/config", topic="plain", durability="default", retention="default").content == b""
    assert reply_of(node, "plain") == NODES_OWN | {"retention_bytes": 1000, "of_its_own": ["retention_bytes"]}


def test_a_topic_is_made_with_its_config_and_making_it_again_changes_only_what_is_said(node: LocalNode) -> None:
    post(node, "/topic/create", topic="made", durability="interval", retention="1h", retention_bytes="5")
    own = {"durability": "interval", "retention": "1h0m0s", "retention_bytes": 5}
    assert reply_of(node, "made") == NODES_OWN | own | {"of_its_own": ["durability", "retention", "retention_bytes"]}
    post(node, "/topic/create", topic="made")
    post(node, "/topic/create", topic="made", retention_bytes="6")
    assert (reply_of(node, "made")["retention_bytes"], reply_of(node, "made")["durability"]) == (6, "interval")


@each("arguments, error", [
    ({"durability": "ALWAYS"}, "INVALID_DURABILITY"), ({"retention": "5"}, "INVALID_RETENTION"),
    ({"retention": "99999999999h"}, "INVALID_RETENTION"), ({"retention": "1h<script>"}, "INVALID_RETENTION"),
    ({"retention_bytes": "1k"}, "INVALID_RETENTION_BYTES"), ({"replicate": "0"}, "INVALID_REPLICATE"),
    ({"replicate": "2"}, "INVALID_REPLICATE"), ({"max_attempts": "65536"}, "INVALID_MAX_ATTEMPTS"),
    ({"durability": "os", "retention": "x"}, "INVALID_RETENTION"), ({"dead_letter": "x#ephemeral"}, "INVALID_DEAD_LETTER"),
    ({"dead_letter": "no topic"}, "INVALID_DEAD_LETTER"),
])  # fmt: skip
@each("path", ["/topic/config", "/topic/create"])
def test_bad_values_change_nothing(node: LocalNode, path: str, arguments: dict[str, str], error: str) -> None:
    post(node, "/topic/create", topic="bad")
    assert (refused(node, path, topic="bad", **arguments), reply_of(node, "bad")) == ((400, error), NODES_OWN)
    assert refused(node, path, topic="none", **arguments)[0] == 400
    assert node.client.get("/topic/config?topic=none").status_code == 404


@each("arguments, status, error", [
    ({"topic": "nowhere", "durability": "os"}, 404, "TOPIC_NOT_FOUND"),
    ({"topic": "nowhere"}, 400, "MISSING_ARG_SETTING"),
    ({"topic": "e#ephemeral", "durability": "os"}, 400, "EPHEMERAL_TOPIC"),
    ({"topic": "t", "dead_letter": "t"}, 400, "DEAD_LETTER_TO_ITSELF"),
    ({"topic": "t", "channel": "c", "dead_letter": "t"}, 400, "DEAD_LETTER_TO_ITSELF"),
])  # fmt: skip
def test_what_cannot_be_configured(node: LocalNode, arguments: dict[str, str], status: int, error: str) -> None:
    assert refused(node, "/topic/config", **arguments) == (status, error)


def test_a_channel_has_settings_of_its_own_over_a_kill_too(node: LocalNode) -> None:
    post(node, "/topic/create", topic="t", rate="9")
    of_the_channel = {
        name: NODES_OWN[name] for name in OF_CHANNELS
    } | {"concurrency": 2, "rate": 9, "of_its_own": ["concurrency"]}  # fmt: skip
    post(node, "/topic/config", topic="t", channel="c", concurrency="2")
    node = node.killed()
    assert get(node, "/topic/config", topic="t", channel="c") == of_the_channel | {"topic": "t", "channel": "c"}
    assert (reply_of(node, "t")["channels"], reply_of(node, "t")["concurrency"]) == (["c"], 0)
    post(node, "/topic/config", topic="t", channel="c", concurrency="default")
    assert reply_of(node, "t") == NODES_OWN | {"rate": 9, "of_its_own": ["rate"]}


@each("arguments, error", [
    ({"channel": "c", "durability": "os"}, "NOT_OF_CHANNELS"), ({"channel": "!", "rate": "1"}, "INVALID_ARG_CHANNEL"),
    ({"channel": "c", "retry": "soon"}, "INVALID_RETRY"),
    ({"channel": "one-more", "rate": "1"}, "TOO_MANY_CHANNELS_CONFIGURED"),
])  # fmt: skip
def test_settings_that_a_channel_cannot_have_are_refused(
    node: LocalNode, arguments: dict[str, str], error: str
) -> None:
    post(node, "/topic/create", topic="t")
    node.broker.topics["t"].configure(
        TopicConfig(channels={f"c{number}": TopicConfig(rate=1) for number in range(100)})
    )
    assert refused(node, "/topic/config", topic="t", **arguments) == (400, error)


def test_it_lasts_over_a_kill_and_a_stop() -> None:
    own = {"durability": "interval", "retention": "1h0m0s", "retention_bytes": 7, "max_attempts": 3}
    node = LocalNode("-retention", "5m")
    post(node, "/topic/create", topic="own", durability="interval", retention="1h", retention_bytes="7")
    post(node, "/topic/config", topic="own", max_attempts="3")
    post(node, "/topic/create", topic="plain")
    for retention in ("10m0s", "0s"):
        node = node.killed("-retention", retention)
        assert reply_of(node, "own") == NODES_OWN | own | {
            "of_its_own": ["durability", "retention", "retention_bytes", "max_attempts"]
        }
        assert reply_of(node, "plain") == NODES_OWN | {"retention": retention}
        node.log.close()  # as a stop does


TOPICS = {
    "plain": SimpleNamespace(config=TopicConfig()),
    "kept": SimpleNamespace(config=TopicConfig(retention=60_000_000_000, max_attempts=1)),
}
TOLD = {"elsewhere": TopicConfig(max_attempts=1), "kept": TopicConfig(max_attempts=3)}


@each("topic, arguments, is_alone, in_cluster", [
    ("new", {"retention": "0s", "durability": "os"}, False, False), ("plain", {"retention": "0s"}, True, True),
    ("plain", {"retention": "default", "durability": "default"}, False, False),
    ("kept", {"retention": "60s"}, False, True),  # what other nodes were shown would change
    ("kept", {"retention": "60s", "max_attempts": "1"}, False, True),
    ("kept", {"retention": "1m", "max_attempts": "2"}, True, True),
    ("elsewhere", {"max_attempts": "1"}, False, False), ("elsewhere", {"max_attempts": "0"}, False, True),
    ("elsewhere", {"replicate": "1"}, False, True),
])  # fmt: skip
def test_what_exists_and_would_change_needs_the_right_to_configure(
    topic: str, arguments: dict[str, str], is_alone: bool, in_cluster: bool
) -> None:
    change = change_to(topic, {one.name: one.value_in(arguments) for one in SETTINGS_ARGUMENTS}, in_cluster=True)
    assert change is not None
    for cluster, expected in ((None, is_alone), (SimpleNamespace(config_of=TOLD.get), in_cluster)):
        node = SimpleNamespace(broker=SimpleNamespace(topics=TOPICS), cluster=cluster)
        assert changes_what_is_there(node, topic, change) is expected
