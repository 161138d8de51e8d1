"""The checker's books: what it calls lost, excused, early, resurrected, and what it does not."""

from bench.crash.ledger import Ledger
from bench.crash.messages import Copy, Findings, Message, Reply, body
from tests.cases import each

MS = 1_000_000  # ns
T = 10_000 * MS  # some time


class Books:
    """A ledger of topic t with the channels given, and the verbs of the tests."""

    def __init__(self, *channels: str, window: int = 0) -> None:
        self.ledger = Ledger({"t": channels or ("c",), "other": ()}, window)

    def acked(self, delay: int = 0, at: int = T) -> Message:
        """A message that was published and answered OK."""
        (message,) = self.ledger.publish("t", [50], delay, at)
        self.ledger.answered([message], Reply.OK, at)
        return message

    def deliver(self, message: Message, at: int = T, channel: str = "c", id: bytes = b"") -> Copy:
        """It is delivered as it was published."""
        copy = self.ledger.delivered("t", channel, message.body, id or b"%d" % message.number, at)
        assert copy is not None
        return copy

    def findings(self) -> Findings:
        return self.ledger.findings()


# lost


def test_what_was_finished_has_survived_and_what_never_came_is_lost_for_each_channel() -> None:
    books = Books()
    books.ledger.finish(books.deliver(books.acked()))
    assert books.findings() == Findings(acked=1, survived=1, deliveries=1)
    books = Books()
    books.acked()
    assert books.findings() == Findings(acked=1, lost=1)
    assert "message 0 of 50 bytes on t/c, acked in life 0, never delivered" in books.ledger.problems[0]
    books = Books("c", "d")
    books.ledger.finish(books.deliver(books.acked()))
    assert books.findings().lost == 1


def test_what_was_in_flight_at_the_crash_or_whose_fin_was_lost_is_owed_again() -> None:
    books = Books()
    books.deliver(books.acked())
    books.ledger.crash(T, power=True)
    assert books.findings().lost == 1
    books = Books()
    message = books.acked()
    books.ledger.finish(books.deliver(message))
    books.ledger.crash(T, power=True)
    books.deliver(message)
    assert books.findings() == Findings(acked=1, lost=1, deliveries=2, duplicated=1)


@each("fate", [Reply.NONE, Reply.REFUSED])
def test_nothing_is_owed_for_a_publish_that_was_not_acknowledged(fate: Reply) -> None:
    books = Books()
    message = books.acked()
    books.ledger.answered([message], fate, T)
    assert books.findings().lost == 0


@each("crash_at, excused", [(T + 99 * MS, 1), (T + 100 * MS, 0), (T - MS, 1)])
def test_what_was_acked_within_the_window_before_its_crash_is_excused(crash_at: int, excused: int) -> None:
    books = Books(window=100 * MS)
    books.acked()
    books.ledger.crash(crash_at, power=True)
    assert books.findings() == Findings(acked=1, lost=1 - excused, excused=excused)


def test_a_later_crash_and_a_kill_excuse_nothing() -> None:
    books = Books(window=100 * MS)
    books.ledger.crash(T - MS, power=True)
    books.acked(at=T)
    books.ledger.crash(T + 200 * MS, power=True)
    books.ledger.crash(T + 201 * MS, power=True)
    assert books.findings().lost == 1
    books = Books(window=100 * MS)
    books.acked(at=T)
    books.ledger.crash(T + MS, power=False)
    assert books.findings().lost == 1
    books.ledger.crash(T + 99 * MS, power=True)
    assert books.findings() == Findings(acked=1, excused=1)


@each("invoked, answered, excused", [(T - 2, T - 1, 0), (T - 2, T + 1, 1), (T + 9, T + 12, 1), (T + 11, T + 12, 0)])
def test_an_answer_at_the_moment_the_disk_fails_is_excused_and_one_to_a_later_request_is_not(
    invoked: int, answered: int, excused: int
) -> None:
    books = Books()
    (message,) = books.ledger.publish("t", [50], 0, invoked)
    books.ledger.answered([message], Reply.OK, answered)
    books.ledger.crash(T, power=True, gone=T + 10)
    assert books.findings() == Findings(acked=1, lost=1 - excused, excused=excused)


# early


def test_a_delayed_publish_may_come_one_millisecond_before_its_time() -> None:
    for after, early in ((98, 1), (99, 0), (100, 0)):
        books = Books()
        books.deliver(books.acked(delay=100 * MS), at=T + after * MS)
        assert books.findings().early == early
    books = Books()
    (message,) = books.ledger.publish("t", [50], 100 * MS, T)
    books.ledger.crash(T, power=True)
    books.deliver(message, at=T + MS)
    assert books.findings().early == 1, "it counts even if the publish had no reply"


@each("buries", [False, True])
@each("settled, crashed, early", [(False, False, 1), (False, True, 0), (True, True, 1), (True, False, 1)])
def test_a_req_or_bury_that_may_have_died_with_the_server_delays_nothing(
    buries: bool, settled: bool, crashed: bool, early: int
) -> None:
    books = Books()
    message = books.acked()
    copy = books.deliver(message)
    command = books.ledger.bury(copy, 0) if buries else books.ledger.requeue(copy, 100 * MS, T)
    if settled:
        books.ledger.settle([(copy, command)], T)
    if crashed:
        books.ledger.crash(T, power=not buries)
    books.deliver(message, at=T + MS)
    assert books.findings().early == early
    if buries:
        assert books.findings().duplicated == 0
        assert not early or "though buried" in books.ledger.problems[0]


@each("all_of_it", [False, True])
def test_what_is_kicked_may_come(all_of_it: bool) -> None:
    books = Books()
    message = books.acked()
    copy = books.deliver(message)
    books.ledger.settle([(copy, books.ledger.bury(copy, 0))], T)
    if all_of_it:
        books.ledger.kick_all()
    else:
        books.ledger.kick(copy)
    books.deliver(message, at=T + MS)
    assert books.findings().early == 0


# order


@each("places, inverted", [
    ([(0, 1), (0, 2), (1, 0)], 0), ([(1, 1), (0, 2)], 1), ([(0, 2), (0, 1)], 1), ([(5, 9), (0, 1), (0, 2), (5, 8)], 1),
    ([(1, 1), (None, 2), (1, 3)], 0),
])  # fmt: skip
def test_the_last_client_must_get_all_in_order(places: list[tuple[int | None, int]], inverted: int) -> None:
    books = Books()
    for priority, job in places:
        copy = books.deliver(books.acked(), id=b"%d" % job)
        copy.priority = priority
        books.ledger.delivered_last(copy, job)
    assert books.findings().inverted == inverted


def test_a_priority_that_was_changed_in_doubt_shows_nothing() -> None:
    books = Books()
    first, second = books.acked(), books.acked()
    copy = books.deliver(first)
    books.ledger.requeue(copy, 0, T, priority=7)
    books.ledger.crash(T)
    for message in (first, second):
        books.ledger.delivered_last(books.deliver(message), message.number)
    assert books.findings().inverted == 0
    assert copy.priority is None


def test_a_req_that_was_settled_within_the_window_may_be_taken_back() -> None:
    books = Books(window=100 * MS)
    message = books.acked()
    copy = books.deliver(message)
    books.ledger.settle([(copy, books.ledger.requeue(copy, 500 * MS, T))], T)
    books.ledger.crash(T + 50 * MS, power=True)
    books.deliver(message, at=T + 60 * MS)
    assert books.findings().early == 0


# again


def test_what_was_handed_back_is_no_duplicate() -> None:
    books = Books()
    message = books.acked()
    books.ledger.requeue(books.deliver(message), 0, T)
    books.deliver(message)
    assert (books.findings().duplicated, books.findings().deliveries) == (0, 2)


@each("crashed", [False, True])
def test_what_was_certainly_finished_and_comes_again_is_resurrected_and_not_lost(crashed: bool) -> None:
    books = Books()
    message = books.acked()
    copy = books.deliver(message)
    books.ledger.settle([(copy, books.ledger.finish(copy))], T)
    if crashed:
        books.ledger.crash(T, power=True)
    books.deliver(message)
    assert books.findings() == Findings(acked=1, survived=1, deliveries=2, resurrected=1)


def test_a_reply_settles_no_command_that_came_after_it() -> None:
    books = Books()
    message = books.acked()
    copy = books.deliver(message)
    old = books.ledger.requeue(copy, 0, T)
    books.ledger.finish(books.deliver(message))
    books.ledger.settle([(copy, old)], T)
    books.ledger.crash(T, power=True)
    books.deliver(message)
    assert (books.findings().resurrected, books.findings().duplicated) == (0, 1)


# what never was


@each("data", [b"", b"x", b"1,1,", b"0,0,0,", body(0, 51), body(0, 50)[:-1] + b"x", b"-1,"])
def test_content_that_was_not_published_is_unexpected(data: bytes) -> None:
    books = Books()
    books.acked()
    assert books.ledger.delivered("t", "c", data, b"1", T) is None
    assert books.findings().unexpected == 1


def test_a_message_of_another_topic_is_unexpected_and_two_under_one_id_are_a_collision() -> None:
    books = Books()
    first, second = books.acked(), books.acked()
    assert books.ledger.delivered("other", "c", first.body, b"1", T) is None
    books.deliver(first, id=b"one")
    books.deliver(first, id=b"one", channel="d")
    assert books.findings().collisions == 0
    books.deliver(second, id=b"one")
    assert books.findings().collisions == 1


@each("is_connected, lost", [(False, 0), (True, 1)])
def test_a_window_does_not_count_the_time_in_which_no_server_ran(is_connected: bool, lost: int) -> None:
    books = Books(window=100 * MS)
    books.acked()
    books.ledger.crash(T + 10 * MS)
    if is_connected:
        books.ledger.finish(books.deliver(books.acked(at=T + 400 * MS), at=T + 450 * MS))
    books.ledger.crash(T + 500 * MS, power=True)
    assert books.findings().lost == lost
