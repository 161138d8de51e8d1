"""Authorization: which verb every route and action needs, and the user who asks. Pure.

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
    """What a route's verb must be allowed on."""

    PATH = "on the topic and channel"  # that are in the path
    SOME = "on any topic"  # the handler leaves out, or refuses, the others
    ALL = "on everything"  # all topics, or the nodes


@dataclass(frozen=True, slots=True)
class Need:
    """What a route needs: one of these verbs. Forms also need what their action needs (ACTIONS)."""

    where: Where
    verbs: tuple[Verb, ...]  # none: everybody may

    @property
    def words(self) -> str:
        """Return what is needed, in words for people."""
        return f"{' or '.join(self.verbs)} {self.where.value}" if self.verbs else "nothing"


def _path(*verbs: Verb) -> Need:
    return Need(Where.PATH, verbs)


def _some(*verbs: Verb) -> Need:
    return Need(Where.SOME, verbs)


def _all(*verbs: Verb) -> Need:
    return Need(Where.ALL, verbs)


OPEN = Need(Where.ALL, ())

NEEDED: dict[str, Need] = {
    "GET /ping": OPEN,
    "GET /livez": OPEN,
    "GET /readyz": OPEN,
    "GET /info": OPEN,
    "GET /login": OPEN,
    "POST /login": OPEN,
    "GET /login/oidc": OPEN,
    "GET /login/oidc/callback": OPEN,
    "POST /logout": OPEN,
    "GET /static/{asset}": OPEN,
    # pages
    "GET /": _some(Verb.STATS),
    "GET /topics": _some(Verb.STATS),
    "GET /topics/{topic}": _path(Verb.STATS),
    "GET /topics/{topic}/{channel}": _path(Verb.STATS),
    "GET /messages/{topic}/{channel}": _path(Verb.BROWSE),  # without bodies for those who may not read
    "GET /body/{topic}/{channel}": _path(Verb.READ),
    "GET /republish/{topic}/{channel}": _path(Verb.READ),
    "GET /series/{topic}": _path(Verb.STATS),
    "GET /series/{topic}/{channel}": _path(Verb.STATS),
    "GET /configuration/{topic}": _path(Verb.STATS),
    "GET /names": _some(Verb.STATS),  # of topics, for the command palette
    "GET /nodes": _some(Verb.STATS),
    "GET /nodes/{node}": _some(Verb.STATS),
    "GET /cluster": _some(Verb.STATS),
    "GET /storage": _some(Verb.STATS),
    "GET /readers": _some(Verb.STATS),
    "GET /history": _all(Verb.STATS),
    "GET /history/{topic}": _path(Verb.STATS),
    "GET /tubes": _some(Verb.STATS),
    "GET /tube": _some(Verb.BROWSE),
    "GET /tasks": _some(Verb.ACT),
    "GET /tasks/{task}": _some(Verb.ACT),
    "GET /lookup": _some(Verb.STATS),
    "GET /counter": _all(Verb.STATS),
    "GET /health": _all(Verb.STATS),
    "GET /audit": _all(Verb.ADMIN),
    "GET /alarms": _some(Verb.STATS),  # those of the topics that the user sees
    "GET /alarms/rules": _some(Verb.STATS),
    "POST /alarms": _some(Verb.ACT),
    "POST /alarms/rules": _all(Verb.ADMIN),
    "GET /api/alarms": _some(Verb.STATS),
    "GET /metrics": _all(Verb.STATS),
    "POST /topics/{topic}": _path(Verb.PUBLISH, Verb.ACT, Verb.CREATE, Verb.DELETE),
    "POST /topics/{topic}/{channel}": _path(Verb.ACT, Verb.DELETE),
    "POST /messages/{topic}/{channel}": _path(Verb.ACT),
    "POST /configuration/{topic}": _path(Verb.CONFIGURE),
    "POST /republish/{topic}/{channel}": _path(Verb.PUBLISH),
    "POST /tube": _some(Verb.ACT, Verb.DELETE),
    "POST /tasks/{task}": _some(Verb.ACT),
    "POST /nodes/{node}": _all(Verb.ADMIN),
    "POST /cluster": _all(Verb.ADMIN),
    "POST /lookup": _some(Verb.CREATE, Verb.DELETE),
    # the original's API
    "GET /api/topics": _some(Verb.STATS),
    "POST /api/topics": _some(Verb.CREATE),
    "GET /api/topics/{topic}": _path(Verb.STATS),
    "POST /api/topics/{topic}": _path(Verb.ACT, Verb.DELETE),
    "DELETE /api/topics/{topic}": _path(Verb.DELETE),
    "GET /api/topics/{topic}/{channel}": _path(Verb.STATS),
    "POST /api/topics/{topic}/{channel}": _path(Verb.ACT, Verb.DELETE),
    "DELETE /api/topics/{topic}/{channel}": _path(Verb.DELETE),
    "GET /api/nodes": _some(Verb.STATS),
    "GET /api/nodes/{node}": _some(Verb.STATS),
    "DELETE /api/nodes/{node}": _all(Verb.ADMIN),
    "GET /api/cluster": _some(Verb.STATS),  # not the original's
    "GET /api/counter": _some(Verb.STATS),
    "GET /api/graphite": _all(Verb.STATS),  # a query can reach all topics
    "GET /render": _all(Verb.STATS),
    # Also guarded by -allow-config-from-cidr.
    "GET /config/{option}": _all(Verb.ADMIN),
    "PUT /config/{option}": _all(Verb.ADMIN),
}

# all of these verbs are needed: ADMIN on the nodes, the others on the topic or channel
ACTIONS: dict[str, tuple[Verb, ...]] = {
    "publish": (Verb.PUBLISH,),
    "create": (Verb.CREATE,),
    "pause": (Verb.ACT,),
    "unpause": (Verb.ACT,),
    "finish": verbs_to_finish(1),
    "finish-many": verbs_to_finish(2),  # more than one with one form
    "requeue": (Verb.ACT,),
    "kick": (Verb.ACT,),
    "bury": (Verb.ACT,),
    "release": (Verb.ACT,),
    "move": (Verb.ACT,),  # and PUBLISH on the topic to which messages are moved
    "disconnect": (Verb.ACT,),
    "cancel": (Verb.ACT,),
    "empty": (Verb.DELETE,),
    "delete": (Verb.DELETE,),
    "configure": (Verb.CONFIGURE,),
    "tombstone": (Verb.ADMIN, Verb.DELETE),
    "drain": (Verb.ADMIN,),
    "undrain": (Verb.ADMIN,),
    "forget": (Verb.ADMIN,),
    "promote": (Verb.ADMIN,),
    "dismiss": (Verb.ADMIN,),
    "snooze": (Verb.ACT,),
    "set-alarms": (Verb.ADMIN,),
}


@dataclass(frozen=True, slots=True)
class Who:
    """The user who sends a request."""

    identity: Identity
    csrf: str = ""  # the token that forms must contain; "": the user is not identified by a cookie
    session: str = ""  # the cookie's value; "": there is no session

    @property
    def name(self) -> str:
        """Return the name of the user; "": it is not known who asks."""
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
        if need.where is Where.SOME:
            return any(map(rights.any_of, need.verbs))
        return not need.verbs or any(rights.may(verb, topic, channel) for verb in need.verbs)

    def may(self, action: str, topic: str, channel: str = "") -> bool:
        """Return whether the user may do the action, one of ACTIONS; `topic` "": to all topics."""
        rights = self.identity.rights
        return all(
            rights.may(verb) if verb is Verb.ADMIN else rights.may(verb, topic, channel) for verb in ACTIONS[action]
        )

    def offered(self, topic: str = "", channel: str = "") -> dict[str, bool]:
        """Return which actions a page about this topic and channel offers; `topic` "": those that the user may do anywhere."""
        if topic:
            return {action: self.may(action, topic, channel) for action in ACTIONS}
        rights = self.identity.rights
        return {
            action: all(rights.may(verb) if verb is Verb.ADMIN else rights.any_of(verb) for verb in verbs)
            for action, verbs in ACTIONS.items()
        }


_RIGHTS = {word: Rights((Rule(verbs, source=f"role {word}"),)) for word, verbs in BUILT_IN.items()} | {
    "nobody": NOTHING
}


def of_role(name: str, role: str, topics: tuple[str, ...] = ANY, kind: str = "") -> Identity:
    """Return somebody with one of the built-in roles, or "nobody". `topics`: patterns. Raises PatternError."""
    rights = _RIGHTS[role] if topics == ANY else Rights(_RIGHTS[role].rules, topics)
    rights.compile()
    return Identity(name, kind, (role,), rights)


NOBODY = Who(of_role("", "nobody"))
