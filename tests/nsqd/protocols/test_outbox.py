"""The replies of a turn: which of them have a limit of their own, and what is left of them when the connection breaks off."""

from nsqd.core.sequence.mark import Mark
from nsqd.protocols.outbox import Limited, Outbox
from tests.nsqd.protocols.transport import StillTransport


def test_replies_with_a_limit_are_known_by_their_places_until_the_output_is_taken() -> None:
    written, copied = Mark("written"), Mark("copied")
    outbox = Outbox(StillTransport())
    outbox.reply(b"+1", (written,))
    outbox.reply_by(b"+2", (written, copied), 50, b"-late", 1)
    outbox.reply(b"+3")
    outbox.reply_by(b"+4+5", (copied,), 70, b"-late-late", 2)
    assert outbox.limited == [Limited(1, copied, 50, b"-late", 1), Limited(3, copied, 70, b"-late-late", 2)]
    assert outbox.marks == (written, copied)
    assert outbox.drain() == [b"+1", b"+2", b"+3", b"+4+5"]
    assert (outbox.limited, outbox.marks, outbox.drain()) == ([], (), [])


def test_nothing_is_left_when_the_connection_breaks_off() -> None:
    outbox = Outbox(StillTransport())
    outbox.hold([b"message"], 7, flush=False)
    outbox.reply_by(b"+1", (Mark("copied"),), 50, b"-late", 1)
    outbox.break_off()
    assert (outbox.limited, outbox.size, outbox.closing, outbox.drain()) == ([], 0, True, [])
