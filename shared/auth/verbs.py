"""What can be done to a topic, a channel or a node, and the roles that every auth file has."""

from __future__ import annotations

from enum import StrEnum


class Verb(StrEnum):
    """One kind of things that a client may do. A tube and a queue are topics here."""

    PUBLISH = "publish"  # messages and jobs; the topic is made if needed
    CONSUME = "consume"  # a channel, or the jobs of a tube; the channel is made if needed
    READ = "read"  # bodies: read back what a topic retains, look at messages and jobs
    BROWSE = "browse"  # lists of messages and jobs, without bodies
    ACT = "act"  # on messages and jobs: requeue, kick, bury, move, finish one; pause and resume
    CREATE = "create"  # topics and channels, without a message
    CONFIGURE = "configure"  # retention and durability of topics; cursors
    DELETE = "delete"  # topics, channels; several of their messages at once
    STATS = "stats"  # names and numbers
    ADMIN = "admin"  # the node: drain, backup, options, debug
    REGISTER = "register"  # topics at nsqlookupd
    REPLICATE = "replicate"  # be a node of a cluster, to nsqlookupd


ALL = frozenset(Verb)
_VIEWER = frozenset({Verb.STATS, Verb.BROWSE})
_BODY_VIEWER = _VIEWER | {Verb.READ}
_OPERATOR = _BODY_VIEWER | {Verb.PUBLISH, Verb.ACT, Verb.CREATE}
# the roles that need no definition: those of nsqadmin, and three for programs
BUILT_IN: dict[str, frozenset[Verb]] = {
    "viewer": _VIEWER,
    "body-viewer": _BODY_VIEWER,
    "operator": _OPERATOR,
    "admin": ALL,
    "producer": frozenset({Verb.PUBLISH}),
    "consumer": frozenset({Verb.CONSUME}),
    "node": frozenset({Verb.REGISTER, Verb.REPLICATE, Verb.STATS}),
}


def verbs_to_finish(most: int) -> tuple[Verb, ...]:
    """Return the verbs needed to finish up to `most` messages at once: several are lost as by emptying the channel."""
    return (Verb.ACT,) if most <= 1 else (Verb.ACT, Verb.DELETE)
