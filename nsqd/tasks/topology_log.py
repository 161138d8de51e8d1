"""Write the lines of nsqd's log about topics and channels that come and go, in the original's words."""

from __future__ import annotations

from collections.abc import Sequence

from nsqd.core.registry import Change, ChangeKind
from shared.log import log

MOST_LINES = 100  # lines in a turn: a node that starts with 50,000 topics must not spend a turn of 0.3 s on them


def log_changes(changes: Sequence[Change]) -> None:
    """Log a line for each of the first MOST_LINES changes except pauses, and one with the number of the others."""
    reported = [change for change in changes if change.kind is not ChangeKind.PAUSED]
    for change in reported[:MOST_LINES]:
        _log_change(change)
    if len(reported) > MOST_LINES:
        log.info("TOPICS: %d more topics and channels were created or deleted", len(reported) - MOST_LINES)


def _log_change(change: Change) -> None:
    if change.kind is ChangeKind.TOPIC_CREATED:
        log.info("TOPIC(%s): created", change.topic)
    elif change.kind is ChangeKind.TOPIC_DELETED:
        log.info("TOPIC(%s): deleting", change.topic)
    elif change.kind is ChangeKind.CHANNEL_CREATED:
        log.info("TOPIC(%s): new channel(%s)", change.topic, change.channel)
    else:
        log.info("TOPIC(%s): deleting channel %s", change.topic, change.channel)
