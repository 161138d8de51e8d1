"""What nsqd's flags change for clients of NSQ's protocol and of HTTP."""

import json
import re
from typing import Any

import pytest

from nsqd.options import NsqdOptions
from shared.options import InstantiationError, OptionError
from shared.startup import Exit, read_options
from tests.daemons import OK, Conversation, sized
from tests.local_node import SECOND, LocalNode

X = sized(b"x")


def consume(node: LocalNode, topic: bytes = b"t") -> Conversation:
    client = Conversation(node, b"  V2SUB " + topic + b" c\nRDY 1\n")
    assert client.frame() == OK
    return client


def channel_stats(node: LocalNode, topic: str = "t") -> dict[str, Any]:
    return node.client.get(f"/stats?format=json&topic={topic}").json()["topics"][0]["channels"][0]


@pytest.mark.parametrize("flags", [
    ["-no-such-flag"], ["-msg-timeout", "soon"], ["-msg-timeout=-1s"], ["-max-msg-size", "1e6"], ["-max-msg-size"],
    ["-log-level", "loud"], ["-verbose=maybe"], ["--=x"], ["-tcp-address"],
], ids=" ".join)  # fmt: skip
def test_a_wrong_flag_is_one_line_and_exit_2(flags: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exit) as ended:
        read_options(NsqdOptions, "nsqd", flags, {})
    assert ended.value.code == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"nsqd: [^\n]+\n", printed.err)


def test_topics_and_channels_are_bounded() -> None:
    node = LocalNode("-max-topics", "1", "-max-channels", "1")
    with Conversation(node, b"  V2SUB t c\nPUB u\n" + X) as client:
        assert client.frames() == [OK, (1, b"E_PUB_FAILED PUB failed topics exceed limit of 1")]
    with Conversation(node, b"  V2SUB t d\n") as client:
        assert client.frame() == (1, b"E_SUB_FAILED SUB failed channels exceed limit of 1")
    for path, text in (
        ("/pub?topic=u", "TOO_MANY_TOPICS"),
        ("/mpub?topic=u", "TOO_MANY_TOPICS"),
        ("/topic/create?topic=u", "TOO_MANY_TOPICS"),
        ("/channel/create?topic=t&channel=d", "TOO_MANY_CHANNELS"),
    ):
        answer = node.client.post(path, content=b"x")
        assert (answer.status_code, answer.json()) == (503, {"message": text})
    metrics = node.client.get("/metrics").text
    assert 'nsqd_refused_total{reason="max_topics"} 4.0' in metrics
    assert 'nsqd_refused_total{reason="max_channels"} 2.0' in metrics


@pytest.mark.parametrize("word", ["some", "2", "-1", "nan", "", "1.01"])
def test_a_share_of_events_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(OptionError, match=r"expected off, full, or a share of the messages such as 0\.01") as refused:
        LocalNode("-statistics-events", word)
    assert refused.value.code == 2


def test_a_name_of_a_statistics_topic_that_is_none_is_refused() -> None:
    with pytest.raises(InstantiationError, match=r"^--statistics-topic 'a b' is not a valid topic name$") as refused:
        LocalNode("-statistics-topic", "a b")
    assert refused.value.code == 1


def test_events_without_a_topic_are_odd() -> None:
    (warning,) = LocalNode("-statistics-events", "full").options.warnings
    assert warning == "--statistics-events 'full' has no effect without --statistics-topic"


def test_a_consumer_in_the_same_zone_is_served_first() -> None:
    flags = ("-enable-experiment", "topology-aware-consumption", "-topology-zone", "z1", "-topology-region", "r")
    node = LocalNode(*flags)
    with Conversation(node) as far, Conversation(node) as near:
        for client, zone in ((far, "z2"), (near, "z1")):
            asked = {"feature_negotiation": True, "topology_zone": zone, "topology_region": "r"}
            client.send(b"  V2IDENTIFY\n" + sized(json.dumps(asked).encode()) + b"SUB t c\nRDY 1\n")
            identified = client.frame()
            assert (json.loads(identified[1])["topology_zone"], client.frame()) == ("z1", OK)
        node.advance(SECOND)
        for _ in range(5):
            assert node.client.post("/pub?topic=t", content=b"x").text == "OK"
            near.send(b"FIN " + near.message().id + b"\n")
            node.advance(SECOND)
        stats = channel_stats(node)
        assert stats["zone_local_msg_count"] == 5
        assert "region_local_msg_count" not in stats
        assert {client["topology_zone"] for client in stats["clients"]} == {"z1", "z2"}
