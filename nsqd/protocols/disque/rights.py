"""What each of Disque's commands needs, where there is an auth file. A queue is a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nsqd.core.queues import Queues
from nsqd.protocols.credential import Credential
from nsqd.protocols.disque.ids import JobIds
from shared.auth.verbs import Verb


class Need(NamedTuple):
    """The right that a command needs, and on what; neither queue nor job: on the node."""

    verb: Verb | None  # None: none, but the client must be known
    queue: int = 0  # which argument is the name of a queue
    jobs: int = 0  # from which argument on there are ids of jobs
    behind: bytes = b""  # behind which word there are names of queues
    has_bodies: bool = False  # the client is shown bodies of others' jobs: it needs READ, too


_FREE, _ADMIN, _STATS = Need(None), Need(Verb.ADMIN), Need(Verb.STATS)
_ON_JOBS = Need(Verb.CONSUME, jobs=1)
NEEDS: Mapping[bytes, Need] = {
    b"auth": _FREE,
    b"ping": _FREE,
    b"hello": _FREE,
    b"command": _FREE,
    b"time": _FREE,
    b"info": _STATS,
    b"shutdown": _ADMIN,
    b"monitor": Need(Verb.ADMIN, has_bodies=True),
    b"debug": _ADMIN,
    b"config": _ADMIN,
    b"slowlog": _ADMIN,
    b"latency": _ADMIN,
    b"bgrewriteaof": _ADMIN,
    b"loadjob": _ADMIN,
    b"replicate": _ADMIN,
    b"addjob": Need(Verb.PUBLISH, queue=1),
    b"getjob": Need(Verb.CONSUME, behind=b"from"),
    b"ackjob": _ON_JOBS,
    b"fastack": _ON_JOBS,
    b"deljob": _ON_JOBS,
    b"nack": _ON_JOBS,
    b"working": _ON_JOBS,
    b"enqueue": Need(Verb.ACT, jobs=1),
    b"dequeue": Need(Verb.ACT, jobs=1),
    b"show": Need(Verb.READ, jobs=1),
    b"qlen": Need(Verb.STATS, queue=1),
    b"qstat": Need(Verb.STATS, queue=1),
    b"qpeek": Need(Verb.READ, queue=1),
    b"pause": Need(Verb.ACT, queue=1),
    b"qscan": _STATS,
    b"jscan": Need(Verb.BROWSE),
}


# of commands whose subcommands need different rights; others of them need ADMIN
_SUBCOMMANDS: Mapping[tuple[bytes, bytes], Need] = {
    **{(b"client", word): _FREE for word in (b"setname", b"getname", b"setinfo", b"id", b"reply")},
    **{(b"cluster", word): _STATS for word in (b"info", b"nodes", b"myid")},
    (b"client", b"list"): _STATS,
}


def need_of(command: bytes, arguments: Sequence[bytes]) -> Need:
    """Return what a command needs; its name is in lower case."""
    word = arguments[1].lower() if len(arguments) > 1 else b""
    return _SUBCOMMANDS.get((command, word)) or NEEDS.get(command, _ADMIN)


def _pauses(arguments: Sequence[bytes]) -> bool:
    """Return whether a PAUSE makes the queue that it names if there is none."""
    return not {word.lower() for word in arguments[2:]} <= {b"none", b"state", b"bcast"}


def allows(credential: Credential, queues: Queues, ids: JobIds, command: bytes, arguments: Sequence[bytes]) -> bool:
    """Return whether the client may do a command."""
    need, identity = need_of(command, arguments), credential.identity
    if identity is None:
        return False
    if need.verb is None:
        return True
    rights = identity.rights
    if need.has_bodies and not rights.may(Verb.READ):
        return False
    if need.queue:
        name = arguments[need.queue].decode("latin-1")
        makes = command == b"pause" and _pauses(arguments) and queues.tubes.tube(name) is None
        return rights.may(need.verb, name) and (not makes or credential.may_make(name))
    if need.behind:
        words = [word.lower() for word in arguments]
        names = arguments[words.index(need.behind) + 1 :] if need.behind in words else ()
        return all(rights.may(need.verb, name.decode("latin-1")) for name in names)
    if not need.jobs:
        return rights.may(need.verb)
    for job_id in arguments[need.jobs :]:
        message_id = ids.decode(job_id)
        found = queues.find(message_id) if message_id is not None else None
        if not credential.may_job(need.verb, found[0].topic_name if found is not None else None):
            return False
    return True
