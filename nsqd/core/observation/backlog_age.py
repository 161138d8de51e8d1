"""The age of a backlog: when the message that is next to be delivered was published. Nothing is moved or read from disk.

Times are ns since the epoch; 0 means that nothing is ready or that the time is not known. The time is exact if the message is
in memory. If it is on disk only, the time is an estimate: the log's index knows when the first and the last message of each
extent (up to 1,024 messages, 1 MiB) were written, and the others are taken to have come evenly between. In that case messages
that were moved here or taken over count from the time of the move or failover.
"""

from nsqd.core.channel.channel import Channel
from nsqd.core.topic import Topic


def oldest_of_topic(topic: Topic) -> int:
    """Return the time of the next message that is not distributed yet. Messages with a delay are ignored."""
    if not topic.depth:
        return 0
    return topic.journal.published_plain(topic.offsets.distributed)


def oldest_of_channel(channel: Channel) -> int:
    """Return the time of the next message of the retry queue or of the sequence, whichever was published first."""
    first = channel.backlog.oldest_returned()
    returned = channel.backlog.extents.published(first.ordinal) if first is not None else 0
    if channel.offsets.ordinary <= channel.backlog.passed + channel.backlog.queued_count:
        return returned
    following = _following(channel)
    return min(returned, following) if returned and following else returned or following


def _following(channel: Channel) -> int:
    """Return the time of the next message in the sequence."""
    ordinal = channel.backlog.cursor
    if channel.backlog.holes:
        ordinal = next(channel.backlog.ahead(ordinal), (channel.offsets.distributed, 0))[0]
    return channel.backlog.extents.published_plain(ordinal)
