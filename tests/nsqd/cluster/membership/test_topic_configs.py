"""Configurations of topics: the latest holds, everybody hears it, and promoted logs are served under it."""

from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.cluster.joining import CopyGate
from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.membership.topic_configs import (
    MOST_CONFIGS,
    MOST_IN_FRAME,
    MOST_VALUE,
    TopicConfigs,
    VersionedConfig,
    use,
)
from nsqd.cluster.wire.handshake import Credentials
from nsqd.cluster.wire.part import Part
from nsqd.core.limits import TooFewCopies
from nsqd.storage.log.copies import Copies
from shared.retry import Retry
from shared.topic_config import Durability, TopicConfig
from tests.nsqd.cluster.network import SECOND, SECRET, SUSPECT_AFTER, Network
from tests.nsqd.cluster.wire.identities import CONFIG
from tests.nsqd.cluster.wire.identities import node as identity
from tests.nsqd.core.node import Node

VERSIONS = st.integers(0, 2), st.integers(0, 2)
WORDS = st.lists(st.builds(VersionedConfig, st.sampled_from(["a", "b"]), *VERSIONS, st.just(TopicConfig())))


@given(WORDS, st.randoms(use_true_random=False))
def test_the_greatest_version_holds_in_any_order(words: list[VersionedConfig], random: object) -> None:
    one, other = TopicConfigs({}), TopicConfigs({})
    shuffled = list(words)
    random.shuffle(shuffled)
    for word in words:
        one.learn(word)
        assert not one.learn(word)
    for word in shuffled:
        other.learn(word)
    assert one.known == other.known
    assert all(one.known[word.topic].version >= word.version for word in words)


def test_a_change_is_later_than_what_is_known_whatever_the_clock_says() -> None:
    known = TopicConfigs({}, [CONFIG])
    word = known.change("orders", TopicConfig(), 5, 0)
    assert (word.at, word.node) == (CONFIG.at + 1, 0)
    assert known.learn(word)
    assert known.change("other", TopicConfig(), 5, 3).version == (5, 3)
    known.learn(word._replace(at=MOST_VALUE))
    assert known.change("orders", TopicConfig(), 5, 0).at == MOST_VALUE


def test_of_too_many_topics_the_latest_are_remembered() -> None:
    known = TopicConfigs({})
    for number in range(MOST_CONFIGS):
        known.learn(CONFIG._replace(topic=f"t{number}", at=number + 1))
    assert not known.learn(CONFIG._replace(topic="old", at=0))
    assert known.learn(CONFIG._replace(topic="new", at=MOST_CONFIGS + 1))
    assert len(known.known) == MOST_CONFIGS
    assert "t0" not in known.known


def test_a_node_that_joins_is_sent_more_topics_than_fit_into_a_frame() -> None:
    network = Network(1)
    first = network.start(0)
    for number in range(2 * MOST_IN_FRAME + 1):
        first.cluster.configs.configure(f"t{number}", CONFIG.config, 9, 0)
    second = network.start(1, seeds=[first.own.address])
    network.run(5)
    assert second.cluster.configs.known == first.cluster.configs.known
    assert len(second.cluster.configs.known) == 2 * MOST_IN_FRAME + 1


def test_all_nodes_learn_of_a_change_also_nodes_that_come_later() -> None:
    network = Network(1)
    first, second = network.start(0), network.start(1)
    node = Node()
    topic = node.broker.topic("orders")
    second.cluster.configs.attached(node.broker)
    network.run(5)
    first.cluster.configs.configure("orders", CONFIG.config, 9, 0)
    network.run(1)
    received = CONFIG._replace(at=9, node=0)
    assert second.cluster.configs.known == {"orders": received}
    assert topic.config.max_attempts == CONFIG.config.max_attempts
    network.kill(first)
    network.run(1)
    third = network.start(2, seeds=[second.own.address])
    network.run(5)
    assert third.cluster.configs.known == {"orders": received}
    second.cluster.configs.detached(node.broker)
    third.cluster.configs.configure("orders", TopicConfig(max_attempts=77), 3, 2)
    network.run(1)
    assert second.cluster.configs.known["orders"] == VersionedConfig("orders", 10, 2, TopicConfig(max_attempts=77))
    assert topic.config.max_attempts == CONFIG.config.max_attempts


def test_a_topic_of_a_promoted_log_has_what_was_set_and_a_default_keeps_its_messages() -> None:
    node = Node()
    topic = node.broker.topic("orders")
    topic.configure(TopicConfig(Durability.ALWAYS, 1, 5000, None))
    TopicConfigs({}, [CONFIG, CONFIG._replace(topic="missing")]).attached(node.broker)
    assert topic.config == TopicConfig(Durability.OS, 3600 * 10**9, 5000, 2, 5)
    assert "missing" not in node.broker.topics
    whole = TopicConfig(retention=1, retry=Retry.parse("fixed(5s)"), channels={"mail": TopicConfig(rate=10)})
    use(CONFIG._replace(config=whole), topic)
    assert topic.config == replace(whole, retention_bytes=5000)
    use(CONFIG._replace(config=TopicConfig()), topic)
    assert topic.config == TopicConfig(retention=1, retention_bytes=5000)


def test_the_first_node_of_a_cluster_knows_all_at_once_and_the_others_when_it_has_sent_it() -> None:
    network = Network(1)
    first = network.start(0)
    network.run(1)
    assert first.cluster.configs.is_complete
    assert TopicConfigs({}, [CONFIG], True).is_complete, "a run goes on with what the last one knew"
    first.cluster.configs.configure("orders", CONFIG.config, 9, 0)
    network.cut = {("node1:4152", "node0:4152"), ("node0:4152", "node1:4152")}
    second = network.start(1)
    network.run(20)
    assert not second.cluster.configs.is_complete
    reported: list[set[str]] = []
    part = Part()
    part.configured = lambda: reported.append(set(second.cluster.configs.known))
    second.cluster.add(part)
    network.cut = set()
    network.run(20)
    assert reported == [{"orders"}]


def test_nodes_that_begin_together_are_complete_when_each_has_reached_all_nodes_that_it_knows() -> None:
    network = Network(2)
    seeds = [f"node{number}:4152" for number in range(3)]
    early = [network.start(number, seeds=seeds) for number in range(2)]
    network.run(30)
    assert [one.cluster.configs.is_complete for one in early] == [False, False]
    last = network.start(2, seeds=seeds)
    network.run(30)
    assert [one.cluster.configs.is_complete for one in (*early, last)] == [True] * 3


def test_two_nodes_with_empty_disks_do_not_take_themselves_for_the_cluster_while_the_third_is_away() -> None:
    network = Network(3)
    seeds = [f"node{number}:4152" for number in range(3)]
    nodes = [network.start(number, seeds=seeds) for number in range(3)]
    network.run(30)
    nodes[2].cluster.configs.configure("orders", CONFIG.config, 9, 2)
    network.run(2)
    away = nodes[2].own.address
    for one in nodes[:2]:
        network.kill(one)
    network.cut = {pair for one in nodes[:2] for pair in ((away, one.own.address), (one.own.address, away))}
    back = [network.start(number, 2, seeds=seeds, log=100 + number) for number in range(2)]
    network.run(30)
    assert [one.cluster.configs.is_complete for one in back] == [False, False]
    network.cut = set()
    network.run(90)
    assert [set(one.cluster.configs.known) for one in back if one.cluster.configs.is_complete] == [{"orders"}] * 2


def test_a_node_that_finds_itself_under_another_name_is_the_first() -> None:
    alone = Cluster(Credentials("c", SECRET, identity(0)), ["alias:4152"], SUSPECT_AFTER, Random(4).randbytes)
    alone.tick(SECOND)
    assert alone.take_due(SECOND) == "alias:4152"
    dialer, acceptor = alone.dialed("alias:4152", SECOND), alone.accepted(SECOND)
    acceptor.receive(bytes(dialer.output), SECOND)
    assert acceptor.closing
    for link in (dialer, acceptor):
        alone.closed(link, SECOND)
    assert not alone.configs.is_complete
    alone.tick(SECOND)
    assert alone.configs.is_complete


def test_a_node_waits_until_nsqlookupd_has_said_who_is_there() -> None:
    network = Network(5)
    first, other = network.start(0), network.start(1, seeds=[])
    other.cluster.dials.is_searching = True
    network.run(5)
    assert first.cluster.configs.is_complete
    assert not other.cluster.configs.is_complete
    other.cluster.dials.set_found([first.own.address])
    network.run(20)
    assert other.cluster.configs.is_complete
    assert 0 in other.cluster.links


def test_a_node_takes_no_message_until_it_knows_how_topics_are_configured() -> None:
    node = Node()
    copies = Copies(0)
    parts: list[Part] = []
    cluster: Any = SimpleNamespace(configs=TopicConfigs({}, parts=parts))
    earlier = node.broker.topic("earlier")
    parts.append(CopyGate(cluster, node.broker, copies))
    copies.set_available(3)
    with pytest.raises(TooFewCopies, match="has not received the configurations of topics"):
        node.broker.admit("earlier")
    assert node.broker.topic("new").shut
    assert not node.broker.topic("passing#ephemeral").shut
    cluster.configs.learn(CONFIG)
    cluster.configs.complete()
    assert node.broker.context.copies == 3
    assert (earlier.shut, node.broker.topics["new"].shut) == (False, False)
    assert node.broker.topic("orders").config == CONFIG.config
    node.broker.delete_topic("orders")
    assert node.broker.topic("orders").usual_copies == 2
