"""What each of Disque's commands needs, where there is an auth file. A queue is a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nsqd.core.queues import Queues
from nsqd.protocols.credential import Credential
from nsqd.protocols.disque.arguments import COMMANDS, Need
from nsqd.protocols.disque.ids import JobIds
from shared.auth.verbs import Verb

_FREE, _STATS = Need(None), Need(Verb.STATS)
# of commands whose subcommands need different rights; the others have the need of the command
_SUBCOMMANDS: Mapping[tuple[bytes, bytes], Need] = {
    **{(b"client", word): _FREE for word in (b"setname", b"getname", b"setinfo", b"id", b"reply")},
    **{(b"cluster", word): _STATS for word in (b"info", b"nodes", b"myid")},
    (b"client", b"list"): _STATS,
}


def need_of(command: bytes, arguments: Sequence[bytes]) -> Need:
    """Return the right that a command needs; its name is in lower case."""
    word = arguments[1].lower() if len(arguments) > 1 else b""
    return _SUBCOMMANDS.get((command, word)) or COMMANDS[command].need


def _pauses(arguments: Sequence[bytes]) -> bool:
    """Return whether a PAUSE makes the queue that it names if there is none."""
    return not {word.lower() for word in arguments[2:]} <= {b"none", b"state", b"bcast"}


def allows(credential: Credential, queues: Queues, ids: JobIds, command: bytes, arguments: Sequence[bytes]) -> bool:
    """Return whether the client may execute a command."""
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
