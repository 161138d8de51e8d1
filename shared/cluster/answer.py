"""The response of a node to /cluster, with defaults for missing parts. Pure.

Nodes may lie: a value of a wrong type counts as absent, and lists and texts are cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shared.cluster.state import LogCopy, Refusal
from shared.json_fields import JsonObject, number, objects, text

MOST_NUMBER = 1023  # of a node
MOST_LISTED = 1024  # entries of one list of an answer that are read
MOST_SECONDS = 1e9  # of an age
LONGEST_TEXT = 200  # characters of an address or a reason
MEMBER, LEFT, FORGOTTEN = "member", "left", "forgotten"
STANDINGS = (MEMBER, LEFT, FORGOTTEN)  # the later one holds


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """The record of a member at one node; texts are cut to LONGEST_TEXT."""

    address: str
    http_address: str
    standing: str
    connected: bool
    suspected: bool
    restarting: bool
    incarnation: int
    log_id: str


NO_RECORD = MemberRecord("", "", MEMBER, connected=False, suspected=False, restarting=False, incarnation=0, log_id="")


@dataclass(frozen=True, slots=True)
class LedLog:
    """A log that a node says it leads."""

    log_id: str
    node: int  # that publishes or has published into it
    state: str
    batches: int = 0  # that are not done


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The state of a log at a node that has a copy of it, or is a candidate for it."""

    log_id: str
    leader: int
    epoch: int  # the leader's number
    is_lost: bool  # the leader is
    is_clean: bool
    state: str  # candidate, promoting or ""
    reason: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of a node, with defaults for missing parts."""

    asked: str
    name: str
    node: int
    records: dict[int, MemberRecord]
    available: int | None
    given_up: int | None
    away: list[int]
    followers: dict[int, LogCopy]  # copies of its own log
    replicas: dict[tuple[int, str], LogCopy]  # copies that it has, by leader and log
    led: list[LedLog]
    elections: list[ElectionState]
    closed: dict[str, int | None]  # by log id: the node that led it last
    refused: list[Refusal]
    quorum: str
    knows_configs: bool
    refusing: list[str]  # topics, some of them
    refusing_count: int

    def holds(self, log_id: str) -> bool:
        """Return True if the node has a complete copy of a log."""
        return any(one.log_id == log_id and one.state == "complete" for one in self.replicas.values())

    def incarnation_of(self, number: int) -> int:
        """Return the incarnation of a node that this one knows, 0 for none."""
        return self.records.get(number, NO_RECORD).incarnation


def read_answer(asked: str, data: JsonObject) -> Answer | None:
    """Return the response of the node `asked`, an HTTP address. None if it names no cluster or no node number."""
    name, own = text(data.get("name"))[:LONGEST_TEXT], _node_number(data.get("node"))
    if not name or own is None:
        return None
    records = {number: _record(one) for number, one in _numbered(data.get("nodes"))}
    log_id = records.get(own, NO_RECORD).log_id
    copies = _object(data.get("copies"))
    away = copies.get("away")
    numbers = map(_node_number, away[:MOST_LISTED]) if isinstance(away, list) else ()
    available = _count(copies.get("available"))
    return Answer(
        asked, name, own, records,
        available=available if available is not None and 1 <= available <= MOST_NUMBER + 1 else None,
        given_up=_count(copies.get("replies_given_up")),
        away=sorted({one for one in numbers if one is not None and one != own}),
        followers={one: _follower(own, one, log_id, raw) for one, raw in _numbered(data.get("followers")) if one != own},
        replicas={(one.leader, one.log_id): one for one in _replicas(own, log_id, data.get("replicas"))},
        led=list(_led(data.get("led"))),
        elections=list(_elections(data.get("elections"))),
        closed={log_id: _node_number(one.get("node")) for log_id, one in _with_log_id(data.get("closed"))},
        refused=[
            Refusal(own, one, _short(raw.get("address")), _short(raw.get("reason")))
            for one, raw in _numbered(data.get("refused"))
        ],
        quorum=_short(_object(data.get("elections")).get("quorum")),
        knows_configs=data.get("knows_configs") is not False,
        refusing=_names(_object(data.get("refusing")).get("topics")),
        refusing_count=_count(_object(data.get("refusing")).get("count")) or 0,
    )  # fmt: skip


def _numbered(value: object) -> Iterator[tuple[int, JsonObject]]:
    """Yield the objects of a list that have a node number, with it; the first of each number."""
    known = set()
    for one in _objects(value):
        found = _node_number(one.get("node"))
        if found is not None and found not in known:
            known.add(found)
            yield found, one


def _record(raw: JsonObject) -> MemberRecord:
    standing = text(raw.get("standing"))
    return MemberRecord(
        address=_short(raw.get("address")),
        http_address=_short(raw.get("http_address")),
        standing=standing if standing in STANDINGS else MEMBER,
        connected=raw.get("connected") is True,
        suspected=raw.get("suspected") is True,
        restarting=raw.get("restarting") is True,
        incarnation=max(0, number(raw.get("incarnation"))),
        log_id=_short(raw.get("log_id")),
    )


def _follower(leader: int, follower: int, log_id: str, raw: JsonObject) -> LogCopy:
    state, failure = text(raw.get("state")), _short(raw.get("failure"))
    if state not in ("in sync", "lagging", "failed"):
        state = "catching up"
    return LogCopy(
        leader, follower, log_id, "failed" if failure else state,
        behind=_count(raw.get("behind")), written=_count(raw.get("written")) or 0, durable=_count(raw.get("durable")) or 0,
        failure=failure, lag_seconds=_seconds(raw.get("lag_seconds")),
    )  # fmt: skip


def _replicas(follower: int, own_log: str, value: object) -> Iterator[LogCopy]:
    """Yield the replicas of a node. It may have one of an earlier log of its own, which another node leads now."""
    for raw in _objects(value):
        leader, failure = _node_number(raw.get("node")), _short(raw.get("failure"))
        if leader is None or (leader == follower and raw.get("log_id") == own_log):
            continue
        yield LogCopy(
            leader, follower, _short(raw.get("log_id")),
            "failed" if failure else "complete" if raw.get("complete") is True else "incomplete",
            behind=None, written=_count(raw.get("written")) or 0, durable=_count(raw.get("durable")) or 0, failure=failure,
        )  # fmt: skip


def _with_log_id(value: object) -> Iterator[tuple[str, JsonObject]]:
    """Yield the objects of a list that have a log id, with it; the first of each id."""
    known = set()
    for one in _objects(value):
        log_id = _short(one.get("log_id"))
        if log_id and log_id not in known and log_id.isascii() and log_id.isalnum():
            known.add(log_id)
            yield log_id, one


def _led(value: object) -> Iterator[LedLog]:
    for log_id, raw in _with_log_id(value):
        node, state = _node_number(raw.get("node")), _short(raw.get("state"))
        if node is not None and state not in ("lost", "closed"):
            yield LedLog(log_id, node, state, _count(raw.get("batches")) or 0)


def _elections(value: object) -> Iterator[ElectionState]:
    elections = _object(value)
    unless = "-failover-quorum is none" if elections.get("quorum") == "none" else ""
    for log_id, raw in _with_log_id(elections.get("logs")):
        leader, state = _node_number(raw.get("leader")), text(raw.get("state"))
        if leader is not None:
            yield ElectionState(
                log_id, leader, _count(raw.get("epoch")) or 0, raw.get("leader_lost") is True, raw.get("clean") is True,
                state if state in ("candidate", "promoting") else "", _short(raw.get("reason")) or unless,
            )  # fmt: skip


def _objects(value: object) -> list[JsonObject]:
    return objects(value[:MOST_LISTED]) if isinstance(value, list) else []


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _names(value: object) -> list[str]:
    return [_short(one) for one in value[:MOST_LISTED] if isinstance(one, str)] if isinstance(value, list) else []


def _node_number(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST_NUMBER else None


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 63 else None


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < MOST_SECONDS else None


def _short(value: object) -> str:
    return text(value)[:LONGEST_TEXT]
