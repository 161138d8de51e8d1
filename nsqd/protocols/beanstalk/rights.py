"""What each command of beanstalkd's protocol needs, where there is an auth file.

Verbs are those of commands.py. Of a job that this node does not have, the owner looks at the right on its tube.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

from nsqd.core.tubes import Tubes
from nsqd.core.work_queue.worker import DEFAULT, Worker
from nsqd.protocols.beanstalk.client import AUTH
from nsqd.protocols.credential import Credential
from shared.auth.verbs import Verb


class About(Enum):
    """What a command is about, on which its client needs the right."""

    NODE = auto()
    USED = auto()  # the tube that the client uses
    WATCHED = auto()  # all tubes that the client watches
    TUBE = auto()  # the tube whose name comes first
    JOB = auto()  # the tube of the job whose id comes first
    JOBS = auto()  # those of all jobs that are named
    MOVED = auto()  # likewise that of the job, and the tube whose name comes next, into which the job is put


class Need(NamedTuple):
    """The right that a command needs; None: none, but the client must be known."""

    verb: Verb | None
    about: About = About.NODE


_FREE = Need(None)
_PUBLISH, _CONSUME = Need(Verb.PUBLISH, About.USED), Need(Verb.CONSUME, About.WATCHED)
_OWN = Need(Verb.CONSUME, About.JOB)
NEEDS: Mapping[bytes, Need] = {
    b"put ": _PUBLISH,
    b"put-unique ": _PUBLISH,
    b"put-replicated ": _PUBLISH,
    b"peek ": Need(Verb.READ, About.JOB),
    b"peek-ready": Need(Verb.READ, About.USED),
    b"peek-delayed": Need(Verb.READ, About.USED),
    b"peek-buried": Need(Verb.READ, About.USED),
    b"reserve-batch ": _CONSUME,
    b"reserve-with-timeout ": _CONSUME,
    b"reserve-job ": _OWN,
    b"reserve": _CONSUME,
    b"delete-batch ": Need(Verb.CONSUME, About.JOBS),
    b"delete ": _OWN,
    b"release ": _OWN,
    b"bury ": _OWN,
    b"kick ": Need(Verb.ACT, About.USED),
    b"kick-job ": Need(Verb.ACT, About.JOB),
    b"touch ": _OWN,
    b"stats-job ": Need(Verb.STATS, About.JOB),
    b"stats-tube ": Need(Verb.STATS, About.TUBE),
    b"stats": Need(Verb.STATS),
    b"use ": _FREE,
    b"watch ": Need(Verb.CONSUME, About.TUBE),
    b"ignore ": _FREE,
    b"list-tubes-watched": _FREE,
    b"list-tube-used": _FREE,
    b"list-tubes": Need(Verb.STATS),
    b"quit": _FREE,
    b"pause-tube": Need(Verb.ACT, About.TUBE),
    b"clear-tube ": Need(Verb.DELETE, About.TUBE),
    b"move-job ": Need(Verb.ACT, About.MOVED),
    b"list-jobs ": Need(Verb.BROWSE, About.TUBE),
    AUTH: _FREE,
}


_UNKNOWN_MAY = (b"quit", AUTH)


def allows(credential: Credential, tubes: Tubes, worker: Worker, verb: bytes, arguments: tuple[Any, ...]) -> bool:
    """Return whether the client may do a command."""
    identity, need = credential.identity, NEEDS[verb]
    if identity is None:
        return verb in _UNKNOWN_MAY
    if need.verb is None:
        return True
    rights = identity.rights
    match need.about:
        case About.NODE:
            return rights.may(need.verb)
        case About.USED:
            return rights.may(need.verb, worker.using)
        case About.WATCHED:
            return all(rights.may(need.verb, name) for name in _wanted(tubes, worker, credential))
        case About.TUBE:
            name = arguments[0]
            makes = verb == b"pause-tube" and tubes.tube(name) is None
            return rights.may(need.verb, name) and (not makes or credential.may_make(name))
    ids = arguments[0] if need.about is About.JOBS else arguments[:1]
    for job_id in ids:
        found = tubes.find(job_id)
        if not credential.may_job(need.verb, found[0].topic_name if found is not None else None):
            return False
    return need.about is not About.MOVED or rights.may(Verb.PUBLISH, arguments[1])


def target(worker: Worker, verb: bytes, arguments: tuple[Any, ...]) -> str:
    """Return the tube or the job that a command is about, for the audit; "": neither."""
    match NEEDS[verb].about:
        case About.USED:
            return worker.using
        case About.TUBE | About.JOB | About.MOVED:
            return str(arguments[0])
    return ""


def _wanted(tubes: Tubes, worker: Worker, credential: Credential) -> list[str]:
    """Return the tubes that the client watches. `default`, which every client watches at first, is ignored if it may not."""
    if DEFAULT in worker.watching and len(worker.watching) > 1 and not credential.may(Verb.CONSUME, DEFAULT):
        tubes.ignore(worker, DEFAULT)
    return list(worker.watching)
