"""The state of a replicated cluster, merged from what its nodes answer on /cluster. Pure.

Only answers that are current may go in: a node without one is shown as the others know it. Nodes may lie: a value of a wrong
type counts as absent, lists are cut, and a command to copy contains no text that a node sent, but the address that answered.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace

from admin.cluster import PartialResult
from admin.merge import JsonObject, number, objects, text
from admin.views import count, size

MOST_NUMBER = 1023  # of a node
MOST_LISTED = 1024  # entries of one list of an answer that are read
MOST_CLUSTERS, MOST_NODES, MOST_COPIES = 50, 200, 1000  # that are listed: clusters, and nodes and copies of each
MOST_ISSUES = 100
LONGEST_TEXT = 200  # characters of an address or a reason
UP, DOWN, SUSPECTED, RESTARTING, NO_ANSWER = "up", "down", "suspected", "restarting", "no answer"
MEMBER = "member"
_STANDINGS = (MEMBER, "left", "forgotten")  # the later one holds


@dataclass(frozen=True, slots=True)
class LogCopy:
    """A copy of a node's log on another node."""

    owner: int
    follower: int
    log_id: str
    # in sync, catching up, failed, away (the owner has no connection to it); if the owner does not answer, complete or
    # incomplete; unused (the owner does not write to it), other log (the owner has another log now)
    state: str
    behind: int | None  # bytes that the copy lacks, of the log or else of the longest copy; None: unknown
    written: int | None  # position up to which it has the log; None: unknown
    durable: int | None
    failure: str = ""  # the reason, if it failed

    @property
    def is_bad(self) -> bool:
        """True if somebody has to act."""
        return self.state in ("failed", "away", "incomplete")


@dataclass(frozen=True, slots=True)
class MemberState:
    """A node of the cluster."""

    node: int
    address: str  # where the other nodes reach it
    http_address: str
    asked: str  # the HTTP address under which nsqadmin got its answer; "": it did not answer
    state: str  # up, down, suspected, restarting, no answer, left or forgotten
    connected_to: list[int]
    others: int  # members besides this node
    suspected_by: list[int]
    copies_possible: int | None  # copies of a message of its topics that are possible now; None: unknown
    copies_wanted: int | None
    replies_given_up: int | None
    last_position: int | None = None  # of a node that is down: how far the longest copy of its log is; None: no copy
    recover: str = ""  # the command that makes its data directory again, if it is down

    @property
    def is_bad(self) -> bool:
        """True if somebody has to act."""
        return self.state in (DOWN, SUSPECTED)


@dataclass(slots=True)
class ClusterState:
    """A cluster: its nodes by number, the copies of their logs, and contradictions between answers."""

    name: str
    nodes: list[MemberState] = field(default_factory=list)
    copies: list[LogCopy] = field(default_factory=list)
    nodes_left_out: int = 0
    copies_left_out: int = 0
    issues: list[str] = field(default_factory=list)

    def json(self) -> JsonObject:
        """Return the cluster in the form of /api/cluster."""
        return asdict(self)

    def alarms(self) -> Iterator[tuple[str, str]]:
        """Yield what an operator should look at: (severity, words)."""
        for one in self.nodes:
            if one.is_bad:
                yield "bad", f"node {one.node} of cluster {self.name} is {one.state}"
        for one in self.nodes:
            if words := shortage(one):
                yield "warn", f"node {one.node} of cluster {self.name}: {words}"
        for copy in self.copies:
            if copy.state == "failed":
                yield "bad", f"node {copy.follower} cannot copy the log of node {copy.owner}: {copy.failure}"


@dataclass(slots=True)
class ClusterStates(PartialResult):
    """All clusters, by name, and the errors of invalid answers."""

    clusters: list[ClusterState] = field(default_factory=list)


def shortage(one: MemberState) -> str:
    """Return what it means for topics that fewer copies are possible than the node's followers would allow, or ""."""
    possible, wanted = one.copies_possible, one.copies_wanted
    if possible is None or wanted is None or possible >= wanted:
        return ""
    copies = "1 copy is" if possible == 1 else f"{possible} copies are"
    return f"only {copies} possible now; topics with replicate={possible + 1} or more reject publishes"


@dataclass(frozen=True, slots=True)
class _Word:
    """What a node knows of a node."""

    address: str
    http_address: str
    standing: str
    connected: bool
    suspected: bool
    restarting: bool
    incarnation: int
    log_id: str


_NO_WORD = _Word("", "", MEMBER, connected=False, suspected=False, restarting=False, incarnation=0, log_id="")


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a node answered, with nothing in it that may not be there."""

    asked: str
    name: str
    node: int
    words: dict[int, _Word]
    available: int | None
    given_up: int | None
    away: list[int]
    followers: dict[int, LogCopy]  # copies of its own log
    mirrors: dict[tuple[int, str], LogCopy]  # copies that it has, by owner and log

    def incarnation_of(self, number: int) -> int:
        """Return the incarnation of a node that this one knows, 0 for none."""
        word = self.words.get(number)
        return word.incarnation if word is not None else 0


def cluster_states(answers: Mapping[str, JsonObject]) -> ClusterStates:
    """Return the clusters by name, and errors of invalid answers. `answers` has the current /cluster of nodes by address."""
    by_name: dict[str, list[_Answer]] = {}
    errors = []
    for asked, data in answers.items():
        answer = _read(asked, data)
        if answer is None:
            errors.append(f"{asked}/cluster: the answer has no name of a cluster or no number of a node")
        else:
            by_name.setdefault(answer.name, []).append(answer)
    return ClusterStates(errors, [_merged(name, by_name[name]) for name in sorted(by_name)[:MOST_CLUSTERS]])


# One answer


def _read(asked: str, data: JsonObject) -> _Answer | None:
    name, own = text(data.get("name"))[:LONGEST_TEXT], _node_number(data.get("node"))
    if not name or own is None:
        return None
    words = {number: _word(one) for number, one in _numbered(data.get("nodes"))}
    log_id = words[own].log_id if own in words else ""
    raw = data.get("copies")
    copies: JsonObject = raw if isinstance(raw, dict) else {}
    away = copies.get("away")
    numbers = map(_node_number, away[:MOST_LISTED]) if isinstance(away, list) else ()
    available = _count(copies.get("available"))
    return _Answer(
        asked, name, own, words,
        available=available if available is not None and 1 <= available <= MOST_NUMBER + 1 else None,
        given_up=_count(copies.get("replies_given_up")),
        away=sorted({one for one in numbers if one is not None and one != own}),
        followers={one: _follower(own, one, log_id, raw) for one, raw in _numbered(data.get("followers")) if one != own},
        mirrors={(one.owner, one.log_id): one for one in _mirrors(own, data.get("mirrors"))},
    )  # fmt: skip


def _numbered(value: object) -> Iterator[tuple[int, JsonObject]]:
    """Yield the objects of a list that have a node number, with it; the first of each number."""
    known = set()
    for one in objects(value[:MOST_LISTED]) if isinstance(value, list) else ():
        found = _node_number(one.get("node"))
        if found is not None and found not in known:
            known.add(found)
            yield found, one


def _word(raw: JsonObject) -> _Word:
    standing = text(raw.get("standing"))
    return _Word(
        address=_short(raw.get("address")),
        http_address=_short(raw.get("http_address")),
        standing=standing if standing in _STANDINGS else MEMBER,
        connected=raw.get("connected") is True,
        suspected=raw.get("suspected") is True,
        restarting=raw.get("restarting") is True,
        incarnation=max(0, number(raw.get("incarnation"))),
        log_id=_short(raw.get("log_id")),
    )


def _follower(owner: int, follower: int, log_id: str, raw: JsonObject) -> LogCopy:
    state, failure = text(raw.get("state")), _short(raw.get("failure"))
    if state not in ("in sync", "failed"):
        state = "catching up"
    return LogCopy(
        owner, follower, log_id, "failed" if failure else state,
        behind=_count(raw.get("behind")), written=_count(raw.get("written")) or 0, durable=_count(raw.get("durable")) or 0,
        failure=failure,
    )  # fmt: skip


def _mirrors(follower: int, value: object) -> Iterator[LogCopy]:
    for raw in objects(value[:MOST_LISTED]) if isinstance(value, list) else ():
        owner, failure = _node_number(raw.get("node")), _short(raw.get("failure"))
        if owner is None or owner == follower:
            continue
        yield LogCopy(
            owner, follower, _short(raw.get("log_id")),
            "failed" if failure else "complete" if raw.get("complete") is True else "incomplete",
            behind=None, written=_count(raw.get("written")) or 0, durable=_count(raw.get("durable")) or 0, failure=failure,
        )  # fmt: skip


def _node_number(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST_NUMBER else None


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 63 else None


def _short(value: object) -> str:
    return text(value)[:LONGEST_TEXT]


# All answers of one cluster


def _merged(name: str, found: Iterable[_Answer]) -> ClusterState:
    cluster = ClusterState(name)
    answers: dict[int, _Answer] = {}
    for answer in sorted(found, key=lambda one: one.asked):
        known = answers.get(answer.node)
        if known is not None:
            both = f"{known.asked} and {answer.asked} both answer as node {answer.node}"
            cluster.issues.append(f"{both}. Each node needs a -node-id of its own.")
        if known is None or answer.incarnation_of(answer.node) > known.incarnation_of(answer.node):
            answers[answer.node] = answer
    cluster.issues += _older_runs(answers)
    latest = _latest(answers)
    links = _links(answers)
    suspects: dict[int, list[int]] = {}
    restarting: set[int] = set()
    for by, answer in sorted(answers.items()):
        for one, word in answer.words.items():
            if one != by and word.suspected:
                suspects.setdefault(one, []).append(by)
            elif one != by and word.restarting:
                restarting.add(one)
    copies = _copies(answers, latest)
    members = {one for one, word in latest.items() if word.standing == MEMBER} | set(answers)
    for one, word in sorted(latest.items()):
        suspected_by = suspects.get(one, [])
        state = _state(one in answers, word, links.get(one, set()), suspected_by, one in restarting)
        node = _node(one, word, state, answers.get(one))
        node = replace(
            node,
            connected_to=sorted(links.get(one, ())), others=len(members - {one}), suspected_by=suspected_by
        )  # fmt: skip
        cluster.nodes.append(_with_recovery(node, answers, copies) if state == DOWN else node)
    # What only others tell of is left out first: a node that lies may have made it up.
    listed = sorted(cluster.nodes, key=lambda node: not node.asked)[:MOST_NODES]
    cluster.nodes_left_out = len(cluster.nodes) - len(listed)
    cluster.nodes = sorted(listed, key=lambda node: node.node)
    copies.sort(key=lambda copy: (copy.owner not in answers, copy.owner, copy.follower, copy.log_id))
    cluster.copies_left_out = max(0, len(copies) - MOST_COPIES)
    cluster.copies = sorted(copies[:MOST_COPIES], key=lambda copy: (copy.owner, copy.follower, copy.log_id))
    del cluster.issues[MOST_ISSUES:]
    return cluster


def _latest(answers: Mapping[int, _Answer]) -> dict[int, _Word]:
    """Return the word that holds about each node: its own, or else that of the greatest incarnation and the latest standing."""
    found: dict[int, tuple[tuple[bool, int, int], _Word]] = {}
    for by, answer in sorted(answers.items()):
        for one, word in answer.words.items():
            order = one == by, word.incarnation, _STANDINGS.index(word.standing)
            if one not in found or order > found[one][0]:
                found[one] = order, word
    unknown = {one for one in answers if one not in found}
    return {one: word for one, (_, word) in found.items()} | dict.fromkeys(unknown, _NO_WORD)


def _older_runs(answers: Mapping[int, _Answer]) -> Iterator[str]:
    """Yield which nodes answer though others know a later run of them."""
    for one, answer in sorted(answers.items()):
        knowing = [
            by for by, other in sorted(answers.items()) if other.incarnation_of(one) > answer.incarnation_of(one)
        ]
        if knowing:
            names = ", ".join(map(str, knowing[:10]))
            yield f"{answer.asked} answers as node {one}, but a later run of this node is known to node {names}."


def _links(answers: Mapping[int, _Answer]) -> dict[int, set[int]]:
    """Return to which nodes each one is connected. A connection counts if no end of it that answers denies it."""
    found: dict[int, set[int]] = {}
    for by, answer in answers.items():
        for one, word in answer.words.items():
            other = answers[one].words.get(by) if one in answers else word
            if one != by and word.connected and other is not None and other.connected:
                found.setdefault(by, set()).add(one)
                found.setdefault(one, set()).add(by)
    return found


def _state(answers: bool, word: _Word, links: set[int], suspected_by: list[int], is_restarting: bool) -> str:
    if not answers and word.standing != MEMBER and not links:
        return word.standing
    if suspected_by:
        return SUSPECTED if answers or links else DOWN
    if is_restarting:
        return RESTARTING
    if answers:
        return UP
    return NO_ANSWER if links else DOWN


def _node(one: int, word: _Word, state: str, answer: _Answer | None) -> MemberState:
    """Return a node without what follows from the answers of the others."""
    possible = wanted = given_up = None
    if answer is not None:
        in_sync = sum(copy.state == "in sync" for copy in answer.followers.values())
        possible = answer.available if answer.available is not None else 1 + in_sync
        wanted = 1 + len({*answer.followers, *answer.away})
        given_up = answer.given_up
    asked = answer.asked if answer is not None else ""
    return MemberState(one, word.address, word.http_address, asked, state, [], 0, [], possible, wanted, given_up)


def _copies(answers: Mapping[int, _Answer], latest: Mapping[int, _Word]) -> list[LogCopy]:
    """Return all copies of logs that owners or followers report. Of contradictions, the worse is believed."""
    found: dict[tuple[int, int, str], LogCopy] = {}
    for owner, answer in answers.items():
        log_id = latest[owner].log_id
        for one in answer.away:
            found[owner, one, log_id] = LogCopy(owner, one, log_id, "away", behind=None, written=None, durable=None)
        for one, copy in answer.followers.items():
            found[owner, one, log_id] = replace(copy, log_id=log_id)
    for follower, answer in answers.items():
        for mirror in answer.mirrors.values():
            key = mirror.owner, follower, mirror.log_id
            word = latest.get(mirror.owner)
            if word is not None and word.log_id and word.log_id != mirror.log_id:
                found[key] = replace(mirror, state="other log")
            elif mirror.owner not in answers:
                found[key] = mirror
            elif key not in found:
                found[key] = replace(mirror, state="unused")
            else:
                found[key] = _of_both(found[key], mirror)
    return _with_lag(found.values(), answers)


def _of_both(owned: LogCopy, mirror: LogCopy) -> LogCopy:
    """Return a copy of which its owner and its follower tell."""
    if mirror.failure:
        return replace(owned, state="failed", failure=mirror.failure)
    if owned.state == "away":
        return replace(owned, written=mirror.written, durable=mirror.durable)
    return owned


def _with_lag(copies: Iterable[LogCopy], answers: Mapping[int, _Answer]) -> list[LogCopy]:
    """Return the copies; those of a node that does not answer with what they lack of the longest one."""
    listed = list(copies)
    longest: dict[tuple[int, str], int] = {}
    for copy in listed:
        longest[copy.owner, copy.log_id] = max(copy.written or 0, longest.get((copy.owner, copy.log_id), 0))
    return [
        replace(copy, behind=longest[copy.owner, copy.log_id] - (copy.written or 0))
        if copy.owner not in answers and copy.state in ("complete", "incomplete")
        else copy
        for copy in listed
    ]


def _with_recovery(node: MemberState, answers: Mapping[int, _Answer], copies: Iterable[LogCopy]) -> MemberState:
    """Return a node that is down with the figures of the longest copy of its log, and the command that fetches it."""
    usable = [copy for copy in copies if copy.owner == node.node and copy.state == "complete"]
    if not usable:
        return node
    longest = max(usable, key=lambda copy: (copy.written or 0, copy.durable or 0))
    source = shlex.quote(answers[longest.follower].asked)
    return replace(
        node,
        last_position=longest.written,
        recover=f"penstock recover DATA-PATH --node {node.node} --from {source}",
    )


def copy_row(copy: LogCopy) -> JsonObject:
    """Return a copy as the page shows it."""
    left = " left" if copy.state == "catching up" else ""
    return asdict(copy) | {
        "lag": f"{size(copy.behind)}{left}" if copy.behind is not None else "-",
        "written": count(copy.written) if copy.written is not None else "-",
        "durable": count(copy.durable) if copy.durable is not None else "-",
        "is_bad": copy.is_bad,
    }
