"""The counts of messages published over HTTP, which clients cannot make grow."""

from nsqd.protocols.http.publishers import MOST, HttpPublisher, HttpPublishers

SECOND = 1_000_000_000


def test_messages_by_address_and_topic() -> None:
    publishers = HttpPublishers()
    for wall, (address, topic, messages) in enumerate(
        [("10.0.0.1", "t", 1), ("10.0.0.1", "u", 5), ("10.0.0.1", "t", 2)], 7
    ):
        publishers.note(address, topic, messages, wall * SECOND)
    assert list(publishers.all()) == [HttpPublisher("10.0.0.1", "t", 3, 7), HttpPublisher("10.0.0.1", "u", 5, 8)]


def test_the_first_are_forgotten_for_more() -> None:
    publishers = HttpPublishers()
    for number in range(MOST + 2):
        publishers.note(str(number), "t", 1, 0)
    assert [one.address for one in publishers.all()] == [str(number) for number in range(2, MOST + 2)]
