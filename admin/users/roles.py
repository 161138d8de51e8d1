"""Authorization: the verb that every route and action needs, and the user of a request. Pure.

The verbs and who may do them are those of all daemons (shared/auth/verbs.py, shared/auth/rules.py). A route that is not in
the table cannot be served: the daemon does not start with one (see access.Access.guarded).

See docs/contributing/design/security.md#nsqadmin.
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

_ROUTES = (  # the rights, and the routes that need them
    (OPEN, "GET /ping, GET /livez, GET /readyz, GET /info, GET /login, POST /login, GET /login/oidc, GET /login/oidc/callback"),
    (OPEN, "POST /logout, GET /static/{asset}"),
    # Pages
    (_any_topic(Verb.STATS), "GET /, GET /topics, GET /names, GET /nodes, GET /nodes/{node}, GET /cluster, GET /storage"),
    (_any_topic(Verb.STATS), "GET /readers, GET /tubes, GET /lookup, GET /alarms, GET /alarms/rules, GET /api/alarms"),
    (_any_topic(Verb.STATS), "GET /schedules, GET /runbooks/{folder}/{page}"),
    (_path(Verb.STATS), "GET /topics/{topic}, GET /topics/{topic}/{channel}, GET /configuration/{topic}, GET /history/{topic}"),
    (_path(Verb.STATS), "GET /series/{topic}, GET /series/{topic}/{channel}"),
    (_all(Verb.STATS), "GET /batches, GET /history, GET /counter, GET /health, GET /metrics"),
    (_path(Verb.BROWSE), "GET /messages/{topic}/{channel}"),  # without bodies for users without READ
    (_path(Verb.READ), "GET /body/{topic}/{channel}, GET /republish/{topic}/{channel}"),
    (_any_topic(Verb.BROWSE), "GET /tube"),
    (_any_topic(Verb.ACT), "GET /tasks, GET /tasks/{task}"),
    (_all(Verb.ADMIN), "GET /audit"),
    # Forms
    (_path(Verb.PUBLISH, Verb.ACT, Verb.CREATE, Verb.DELETE), "POST /topics/{topic}"),
    (_path(Verb.ACT, Verb.DELETE), "POST /topics/{topic}/{channel}"),
    (_path(Verb.ACT), "POST /messages/{topic}/{channel}"),
    (_path(Verb.CONFIGURE), "POST /configuration/{topic}"),
    (_path(Verb.PUBLISH), "POST /republish/{topic}/{channel}"),
    (_any_topic(Verb.ACT, Verb.DELETE), "POST /tube"),
    (_any_topic(Verb.ACT), "POST /tasks/{task}, POST /alarms"),
    (_any_topic(Verb.CREATE, Verb.DELETE), "POST /lookup"),
    (_all(Verb.ADMIN), "POST /nodes/{node}, POST /cluster, POST /alarms/rules"),
    # The original's API, and /api/cluster
    (_any_topic(Verb.STATS), "GET /api/topics, GET /api/nodes, GET /api/nodes/{node}, GET /api/counter, GET /api/cluster"),
    (_path(Verb.STATS), "GET /api/topics/{topic}, GET /api/topics/{topic}/{channel}"),
    (_any_topic(Verb.CREATE), "POST /api/topics"),
    (_path(Verb.ACT, Verb.DELETE), "POST /api/topics/{topic}, POST /api/topics/{topic}/{channel}"),
    (_path(Verb.DELETE), "DELETE /api/topics/{topic}, DELETE /api/topics/{topic}/{channel}"),
    (_all(Verb.ADMIN), "DELETE /api/nodes/{node}"),
    (_all(Verb.STATS), "GET /api/graphite, GET /render"),  # a query can reach all topics
    (_all(Verb.ADMIN), "GET /config/{option}, PUT /config/{option}"),  # also guarded by -allow-config-from-cidr
)  # fmt: skip
NEEDED: dict[str, Need] = {route: need for need, routes in _ROUTES for route in routes.split(", ")}

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
    "redrive": (Verb.ACT, Verb.PUBLISH),  # PUBLISH on all topics
    **dict.fromkeys(("empty", "delete"), (Verb.DELETE,)),
    "tombstone": (Verb.ADMIN, Verb.DELETE),
    **dict.fromkeys(("drain", "undrain", "forget", "promote", "dismiss", "set-alarms"), (Verb.ADMIN,)),
}


@dataclass(frozen=True, slots=True)
class Who:
    """The user of a request, and the session by which the user is known."""

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
    def is_unknown(self) -> bool:
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
