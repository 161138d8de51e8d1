"""How many nodes a start waits for before it continues its log, and what is believed of their answers."""

from itertools import combinations
from typing import Any

import pytest

from nsqd.cluster.joined import told_of_promoted
from nsqd.cluster.membership.closed_frames import Closed
from nsqd.cluster.membership.cluster_json import describe_closed
from nsqd.cluster.replication import offers as offers_module
from nsqd.cluster.replication.offers import MOST_LED, Offer, ask, find_offers, is_enough
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.followers import Followers


def test_without_followers_nobody_is_waited_for() -> None:
    assert is_enough(Followers(), set())


def test_if_no_publish_asked_for_copies_all_that_count_are_waited_for() -> None:
    assert not is_enough(Followers((1, 2)), {1, 3})
    assert is_enough(Followers((1, 2)), {1, 2})


@pytest.mark.parametrize(
    ("followers", "fewest"), [((1,), 2), ((1, 2), 2), ((1, 2), 3), ((1, 2, 3), 3), ((1, 2, 3, 4), 2), ((1, 2, 3, 4), 4)]
)
def test_enough_answers_contain_one_that_has_what_was_acknowledged(followers: tuple[int, ...], fewest: int) -> None:
    for count in range(len(followers) + 1):
        for silent in combinations(followers, count):
            heard = set(followers) - set(silent)
            always_one = all(heard & set(having) for having in combinations(followers, fewest - 1))
            assert is_enough(Followers(followers, fewest, fewest), heard) == always_one


LOG_ID = bytes(range(16))
LATEST = Epoch(7, 2, b"01234567")
EPOCH = LATEST.pack().hex()
LED: dict[str, Any] = {"log_id": LOG_ID.hex(), "node": 2, "epochs": [[EPOCH, 0]], "end": 500}


def test_a_log_that_a_node_leads_is_told_apart_from_a_replica() -> None:
    other = LED | {"log_id": "00" * 16}
    assert find_offers("h:1", {"replicas": [], "led": [other, LED]}, LOG_ID) == [
        Offer("h:1", 500, ((bytes.fromhex(EPOCH), 0),), leader=2)
    ]
    assert find_offers("h:1", {"replicas": []}, LOG_ID) == []


def test_a_closed_log_is_told_of_as_its_leader_had_it() -> None:
    word = Closed(LOG_ID, 500, ((LATEST, 0),))
    figures = {"replicas": [], "led": [], "closed": [describe_closed(word)]}
    assert find_offers("h:1", figures, LOG_ID) == [Offer("h:1", 500, ((LATEST.pack(), 0),), leader=2)]


def test_a_log_that_a_node_has_lost_to_another_one_is_not_its_own_and_one_that_is_opened_is_waited_for() -> None:
    closed: dict[str, Any] = {"log_id": LOG_ID.hex(), "node": 2, "topics": 0, "failure": ""}
    for state, offers in (("lost", []), ("closed", []), ("reading", None), ("failed", None)):
        told = told_of_promoted(closed | {"state": state}, None)
        assert find_offers("h:1", {"replicas": [], "led": [told]}, LOG_ID) == offers
    begun = {"log_id": LOG_ID.hex(), "epochs": LED["epochs"], "end": 500}
    told = told_of_promoted(closed | {"state": "serving"}, begun)
    (offer,) = find_offers("h:1", {"replicas": [], "led": [told]}, LOG_ID) or []
    assert offer.end == 500


@pytest.mark.parametrize(
    "wrong",
    [
        {"node": 1024},
        {"node": -1},
        {"node": True},
        {"node": "2"},
        {"epochs": []},
        {"epochs": [[EPOCH[2:], 0]]},
        {"epochs": [["x", 0]]},
        {"epochs": [[EPOCH, -1]]},
        {"epochs": [[EPOCH, 5], [EPOCH, 4]]},
        {"epochs": [[EPOCH, 1 << 63]]},
        {"epochs": [[EPOCH]]},
        {"epochs": 5},
        {"end": -1},
        {"end": 1 << 63},
        {"end": None},
    ],
)
def test_what_others_tell_of_leaders_is_checked(wrong: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"replicas": [], "led": [LED | wrong]}
    monkeypatch.setattr(offers_module, "_figures", lambda address, timeout: answer)
    assert ask(LOG_ID, "h:1", 1.0) is None
    answer["led"] = [LED]
    assert ask(LOG_ID, "h:1", 1.0) != []


@pytest.mark.parametrize("led", [5, "led", {"log_id": 1}, [5], [LED] * (MOST_LED + 1), [{}]])
def test_an_answer_of_another_form_is_none(led: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers_module, "_figures", lambda address, timeout: {"replicas": [], "led": led})
    assert ask(LOG_ID, "h:1", 1.0) is None
