"""Rules: which verbs are allowed on which topics and channels. Anything else is refused.

A pattern is a name in which `*` stands for any characters and `?` for one, or `re:` and an expression of RE2. Both have to
match the whole name. RE2 takes linear time, and nothing is ever put into a pattern but what the file says.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

from shared.auth.verbs import Verb

ANY = ("*",)
EXPRESSION = "re:"
SEPARATOR = "\n"  # between topic and channel; no name has it
NO_NAME = "[^\\x00-\\x{10FFFF}]"  # an expression that matches nothing
MOST_PATTERN = 256  # characters
MOST_NAMES = 300  # characters of a topic, tube or queue and a channel together
MOST_DECISIONS = 10_000  # that an identity remembers
MOST_DUMPED = 64 * 1024  # bytes of what `Rights.dump` returns
MOST_LOADED = 32  # texts of `Rights.dump` that are remembered
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True
_OPTIONS.max_mem = 8 * 1024 * 1024  # bytes for the patterns of one verb


class PatternError(ValueError):
    """A pattern is none. The text says why."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What one rule of a role allows."""

    verbs: frozenset[Verb]
    topics: tuple[str, ...] = ANY  # patterns
    channels: tuple[str, ...] = ANY  # patterns; they matter only where a verb is about a channel
    source: str = ""  # the role, and which of its rules this is


def expression(pattern: str, any_character: str = ".") -> str:
    """Return a pattern as an expression of RE2, in which `?` is `any_character`, and `*` many of it. Raises PatternError."""
    if not 0 < len(pattern) <= MOST_PATTERN:
        raise PatternError(f"a pattern has 1 to {MOST_PATTERN} characters")
    if not pattern.startswith(EXPRESSION):
        special = {"*": f"{any_character}*", "?": any_character}
        return "".join(special.get(character) or re2.escape(character) for character in pattern)
    text = pattern.removeprefix(EXPRESSION)
    if "\\Q" in text:  # it would quote the expressions after it
        raise PatternError(f"{pattern!r} has \\Q, which is not allowed")
    try:
        re2.compile(text, _OPTIONS)
    except re2.error:
        raise PatternError(f"{pattern!r} is not an expression of RE2") from None
    return f"(?:{text})"


@lru_cache(maxsize=4096)
def _compiled(patterns: tuple[str, ...]) -> Any:
    return re2.compile("|".join(map(expression, patterns)), _OPTIONS)


def _is_literal(pattern: str) -> bool:
    return not (pattern.startswith(EXPRESSION) or "*" in pattern or "?" in pattern)


def matches_subject(pattern: str, subject: str) -> bool:
    """Return True if a pattern matches a certificate's subject; `*` and `?` stand for characters of one part of it."""
    return re2.fullmatch(expression(pattern, r"(?:[^,\\]|\\.)"), subject) is not None


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Return True if one of the patterns matches the whole name. Raises PatternError."""
    return patterns == ANY or name in patterns or _compiled(patterns).fullmatch(name) is not None


class _Names:
    """Names that match patterns: a set of the names without wildcards, and one expression for all other patterns."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._expressions: dict[str, None] = {}
        self._compiled: Any = None

    def add(self, topics: tuple[str, ...], channels: tuple[str, ...] = ()) -> None:
        """Add what these patterns match. With channels, what is matched is topic, SEPARATOR, channel."""
        literal = [topic for topic in topics if not channels and _is_literal(topic)]
        self._names.update(literal)
        rest = [expression(topic) for topic in topics if topic not in literal]
        if rest:
            ends = f"{SEPARATOR}(?:{'|'.join(map(expression, channels))})" if channels else ""
            self._expressions[f"(?:{'|'.join(rest)}){ends}"] = None
            self._compiled = None

    def match(self, name: str) -> bool:
        if name in self._names:
            return True
        self.compile()
        return self._compiled.fullmatch(name) is not None

    def compile(self) -> None:
        """Make one expression of all. Raises PatternError if they are too many."""
        if self._compiled is None:
            try:
                self._compiled = re2.compile("|".join(self._expressions) or NO_NAME, _OPTIONS)
            except re2.error as error:
                raise PatternError(f"the patterns cannot be used together: {error}") from None


class Rights:
    """What one identity may do, compiled from its rules."""

    __slots__ = ("_decisions", "_dumps", "_everywhere", "_in_channels", "_topics", "rules", "scope")

    def __init__(self, rules: Sequence[Rule], scope: tuple[str, ...] = ANY) -> None:
        """`scope`: patterns of the topics to which all the rules are restricted."""
        self.rules = tuple(rules)
        self.scope = scope
        self._decisions: dict[tuple[Verb, str, str], bool] = {}
        self._dumps: dict[Verb, bytes | None] = {}
        self._everywhere: set[Verb] = set()  # verbs of rules about all topics and channels
        self._topics: dict[Verb, _Names] = {}  # by verb, of rules about all channels of some topics
        self._in_channels: dict[Verb, _Names] = {}  # by verb, of rules about some channels
        for rule in self.rules:
            for verb in rule.verbs:
                if rule.channels != ANY:
                    self._in_channels.setdefault(verb, _Names()).add(rule.topics, rule.channels)
                elif rule.topics != ANY:
                    self._topics.setdefault(verb, _Names()).add(rule.topics)
                else:
                    self._everywhere.add(verb)

    def compile(self) -> None:
        """Prepare for decisions, so that none fails. Raises PatternError."""
        for names in (*self._topics.values(), *self._in_channels.values()):
            names.compile()
        matches(self.scope, "any")

    def may(self, verb: Verb, topic: str = "", channel: str = "") -> bool:
        """Return whether the verb is allowed. `topic` "": on all topics, or on the node."""
        if len(topic) + len(channel) > MOST_NAMES:
            return False  # no topic has such a name, and nothing as long is remembered
        key = verb, topic, channel
        found = self._decisions.get(key)
        if found is None:
            if len(self._decisions) >= MOST_DECISIONS:
                self._decisions.clear()
            found = self._decisions[key] = self.decide(verb, topic, channel)
        return found

    def may_each(self, verb: Verb, topics: Collection[str]) -> bool:
        """Return whether the verb is allowed on all these topics or, if there are none, on any topic at all."""
        return all(self.may(verb, topic) for topic in topics) if topics else self.any_of(verb)

    def may_make(self, topic: str) -> bool:
        """Return whether this topic may be made: by the right to create it, or to publish to it, which makes it."""
        return self.may(Verb.CREATE, topic) or self.may(Verb.PUBLISH, topic)

    def decide(self, verb: Verb, topic: str, channel: str) -> bool:
        """Return the same, and remember nothing."""
        if not topic:
            return self.scope == ANY and verb in self._everywhere
        if SEPARATOR in topic or SEPARATOR in channel or not matches(self.scope, topic):
            return False
        if verb in self._everywhere:
            return True
        topics, channels = self._topics.get(verb), self._in_channels.get(verb)
        if topics is not None and topics.match(topic):
            return True
        return bool(channel) and channels is not None and channels.match(f"{topic}{SEPARATOR}{channel}")

    def reason(self, verb: Verb, topic: str = "", channel: str = "") -> Rule | None:
        """Return the first rule that allows the verb; None: it is refused."""
        if not self.decide(verb, topic, channel):
            return None
        return next(rule for rule in self.rules if Rights((rule,)).decide(verb, topic, channel))

    def any_of(self, verb: Verb) -> bool:
        """Return whether the verb is allowed on any topic at all."""
        return verb in self._everywhere or verb in self._topics or verb in self._in_channels

    def dump(self, verb: Verb) -> bytes | None:
        """Return the tubes and queues that the verb may use, for `load_rights`; empty: all, None: over MOST_DUMPED bytes."""
        if verb not in self._dumps:
            self._dumps[verb] = self._dump(verb)
        return self._dumps[verb]

    def _dump(self, verb: Verb) -> bytes | None:
        if self.scope == ANY and verb in self._everywhere:
            return b""
        rules = (rule for rule in self.rules if verb in rule.verbs and rule.channels == ANY)
        topics = ANY if verb in self._everywhere else tuple(dict.fromkeys(one for rule in rules for one in rule.topics))
        text = json.dumps([verb, topics, self.scope]).encode()
        return text if len(text) <= MOST_DUMPED else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rights) and (self.rules, self.scope) == (other.rules, other.scope)

    def __hash__(self) -> int:
        return hash((self.rules, self.scope))

    def __repr__(self) -> str:
        return f"<Rights: {len(self.rules)} rules>"


NOTHING = Rights(())


@lru_cache(MOST_LOADED)
def load_rights(text: bytes) -> Rights:
    """Return the rights that `Rights.dump` has written, of which the text is not empty. Raises PatternError."""
    try:
        if len(text) > MOST_DUMPED:
            raise ValueError
        verb, topics, scope = json.loads(text)
        patterns = [(*map(str, one),) for one in (topics, scope) if isinstance(one, list)]
        rule = Rule(frozenset({Verb(verb)}), patterns[0], source="another node")
        rights = Rights((rule,) if topics else (), patterns[1])
    except (ValueError, TypeError, IndexError, RecursionError):
        raise PatternError("these are no rights of another node") from None
    rights.compile()
    return rights
