"""The errors of nodes in one sentence for people: which node, and why, once for all nodes with the same reason. Pure.

It reads the texts of admin.nodes.upstreams and admin.nodes.cluster, which name the URL of each request, as the original's do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from shared.topic_config import SETTINGS

MOST_NAMED = 5  # nodes in a sentence
_ALL_FAILED = re.compile(r"failed to query any (\S+): (.*)", re.S)
_ERROR = re.compile(r"(?:https?://)?([A-Za-z0-9._-]+:\d+|\[[0-9A-Fa-f:.]+\]:\d+)(?:/\S*?)?(?::|(?= ))\s*(.*)", re.S)
_ANSWERED = re.compile(r"answered (\d+) (.*)", re.S)
_MESSAGE = re.compile(r'"message": ?"([^"]{1,200})"')
_BETWEEN = re.compile(r"; (?=https?://)")

# Error codes of nsqd: their meaning to an operator, and the field of nsqadmin's forms that they are about.
_CODES = {
    "INVALID_ARG_UNTIL": ("a pause must end within 30 days", "minutes"),
    "INVALID_DEFER": ("the delay is longer than the node's -max-req-timeout", "delay"),
    "INVALID_KEY": ("the deduplication key has more than 128 characters, or spaces or control characters", "key"),
    "INVALID_HEADER": ("the name or value of a header is invalid, or a header occurs twice", "headers"),
    "TOO_MANY_HEADERS": ("the message has too many headers, or they are too long", "headers"),
    "MSG_TOO_BIG": ("the message is larger than the node's -max-msg-size", "body"),
    "TOO_MANY_MESSAGES": ("the publish rate of this identity is exceeded. Try again later", ""),
    "TOPIC_NOT_FOUND": ("the topic does not exist", ""),
    "CHANNEL_NOT_FOUND": ("the channel does not exist", ""),
    "TOPIC_STARTING": ("the topic is being created. Try again", ""),
    "DRAINING": ("the node is draining and rejects new messages", ""),
    "DISK_FULL": ("the node cannot write to its disk", ""),
    "EXITING": ("the node rejects new messages", ""),
    "NOREPL": ("the node cannot make the number of copies that the topic needs", ""),
    **{f"INVALID_{name.upper()}": (f"{one.label} must be {one.expected}", name) for name, one in SETTINGS.items()},
    "INVALID_REPLICATE": ("the node cannot keep that many copies", "replicate"),  # it is in no cluster
    "EPHEMERAL_TOPIC": ("an ephemeral topic is kept in memory only", ""),
}


def in_words(errors: str | Iterable[str]) -> str:
    """Return one or several errors of nodes as sentences: the nodes with the same reason share one.

    Text that is no error of a node is returned as it is.
    """
    return " ".join(sentences(errors))


def sentences(errors: str | Iterable[str]) -> list[str]:
    """Return the sentences of `in_words` one by one."""
    begin: list[str] = []
    reasons: dict[str, dict[str, None]] = {}  # the nodes of each
    for text in [errors] if isinstance(errors, str) else errors:
        match = _ALL_FAILED.fullmatch(text)
        begin = [f"No {match[1]} answered."] if match is not None else begin
        for part in _BETWEEN.split(match[2] if match is not None else text):
            node, reason = _split(part)
            reasons.setdefault(reason, {}).update({node: None} if node else {})
    return begin + [_sentence(list(nodes), reason) for reason, nodes in reasons.items()]


def field_of(errors: str) -> str:
    """Return the name of the form field that a node's error is about, or ""."""
    return next((name for code, (_, name) in _CODES.items() if name and re.search(rf"\b{code}\b", errors)), "")


def _split(error: str) -> tuple[str, str]:
    """Return the node of an error ("" if it names none), and the reason."""
    match = _ERROR.fullmatch(error)
    return (match[1], _reason(match[2]) or "the request failed") if match is not None else ("", error)


def _reason(text: str) -> str:
    answered = _ANSWERED.fullmatch(text)
    if answered is None:
        return text
    message = _MESSAGE.search(answered[2])
    code = message[1] if message is not None else answered[2].strip("'\" ")
    meaning, _ = _CODES.get(code.partition(" ")[0], ("", ""))
    return f"{meaning} ({code})" if meaning else f"answered {answered[1]} {code}".strip()


def _sentence(nodes: list[str], reason: str) -> str:
    ended = reason if reason.endswith((".", "!", "?")) else f"{reason}."
    if not nodes:
        return ended
    if len(nodes) > MOST_NAMED:
        nodes = [*nodes[:MOST_NAMED], f"{len(nodes) - MOST_NAMED} more"]
    named = " and ".join(filter(None, (", ".join(nodes[:-1]), nodes[-1])))
    between = " " if reason.startswith(("answered ", "did not answer")) else ": "
    return f"{named}{between}{ended}"
