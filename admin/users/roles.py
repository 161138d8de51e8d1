"""Authorization: the verb that every route and action needs, and the user of a request. Pure.

The verbs and who may do them are those of all daemons (shared/auth/verbs.py, shared/auth/rules.py). A route that is not in
the table cannot be served: the daemon does not start with one (see access.Access.guarded).

See docs/design/security.md#nsqadmin.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from shared.auth.auth_file import Identity
from shared.auth.rules import ANY, NOTHING, Rights, Rule
from shared.auth.verbs import BUILT_IN, Verb, verbs_to_finish


class Where(Enum):
    """The scope in which a user must have the verb of a route."""

    PATH = "on the topic and channel"  # that are in the path
    ANY_TOPIC = "on any topic"  # the handler leaves out, or refuses, the others
    ALL = "on everything"  # all topics, or the nodes


@dataclass(frozen=True, slots=True)
class Need:
    """The right that a route needs: one of these verbs. A form also needs the verbs of its action (ACTIONS)."""

    where: Where
    verbs: tuple[Verb, ...]  # none: every user may

    @property
    def words(self) -> str:
        """The right as the documentation describes it."""
        return f"{' or '.join(self.verbs)} {self.where.value}" if self.verbs else "nothing"


def _path(*verbs: Verb) -> Need:
    return Need(Where.PATH, verbs)


def _any_topic(*verbs: Verb) -> Need:
    return Need(Where.ANY_TOPIC, verbs)


def _all(*verbs: Verb) -> Need:
    return Need(Where.ALL, verbs)


OPEN = Need(Where.ALL, ())

NEEDED: dict[str, Need] = {
    **dict.fromkeys(("GET /ping", "GET /livez", "GET /readyz", "GET /info"), OPEN),
    **dict.fromkeys(("GET /login", "POST /login", "GET /login/oidc", "GET /login/oidc/callback"), OPEN),
    **dict.fromkeys(("POST /logout", "GET /static/{asset}"), OPEN),
    # pages
    "GET /": _any_topic(Verb.STATS),
    "GET /topics": _any_topic(Verb.STATS),
    "GET /topics/{topic}": _path(Verb.STATS),
    "GET /topics/{topic}/{channel}": _path(Verb.STATS),
    "GET /messages/{topic}/{channel}": _path(Verb.BROWSE),  # without bodies for those who may not read
    "GET /body/{topic}/{channel}": _path(Verb.READ),
    "GET /republish/{topic}/{channel}": _path(Verb.READ),
    "GET /series/{topic}": _path(Verb.STATS),
    "GET /series/{topic}/{channel}": _path(Verb.STATS),
    "GET /configuration/{topic}": _path(Verb.STATS),
    "GET /names": _any_topic(Verb.STATS),  # of topics, for the command palette
    "GET /nodes": _any_topic(Verb.STATS),
    "GET /nodes/{node}": _any_topic(Verb.STATS),
    "GET /cluster": _any_topic(Verb.STATS),
    "GET /storage": _any_topic(Verb.STATS),
    "GET /readers": _any_topic(Verb.STATS),
    "GET /history": _all(Verb.STATS),
    "GET /history/{topic}": _path(Verb.STATS),
    "GET /tubes": _any_topic(Verb.STATS),
    "GET /tube": _any_topic(Verb.BROWSE),
    "GET /tasks": _any_topic(Verb.ACT),
    "GET /tasks/{task}": _any_topic(Verb.ACT),
    "GET /lookup": _any_topic(Verb.STATS),
    "GET /counter": _all(Verb.STATS),
    "GET /health": _all(Verb.STATS),
    "GET /audit": _all(Verb.ADMIN),
    "GET /alarms": _any_topic(Verb.STATS),  # those of the topics that the user sees
    "GET /alarms/rules": _any_topic(Verb.STATS),
    "POST /alarms": _any_topic(Verb.ACT),
    "POST /alarms/rules": _all(Verb.ADMIN),
    "GET /api/alarms": _any_topic(Verb.STATS),
    "GET /metrics": _all(Verb.STATS),
    "POST /topics/{topic}": _path(Verb.PUBLISH, Verb.ACT, Verb.CREATE, Verb.DELETE),
    "POST /topics/{topic}/{channel}": _path(Verb.ACT, Verb.DELETE),
    "POST /messages/{topic}/{channel}": _path(Verb.ACT),
    "POST /configuration/{topic}": _path(Verb.CONFIGURE),
    "POST /republish/{topic}/{channel}": _path(Verb.PUBLISH),
    "POST /tube": _any_topic(Verb.ACT, Verb.DELETE),
    "POST /tasks/{task}": _any_topic(Verb.ACT),
    "POST /nodes/{node}": _all(Verb.ADMIN),
    "POST /cluster": _all(Verb.ADMIN),
    "POST /lookup": _any_topic(Verb.CREATE, Verb.DELETE),
    # the original's API
    "GET /api/topics": _any_topic(Verb.STATS),
    "POST /api/topics": _any_topic(Verb.CREATE),
    "GET /api/topics/{topic}": _path(Verb.STATS),
    "POST /api/topics/{topic}": _path(Verb.ACT, Verb.DELETE),
    "DELETE /api/topics/{topic}": _path(Verb.DELETE),
    "GET /api/topics/{topic}/{channel}": _path(Verb.STATS),
    "POST /api/topics/{topic}/{channel}": _path(Verb.ACT, Verb.DELETE),
    "DELETE /api/topics/{topic}/{channel}": _path(Verb.DELETE),
    "GET /api/nodes": _any_topic(Verb.STATS),
    "GET /api/nodes/{node}": _any_topic(Verb.STATS),
    "DELETE /api/nodes/{node}": _all(Verb.ADMIN),
    "GET /api/cluster": _any_topic(Verb.STATS),  # not the original's
    "GET /api/counter": _any_topic(Verb.STATS),
    "GET /api/graphite": _all(Verb.STATS),  # a query can reach all topics
    "GET /render": _all(Verb.STATS),
    # Also guarded by -allow-config-from-cidr.
    "GET /config/{option}": _all(Verb.ADMIN),
    "PUT /config/{option}": _all(Verb.ADMIN),
}

# All of these verbs are needed: ADMIN on the nodes, the others on the topic or channel.
ACTIONS: dict[str, tuple[Verb, ...]] = {
    "publish": (Verb.PUBLISH,),
    "create": (Verb.CREATE,),
    "configure": (Verb.CONFIGURE,),
    "finish": verbs_to_finish(1),
    "finish-many": verbs_to_finish(2),  # more than one with one form
    **dict.fromkeys(("pause", "unpause", "requeue", "kick", "bury", "release"), (Verb.ACT,)),
    **dict.fromkeys(("disconnect", "cancel", "snooze"), (Verb.ACT,)),
    "move": (Verb.ACT,),  # and PUBLISH on the topic to which messages are moved
    **dict.fromkeys(("empty", "delete"), (Verb.DELETE,)),
    "tombstone": (Verb.ADMIN, Verb.DELETE),
    **dict.fromkeys(("drain", "undrain", "forget", "promote", "dismiss", "set-alarms"), (Verb.ADMIN,)),
}


@dataclass(frozen=True, slots=True)
class Who:
    """The user of a request."""

    identity: Identity
    csrf: str = ""  # the token that forms must contain; "": the user is not identified by a cookie
    session: str = ""  # the cookie's value; "": there is no session

    @property
    def name(self) -> str:
        """The name of the user; "" if it is unknown."""
        return self.identity.name

    @property
    def role(self) -> str:
        """The names of the user's roles."""
        return ", ".join(self.identity.roles)

    @property
    def is_nobody(self) -> bool:
        """True if the user is unknown, and may do nothing."""
        return not self.name and not self.identity.rights.rules

    @property
    def sees_all(self) -> bool:
        """True if the user sees every topic, and so sums over all of them."""
        return self.identity.rights.may(Verb.STATS)

    def sees(self, topic: str) -> bool:
        """Return whether the user sees that topic or tube."""
        return self.identity.rights.may(Verb.STATS, topic)

    def visible(self, topics: Iterable[str]) -> list[str]:
        """Return those of the topics that the user sees."""
        return list(topics) if self.sees_all else [topic for topic in topics if self.sees(topic)]

    def meets(self, need: Need, topic: str = "", channel: str = "") -> bool:
        """Return whether the user may use a route with this topic and channel in its path."""
        rights = self.identity.rights
        if need.where is Where.ANY_TOPIC:
            return any(map(rights.any_of, need.verbs))
        return not need.verbs or any(rights.may(verb, topic, channel) for verb in need.verbs)

    def may(self, action: str, topic: str, channel: str = "") -> bool:
        """Return whether the user may do the action, one of ACTIONS; `topic` "": to all topics."""
        may = self.identity.rights.may
        return all(may(verb) if verb is Verb.ADMIN else may(verb, topic, channel) for verb in ACTIONS[action])

    def offered(self, topic: str = "", channel: str = "") -> dict[str, bool]:
        """Return the actions that a page about this topic and channel offers; `topic` "": those allowed on any topic."""
        if topic:
            return {action: self.may(action, topic, channel) for action in ACTIONS}
        rights = self.identity.rights
        allowed = {verb: rights.may(verb) if verb is Verb.ADMIN else rights.any_of(verb) for verb in Verb}
        return {action: all(allowed[verb] for verb in verbs) for action, verbs in ACTIONS.items()}


BUILT_IN_RULES = {role: (Rule(verbs, source=f"role {role}"),) for role, verbs in BUILT_IN.items()}
_RIGHTS = {role: Rights(rules) for role, rules in BUILT_IN_RULES.items()} | {"nobody": NOTHING}


def of_role(name: str, role: str, topics: tuple[str, ...] = ANY, kind: str = "") -> Identity:
    """Return an identity with one of the built-in roles, or "nobody". `topics`: patterns. Raises PatternError."""
    rights = _RIGHTS[role] if topics == ANY else Rights(_RIGHTS[role].rules, topics)
    rights.compile()
    return Identity(name, kind, (role,), rights)


NOBODY = Who(of_role("", "nobody"))
