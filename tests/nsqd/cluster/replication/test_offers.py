"""A node offers its logs and replicas, and a start waits for a number of answers."""

from itertools import combinations
from typing import Any

import msgpack
import pytest

from nsqd.cluster.joined import promoted_log_status
from nsqd.cluster.membership.cluster_json import describe_closed
from nsqd.cluster.membership.leader_frames import Closed
from nsqd.cluster.replication import offers
from nsqd.cluster.wire.frames import PeerError
from nsqd.core.message.ids import MOST_LEASE
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.records import HEADER_SIZE
from tests.cases import each


def test_if_no_publish_asked_for_copies_all_that_count_are_waited_for() -> None:
    assert offers.is_enough(Followers(), set())
    assert not offers.is_enough(Followers((1, 2)), {1, 3})
    assert offers.is_enough(Followers((1, 2)), {1, 2})


@each("followers, fewest", [((1,), 2), ((1, 2), 2), ((1, 2), 3), ((1, 2, 3), 3), ((1, 2, 3, 4), 2), ((1, 2, 3, 4), 4)])
def test_enough_answers_contain_one_that_has_what_was_acknowledged(followers: tuple[int, ...], fewest: int) -> None:
    for count in range(len(followers) + 1):
        for silent in combinations(followers, count):
            answering = set(followers) - set(silent)
            always_one = all(answering & set(having) for having in combinations(followers, fewest - 1))
            assert offers.is_enough(Followers(followers, fewest, fewest), answering) == always_one


LOG_ID = bytes(range(16))
LATEST = Epoch(7, 2, b"01234567")
EPOCH = LATEST.pack()
LED: dict[str, Any] = {"log_id": LOG_ID.hex(), "node": 2, "epochs": [[EPOCH.hex(), 0]], "end": 500}
REPLICA = {"log_id": LOG_ID.hex(), "opening": False, "failure": "", "complete": True, "written": 400, "epochs": []}


def offers_of(*, replicas: Any = (), led: Any = (), closed: Any = (), lease: int = 0) -> list[offers.Offer] | None:
    return offers.find_offers("h:1", {"replicas": replicas, "led": led, "closed": closed}, LOG_ID, lease)


def test_a_log_that_a_node_leads_is_distinguished_from_a_replica() -> None:
    leads = offers.Offer("h:1", 500, ((EPOCH, 0),), leader=2)
    assert offers_of(led=[LED | {"log_id": "00" * 16}, LED]) == [leads]
    assert offers_of() == []
    assert offers_of(replicas=[REPLICA], led=[LED], lease=9) == [offers.Offer("h:1", 400, (), 9), leads]
    assert offers_of(closed=[describe_closed(Closed(LOG_ID, 500, ((LATEST, 0),)))]) == [leads]


def test_a_replica_that_is_not_complete_has_nothing_and_of_one_that_cannot_be_read_nothing_is_said() -> None:
    assert offers_of(replicas=[REPLICA | {"complete": False}]) == [offers.Offer("h:1", 0, ())]
    assert offers_of(replicas=[REPLICA | {"opening": True}]) is None
    assert offers_of(replicas=[REPLICA | {"failure": "no space"}]) is None


def test_a_log_that_a_node_has_lost_to_another_one_is_not_its_own_and_one_that_is_opened_is_waited_for() -> None:
    entry: dict[str, Any] = {"log_id": LOG_ID.hex(), "node": 2, "topics": 0, "failure": ""}
    for state, expected in (("lost", []), ("closed", []), ("reading", None), ("failed", None)):
        assert offers_of(led=[promoted_log_status(entry | {"state": state}, None)]) == expected
    begun = {"log_id": LOG_ID.hex(), "epochs": LED["epochs"], "end": 500}
    (offer,) = offers_of(led=[promoted_log_status(entry | {"state": "serving"}, begun)]) or []
    assert offer.end == 500


@each(
    "content",
    [
        5, [], [0], [0, [], 0], [-1, []], [MOST_LEASE + 1, []], ["5", []], [True, []], [0, 5], [0, {}], [0, [5]], [0, [[]]],
        [0, [[1, []]]], [0, [[-1, [], None]]], [0, [[1 << 63, [], None]]], [0, [[None, [], None]]], [0, [[1, 5, None]]],
        [0, [[1, [], 2]]], [0, [[1, [[EPOCH, 0]], 1024]]], [0, [[1, [[EPOCH, 0]], -1]]], [0, [[1, [[EPOCH, 0]], True]]],
        [0, [[1, [[EPOCH, 0]], "2"]]], [0, [[1, [[EPOCH[1:], 0]], 2]]], [0, [[1, [["x", 0]], 2]]], [0, [[1, [[EPOCH, -1]], 2]]],
        [0, [[1, [[EPOCH, 5], [EPOCH, 4]], 2]]], [0, [[1, [[EPOCH, 1 << 63]], 2]]], [0, [[1, [[EPOCH]], 2]]],
        [0, [[1, [], None]] * (offers.MOST_OFFERS + 1)],
    ],
)  # fmt: skip
def test_offers_that_cannot_be_right_are_refused(content: Any) -> None:
    with pytest.raises(PeerError):
        offers.unpack_offers("h:1", msgpack.packb(content))


def test_a_piece_says_where_it_belongs() -> None:
    name = f"{900:020}.0.log"
    first, next_one = offers.Fetched(name, 0, bytes(HEADER_SIZE + 10)), offers.Fetched(name, HEADER_SIZE + 10, b"x" * 5)
    assert (first.base, offers.following(first), offers.following(next_one)) == (900, 910, 915)
    assert offers.following(offers.Fetched(name, 0, bytes(HEADER_SIZE))) == 900, "a segment without records"
    assert offers.Fetched(f"{900:020}.1.log", 0, b"").base is None, "its leader has rewritten it"
    assert offers.unpack_fetched(offers.pack_fetched(None)[5:]) is None
    for wrong in (["../log.id", 0, b"x"], ["", 0, b"x"], [name, -1, b"x"], [name, 0, "x"], [5, 0, b""], [name, 0], 7):
        with pytest.raises(PeerError):
            offers.unpack_fetched(msgpack.packb(wrong))
