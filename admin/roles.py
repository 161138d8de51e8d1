"""Authorization: the roles, each of which includes those before it, and what every route and action needs. Pure.

A route that is not in the table cannot be served: the daemon does not start with one (see access.Access.guarded).

See docs/design/security.md#nsqadmin.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase

EVERYTHING = ("*",)


class Role(IntEnum):
    """The roles, in ascending order of rights."""

    NOBODY = 0
    VIEWER = 1  # all pages except messages' bodies
    BODY_VIEWER = 2  # bodies, too
    OPERATOR = 3  # publishes, pauses, requeues, finishes and kicks; creates
    # empties, deletes, drains, tombstones, has nodes forgotten and logs adopted; sees the audit trail and the configuration
    ADMIN = 4

    @property
    def word(self) -> str:
        """The role's name in files, options and pages."""
        return self.name.lower().replace("_", "-")


WORDS = {role.word: role for role in Role}

NEEDED: dict[str, Role] = {
    "GET /ping": Role.NOBODY,
    "GET /login": Role.NOBODY,
    "POST /login": Role.NOBODY,
    "POST /logout": Role.NOBODY,
    "GET /static/{asset}": Role.NOBODY,
    # pages
    "GET /": Role.VIEWER,
    "GET /topics": Role.VIEWER,
    "GET /topics/{topic}": Role.VIEWER,
    "GET /topics/{topic}/{channel}": Role.VIEWER,
    "GET /messages/{topic}/{channel}": Role.VIEWER,  # without bodies below BODY_VIEWER
    "GET /body/{topic}/{channel}": Role.BODY_VIEWER,
    "GET /series/{topic}": Role.VIEWER,
    "GET /nodes": Role.VIEWER,
    "GET /nodes/{node}": Role.VIEWER,
    "GET /cluster": Role.VIEWER,
    "GET /storage": Role.VIEWER,
    "GET /readers": Role.VIEWER,
    "GET /history": Role.VIEWER,
    "GET /history/{topic}": Role.VIEWER,
    "GET /tubes": Role.VIEWER,
    "GET /tube": Role.VIEWER,
    "GET /tasks": Role.OPERATOR,
    "GET /tasks/{task}": Role.OPERATOR,
    "GET /lookup": Role.VIEWER,
    "GET /counter": Role.VIEWER,
    "GET /audit": Role.ADMIN,
    # Forms also need the role of their action (ACTIONS).
    "POST /topics/{topic}": Role.OPERATOR,
    "POST /topics/{topic}/{channel}": Role.OPERATOR,
    "POST /messages/{topic}/{channel}": Role.OPERATOR,
    "POST /tube": Role.OPERATOR,
    "POST /tasks/{task}": Role.OPERATOR,
    "POST /nodes/{node}": Role.ADMIN,
    "POST /cluster": Role.ADMIN,
    "POST /lookup": Role.OPERATOR,
    # the original's API
    "GET /api/topics": Role.VIEWER,
    "POST /api/topics": Role.OPERATOR,
    "GET /api/topics/{topic}": Role.VIEWER,
    "POST /api/topics/{topic}": Role.OPERATOR,
    "DELETE /api/topics/{topic}": Role.ADMIN,
    "GET /api/topics/{topic}/{channel}": Role.VIEWER,
    "POST /api/topics/{topic}/{channel}": Role.OPERATOR,
    "DELETE /api/topics/{topic}/{channel}": Role.ADMIN,
    "GET /api/nodes": Role.VIEWER,
    "GET /api/nodes/{node}": Role.VIEWER,
    "DELETE /api/nodes/{node}": Role.ADMIN,
    "GET /api/cluster": Role.VIEWER,  # not the original's
    "GET /api/counter": Role.VIEWER,
    "GET /api/graphite": Role.VIEWER,
    "GET /render": Role.VIEWER,
    # Also guarded by -allow-config-from-cidr.
    "GET /config/{option}": Role.ADMIN,
    "PUT /config/{option}": Role.ADMIN,
}

ACTIONS: dict[str, Role] = {
    "publish": Role.OPERATOR,
    "create": Role.OPERATOR,
    "pause": Role.OPERATOR,
    "unpause": Role.OPERATOR,
    "finish": Role.OPERATOR,
    "requeue": Role.OPERATOR,
    "kick": Role.OPERATOR,
    "bury": Role.OPERATOR,
    "release": Role.OPERATOR,
    "cancel": Role.OPERATOR,
    "empty": Role.ADMIN,
    "delete": Role.ADMIN,
    "tombstone": Role.ADMIN,
    "drain": Role.ADMIN,
    "undrain": Role.ADMIN,
    "forget": Role.ADMIN,
    "adopt": Role.ADMIN,
}


@dataclass(frozen=True, slots=True)
class Who:
    """The user who sends a request."""

    name: str  # "": unknown
    role: Role
    topics: tuple[str, ...] = EVERYTHING  # shell patterns of the topics and tubes that the user sees
    csrf: str = ""  # the token that forms must contain; "": the user is not identified by a cookie
    session: str = ""  # the cookie's value; "": there is no session

    @property
    def sees_all(self) -> bool:
        """True if the user sees every topic, and so sums over all of them."""
        return self.topics == EVERYTHING

    def sees(self, topic: str) -> bool:
        """Return whether the user sees that topic or tube."""
        return self.sees_all or any(fnmatchcase(topic, pattern) for pattern in self.topics)

    def visible(self, topics: Iterable[str]) -> list[str]:
        """Return those of the topics that the user sees."""
        return list(topics) if self.sees_all else [topic for topic in topics if self.sees(topic)]

    def may(self, action: str) -> bool:
        """Return whether the user may do the action, one of ACTIONS."""
        return self.role >= ACTIONS[action]


NOBODY = Who("", Role.NOBODY)
