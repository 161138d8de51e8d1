"""The actions of operators on single messages of a channel, in any state: finish, move, requeue, bury and kick them.

A message is first taken out of its state: out of flight (the consumer's FIN will fail), out of a queue, out of the buried
ones, or out of the sequence ahead of the cursor, where it leaves a hole. A message that waits in the topic's delay queue is
handed over to all channels first, and from then on waits in each of them separately. These functions may walk everything that
waits: they are for rare commands only.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from nsqd.core.channel.buried import DeadLetter
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.inflight import Run
from nsqd.core.timing.deferred import Message


@dataclass(frozen=True, slots=True)
class ChosenMessage:
    """A message that an operator has chosen to act on."""

    ordinal: int
    message_id: bytes


class DelayedMessages(Protocol):
    """The part of a topic that this file needs: its Distribution."""

    def hand_over(self, ordinals: Collection[int]) -> None:
        """Move those of the messages that wait in the delay queue to every reader, where they continue to wait."""


def finish(delays: DelayedMessages, channel: Channel, chosen: Iterable[ChosenMessage]) -> int:
    """Finish the chosen messages. Return how many of them the channel had."""
    return move(delays, channel, chosen, lambda ordinals: None)


def move(
    delays: DelayedMessages, channel: Channel, chosen: Iterable[ChosenMessage], publish: Callable[[list[int]], None]
) -> int:
    """Publish the chosen messages elsewhere, then finish them. Return how many of them the channel had.

    `publish` gets their ordinals, and its records enter the log before those of the finishing. So if the log ends between the
    two, after a crash, a message exists twice rather than not at all.
    """
    taken = take_out(delays, channel, chosen)
    publish([message.ordinal for message, _ in taken])
    channel.journal.promise()
    for message, _ in taken:
        channel.finish(message.ordinal)
    return len(taken)


def requeue(
    delays: DelayedMessages, channel: Channel, chosen: Iterable[ChosenMessage], due: int, now: int, afresh: bool = False
) -> int:
    """Make the chosen messages ready at `due` (monotonic ns; 0: at once). Return how many of them the channel had.

    `afresh`: set their counts to 0, as if they had never been delivered. The failures of buried ones are forgotten anyway.
    """
    chosen = list(chosen)
    dead = {one.ordinal for one in chosen if one.message_id in channel.buried}
    taken = take_out(delays, channel, chosen)
    channel.journal.promise()
    for message, _ in taken:
        if message.ordinal in dead:
            message.failures = 0
        channel.come_back(Message(message.ordinal, 0) if afresh else message, due, now)
    return len(taken)


def bury(delays: DelayedMessages, channel: Channel, chosen: Iterable[ChosenMessage], reason: str) -> int:
    """Bury the chosen messages with this reason. Return how many of them the channel had."""
    taken = take_out(delays, channel, chosen)
    channel.journal.promise()
    for message, message_id in taken:
        channel.bury(message_id, message, reason)
    return len(taken)


def kick(channel: Channel, message_ids: Iterable[bytes]) -> int:
    """Make buried messages ready again, as if they had never been delivered. Return how many of them were buried."""
    letters = channel.buried.pop_letters(message_ids)
    channel.journal.promise()
    for letter in letters:
        channel.come_back(Message(letter.ordinal, 0), 0, 0)
    return len(letters)


def finish_buried(channel: Channel, message_ids: Iterable[bytes]) -> int:
    """Finish buried messages. Return how many of them were buried."""
    letters = channel.buried.pop_letters(message_ids)
    channel.journal.promise()
    for letter in letters:
        channel.finish(letter.ordinal)
    return len(letters)


def take_out(delays: DelayedMessages, channel: Channel, chosen: Iterable[ChosenMessage]) -> list[tuple[Message, bytes]]:
    """Take the chosen messages out of the states that they are in; ignore those that the channel does not have.

    Return each message with its id, in the order of their ordinals.
    """
    chosen_ids = {one.ordinal: one.message_id for one in chosen}
    left, taken = dict(chosen_ids), list[Message]()

    def from_sequence() -> list[Message]:
        return [Message(ordinal, 0) for ordinal in sorted(left) if channel.backlog.pull(ordinal)]

    def from_delays() -> list[Message]:
        delays.hand_over(left.keys())
        return channel.deferred.remove_ordinals(left.keys())

    # the last two walk what waits: seldom is a message left for them
    finders: tuple[Callable[[], list[Message]], ...] = (
        lambda: _from_consumers(channel, left),
        lambda: _from_dead_letters(channel, left),
        from_sequence,
        lambda: channel.backlog.remove_retried(left),
        from_delays,
    )
    for find in finders:
        found = find() if left else []
        taken += found
        for message in found:
            del left[message.ordinal]
    return [(message, chosen_ids[message.ordinal]) for message in sorted(taken, key=_ordinal)]


def _ordinal(message: Message) -> int:
    return message.ordinal


def _from_consumers(channel: Channel, chosen_ids: dict[int, bytes]) -> list[Message]:
    ordinals = sorted(chosen_ids)
    in_flight = [(run, ordinal) for run in channel.in_flight.runs() for ordinal in _members(run, ordinals, chosen_ids)]
    for run, ordinal in in_flight:
        channel.keep_heads(run, (ordinal,))
        channel.in_flight.take_out(run.owner, chosen_ids[ordinal])
    for owner in {run.owner: None for run, _ in in_flight}:
        channel.note_room(owner)
    return [Message(ordinal, run.attempts, run.failures) for run, ordinal in in_flight]


def _members(run: Run, ordinals: list[int], chosen_ids: dict[int, bytes]) -> list[int]:
    """Return which of the ordinals (ascending; the keys of `chosen_ids`) are in flight in a run. Every run is asked."""
    if not run.is_span:
        return [ordinal for ordinal in run.ordinals() if ordinal in chosen_ids]
    first = run.first + run.head
    return ordinals[bisect_left(ordinals, first) : bisect_left(ordinals, first + len(run))]


def _from_dead_letters(channel: Channel, chosen_ids: dict[int, bytes]) -> list[Message]:
    letters: list[DeadLetter] = channel.buried.pop_letters(chosen_ids.values())
    return [Message(letter.ordinal, letter.attempts, letter.failures) for letter in letters]
