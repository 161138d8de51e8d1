"""Configurations of topics: the latest holds, everybody hears it, and adopted logs are served under it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nsqd.cluster.topic_configs import TopicConfigs, use
from nsqd.core.retention.policy import Durability, TopicConfig
from nsqd.protocols.peer.configs import MOST_CONFIGS, MOST_VALUE, VersionedConfig
from tests.nsqd.cluster.network import Network
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.peer.test_configs import CONFIG

WORDS = st.lists(
    st.builds(
        VersionedConfig,
        st.sampled_from(["a", "b"]),
        st.integers(0, 2),
        st.integers(0, 2),
        st.just(TopicConfig()),
    )
)


@given(WORDS, st.randoms(use_true_random=False))
def test_the_greatest_version_holds_in_any_order(words: list[VersionedConfig], random: object) -> None:
    one, other = TopicConfigs(), TopicConfigs()
    shuffled = list(words)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for word in words:
        one.learn(word)
        assert not one.learn(word)
    for word in shuffled:
        other.learn(word)
    assert one.known == other.known
    assert all(one.known[word.topic].version >= word.version for word in words)


def test_a_change_is_later_than_what_is_known_whatever_the_clock_says() -> None:
    known = TopicConfigs([CONFIG])
    word = known.change("orders", TopicConfig(), 5, 0)
    assert (word.at, word.node) == (CONFIG.at + 1, 0)
    assert known.learn(word)
    assert known.change("other", TopicConfig(), 5, 3).version == (5, 3)
    known.learn(word._replace(at=MOST_VALUE))
    assert known.change("orders", TopicConfig(), 5, 0).at == MOST_VALUE


def test_of_too_many_topics_those_are_remembered_that_were_set_last() -> None:
    known = TopicConfigs()
    for number in range(MOST_CONFIGS):
        known.learn(CONFIG._replace(topic=f"t{number}", at=number + 1))
    assert not known.learn(CONFIG._replace(topic="old", at=0))
    assert known.learn(CONFIG._replace(topic="new", at=MOST_CONFIGS + 1))
    assert len(known.known) == MOST_CONFIGS
    assert "t0" not in known.known


def test_all_nodes_hear_of_a_change_also_those_that_come_later() -> None:
    network = Network(1)
    first, second = network.start(0), network.start(1)
    heard: list[VersionedConfig] = []
    second.cluster.on_config = heard.append
    network.run(5)
    first.cluster.configure("orders", CONFIG.config, 9)
    network.run(1)
    assert heard == [CONFIG._replace(at=9, node=0)]
    network.kill(first)
    network.run(1)
    third = network.start(2, seeds=[second.own.address])
    network.run(5)
    assert third.cluster.configs.known == {"orders": heard[0]}
    third.cluster.configure("orders", TopicConfig(), 3)
    network.run(1)
    assert heard[1:] == [VersionedConfig("orders", 10, 2, TopicConfig())]


def test_a_topic_of_an_adopted_log_has_what_was_set_and_keeps_the_rest() -> None:
    node = Node()
    topic = node.broker.topic("orders")
    topic.configure(TopicConfig(Durability.ALWAYS, 1, 5000, None))
    TopicConfigs([CONFIG, CONFIG._replace(topic="missing")]).use_in(node.broker)
    assert topic.config == TopicConfig(Durability.OS, 3600 * 10**9, 5000, 2, 5)
    assert "missing" not in node.broker.topics
    use(CONFIG._replace(config=TopicConfig()), node.broker)
    assert topic.config == TopicConfig(Durability.OS, 3600 * 10**9, 5000, 2, 5)
