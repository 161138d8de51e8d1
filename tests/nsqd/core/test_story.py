"""The story of a message: what happened to it, in words."""

import pytest

from nsqd.core import story as module
from nsqd.core.limits import Limits
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.story import MOST_LINES, Story, recording_store, story_of, story_of_body
from nsqd.storage.memory import MemoryStore
from tests.nsqd.core.node import SECOND, Node, bodies
from tests.nsqd.storage.stories import told_of


def node_with(story: Story, limits: Limits | None = None) -> Node:
    return Node(limits, lambda: recording_store(MemoryStore(lambda ceiling: True), story))


def words(lines: list[str]) -> list[str]:
    """Return the lines without their times and without their places."""
    return [line.split(": message ", 1)[1] for line in lines]


def test_a_message_is_followed_from_its_publish_to_its_end() -> None:
    story = Story()
    node = node_with(story, Limits(max_attempts={"": 2}))
    node.channel("t", "c")
    client, inbox = node.subscribe("t", "c", 1)
    node.publish("t", b"first")
    (delivery,) = inbox.take()
    client.requeue(delivery.id, 0, node.now)
    node.turn()
    (again,) = inbox.take()
    assert (again.id, again.attempts) == (delivery.id, 2)
    node.advance(61 * SECOND)
    assert words(story_of(story.events(), delivery.id)) == [
        "0 is published; 1 readers get it",
        "0 is delivered for the first time, or passed over",
        "0 comes back with 1 deliveries and 1 failures: ready, or delivered again",
        "0 comes back with 2 deliveries and 1 failures: ready, or delivered again",
        "0 is buried after 2 deliveries and 2 failures: timed out",
    ]
    node.publish("t", b"second")
    (other,) = inbox.take()
    assert bodies([other]) == [b"second"]
    client.finish(other.id)
    assert words(story_of(story.events(), other.id))[-1] == "1 is finished"
    assert "topic t, channel c" in story_of(story.events(), other.id)[-1]


def test_what_waits_in_the_topic_or_is_dropped_and_jobs_have_stories_too() -> None:
    story = Story()
    node = node_with(story)
    number = node.broker.ids.next
    node.publish("t", b"x")
    node.channel("t", "c")
    message_id = node.broker.ids.id_bytes(number)
    node.channel("t", "c").empty()
    assert words(story_of(story.events(), message_id)) == [
        "0 is published; 0 readers get it",
        "0 is passed by the edge: 1 readers get it",
        "0 is finished: everything is dropped",
    ]
    node.broker.delete_topic("t")
    assert words(story_of(story.events(), message_id))[-1] == "0 goes with the topic"
    number = node.broker.tubes.put_to("q", b"job", JobOptions(1, 60, 0, 0, True))
    tube = node.broker.tubes.tube("q")
    assert tube is not None
    tube.bury(next(iter(tube.jobs)), 1)
    lines = story_of(story.events(), node.broker.ids.id_bytes(number))
    assert words(lines) == ["0 is published; 1 readers get it", "0 is a job in another state"]
    assert "work queue" in lines[-1]


def test_what_is_not_known_has_no_story_and_a_long_one_is_cut() -> None:
    story = Story(keeps_bodies=True)
    assert story_of(story.events(), b"0" * 16) == story_of_body(story.events(), b"x") == []
    story.published(1, "topic t", "is published", 0, [bytes(34) + b"x"], b"1" * 16)
    assert story_of(story.events(), b"1" * 15 + b"2") == []
    for number in range(MOST_LINES + 2):
        story.note_event(1, "topic t", str(number), 0, 1)
    lines = story_of_body(story.events(), b"x")
    assert len(lines) == MOST_LINES
    assert lines[-1].endswith(f"message 0 {MOST_LINES + 1}")
    story, sought = Story(), b"0" * 15 + b"1"
    story.published(1, "topic t", "is published", 0, [bytes(34)] * 3, b"1" + b"0" * 15 + b"1" + b"0" * 15 + sought)
    assert words(story_of(story.events(), sought)) == ["2 is published"], "an id is found only where one begins"


def test_large_publishes_push_out_what_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_IDS", 10)
    story = Story()
    for number in range(4):
        story.published(1, "topic t", "is published", 4 * number, [bytes(34)] * 4, (b"%016d" % number) * 4)
        story.note_event(1, "topic t", "is finished", 4 * number, 4 * number + 4)
    assert [event.first for event in story.events()] == [4, 8, 8, 12, 12]
    assert story_of(story.events(), b"%016d" % 0) == []
    assert len(story_of(story.events(), b"%016d" % 3)) == 2


def test_a_failing_run_tells_the_stories_of_the_messages_that_it_names() -> None:
    story = Story(keeps_bodies=True)
    story.published(1, "topic t", "is published", 7, [bytes(34) + b"lost one"], b"00070000000000ff")
    with pytest.raises(AssertionError) as by_body, told_of(story):
        raise AssertionError("this was lost: [b'lost one']")
    with pytest.raises(AssertionError) as by_id, told_of(story):
        raise AssertionError("00070000000000ff was lost")
    for failure in (by_body, by_id):
        assert "topic t: message 7 is published" in failure.value.__notes__[0]
