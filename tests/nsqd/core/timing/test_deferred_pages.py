"""Pages of waiting messages: they are read in parts, so that no built-in takes long, and say the same as one page."""

from random import Random

from nsqd.core.timing.deferred import counts_of, pack, unpack
from nsqd.core.timing.deferred_pages import (
    BLOCK,
    ENDLESS,
    IN_A_PAGE,
    DeferredPages,
    after,
    between,
    in_order,
    packed_alike,
    page_of,
    pages_of,
    shifted,
)

Entry = tuple[int, int, int]


def entries(count: int) -> list[Entry]:
    """Return (ordinal, due, attempts) of that many messages, some due at once."""
    random = Random(count)
    ordinals = random.sample(range(3 * count), count)
    return [(one, random.choice((0, random.randrange(1, 1 << 60))), random.randrange(5)) for one in ordinals]


def packed(unpacked: list[Entry]) -> bytes:
    return b"".join(pack(*one) for one in unpacked)


def test_long_chunks_become_short_pages_of_the_same_messages_at_another_time() -> None:
    unpacked = entries(2 * IN_A_PAGE + 5)
    chunks = [packed(unpacked[:3]), b"", packed(unpacked[3:])]
    pages = list(pages_of(chunks, 7))
    assert [len(page) // 3 for page in pages] == [3, IN_A_PAGE, IN_A_PAGE, 2]
    assert [at for page in pages for at in page] == list(shifted(page_of(packed(unpacked)), 7))
    assert [(page[0], page[1]) for page in pages_of([pack(1, 0, 2)], 7)] == [(1, 0)]


def test_a_page_is_divided_by_ordinal_and_messages_are_sorted_block_by_block() -> None:
    page = page_of(packed([(5, 50, 1), (3, 30, 2), (9, 0, 3)]))
    assert between(page, 3, 10) is page
    assert list(between(page, 4, 9)) == [5, 50, 1]
    assert list(between(page, 0, 5)) == [3, 30, 2]
    assert list(between(page, 5, ENDLESS)) == [5, 50, 1, 9, 0, 3]
    assert not between(page, 10, ENDLESS)
    assert not between(page_of(b""), 0, ENDLESS)
    unpacked = entries(3 * BLOCK)
    assert list(in_order(iter(unpacked))) == sorted(unpacked)
    assert list(in_order([])) == []


def test_messages_are_chosen_by_time_and_by_whether_they_wait_elsewhere() -> None:
    page = page_of(packed([(5, 50, 0), (BLOCK + 3, 30, 0), (9, 0, 0)]))
    assert after(page, -1) is page
    assert list(after(page, 30)) == [5, 50, 0]
    assert not after(page, 50)
    waiting = DeferredPages([page])
    assert [waiting.count(first) for first in (0, 6, 10, BLOCK + 3, BLOCK + 4, 3 * BLOCK)] == [3, 2, 1, 1, 0, 0]
    assert waiting.remove_one(9)
    assert not waiting.remove_one(9)
    assert [one in waiting for one in (5, 9, BLOCK + 3, 3 * BLOCK)] == [True, False, True, False]
    own = page_of(packed([(9, 1, 2), (7, 1, 2)]))
    assert waiting.others([page, own])[1] is own
    assert [list(one) for one in waiting.others([page, own])] == [[9, 0, 0], list(own)]
    assert waiting.others([page_of(packed([(5, 1, 1)]))]) == []
    assert DeferredPages().others([page])[0] is page


def test_messages_that_are_alike_are_packed_together() -> None:
    page = packed_alike(range(5, 8), counts_of(2, 1))
    assert list(unpack(page)) == [(ordinal, 0, counts_of(2, 1)) for ordinal in (5, 6, 7)]
    assert packed_alike([], 0) == b""
