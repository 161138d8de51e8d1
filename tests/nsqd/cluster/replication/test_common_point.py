"""Where two copies of a log part, told from their epochs alone: as their bytes say, or nowhere if an epoch was forgotten."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd.cluster.replication.common_point import common_end, first_missing
from nsqd.cluster.replication.stream import Have
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.files import SegmentFile
from tests.cases import each
from tests.effort import tries

Table = list[tuple[bytes, int]]


def epoch(number: int, random: int = 0) -> bytes:
    return Epoch(number, 7, random.to_bytes(8)).pack()


FIRST, SECOND, THIRD = epoch(1), epoch(2), epoch(3)


@each(
    "own, our_end, peer, their_end, common",
    [
        ([], 0, [], 0, 0),
        ([(FIRST, 0)], 100, [], 0, 0),
        ([(FIRST, 0)], 100, [(FIRST, 0)], 100, 100),
        ([(FIRST, 0)], 100, [(FIRST, 0)], 60, 60),
        ([(FIRST, 0)], 60, [(FIRST, 0)], 100, 60),
        # the log continues after a restart that lost nothing, and the copy has only the beginning
        ([(FIRST, 0), (SECOND, 100)], 150, [(FIRST, 0)], 100, 100),
        ([(FIRST, 0), (SECOND, 100)], 150, [(FIRST, 0)], 40, 40),
        ([(FIRST, 0), (SECOND, 100)], 150, [(FIRST, 0), (SECOND, 100)], 120, 120),
        # the copy knows of an epoch of which it has nothing yet
        ([(FIRST, 0), (SECOND, 100)], 150, [(FIRST, 0), (SECOND, 100)], 100, 100),
        # an epoch that was begun and lost as a whole: another one begins where it began
        ([(FIRST, 0), (THIRD, 100)], 150, [(FIRST, 0), (SECOND, 100)], 130, 100),
        # histories with another leader's log, and with one that shares nothing
        ([(SECOND, 0)], 100, [(FIRST, 0)], 100, 0),
        # the same epoch, begun elsewhere: one of the tables is wrong, so nothing is known
        ([(FIRST, 0)], 100, [(FIRST, 10)], 100, 0),
    ],
)
def test_where_two_copies_part(own: Table, our_end: int, peer: Table, their_end: int, common: int) -> None:
    assert common_end(own, our_end, peer, their_end) == common
    assert common_end(peer, their_end, own, our_end) == common


class ThreeSegments:
    """A log whose files nothing asks for here. Implements nsqd.cluster.replication.common_point.Segments."""

    end = 900

    def file(self, base: int) -> SegmentFile:
        raise AssertionError("nothing asks for a file")

    def file_end(self, base: int, following: int | None) -> int:
        raise AssertionError("nothing asks for the end of a file")


@each(
    "common, end, segments, first",
    [
        (0, 0, {}, 0),  # an empty replica
        (900, 900, {0: 0, 300: 0, 600: 0}, 600),  # a whole one: the last segment may grow
        (650, 650, {0: 0, 300: 0, 600: 0}, 600),
        (450, 450, {0: 0, 300: 0}, 300),
        (900, 900, {0: 0, 600: 0}, 300),  # one is missing
        (450, 700, {0: 0, 300: 0, 600: 0}, 0),  # it holds more than the log: it has diverged, and a new one begins
    ],
)
def test_the_first_segment_that_a_replica_lacks(common: int, end: int, segments: dict[int, int], first: int) -> None:
    assert first_missing(ThreeSegments(), [0, 300, 600], common, Have(end, [], segments)) == first


def test_a_log_that_has_forgotten_its_old_epochs() -> None:
    own = [(SECOND, 100), (THIRD, 200)]
    assert common_end(own, 300, [(FIRST, 0), (SECOND, 100)], 150) == 150
    assert common_end(own, 300, [(FIRST, 0), (SECOND, 100), (THIRD, 200)], 250) == 250
    assert common_end(own, 300, [(FIRST, 0)], 90) == 0  # nothing shows that the log still has the 90 bytes


@dataclass
class Copy:
    """A log in a model: what wrote each byte, and the table of epochs."""

    content: list[tuple[bytes, int]] = field(default_factory=list)  # (epoch, number of the byte within it)
    epochs: Table = field(default_factory=list)

    def up_to(self, end: int, knows_next: bool) -> Copy:
        """Return a copy of the first `end` bytes. `knows_next`: an epoch that begins there is known."""
        known = [(one, start) for one, start in self.epochs if start < end or (knows_next and start == end)]
        return Copy(self.content[:end], known)


def history(random: Random) -> list[Copy]:
    """Return states of one log and of its copies over several restarts, some of which lose the end."""
    log, copies = Copy(), [Copy()]
    for number in range(1, random.randrange(2, 7)):
        log = log.up_to(random.randrange(len(log.content) + 1) if random.random() < 0.6 else len(log.content), False)
        current = epoch(random.randrange(1, number + 1), random=number)
        log.epochs.append((current, len(log.content)))
        for _ in range(random.randrange(3)):
            grown = [(current, len(log.content) + place) for place in range(random.randrange(5))]
            log = Copy(log.content + grown, list(log.epochs))
            copies.append(log.up_to(random.randrange(len(log.content) + 1), random.random() < 0.5))
        copies.append(log)
    return copies


def parting(own: Copy, peer: Copy) -> int:
    """Return how many bytes of two copies are the same, from the beginning on."""
    same = [one == other for one, other in zip(own.content, peer.content, strict=False)]
    return [*same, False].index(False)


@given(st.integers(0, 1 << 32))
@settings(max_examples=tries(60))
def test_the_epochs_show_the_same_common_end_as_the_bytes(seed: int) -> None:
    random = Random(seed)
    copies = history(random)
    for own in copies:
        for peer in copies:
            true = parting(own, peer)
            ends = len(own.content), len(peer.content)
            assert common_end(own.epochs, ends[0], peer.epochs, ends[1]) == true
            forgotten = own.epochs[random.randrange(len(own.epochs) + 1) :]
            assert common_end(forgotten, ends[0], peer.epochs, ends[1]) in (0, true)
