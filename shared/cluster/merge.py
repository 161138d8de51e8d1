"""The state of a replicated cluster, merged from the answers of its nodes to /cluster. Pure.

Only answers that are current may go in: a node without one is shown as the others know it. A command to copy contains no text
that a node sent, but the address that answered.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from shared.cluster.answer import FORGOTTEN, MEMBER, NO_RECORD, STANDINGS, Answer, MemberRecord, read_answer
from shared.cluster.logs import MOST_LOGS, logs_of, new_leaders, several_leaders
from shared.cluster.state import (
    DOWN,
    NO_ANSWER,
    RESTARTING,
    SUSPECTED,
    UP,
    ClusterState,
    ClusterStates,
    LogCopy,
    LogState,
    MemberState,
)
from shared.json_fields import JsonObject

MOST_CLUSTERS, MOST_NODES, MOST_COPIES = 50, 200, 1000  # that are listed: clusters, and nodes and copies of each
MOST_ISSUES = 100


def cluster_states(answers: Mapping[str, JsonObject]) -> ClusterStates:
    """Return the clusters by name, and errors of invalid answers. `answers` has the current /cluster of nodes by address."""
    by_name: dict[str, list[Answer]] = {}
    errors = []
    for asked, data in answers.items():
        answer = read_answer(asked, data)
        if answer is None:
            errors.append(f"{asked}/cluster: the answer has no name of a cluster or no number of a node")
        else:
            by_name.setdefault(answer.name, []).append(answer)
    return ClusterStates(errors, [_merged(name, by_name[name]) for name in sorted(by_name)[:MOST_CLUSTERS]])


def _merged(name: str, found: Iterable[Answer]) -> ClusterState:
    cluster = ClusterState(name)
    answers: dict[int, Answer] = {}
    for answer in sorted(found, key=lambda one: one.asked):
        known = answers.get(answer.node)
        if known is not None:
            both = f"{known.asked} and {answer.asked} both answer as node {answer.node}"
            cluster.issues.append(f"{both}. Each node needs a -node-id of its own.")
        if known is None or answer.incarnation_of(answer.node) > known.incarnation_of(answer.node):
            answers[answer.node] = answer
    cluster.issues += _older_runs(answers)
    cluster.issues += _forgotten_runs(answers)
    logs = logs_of(answers)
    quorums = sorted({answer.quorum for answer in answers.values() if answer.quorum})
    cluster.quorum = quorums[0] if len(quorums) == 1 else ""
    cluster.issues += several_leaders(logs)
    cluster.logs, cluster.logs_left_out = logs[:MOST_LOGS], max(0, len(logs) - MOST_LOGS)
    cluster.refused = [one for _, answer in sorted(answers.items()) for one in answer.refused][:MOST_ISSUES]
    taken = new_leaders(logs)
    latest = _latest(answers)
    links = _links(answers)
    suspects: dict[int, list[int]] = {}
    restarting: set[int] = set()
    for by, answer in sorted(answers.items()):
        for one, record in answer.records.items():
            if one != by and record.suspected:
                suspects.setdefault(one, []).append(by)
            elif one != by and record.restarting:
                restarting.add(one)
    copies = _copies(answers, latest)
    for log in logs:
        log.replicas = _replicas(log, answers, latest)
    members = {one for one, record in latest.items() if record.standing == MEMBER} | set(answers)
    for one, record in sorted(latest.items()):
        suspected_by = suspects.get(one, [])
        state = _state(one in answers, record, links.get(one, set()), suspected_by, one in restarting)
        node = _node(one, record, state, answers.get(one))
        node = replace(
            node,
            connected_to=sorted(links.get(one, ())), others=len(members - {one}), suspected_by=suspected_by,
            led_by=taken.get(record.log_id),
        )  # fmt: skip
        cluster.nodes.append(_with_recovery(node, answers, copies) if state == DOWN else node)
    # Nodes that only others report are left out first: a false report may have invented them.
    listed = sorted(cluster.nodes, key=lambda node: not node.asked)[:MOST_NODES]
    cluster.nodes_left_out = len(cluster.nodes) - len(listed)
    cluster.nodes = sorted(listed, key=lambda node: node.node)
    copies.sort(key=lambda copy: (copy.leader not in answers, copy.leader, copy.follower, copy.log_id))
    cluster.copies_left_out = max(0, len(copies) - MOST_COPIES)
    cluster.copies = sorted(copies[:MOST_COPIES], key=lambda copy: (copy.leader, copy.follower, copy.log_id))
    del cluster.issues[MOST_ISSUES:]
    return cluster


def _latest(answers: Mapping[int, Answer]) -> dict[int, MemberRecord]:
    """Return the record of each node: its own, or the one with the greatest incarnation, then the latest standing."""
    found: dict[int, tuple[tuple[bool, int, int], MemberRecord]] = {}
    for by, answer in sorted(answers.items()):
        for one, record in answer.records.items():
            order = one == by, record.incarnation, STANDINGS.index(record.standing)
            if one not in found or order > found[one][0]:
                found[one] = order, record
    unknown = {one for one in answers if one not in found}
    return {one: record for one, (_, record) in found.items()} | dict.fromkeys(unknown, NO_RECORD)


def _older_runs(answers: Mapping[int, Answer]) -> Iterator[str]:
    """Yield which nodes answer though others know a later run of them."""
    for one, answer in sorted(answers.items()):
        knowing = [
            by for by, other in sorted(answers.items()) if other.incarnation_of(one) > answer.incarnation_of(one)
        ]
        if knowing:
            names = ", ".join(map(str, knowing[:10]))
            yield f"{answer.asked} answers as node {one}, but a later run of this node is known to node {names}."


def _forgotten_runs(answers: Mapping[int, Answer]) -> Iterator[str]:
    """Yield the nodes that respond though others have forgotten their log."""
    for one, answer in sorted(answers.items()):
        known = {by: other.records.get(one) for by, other in sorted(answers.items()) if by != one}
        own = answer.records.get(one)
        gone = [
            by
            for by, record in known.items()
            if record and own and (record.standing, record.log_id) == (FORGOTTEN, own.log_id)
        ]
        if gone:
            names = ", ".join(map(str, gone[:10]))
            who = f"node {names} refuses" if len(gone) == 1 else f"nodes {names} refuse"
            yield f"{answer.asked} answers as node {one}, which was forgotten: {who} it with its log."


def _links(answers: Mapping[int, Answer]) -> dict[int, set[int]]:
    """Return to which nodes each one is connected. A connection counts if no end of it that answers denies it."""
    found: dict[int, set[int]] = {}
    for by, answer in answers.items():
        for one, record in answer.records.items():
            other = answers[one].records.get(by) if one in answers else record
            if one != by and record.connected and other is not None and other.connected:
                found.setdefault(by, set()).add(one)
                found.setdefault(one, set()).add(by)
    return found


def _state(answers: bool, record: MemberRecord, links: set[int], suspected_by: list[int], is_restarting: bool) -> str:
    if not answers and record.standing != MEMBER and not links:
        return record.standing
    if suspected_by:
        return SUSPECTED if answers or links else DOWN
    if is_restarting:
        return RESTARTING
    if answers:
        return UP
    return NO_ANSWER if links else DOWN


def _node(one: int, record: MemberRecord, state: str, answer: Answer | None) -> MemberState:
    """Return a node without what follows from the answers of the others."""
    possible = wanted = given_up = None
    if answer is not None:
        in_sync = sum(copy.state == "in sync" for copy in answer.followers.values())
        possible = answer.available if answer.available is not None else 1 + in_sync
        wanted = 1 + len({*answer.followers, *answer.away})
        given_up = answer.given_up
    asked = answer.asked if answer is not None else ""
    node = MemberState(one, record.address, record.http_address, asked, state, [], 0, [], possible, wanted, given_up)
    if answer is None:
        return node
    return replace(
        node, knows_configs=answer.knows_configs, refusing=answer.refusing, refusing_count=answer.refusing_count
    )


def _replicas(log: LogState, answers: Mapping[int, Answer], latest: Mapping[int, MemberRecord]) -> list[int]:
    """Return the nodes in addition to its leader that have all of a log; for a promoted or lost log by their own answers."""
    leader = answers.get(log.leader) if log.leader is not None else None
    holding = {by for by, answer in answers.items() if by != log.leader and answer.holds(log.log_id)}
    if leader is None or log.leader is None:
        return sorted(holding)
    if latest[log.leader].log_id == log.log_id:
        return sorted(one for one, copy in leader.followers.items() if copy.state == "in sync")
    return sorted(by for by in holding if by in leader.records and leader.records[by].connected)


def _copies(answers: Mapping[int, Answer], latest: Mapping[int, MemberRecord]) -> list[LogCopy]:
    """Return all copies of logs that leaders or followers report. Of contradictions, the worse is used."""
    found: dict[tuple[int, int, str], LogCopy] = {}
    for leader, answer in answers.items():
        log_id = latest[leader].log_id
        for one in answer.away:
            found[leader, one, log_id] = LogCopy(leader, one, log_id, "away", behind=None, written=None, durable=None)
        for one, copy in answer.followers.items():
            found[leader, one, log_id] = replace(copy, log_id=log_id)
    for follower, answer in answers.items():
        for replica in answer.replicas.values():
            key = replica.leader, follower, replica.log_id
            record = latest.get(replica.leader)
            if record is not None and record.log_id and record.log_id != replica.log_id:
                found[key] = replace(replica, state="other log")
            elif replica.leader not in answers:
                found[key] = replica
            elif key not in found:
                found[key] = replace(replica, state="unused")
            else:
                found[key] = _of_both(found[key], replica)
    return _with_lag(found.values(), answers)


def _of_both(led: LogCopy, replica: LogCopy) -> LogCopy:
    """Return a copy that both its leader and its follower report."""
    if replica.failure:
        return replace(led, state="failed", failure=replica.failure)
    if led.state == "away":
        return replace(led, written=replica.written, durable=replica.durable)
    return led


def _with_lag(copies: Iterable[LogCopy], answers: Mapping[int, Answer]) -> list[LogCopy]:
    """Return the copies; those of a node that does not answer with what they lack of the longest one."""
    listed = list(copies)
    longest: dict[tuple[int, str], int] = {}
    for copy in listed:
        longest[copy.leader, copy.log_id] = max(copy.written or 0, longest.get((copy.leader, copy.log_id), 0))
    return [
        replace(copy, behind=longest[copy.leader, copy.log_id] - (copy.written or 0))
        if copy.leader not in answers and copy.state in ("complete", "incomplete")
        else copy
        for copy in listed
    ]


def _with_recovery(node: MemberState, answers: Mapping[int, Answer], copies: Iterable[LogCopy]) -> MemberState:
    """Return a node that is down, with the position of the longest copy of its log, and the command that fetches it."""
    usable = [copy for copy in copies if copy.leader == node.node and copy.state == "complete"]
    if not usable or node.led_by is not None:  # its log continues elsewhere
        return node
    longest = max(usable, key=lambda copy: (copy.written or 0, copy.durable or 0))
    source = shlex.quote(answers[longest.follower].asked)
    return replace(
        node,
        last_position=longest.written,
        recover=f"penstock recover DATA-PATH --node {node.node} --from {source}",
    )
