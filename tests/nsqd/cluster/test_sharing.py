"""Consumers of one node read channels that nobody reads on another one. No socket; time is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from nsqd.cluster.lending import MOST_AHEAD
from nsqd.cluster.sharing import LOOK_EVERY, LOOKED_AT, MOST_HELD
from nsqd.core.channel import actions
from nsqd.core.message.frame import encode_one
from nsqd.core.observation.sums import channel_sums
from nsqd.core.retention.policy import TopicConfig
from nsqd.core.timing.pause import Pause
from nsqd.protocols.peer.frames import FrameKind, PeerError
from tests.effort import seeds
from tests.nsqd.cluster.stations import Cluster, Station
from tests.nsqd.core.adopted import adopt
from tests.nsqd.core.client import Client
from tests.nsqd.core.node import MS, SECOND, Delivery, Inbox, bodies

LOOK = LOOK_EVERY // MS


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three nodes. The first has the channel t/c, which nobody reads there."""
    cluster = Cluster(3)
    cluster.stations[0].node.channel("t", "c")
    yield cluster
    settle(cluster)
    cluster.check()
    for station in cluster.stations:
        for channel in station.node.broker.topics["t"].channels.values() if "t" in station.node.broker.topics else ():
            for stripe in channel.stripes:
                stripe.check()


def settle(cluster: Cluster) -> None:
    """Let every node look at its channels twice: what the first look changes, the second one sees."""
    for _ in range(2):
        cluster.advance(LOOK)


def reader(cluster: Cluster, station: Station, ready: int = 10, timeout: int = 60) -> tuple[Client, Inbox]:
    client, inbox = station.node.subscribe("t", "c", ready, timeout * SECOND)
    settle(cluster)
    return client, inbox


def publish(cluster: Cluster, station: Station, *messages: bytes) -> None:
    station.node.publish("t", *messages)
    settle(cluster)


def sums(station: Station) -> tuple[int, int, int, int]:
    """Ready, in flight, deferred and requeued messages of the channel that the node owns."""
    found = channel_sums(station.node.channel("t", "c"))
    return found.depth, found.in_flight, found.deferred, found.requeued


def test_messages_that_nobody_reads_reach_consumers_of_another_node(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    publish(cluster, a, b"before")
    client, inbox = reader(cluster, b)
    publish(cluster, a, b"one", b"two")
    publish(cluster, b, b"own")
    found = inbox.take()
    assert sorted(bodies(found)) == [b"before", b"one", b"own", b"two"]
    assert {one.attempts for one in found} == {1}
    assert sums(a) == (0, 3, 0, 0)
    assert sums(b) == (0, 1, 0, 0)
    assert client.consumer.window.total("in_flight") == 4
    assert client.finish(b"".join(one.id for one in found)) == []
    settle(cluster)
    assert sums(a) == sums(b) == (0, 0, 0, 0)


def test_consumers_of_the_node_come_first(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    _, far = reader(cluster, b)
    near_client, near = reader(cluster, a)
    publish(cluster, a, b"one", b"two")
    assert (len(near.take()), far.take()) == (2, [])
    near_client.leave(a.node.broker)
    settle(cluster)
    publish(cluster, a, b"three")
    assert bodies(far.take()) == [b"three"]


def test_no_more_is_lent_than_the_consumers_want(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    client, inbox = reader(cluster, b, ready=3)  # of which each of the two other nodes lends a part
    publish(cluster, a, *[b"%d" % number for number in range(10)])
    found = inbox.take()
    assert bodies(found) == [b"0", b"1"]
    assert sums(a)[:2] == (8, 2)
    got = found
    for _ in range(5):
        client.finish(b"".join(one.id for one in found))
        settle(cluster)
        found = inbox.take()
        got += found
    assert bodies(got) == [b"%d" % number for number in range(10)]


def test_consumers_of_several_nodes_share_a_channel(cluster: Cluster) -> None:
    a, b, c = cluster.stations
    inboxes = [reader(cluster, station, ready=100)[1] for station in (b, c)]
    publish(cluster, a, *[b"%d" % number for number in range(20)])
    counts = [len(inbox.take()) for inbox in inboxes]
    assert sum(counts) == 20
    assert min(counts) > 0


def test_what_is_requeued_goes_back_with_its_delay(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    client, inbox = reader(cluster, b)
    publish(cluster, a, b"x")
    (first,) = inbox.take()
    assert client.requeue(first.id, 5 * SECOND, b.node.now) == ""
    settle(cluster)
    assert sums(a) == (0, 0, 1, 1)
    cluster.advance(5_000)
    (again,) = inbox.take()
    assert (again.id, again.attempts, again.body) == (first.id, 2, b"x")
    assert client.requeue(again.id, 0, b.node.now) == ""
    settle(cluster)
    assert [one.attempts for one in inbox.take()] == [3]


def test_a_consumer_of_another_node_that_dies_at_the_first_message_buries_that_one(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    a.node.broker.topic("t").configure(TopicConfig(max_attempts=2))
    b.node.broker.limits = replace(b.node.broker.limits, requeue_on_disconnect=True)
    for _ in range(2):
        client, inbox = reader(cluster, b)
        if not a.node.channel("t", "c").offsets.end:
            publish(cluster, a, b"0", b"1", b"2")
        assert bodies(inbox.take()) == [b"0", b"1", b"2"]
        client.leave(b.node.broker)
        settle(cluster)
    channel = a.node.channel("t", "c")
    assert [(one.ordinal, one.attempts, one.failures) for one in channel.buried.values()] == [(0, 2, 2)]
    assert {one.failures for _, one in channel.backlog.retry} == {0}


def test_a_lost_connection_between_nodes_is_no_failure(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    a.node.broker.topic("t").configure(TopicConfig(max_attempts=1))
    _, inbox = reader(cluster, b)
    publish(cluster, a, b"0", b"1")
    assert len(inbox.take()) == 2
    for one in list(a.sharing._nodes.values()):
        for lent in one.readers.values():
            lent.leave()
    channel = a.node.channel("t", "c")
    assert len(channel.buried) == 0
    assert [one.failures for _, one in channel.backlog.retry] == [0, 0]


def test_what_times_out_at_the_borrower_goes_back(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    client, inbox = reader(cluster, b, timeout=5)
    publish(cluster, a, b"x", b"y")
    first, second = inbox.take()
    cluster.advance(4_900)
    assert client.touch(second.id, 5 * SECOND, 60 * SECOND, b.node.now) == ""
    cluster.advance(200)
    (again,) = inbox.take()
    assert (again.id, again.attempts) == (first.id, 2)
    assert client.finish(second.id) == []
    settle(cluster)
    assert sums(a)[:2] == (0, 1)


def test_the_lender_takes_back_what_it_hears_nothing_of(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    reader(cluster, b, timeout=3600)
    publish(cluster, a, b"x")
    assert sums(a)[:2] == (0, 1)
    b.node.subscribe("t", "c")[0].set_ready(0)
    cluster.holds = lambda source, target, kind: kind is FrameKind.MESSAGES
    cluster.advance(121_000)
    assert a.node.channel("t", "c").timeout_count == 1


def test_a_lost_connection_takes_everything_back(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    client, inbox = reader(cluster, b, ready=2)
    publish(cluster, a, b"x", b"y", b"z")
    (first,) = inbox.take()
    cluster.cut(a, b)
    settle(cluster)
    assert sums(a)[:2] == (3, 0)
    assert [why for _, why in client.finish(first.id)] == ["ID not in flight"]
    assert b.node.channel("t", "c").stripes == ()
    _, near = reader(cluster, a, ready=10)
    assert sorted(one.attempts for one in near.take()) == [1, 1, 2]


def test_after_a_new_connection_it_goes_on(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    client, inbox = reader(cluster, b)
    publish(cluster, a, b"x")
    inbox.take()
    cluster.cut(a, b)
    settle(cluster)
    cluster.connect(a, b)
    settle(cluster)
    (again,) = inbox.take()
    assert again.attempts == 2
    assert client.finish(again.id) == []
    settle(cluster)
    assert sums(a) == (0, 0, 0, 1)


def test_messages_that_no_consumer_got_go_back_uncounted(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    client, inbox = reader(cluster, b, ready=2)
    inbox.space = 0
    publish(cluster, a, b"x")
    assert sums(a)[:2] == (0, 1)
    client.set_ready(0)
    settle(cluster)
    assert sums(a) == (1, 0, 0, 0)
    _, near = reader(cluster, a)
    assert [one.attempts for one in near.take()] == [1]


def test_messages_on_their_way_to_a_consumer_that_goes_come_back(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    client, _ = reader(cluster, b)
    a.node.publish("t", b"x")  # it is on its way
    client.leave(b.node.broker)
    settle(cluster)
    assert sums(a) == (1, 0, 0, 0)
    assert a.node.channel("t", "c").consumers == {}


def test_what_a_consumer_has_that_leaves_comes_back_when_its_time_is_over(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    client, inbox = reader(cluster, b, timeout=5)
    publish(cluster, a, b"x")
    assert len(inbox.take()) == 1
    client.leave(b.node.broker)
    settle(cluster)
    assert sums(a)[:2] == (0, 1)
    cluster.advance(5_100)
    assert sums(a) == (1, 0, 0, 1)
    assert b.node.channel("t", "c").stripes == ()


def test_a_pause_on_either_side_ends_it(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    _, inbox = reader(cluster, b)
    for station in (a, b):
        station.node.channel("t", "c").pause(Pause("", 0, 0))
        settle(cluster)
        publish(cluster, a, b"x")
        assert inbox.take() == []
        station.node.channel("t", "c").pause(None)
        settle(cluster)
        assert bodies(inbox.take()) == [b"x"]


@pytest.mark.parametrize("topic", [False, True])
@pytest.mark.parametrize("side", [0, 1])
def test_a_channel_that_is_deleted_while_messages_are_lent(cluster: Cluster, side: int, topic: bool) -> None:
    a, b, _ = cluster.stations
    _, inbox = reader(cluster, b)
    publish(cluster, a, b"x")
    assert len(inbox.take()) == 1
    broker = cluster.stations[side].node.broker
    if topic:
        broker.delete_topic("t")
    else:
        broker.directory.delete_channel(broker.topics["t"], "c")
    settle(cluster)
    if side:
        assert sums(a)[:2] == (1, 0)
    else:
        a.node.channel("t", "c")
        publish(cluster, a, b"y")
        assert bodies(inbox.take()) == [b"y"]


def test_an_operator_who_empties_the_borrower_drops_nothing_of_the_lender(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    _, inbox = reader(cluster, b)
    publish(cluster, a, b"x")
    publish(cluster, b, b"own")
    assert len(inbox.take()) == 2
    b.node.channel("t", "c").empty()
    settle(cluster)
    (again,) = inbox.take()
    assert (again.body, again.attempts) == (b"x", 2)


def test_an_operator_who_empties_the_lender_drops_what_is_lent(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    client, inbox = reader(cluster, b)
    publish(cluster, a, b"x")
    (first,) = inbox.take()
    a.node.channel("t", "c").empty()
    settle(cluster)
    assert client.finish(first.id) == []
    settle(cluster)
    assert sums(a) == (0, 0, 0, 0)
    publish(cluster, a, b"y")
    assert bodies(inbox.take()) == [b"y"]


def test_logs_that_the_lender_has_adopted_are_lent_too(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    adopt(a.node, 9, "t", "c", b"adopted")
    client, inbox = reader(cluster, b)
    publish(cluster, a, b"own")
    found = inbox.take()
    assert sorted(bodies(found)) == [b"adopted", b"own"]
    client.finish(found[0].id)
    client.requeue(found[1].id, 0, b.node.now)
    settle(cluster)
    (again,) = inbox.take()
    assert (again.id, again.attempts) == (found[1].id, 2)
    cluster.cut(a, b)
    settle(cluster)
    assert sums(a)[:2] == (1, 0)


def test_what_is_ephemeral_is_not_shared(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    for topic, channel in (("e#ephemeral", "c"), ("t", "c#ephemeral")):
        a.node.channel(topic, channel)
        _, inbox = b.node.subscribe(topic, channel, 5)
        settle(cluster)
        a.node.publish(topic, b"x")
        settle(cluster)
        assert inbox.take() == []


def test_a_node_without_the_channel_lends_nothing_until_it_has_it(cluster: Cluster) -> None:
    _, b, c = cluster.stations
    _, inbox = reader(cluster, b)
    c.node.publish("t", b"kept for the first channel")
    settle(cluster)
    assert inbox.take() == []
    assert "c" not in c.node.broker.topics["t"].channels
    c.node.channel("t", "c")
    settle(cluster)
    assert bodies(inbox.take()) == [b"kept for the first channel"]


def test_large_messages_come_in_parts_and_wait_for_the_network(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    _, inbox = reader(cluster, b, ready=100)
    inbox.space = 1 << 30
    large = [bytes([number]) * 900_000 for number in range(3)]
    publish(cluster, a, *large)
    assert bodies(inbox.take()) == large
    a.links[2].backlog = MOST_AHEAD
    publish(cluster, a, *large)
    assert inbox.take() == []
    a.links[2].backlog = 0
    settle(cluster)
    assert bodies(inbox.take()) == large


def test_a_node_that_does_not_share_lends_and_asks_nothing() -> None:
    cluster = Cluster(2)
    a, b = cluster.stations
    a.jobs._sharing = None
    a.node.channel("t", "c")
    _, inbox = reader(cluster, b)
    publish(cluster, a, b"x")
    assert inbox.take() == []
    assert sums(a)[:2] == (1, 0)
    cluster.check()


@pytest.mark.parametrize("seed", seeds(5))
def test_random_histories_lose_nothing(seed: int) -> None:
    """Publishes, commands, lost connections and consumers that come and go; then everything is finished once at least."""
    random = Random(seed)
    cluster = Cluster(3)
    clients: list[tuple[Station, Client, Inbox]] = []
    held: list[tuple[Client, Delivery]] = []
    count, done = 0, set()
    for station in cluster.stations:
        station.node.channel("t", "c")
    for _ in range(120):
        station, other = random.sample(cluster.stations, 2)
        what = random.randrange(12)
        if what < 4:
            some = [b"%d" % number for number in range(count, count + random.randint(1, 5))]
            count += len(some)
            station.node.publish("t", *some)
        elif what == 4 and len(clients) < 4:
            clients.append((station, *station.node.subscribe("t", "c", random.randint(1, 20), 5 * SECOND)))
        elif what == 5 and clients:
            at, client, _ = clients.pop(random.randrange(len(clients)))
            client.leave(at.node.broker)
            held = [pair for pair in held if pair[0] is not client]
        elif what == 6 and other.number in station.links:
            cluster.cut(station, other)
        elif what == 7 and other.number not in station.links:
            cluster.connect(station, other)
        elif what == 8 and clients:
            random.choice(clients)[1].set_ready(random.randint(0, 20))
        elif what == 9:
            cluster.advance(random.choice((1, 30, 1000, 6000)))
        elif held:
            client, got = held.pop(random.randrange(len(held)))
            if random.random() < 0.3:
                client.requeue(got.id, random.choice((0, SECOND)), cluster.stations[0].node.now)
            elif not client.finish(got.id):
                done.add(got.body)
        cluster.advance(random.choice((0, 1, 25)))
        for _, client, inbox in clients:
            held += [(client, one) for one in inbox.take()]
    for one in cluster.stations:
        for two in cluster.stations:
            if one.number < two.number and two.number not in one.links:
                cluster.connect(one, two)
    for at, client, _ in clients:
        client.leave(at.node.broker)
    cluster.advance(61_000)
    last, inbox = reader(cluster, cluster.stations[random.randrange(3)], ready=1000)
    for _ in range(20):
        found = inbox.take()
        done |= {one.body for one in found}
        last.finish(b"".join(one.id for one in found))
        settle(cluster)
    assert [sums(station)[:3] for station in cluster.stations] == [(0, 0, 0)] * 3
    assert done == {b"%d" % number for number in range(count)}
    cluster.check()


def test_a_message_that_an_operator_requeues_while_it_is_lent_takes_the_place_of_the_first_delivery(
    cluster: Cluster,
) -> None:
    a, b, _ = cluster.stations
    client, inbox = reader(cluster, b, ready=1)
    publish(cluster, a, b"x")
    (first,) = inbox.take()
    channel, topic = a.node.channel("t", "c"), a.node.broker.topics["t"]
    actions.requeue(topic, channel, [actions.ChosenMessage(0, first.id)], 0, a.node.now)
    client.set_ready(2)
    settle(cluster)
    (again,) = inbox.take()
    assert (again.id, again.attempts) == (first.id, 2)
    assert client.consumer.window.total("in_flight") == 1
    assert client.finish(again.id) == []
    assert len(client.finish(first.id)) == 1
    cluster.advance(200_000)
    assert sums(a)[:3] == (0, 0, 0)


def test_a_message_that_comes_twice_while_no_consumer_has_it_is_there_once(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    client, inbox = reader(cluster, b, ready=1)
    publish(cluster, b, b"own")
    publish(cluster, a, b"x")
    (own,) = inbox.take()
    (key,) = b.sharing._nodes[1].borrowed
    channel = b.sharing._nodes[1].borrowed[key].channel
    channel.add(channel.backlog.extents.frame_in_memory(0))
    assert (channel.held, channel.depth) == (1, 1)
    client.finish(own.id)
    settle(cluster)
    assert bodies(inbox.take()) == [b"x"]


def test_a_pause_at_the_borrower_holds_at_once(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    client, inbox = reader(cluster, b, ready=1)
    publish(cluster, b, b"own")
    publish(cluster, a, b"lent")
    (own,) = inbox.take()
    b.node.broker.pause(b.node.channel("t", "c"), True)
    client.finish(own.id)
    b.node.turn()
    assert inbox.take() == []
    settle(cluster)
    assert sums(a) == (1, 0, 0, 0)


def test_a_lost_connection_buries_nothing() -> None:
    cluster = Cluster(2)
    a, b = cluster.stations
    a.node.channel("t", "c").max_attempts = 2
    reader(cluster, b, ready=1)
    publish(cluster, a, b"x")
    for _ in range(4):
        cluster.cut(a, b)
        settle(cluster)
        cluster.connect(a, b)
        settle(cluster)
    assert a.node.channel("t", "c").counts().buried == 0


def test_more_messages_than_were_asked_for_end_the_connection(cluster: Cluster) -> None:
    a, b, _ = cluster.stations
    reader(cluster, b, ready=1)
    publish(cluster, a, b"x")
    frames = [encode_one(b"y", b"%016x" % number, 1) for number in range(MOST_HELD + 10)]
    with pytest.raises(PeerError):
        b.sharing._take(b.sharing._nodes[1], ("t", "c"), frames)


def test_many_channels_are_looked_at_in_turn() -> None:
    cluster = Cluster(2)
    a, b = cluster.stations
    names = [f"t{number}" for number in range(3 * LOOKED_AT)]
    for name in names:
        a.node.channel(name, "c")
    inboxes = [b.node.subscribe(name, "c", 5)[1] for name in names]
    for _ in range(5):
        settle(cluster)
    for name in names:
        a.node.publish(name, b"x")
    for _ in range(5):
        settle(cluster)
    assert all(len(inbox.take()) == 1 for inbox in inboxes)
