"""The setting `ordering` of a channel: which backlog it has."""

from nsqd.core.channel.backlog import Backlog
from nsqd.core.channel.groups import GroupedBacklog
from nsqd.core.channel.priorities import PriorityBacklog
from nsqd.core.reader import ReaderSettings
from nsqd.core.sequence.journal import ReaderJournal
from shared.topic_config import Ordering


def ordered(backlog: Backlog, settings: ReaderSettings, journal: ReaderJournal) -> Backlog:
    """Return a backlog that delivers as the settings say, in place of the channel's backlog until now."""
    plain = backlog.plain()
    if settings.ordering is Ordering.GROUP:
        return GroupedBacklog(plain, journal)
    return PriorityBacklog(plain, journal) if settings.ordering is Ordering.PRIORITY else plain
