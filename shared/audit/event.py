"""An event that an audit records. It has names only: no body, no token, no value of an option."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

NODE = "process"  # the port of actions of the daemon itself
UNKNOWN = -1


class Outcome(StrEnum):
    """The outcome of a recorded action."""

    DONE = "done"
    REFUSED = "refused"  # the client may not do that, or showed wrong credentials
    FAILED = "failed"  # the client may do that, and it was not done
    THROTTLED = "throttled"  # the client has tried too often
    UNCERTAIN = "uncertain"  # the client hung up, or the daemon stopped, before it was over


MOST_TEXT = 200  # characters of each text: the names of topic and channel take 129


@dataclass(frozen=True, slots=True)
class Event:
    """An action that was done or tried."""

    port: str  # nsq, http, https, beanstalkd, disque, cluster, or NODE
    action: str  # a path such as topic/delete, or a command such as KICK
    target: str = ""  # topic and channel, job, option: names with a space between them
    outcome: Outcome = Outcome.DONE
    who: str = ""  # the name of an identity; "": unknown
    by: str = ""  # the kind of its credentials: token, user, certificate, ...
    user: str = ""  # the user for whom nsqadmin acted
    address: str = ""  # IP address; "": a unix socket, or the daemon itself
    count: int = UNKNOWN  # of messages, jobs, or attempts


def bounded(event: Event) -> Event:
    """Return the event with texts of at most MOST_TEXT characters: it may wait, and what clients send may be long."""
    texts = event.action, event.target, event.who, event.by, event.user, event.address
    if max(map(len, texts)) <= MOST_TEXT:
        return event
    action, target, who, by, user, address = (text[:MOST_TEXT] for text in texts)
    return Event(event.port, action, target, event.outcome, who, by, user, address, event.count)


Note = Callable[[Event], None]  # takes an event to record; any thread may call it, and it never waits
