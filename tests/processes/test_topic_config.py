"""/topic/config on a real process: what it takes and tells, that it lasts, and that an OK waits for what was said."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.daemons import OK, Conversation, Daemon, nsqd, sized

pytestmark = pytest.mark.process

NODES_OWN = {
    "durability": "always",
    "retention": "0s",
    "retention_bytes": 0,
    "replicate": 1,
    "max_attempts": 0,
    "of_its_own": [],
}


def post(node: Daemon, path: str, **arguments: str) -> httpx.Response:
    return httpx.post(f"http://{node.http}{path}", params=arguments)


def told(node: Daemon, topic: str) -> dict[str, Any]:
    answer = httpx.get(f"http://{node.http}/topic/config", params={"topic": topic})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found.pop("topic") == topic
    return found


def test_a_topic_is_kept_as_the_node_says_until_it_has_its_own_word(shared: Daemon) -> None:
    assert post(shared, "/topic/create", topic="plain").status_code == 200
    assert told(shared, "plain") == NODES_OWN
    assert post(shared, "/topic/config", topic="plain", retention="90m").status_code == 200
    assert told(shared, "plain") == NODES_OWN | {"retention": "1h30m0s", "of_its_own": ["retention"]}
    assert post(shared, "/topic/config", topic="plain", durability="os", retention_bytes="1000").status_code == 200
    own = {"durability": "os", "retention": "1h30m0s", "retention_bytes": 1000, "replicate": 1, "max_attempts": 0}
    assert told(shared, "plain") == own | {"of_its_own": ["durability", "retention", "retention_bytes"]}
    answer = post(shared, "/topic/config", topic="plain", durability="default", retention="default")
    assert (answer.status_code, answer.content) == (200, b"")
    assert told(shared, "plain") == NODES_OWN | {"retention_bytes": 1000, "of_its_own": ["retention_bytes"]}


def test_a_topic_is_made_with_its_config_and_making_it_again_changes_only_what_is_said(shared: Daemon) -> None:
    post(shared, "/topic/create", topic="made", durability="interval", retention="1h", retention_bytes="5")
    own = {"durability": "interval", "retention": "1h0m0s", "retention_bytes": 5, "replicate": 1, "max_attempts": 0}
    assert told(shared, "made") == own | {"of_its_own": ["durability", "retention", "retention_bytes"]}
    post(shared, "/topic/create", topic="made")
    post(shared, "/topic/create", topic="made", retention_bytes="6")
    assert told(shared, "made")["retention_bytes"] == 6
    assert told(shared, "made")["durability"] == "interval"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"durability": "never"}, "INVALID_DURABILITY"),
        ({"durability": ""}, "INVALID_DURABILITY"),
        ({"durability": "ALWAYS"}, "INVALID_DURABILITY"),
        ({"retention": "soon"}, "INVALID_RETENTION"),
        ({"retention": "-1s"}, "INVALID_RETENTION"),
        ({"retention": "5"}, "INVALID_RETENTION"),
        ({"retention": "300y"}, "INVALID_RETENTION"),
        ({"retention": "99999999999h"}, "INVALID_RETENTION"),
        ({"retention": "1h<script>"}, "INVALID_RETENTION"),
        ({"retention_bytes": "1k"}, "INVALID_RETENTION_BYTES"),
        ({"retention_bytes": "-1"}, "INVALID_RETENTION_BYTES"),
        ({"retention_bytes": str(1 << 64)}, "INVALID_RETENTION_BYTES"),
        ({"replicate": "0"}, "INVALID_REPLICATE"),
        ({"replicate": "two"}, "INVALID_REPLICATE"),
        ({"replicate": "2"}, "INVALID_REPLICATE"),
        ({"max_attempts": "-1"}, "INVALID_MAX_ATTEMPTS"),
        ({"max_attempts": "65536"}, "INVALID_MAX_ATTEMPTS"),
        ({"max_attempts": "many"}, "INVALID_MAX_ATTEMPTS"),
        ({"durability": "os", "retention": "x"}, "INVALID_RETENTION"),
    ],
)
@pytest.mark.parametrize("path", ["/topic/config", "/topic/create"])
def test_bad_values_are_refused_and_nothing_changes(
    shared: Daemon, path: str, arguments: dict[str, str], error: str
) -> None:
    post(shared, "/topic/create", topic="bad")
    answer = post(shared, path, topic="bad", **arguments)
    assert (answer.status_code, answer.json()["message"]) == (400, error)
    assert told(shared, "bad") == NODES_OWN
    assert post(shared, path, topic="none", **arguments).status_code == 400
    assert httpx.get(f"http://{shared.http}/topic/config?topic=none").status_code == 404


@pytest.mark.parametrize(
    ("arguments", "status", "error"),
    [
        ({"durability": "os"}, 400, "MISSING_ARG_TOPIC"),
        ({"topic": "a b", "durability": "os"}, 400, "INVALID_TOPIC"),
        ({"topic": "nowhere", "durability": "os"}, 404, "TOPIC_NOT_FOUND"),
        ({"topic": "nowhere"}, 400, "MISSING_ARG_DURABILITY_OR_RETENTION"),
        ({"topic": "e#ephemeral", "durability": "os"}, 400, "EPHEMERAL_TOPIC"),
    ],
)
def test_what_cannot_be_configured_is_told(shared: Daemon, arguments: dict[str, str], status: int, error: str) -> None:
    answer = post(shared, "/topic/config", **arguments)
    assert (answer.status_code, answer.json()["message"]) == (status, error)


def test_an_ephemeral_topic_has_no_config_of_its_own(shared: Daemon) -> None:
    assert post(shared, "/topic/create", topic="e#ephemeral", retention="1h").status_code == 400
    assert post(shared, "/topic/create", topic="e#ephemeral").status_code == 200


def test_it_lasts_over_a_kill_and_a_stop(tmp_path: Path) -> None:
    own = {"durability": "interval", "retention": "1h0m0s", "retention_bytes": 7, "replicate": 1, "max_attempts": 3}
    with nsqd(tmp_path, "-retention", "5m") as node:
        post(node, "/topic/create", topic="own", durability="interval", retention="1h", retention_bytes="7")
        post(node, "/topic/config", topic="own", max_attempts="3")
        post(node, "/topic/create", topic="plain")
        node.process.send_signal(signal.SIGKILL)
        node.process.wait()
    for retention in ("10m0s", "0s"):
        with nsqd(tmp_path, "-retention", retention) as node:
            assert told(node, "own") == own | {
                "of_its_own": ["durability", "retention", "retention_bytes", "max_attempts"]
            }
            assert told(node, "plain") == NODES_OWN | {"retention": retention}


def syncs(node: Daemon) -> int:
    """How often the log was synced."""
    found = re.search(
        r"^nsqd_log_sync_seconds_count (\S+)$", httpx.get(f"http://{node.http}/metrics").text, re.MULTILINE
    )
    assert found
    return int(float(found[1]))


@pytest.mark.parametrize(("mode", "own"), [("os", "always"), ("always", "os"), ("interval", "always")])
def test_an_ok_waits_for_what_its_topic_says(tmp_path: Path, mode: str, own: str) -> None:
    flags = ("-durability", mode, "-sync-timeout", "1h") if mode == "interval" else ("-durability", mode)
    with nsqd(tmp_path, *flags) as node, Conversation(node, b"  V2") as producer:
        post(node, "/topic/create", topic="own", durability=own)
        post(node, "/topic/create", topic="plain")
        for topic, durability in (("own", own), ("plain", mode)):
            before = syncs(node)
            for _ in range(100):
                producer.send(b"PUB %s\n" % topic.encode() + sized(b"message"))
                assert producer.frame() == OK
            done = syncs(node) - before
            assert done >= 100 if durability == "always" else done < 50, f"{topic}: {done} syncs"
