"""Who may do what: roles, of which each may all that those before it may, and what every route and action needs. Pure.

A route that is not in the table is for nobody: the daemon does not start with one (see access.Access.guarded).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase

EVERYTHING = ("*",)


class Role(IntEnum):
    """In words: see `word`."""

    NOBODY = 0
    VIEWER = 1  # all pages but messages' bodies
    BODY_VIEWER = 2  # these, too
    OPERATOR = 3  # publishes, pauses, requeues, finishes and kicks; creates
    ADMIN = 4  # empties, deletes, drains, tombstones; sees who did what, and the configuration

    @property
    def word(self) -> str:
        """As files, options and pages have it."""
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
    # forms: what their action needs (ACTIONS) comes on top
    "POST /topics/{topic}": Role.OPERATOR,
    "POST /topics/{topic}/{channel}": Role.OPERATOR,
    "POST /messages/{topic}/{channel}": Role.OPERATOR,
    "POST /tube": Role.OPERATOR,
    "POST /tasks/{task}": Role.OPERATOR,
    "POST /nodes/{node}": Role.ADMIN,
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
    "GET /api/counter": Role.VIEWER,
    "GET /api/graphite": Role.VIEWER,
    "GET /render": Role.VIEWER,
    # guarded by -allow-config-from-cidr besides
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
}


@dataclass(frozen=True, slots=True)
class Who:
    """Somebody who asks."""

    name: str  # "": nobody said
    role: Role
    topics: tuple[str, ...] = EVERYTHING  # patterns, as of a shell, of the topics and tubes that he sees
    csrf: str = ""  # what his forms must bring; "": no cookie speaks for him
    session: str = ""  # the cookie's value; "": he has none

    @property
    def sees_all(self) -> bool:
        """Every topic: sums over all of them, too."""
        return self.topics == EVERYTHING

    def sees(self, topic: str) -> bool:
        """That topic, or tube."""
        return self.sees_all or any(fnmatchcase(topic, pattern) for pattern in self.topics)

    def seen(self, topics: Iterable[str]) -> list[str]:
        """Of these the ones that he sees."""
        return list(topics) if self.sees_all else [topic for topic in topics if self.sees(topic)]

    def may(self, action: str) -> bool:
        """One of ACTIONS."""
        return self.role >= ACTIONS[action]


NOBODY = Who("", Role.NOBODY)
