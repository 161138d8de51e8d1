"""Contents that no node sends are refused, and what may be long is bounded. test_fuzz.py tests packing and reading."""

from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from nsqd.cluster.membership import deletions as deleted
from nsqd.cluster.membership import leader_frames as closed
from nsqd.cluster.membership import topic_configs as configs
from nsqd.cluster.membership.leader_frames import (
    MOST_LOGS,
    Closed,
    Leadership,
    is_kept,
    pack_kept,
    pack_leaders,
    unpack_leaders,
)
from nsqd.cluster.ownership import election_frames as elections
from nsqd.cluster.ownership.election_frames import Answer, InSyncReplicas, VoteReply
from nsqd.cluster.ownership.leaving import pack_transfer, unpack_transfer
from nsqd.cluster.promotion.diverged import salvage_frames as salvage
from nsqd.cluster.promotion.diverged.salvage_frames import Decision, SalvageRequest
from nsqd.cluster.wire.frames import AFTER_PROOF, FrameKind, PeerError
from nsqd.core.message.deletion import MOST_DELETIONS, Deletion, DeletionKind, LogDeletions
from nsqd.core.message.epoch import Epoch
from tests.cases import each
from tests.nsqd.cluster.wire.identities import CONFIG, HEAD

LOG = b"l" * 16
FIRST = Epoch(1, 0, bytes(8))
NOBODYS = Epoch(1, 1024, bytes(8))  # no node has this number
ONE = Deletion(DeletionKind.CHANNEL_EMPTIED, 1, 2, 3)


def in_sync(log_id: bytes, position: int, *numbers: int) -> InSyncReplicas:
    return InSyncReplicas(log_id, FIRST, position, frozenset(numbers), True)


@each("unpack, content, why", [
    *[(closed.unpack_closed, closed.pack_closed(Closed(LOG, *word))[HEAD:], "") for word in [
        (10, ((FIRST, 4), (FIRST, 3))), (10, ((FIRST, 11),)), (1 << 63, ((FIRST, 0),)), (10, ((NOBODYS, 0),)),
    ]],
    *[(deleted.unpack_deleted, deleted.pack_content(LOG, LogDeletions(*word)), why) for why, *word in [
        ("whole", FIRST, 9, ()), ("number", FIRST, 1 << 63, (ONE,)), ("no node", NOBODYS, 9, (ONE,)),
        ("kind", FIRST, 9, (Deletion(9, 1),)),
    ]],
    *[(salvage.unpack, salvage.pack_request(SalvageRequest(1, LOG, *word))[HEAD:], "") for word in [
        (10, ((FIRST, 4), (FIRST, 3))), (1 << 63, ((FIRST, 0),)), (10, ((FIRST, 0),), 1 << 63), (10, ((NOBODYS, 0),)),
    ]],
    *[(elections.unpack_in_sync, elections.pack_in_sync(word)[HEAD:], "") for word in [
        in_sync(LOG, 0, *range(17)), in_sync(LOG, 0, 1024), in_sync(LOG, 1 << 63),
    ]],
    (elections.unpack_vote_reply,
     elections.pack_vote_reply(VoteReply(LOG, 1, 1, Answer.IN_CONTACT, in_sync=in_sync(bytes(16), 0)))[HEAD:], ""),
    (elections.unpack_vote_request, b"", ""),
    *[(unpack_leaders, content, "") for content in [
        pack_leaders([Leadership(LOG, NOBODYS)])[HEAD:], pack_leaders([Leadership(LOG, FIRST)])[HEAD:-1] + b"\x09",
        bytes(31)[1:], bytes(31 * (MOST_LOGS + 1)),
    ]],
    *[(unpack_transfer, content, "") for content in [
        b"", pack_transfer(LOG, FIRST)[HEAD:-1], pack_transfer(LOG, NOBODYS)[HEAD:],
    ]],
])  # fmt: skip
def test_what_no_node_says_is_refused(unpack: Callable[[bytes], object], content: bytes, why: str) -> None:
    with pytest.raises(PeerError, match=why or None):
        unpack(content)


def test_an_unknown_decision_is_refused() -> None:
    content = bytearray(salvage.pack_reply(salvage.SalvageReply(1, LOG, Decision.LET_GO))[HEAD:])
    content[1 + 4 + 16] = 9
    with pytest.raises(PeerError, match="decision 9"):
        salvage.unpack(bytes(content))


def test_an_answer_is_only_the_id_of_the_log() -> None:
    word = closed.make_closed(LOG, 9, [(FIRST, 0), (Epoch(2, 1, bytes(8)), 5)])
    assert word.epoch == Epoch(2, 1, bytes(8)), "the latest"
    assert not is_kept(closed.pack_closed(word)[HEAD:])
    assert is_kept(pack_kept(FrameKind.CLOSED, LOG)[HEAD:])
    assert not is_kept(deleted.pack_deleted(LOG, LogDeletions(FIRST, 9, (ONE,)))[HEAD:])
    assert is_kept(pack_kept(FrameKind.DELETED, LOG)[HEAD:])


def test_of_many_epochs_the_latest_are_sent_and_more_are_refused() -> None:
    epochs = [(Epoch(number, 0, bytes(8)), number) for number in range(1, closed.MOST_EPOCHS + 3)]
    assert closed.make_closed(LOG, 10_000, epochs).epochs == tuple(epochs[2:])
    with pytest.raises(PeerError, match="whole"):
        closed.unpack_closed(closed.pack_closed(Closed(LOG, 10_000, tuple(epochs)))[HEAD:])


def test_more_deletions_than_a_log_may_have_are_not_sent_and_refused() -> None:
    frame = deleted.pack_deleted(LOG, LogDeletions(FIRST, 9, (ONE,) * (MOST_DELETIONS + 1)))
    assert len(deleted.unpack_deleted(frame[HEAD:])[1].deletions) == MOST_DELETIONS
    assert len(frame) < AFTER_PROOF
    with pytest.raises(PeerError, match="whole"):
        deleted.unpack_deleted(frame[HEAD:] + frame[-17:])


@each("place, value", [
    (0, "not a topic"), (0, 7), (0, "t" * 65), (1, -1), (1, configs.MOST_VALUE + 1), (1, True), (2, 1024), (3, None), (3, []),
    *((3, {name: wrong}) for name, wrong in (
        ("durability", "never"), ("durability", 1), ("retention", -1), ("retention", "1"),
        ("retention_bytes", configs.MOST_VALUE + 1), ("replicate", 0), ("replicate", []), ("max_attempts", -1),
        ("max_attempts", 65536), ("max_attempts", True),
    )),
    (3, {str(number): 1 for number in range(configs.MOST_SETTINGS + 1)}),
])  # fmt: skip
def test_a_field_that_no_configuration_has_is_refused(place: int, value: Any) -> None:
    fields = configs.to_fields(CONFIG)
    fields[place] = value
    with pytest.raises(PeerError):
        configs.unpack_configs(msgpack.packb([fields]))


@each("content", [
    {}, 7, [7], [[]], [configs.to_fields(CONFIG)[:-1]], [[*configs.to_fields(CONFIG), 1]],
    [configs.to_fields(CONFIG)] * (configs.MOST_IN_FRAME + 1),
])  # fmt: skip
def test_what_is_no_list_of_configurations_is_refused(content: Any) -> None:
    with pytest.raises(PeerError):
        configs.unpack_configs(msgpack.packb(content))


def test_as_many_configurations_as_are_sent_at_once_fit_into_a_frame() -> None:
    words = [CONFIG._replace(topic=f"{number:064}", at=configs.MOST_VALUE) for number in range(configs.MOST_IN_FRAME)]
    frame = configs.pack_configs(words)
    assert len(frame) < 1 << 20
    assert configs.unpack_configs(frame[HEAD:]) == words
