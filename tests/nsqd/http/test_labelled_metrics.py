"""/metrics: series of each topic and channel, of all together where there are too many, and of the node."""

import re

from nsqd.http.figures import LABELLED
from shared.values import SECOND
from tests.local_node import LocalNode
from tests.nsqd.http.asking import drained, post


def test_metrics_of_topics_and_channels() -> None:
    node = LocalNode()
    post(node, "/topic/create", topic="t")
    post(node, "/channel/create", topic="t", channel="ch")
    post(node, "/mpub", b"x\nx\nx", topic="t")
    drained(node, "t", "ch", 3)
    post(node, "/mpub", b"four\nmore\n", topic="t")
    node.advance(3 * SECOND)
    text = node.client.get("/metrics").text
    for line in (
        'nsqd_topic_messages_total{topic="t"} 5.0',
        'nsqd_topic_message_bytes_total{topic="t"} 11.0',
        'nsqd_topic_depth{topic="t"} 0.0',
        'nsqd_channel_messages_total{channel="ch",topic="t"} 5.0',
        'nsqd_channel_depth{channel="ch",topic="t"} 2.0',
        'nsqd_channel_clients{channel="ch",topic="t"} 0.0',
        'nsqd_channel_in_flight{channel="ch",topic="t"} 0.0',
        'nsqd_channel_deferred{channel="ch",topic="t"} 0.0',
        'nsqd_channel_requeued_total{channel="ch",topic="t"} 0.0',
        'nsqd_channel_timed_out_total{channel="ch",topic="t"} 0.0',
        'nsqd_topic_oldest_age_seconds{topic="t"} 0.0',
        "nsqd_depth 2.0",
        "nsqd_messages_total 5.0",
        "nsqd_topics 1.0",
        "nsqd_channels 1.0",
    ):
        assert f"{line}\n" in text, line
    assert re.search(r'^nsqd_channel_oldest_age_seconds\{channel="ch",topic="t"\} 3\.\d+$', text, re.MULTILINE)
    assert "(other)" not in text
    assert "e2e_processing" not in text


def test_the_number_of_labels_is_capped() -> None:
    node = LocalNode()
    for number in range(LABELLED + 10):
        topic = node.broker.topic(f"t{number}")
        topic.channel("c")
        topic.publish([b"x"] * (number // LABELLED + 1), number // LABELLED + 1)
    text = node.client.get("/metrics").text
    assert len(re.findall(r"^nsqd_topic_messages_total\{", text, re.MULTILINE)) == LABELLED + 1
    assert len(re.findall(r"^nsqd_channel_depth\{", text, re.MULTILINE)) == LABELLED + 1
    assert f'nsqd_channel_depth{{channel="c",topic="t{LABELLED}"}} 2.0\n' in text  # the largest backlogs are there
    assert 'nsqd_channel_depth{channel="(other)",topic="(other)"} 10.0\n' in text
    assert 'nsqd_topic_messages_total{topic="(other)"} 10.0\n' in text
    assert f"nsqd_messages_total {LABELLED + 20}.0\n" in text
    before = set(re.findall(r"^nsqd_topic_depth\{(.*)\}", text, re.MULTILINE))
    post(node, "/mpub", b"x\n" * 50, topic="t198")
    again = node.client.get("/metrics").text
    assert set(re.findall(r"^nsqd_topic_depth\{(.*)\}", again, re.MULTILINE)) == before
