"""Which messages a listing with a filter has."""

from nsqd.core.channel.listing import ListedMessage
from nsqd.core.message.attributes import Attributes
from nsqd.core.message.frame import encode_one
from nsqd.http.message_filter import MOST_SEARCHED, MessageFilter, matching
from tests.cases import each

HEADERS = Attributes((("Trace", "7f"), ("kind", "Test")))
FRAME = encode_one(b"a Needle \xff in hay", b"0123456789abcdef", 1000)


@each("wanted, matches", [
    (MessageFilter(), True), (MessageFilter(min_attempts=3), True), (MessageFilter(min_attempts=4), False),
    (MessageFilter(reason="TIMED"), True), (MessageFilter(reason="requeued"), False),
    (MessageFilter(published_before=1001), True), (MessageFilter(published_before=1000), False),
    (MessageFilter(published_after=1000), True), (MessageFilter(published_after=1001), False),
    (MessageFilter(header="trace"), True), (MessageFilter(header="TRACE=7f"), True),
    (MessageFilter(header="trace=7F"), False), (MessageFilter(header="trace="), False),
    (MessageFilter(header="key"), False), (MessageFilter(contains="needle"), True),
    (MessageFilter(contains="NEEDLE \N{REPLACEMENT CHARACTER} in"), True),
    (MessageFilter(contains="kind: test"), True), (MessageFilter(contains="0123456789ABCDEF"), True),
    (MessageFilter(contains="needles"), False), (MessageFilter(contains="needle", header="trace=8"), False),
])  # fmt: skip
def test_a_message_matches_if_it_meets_all_conditions(wanted: MessageFilter, matches: bool) -> None:
    one = ListedMessage(5, 3, reason="timed out")
    found = [one] if wanted.meets_listing(one) else []
    assert matching(wanted, found, {5: FRAME}, {5: HEADERS}, lambda ordinal: False) == [one] * matches
    assert bool(wanted) is (wanted != MessageFilter())


def test_what_is_not_to_be_shown_or_cannot_be_read_matches_no_filter_of_its_content() -> None:
    one = ListedMessage(5, 3)
    for wanted in (MessageFilter(contains="needle"), MessageFilter(header="trace")):
        assert matching(wanted, [one], {5: FRAME}, {5: HEADERS}, lambda ordinal: True) == []
        assert matching(wanted, [one], {5: b""}, {}, lambda ordinal: False) == []
    assert matching(MessageFilter(published_before=9), [one], {5: b""}, {}, lambda ordinal: False) == []
    assert matching(MessageFilter(published_before=1001), [one], {5: FRAME}, {}, lambda ordinal: True) == [one]


def test_only_the_beginning_of_a_body_is_searched() -> None:
    def found(body: bytes) -> bool:
        frame = encode_one(body, b"0123456789abcdef", 1000)
        return bool(matching(MessageFilter(contains="end"), [ListedMessage(0, 0)], {0: frame}, {}, lambda _: False))

    assert found(b"x" * (MOST_SEARCHED - 3) + b"end")
    assert not found(b"x" * (MOST_SEARCHED - 2) + b"end")
