"""The settings `ordering`, `group_concurrency`, `group_rate` and `fair` of a channel: which backlog it has."""

from collections.abc import Callable

from nsqd.core.channel.backlog import Backlog
from nsqd.core.channel.group_limits import LimitedBacklog
from nsqd.core.channel.groups import GroupedBacklog
from nsqd.core.channel.priorities import PriorityBacklog
from nsqd.core.reader import ReaderSettings
from nsqd.core.sequence.journal import ReaderJournal
from shared.topic_config import Ordering, Switch


def ordered(
    backlog: Backlog,
    settings: ReaderSettings,
    journal: ReaderJournal,
    clock: Callable[[], int],
    schedule: Callable[[int], None],
) -> Backlog:
    """Return a backlog that delivers as the settings say, in place of the channel's backlog until now.

    `clock` returns the time of the turn, and `schedule` has the scan come at a time (monotonic ns).
    """
    plain, is_ordered, fair = backlog.plain(), settings.ordering is Ordering.GROUP, settings.fair is Switch.ON
    if settings.ordering is Ordering.PRIORITY:
        return PriorityBacklog(plain, journal)
    if settings.group_rate or (not is_ordered and (settings.group_concurrency or fair)):
        most, rate = settings.group_concurrency, settings.group_rate
        return LimitedBacklog(plain, journal, most, rate, fair, is_ordered, clock, schedule)
    return GroupedBacklog(plain, journal) if is_ordered else plain
