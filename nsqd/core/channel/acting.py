"""What operators do to single messages of a channel, wherever they are: finish, requeue, kick and bury them.

A message is taken out of its place first: out of a consumer's hands (its FIN will fail), out of a queue, out of its grave, or
out of the sequence ahead of the cursor, where it leaves a hole. What waits in the topic's delay lane is given to the channels
first, for each of which it waits alone from then on. Walks what waits: for rare commands only.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from nsqd.core.channel.buried import Grave
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.inflight import Run
from nsqd.core.timing.deferred import Message


@dataclass(frozen=True, slots=True)
class Chosen:
    """A message to be acted on."""

    ordinal: int
    message_id: bytes


class Lane(Protocol):
    """The topic, as far as it is of interest here."""

    def hand_over(self, ordinals: Collection[int]) -> None:
        """What of these waits in the delay lane waits in each of the readers from now on."""


def finish(topic: Lane, channel: Channel, chosen: Iterable[Chosen]) -> int:
    """Be done with these. Returns how many the channel had."""
    return move(topic, channel, chosen, lambda ordinals: None)


def move(topic: Lane, channel: Channel, chosen: Iterable[Chosen], publish: Callable[[list[int]], None]) -> int:
    """Have these published elsewhere, then be done with them. Returns how many the channel had.

    `publish` gets their ordinals and leaves records: a log that ends between them and ours has a message twice, not never.
    """
    taken = take_out(topic, channel, chosen)
    publish([message.ordinal for message, _ in taken])
    channel.journal.promise()
    for message, _ in taken:
        channel.journal.finish(message.ordinal, 1)
    return len(taken)


def requeue(topic: Lane, channel: Channel, chosen: Iterable[Chosen], due: int, now: int, afresh: bool = False) -> int:
    """Make these ready at `due` (ns; 0: at once). `afresh`: as if they had never been delivered. Returns how many it had."""
    taken = take_out(topic, channel, chosen)
    channel.journal.promise()
    for message, _ in taken:
        attempts = 0 if afresh else message.attempts
        channel.journal.requeue(message.ordinal, attempts, due)
        channel.wait(Message(message.ordinal, attempts), due, now)
    return len(taken)


def bury(topic: Lane, channel: Channel, chosen: Iterable[Chosen], reason: str) -> int:
    """Give these up. Returns how many it had."""
    taken = take_out(topic, channel, chosen)
    channel.journal.promise()
    for message, message_id in taken:
        channel.bury(message_id, message.ordinal, message.attempts, reason)
    return len(taken)


def kick(channel: Channel, message_ids: Iterable[bytes]) -> int:
    """Make buried messages ready again, as if they had never been delivered. Returns how many were buried."""
    graves = channel.buried.take(message_ids)
    channel.journal.promise()
    for grave in graves:
        channel.journal.requeue(grave.ordinal, 0, 0)
        channel.put_back(Message(grave.ordinal, 0))
    return len(graves)


def finish_buried(channel: Channel, message_ids: Iterable[bytes]) -> int:
    """Be done with buried messages. Returns how many were buried."""
    graves = channel.buried.take(message_ids)
    channel.journal.promise()
    for grave in graves:
        channel.journal.finish(grave.ordinal, 1)
    return len(graves)


def take_out(topic: Lane, channel: Channel, chosen: Iterable[Chosen]) -> list[tuple[Message, bytes]]:
    """Remove messages from wherever the channel has them; what it does not have is passed over."""
    wanted = {one.ordinal: one.message_id for one in chosen}
    topic.hand_over(wanted.keys())
    taken = [
        *_from_consumers(channel, wanted),
        *_from_graves(channel, wanted),
        *channel.backlog.take_retried(wanted),
        *channel.deferred.take(wanted.keys()),
    ]
    channel.spent.difference_update(wanted)  # they get another delivery, or are buried for another reason
    found = {message.ordinal for message in taken}
    taken += [
        Message(ordinal, 0) for ordinal in sorted(wanted) if ordinal not in found and channel.backlog.pull(ordinal)
    ]
    return [(message, wanted[message.ordinal]) for message in sorted(taken, key=_ordinal)]


def _ordinal(message: Message) -> int:
    return message.ordinal


def _from_consumers(channel: Channel, wanted: dict[int, bytes]) -> list[Message]:
    ordinals = sorted(wanted)
    held = [(run, ordinal) for run in channel.in_flight.runs() for ordinal in _members(run, ordinals, wanted)]
    for run, ordinal in held:
        channel.in_flight.take_out(run.owner, wanted[ordinal])
    for owner in {run.owner: None for run, _ in held}:
        channel.freed(owner)
    return [Message(ordinal, run.attempts) for run, ordinal in held]


def _members(run: Run, ordinals: list[int], wanted: dict[int, bytes]) -> list[int]:
    """Which of the ordinals, ascending, are in flight in a run. It is asked of every run there is."""
    if run.loose is not None:
        return [ordinal for ordinal in run.loose.values() if ordinal in wanted]
    first = run.first + run.head
    return ordinals[bisect_left(ordinals, first) : bisect_left(ordinals, first + len(run))]


def _from_graves(channel: Channel, wanted: dict[int, bytes]) -> list[Message]:
    graves: list[Grave] = channel.buried.take(wanted.values())
    return [Message(grave.ordinal, grave.attempts) for grave in graves]
