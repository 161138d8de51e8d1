"""The headers of dead letters: a message's own have precedence, and a message leaves a topic once."""

from nsqd.core.channel.buried import DeadLetter
from nsqd.core.channel.dead_letters import dead_letter_sources, forwarded_headers, without_dead_letter
from penstock.protocol.headers import MOST_HEADER_BYTES, MOST_HEADERS, Headers
from tests.cases import each
from tests.nsqd.core.node import SECOND, Node

LETTER = DeadLetter(7, 3, "timed out", 1_800_000_000 * SECOND + 5_000_000, 2)
NAMES = ("topic", "reason", "channel", "at", "attempts", "id", "node")  # of the headers, after `dead-letter-`


def forwarded(*own: tuple[str, str]) -> dict[str, str] | None:
    found = forwarded_headers(own, Node().channel("t", "c"), b"0123456789abcdef", LETTER, 5)
    return None if found is None else dict(found)


def added(*own: tuple[str, str]) -> tuple[str, ...]:
    found = forwarded(*own) or {}
    assert all(found.pop(name) == value for name, value in (own if found else ()))
    return tuple(name.removeprefix("dead-letter-") for name in found)


def test_all_of_them() -> None:
    assert forwarded(("group", "g")) == {
        "group": "g", "dead-letter-topic": "t", "dead-letter-reason": "timed out", "dead-letter-channel": "c",
        "dead-letter-at": "2027-01-15T08:00:00.005+00:00", "dead-letter-attempts": "3",
        "dead-letter-id": "0123456789abcdef", "dead-letter-node": "5",
    }  # fmt: skip


@each("own, count", [(0, 7), (MOST_HEADERS - 7, 7), (MOST_HEADERS - 3, 3), (MOST_HEADERS - 1, 1), (MOST_HEADERS, 0)])
def test_the_number_of_headers_is_bounded(own: int, count: int) -> None:
    assert added(*((f"h{number}", "") for number in range(own))) == NAMES[:count]


@each("free, count", [(18, 1), (17, 0), (18 + 27, 2), (18 + 26, 1)])
def test_their_size_is_bounded(free: int, count: int) -> None:
    assert added(("h", "x" * (MOST_HEADER_BYTES - 1 - free))) == NAMES[:count]


@each(
    "sources, after", [("", "t"), ("a", "a,t"), ("a,b", "a,b,t"), ("t", None), ("t,a", None), ("tt,t-,,", "tt,t-,,,t")]
)
def test_a_message_leaves_a_topic_once(sources: str, after: str | None) -> None:
    before: Headers = (("dead-letter-topic", sources), ("dead-letter-id", "old"), ("x", "y"))
    found = forwarded(*before)
    assert (found and found["dead-letter-topic"]) == after
    assert found is None or (found["dead-letter-id"], found["x"]) == ("0123456789abcdef", "y")
    assert without_dead_letter(before) == (("x", "y"),)
    assert dead_letter_sources(without_dead_letter(before)) == []
