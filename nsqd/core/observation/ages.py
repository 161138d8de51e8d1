"""Since when messages wait: when the one that is next to be delivered was published. Nothing is moved, and nothing is read.

Times are ns since the epoch; 0: nothing is ready, or nobody knows. Exact if the message is in memory. If it is on disk only,
about: the log's index knows when the first and the last of each extent (up to 1,024 messages, 1 MiB) were written, and takes
the others to have come evenly between. What was moved here or taken over is then as old as that.
"""

from nsqd.core.channel.channel import Channel
from nsqd.core.topic import Topic


def of_topic(topic: Topic) -> int:
    """Of the next message that no channel was given yet. What was published with a delay is not looked at."""
    if not topic.depth:
        return 0
    return topic.journal.published_plain(topic.edge.distributed)


def of_channel(channel: Channel) -> int:
    """Of the next of the retry lane, or of the next in the sequence, whichever was published first."""
    returned = channel.backlog.extents.published(channel.backlog.retry[0][1].ordinal) if channel.backlog.retry else 0
    if channel.edge.ordinary <= channel.backlog.passed:
        return returned
    following = _following(channel)
    return min(returned, following) if returned and following else returned or following


def _following(channel: Channel) -> int:
    """Of the next in the sequence."""
    ordinal = channel.backlog.cursor
    if channel.backlog.holes:
        ordinal = next(channel.backlog.ahead(ordinal), (channel.edge.distributed, 0))[0]
    return channel.backlog.extents.published_plain(ordinal)
