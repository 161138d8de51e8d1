"""Decide whether a client may execute a command, where there is an auth file.

The owner of a job that is not on this node checks the right on its tube.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsqd.core.tubes import Tubes
from nsqd.core.work_queue.worker import DEFAULT, Worker
from nsqd.protocols.beanstalk.client import AUTH
from nsqd.protocols.beanstalk.commands import VERBS, About, Need
from nsqd.protocols.credential import Credential
from shared.auth.verbs import Verb

NEEDS: Mapping[bytes, Need] = {verb: need for verb, (_, need) in VERBS.items()} | {AUTH: Need(None)}
_WITHOUT_IDENTITY = (b"quit", AUTH)


def allows(credential: Credential, tubes: Tubes, worker: Worker, verb: bytes, arguments: tuple[Any, ...]) -> bool:
    """Return whether the client may execute a command."""
    identity, need = credential.identity, NEEDS[verb]
    if identity is None:
        return verb in _WITHOUT_IDENTITY
    if need.verb is None:
        return True
    rights = identity.rights
    match need.about:
        case About.NODE:
            return rights.may(need.verb)
        case About.USED:
            return rights.may(need.verb, worker.using)
        case About.WATCHED:
            return all(rights.may(need.verb, name) for name in _watched(tubes, worker, credential))
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


def _watched(tubes: Tubes, worker: Worker, credential: Credential) -> list[str]:
    """Return the tubes that the client watches. `default`, which every client watches at first, is ignored if it may not."""
    if DEFAULT in worker.watching and len(worker.watching) > 1 and not credential.may(Verb.CONSUME, DEFAULT):
        tubes.ignore(worker, DEFAULT)
    return list(worker.watching)
