"""The errors of nodes in one sentence for people: which node, and why, once for all nodes with the same reason. Pure.

It reads the texts of admin.nodes.upstreams and admin.nodes.cluster, which name the URL of each question, as the original's do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST_NAMED = 5  # nodes in a sentence
_ALL_FAILED = re.compile(r"failed to query any (\S+): (.*)", re.S)
_ERROR = re.compile(r"(?:https?://)?([A-Za-z0-9._-]+:\d+|\[[0-9A-Fa-f:.]+\]:\d+)(?:/\S*?)?(?::|(?= ))\s*(.*)", re.S)
_ANSWERED = re.compile(r"answered (\d+) (.*)", re.S)
_MESSAGE = re.compile(r'"message": ?"([^"]{1,200})"')
_BETWEEN = re.compile(r"; (?=https?://)")

# What the texts of nsqd mean to an operator.
MEANINGS = {
    "INVALID_ARG_UNTIL": "a pause must end within 30 days",
    "INVALID_DEFER": "the delay is longer than the node's -max-req-timeout",
    "INVALID_KEY": "the deduplication key has more than 128 characters, or spaces or control characters",
    "INVALID_HEADER": "the name or value of a header is invalid, or a header occurs twice",
    "TOO_MANY_HEADERS": "the message has too many headers, or they are too long",
    "MSG_TOO_BIG": "the message is larger than the node's -max-msg-size",
    "TOO_MANY_MESSAGES": "the publish rate of this identity is exceeded. Try again later",
    "TOPIC_NOT_FOUND": "the topic does not exist",
    "CHANNEL_NOT_FOUND": "the channel does not exist",
    "TOPIC_STARTING": "the topic is being created. Try again",
    "DRAINING": "the node is draining and rejects new messages",
    "DISK_FULL": "the node cannot write to its disk",
    "EXITING": "the node rejects new messages",
    "NOREPL": "the node cannot make the number of copies that the topic needs",
    "INVALID_REPLICATE": "the node cannot keep that many copies",
    "INVALID_DURABILITY": "the durability is unknown",
    "INVALID_RETENTION": "the retention is not a duration",
    "INVALID_RETENTION_BYTES": "the retention size is not a number of bytes",
    "INVALID_MAX_ATTEMPTS": "the attempts before burying are not from 0 to 65535",
    "EPHEMERAL_TOPIC": "an ephemeral topic is kept in memory only",
}
_FIELDS = {  # of nsqadmin's forms, by a text of nsqd
    "INVALID_ARG_UNTIL": "minutes",
    "INVALID_DEFER": "delay",
    "INVALID_KEY": "key",
    "INVALID_HEADER": "headers",
    "TOO_MANY_HEADERS": "headers",
    "MSG_TOO_BIG": "body",
    "INVALID_REPLICATE": "replicate",
    "INVALID_DURABILITY": "durability",
    "INVALID_RETENTION": "retention",
    "INVALID_RETENTION_BYTES": "retention_bytes",
    "INVALID_MAX_ATTEMPTS": "max_attempts",
}


def in_words(errors: str | Iterable[str]) -> str:
    """Return one or several errors of nodes as sentences: the nodes with the same reason share one.

    Text that is no error of a node is returned as it is.
    """
    return " ".join(sentences(errors))


def sentences(errors: str | Iterable[str]) -> list[str]:
    """Return the sentences of `in_words` one by one."""
    texts = [errors] if isinstance(errors, str) else list(errors)
    begin: list[str] = []
    parts: list[str] = []
    for text in texts:
        match = _ALL_FAILED.fullmatch(text)
        begin = [f"No {match[1]} answered."] if match is not None else begin
        parts += _BETWEEN.split(match[2] if match is not None else text)
    reasons: dict[str, list[str]] = {}
    for part in parts:
        node, reason = _parted(part)
        nodes = reasons.setdefault(reason, [])
        if node and node not in nodes:
            nodes.append(node)
    return begin + [_sentence(nodes, reason) for reason, nodes in reasons.items()]


def field_of(errors: str) -> str:
    """Return the name of the form field that a node's error is about, or ""."""
    return next((name for code, name in _FIELDS.items() if re.search(rf"\b{code}\b", errors)), "")


def _parted(error: str) -> tuple[str, str]:
    """Return the node of an error ("": it names none), and the reason."""
    match = _ERROR.fullmatch(error)
    if match is None:
        return "", error
    return match[1], _reason(match[2]) or "the request failed"


def _reason(words: str) -> str:
    answered = _ANSWERED.fullmatch(words)
    if answered is None:
        return words
    message = _MESSAGE.search(answered[2])
    code = message[1] if message is not None else answered[2].strip("'\" ")
    meaning = MEANINGS.get(code.partition(" ")[0], "")
    return f"{meaning} ({code})" if meaning else f"answered {answered[1]} {code}".strip()


def _sentence(nodes: list[str], reason: str) -> str:
    ended = reason if reason.endswith((".", "!", "?")) else f"{reason}."
    if not nodes:
        return ended
    shown = nodes[:MOST_NAMED]
    more = f" and {len(nodes) - len(shown)} more" if len(nodes) > len(shown) else ""
    if not more and len(shown) > 1:
        shown, more = shown[:-1], f" and {shown[-1]}"
    between = " " if reason.startswith(("answered ", "did not answer")) else ": "
    return f"{', '.join(shown)}{more}{between}{ended}"
