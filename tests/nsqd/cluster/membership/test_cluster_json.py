"""cluster.json: the written content is read again, and a corrupt file is not used."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.cluster.membership.cluster_json import NAME, content_of, next_incarnation, read_facts, write_facts
from nsqd.cluster.membership.facts import ClusterFacts
from nsqd.cluster.membership.leader_frames import Closed
from nsqd.cluster.membership.leaders import Vote
from nsqd.cluster.membership.salvaged import SalvagedTail
from nsqd.cluster.wire.node_identity import Member, Standing
from nsqd.core.message.deletion import Deletion, DeletionKind, LogDeletions
from nsqd.core.message.epoch import Epoch
from nsqd.storage.directory import DirectoryError
from shared.sealed_json import seal, unseal
from tests.cases import each
from tests.effort import EXAMPLES, IS_CAMPAIGN, tries
from tests.nsqd.cluster.wire.identities import CONFIG, NODES

MEMBERS = st.lists(st.builds(Member, NODES, st.sampled_from(Standing)), max_size=3)


@settings(max_examples=tries(EXAMPLES, in_short=5))
@given(st.integers(0, 2**62), MEMBERS)
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, incarnation: int, members: list[Member]
) -> None:
    directory = tmp_path_factory.mktemp("facts")
    closed = Closed(bytes(range(16)), 9, ((Epoch(1, 0, bytes(8)), 0), (Epoch(101, 3, b"01234567"), 5)))
    deleted = LogDeletions(Epoch(1, 0, bytes(8)), 5, (Deletion(DeletionKind.CHANNEL_EMPTIED, 1, 2, 3),))
    deletions = ((bytes(16), deleted), (bytes(range(16)), deleted))
    tail = SalvagedTail(bytes(range(16)), 3, 5, 9, closed.epochs)
    facts = ClusterFacts(
        incarnation, tuple(members), closed=(closed,), configs=(CONFIG,), deletions=deletions, salvaged=(tail,)
    )
    write_facts(directory, facts)
    assert read_facts(directory) == facts


def test_a_new_directory_has_no_facts(tmp_path: Path) -> None:
    assert read_facts(tmp_path) == ClusterFacts()


@each("text", [b"", b"[]", b"{}", b'{"incarnation": 1}', b"[" * 100_000])
def test_a_damaged_file_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / NAME).write_bytes(text)
    with pytest.raises(DirectoryError, match="remove it if it is corrupt"):
        read_facts(tmp_path)


@each("key, value", [
    ("members", [{}]), ("incarnation", []), ("incarnation", 1e999), ("incarnation", 9223372036854775807),
    ("incarnation", -1), ("leases", [[1, 18446744073709551616]]), ("leases", [[1024, 1]]),
    ("configs", [["t", 1, 1, None, -1, None, None, None]]), ("closed", [{"log_id": "00", "epochs": [], "end": 0}]),
    ("deletions", ["00"]), ("deletions", [1]), ("salvaged", [{"log_id": "00"}]),
])  # fmt: skip
def test_a_file_with_a_wrong_value_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    content = unseal(content_of(ClusterFacts(1)))
    assert key in content
    (tmp_path / NAME).write_bytes(seal(content | {key: value}))
    with pytest.raises(DirectoryError, match="remove it if it is corrupt"):
        read_facts(tmp_path)


def test_a_bit_that_flips_is_noticed(tmp_path: Path) -> None:
    """Otherwise a node would report an epoch that no node has begun, and no leader could have a greater one."""
    leader = bytes(range(16)), Epoch(101, 3, b"01234567")
    facts = ClusterFacts(7, leases=((3, 5000),), leaders=(leader,), votes=((bytes(16), Vote(201, 3)),))
    content = content_of(facts)
    for at in range(0, len(content), 1 if IS_CAMPAIGN else 3):
        (tmp_path / NAME).write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        try:
            assert read_facts(tmp_path) == facts
        except DirectoryError:
            continue


def test_a_run_has_a_greater_incarnation_than_the_last_whatever_the_clock_says() -> None:
    assert next_incarnation(ClusterFacts(7), 0) == 8
    assert next_incarnation(ClusterFacts(), 1_800_000_000 * 10**9) == 1_800_000_000
