"""The leader of each log of a cluster, and the failovers of lost nodes' logs, merged from all responses. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shared.cluster.answer import Answer, ElectionState
from shared.cluster.state import CLOSED, LOST, LogState, Taker

MOST_LOGS = 1000  # that are listed


def logs_of(answers: Mapping[int, Answer]) -> list[LogState]:
    """Return all logs that nodes lead, have closed, or whose lost leader they know; by the node that published into them."""
    found: dict[str, LogState] = {}
    for by, answer in sorted(answers.items()):
        for one in answer.led:
            if one.log_id in found:
                found[one.log_id].also_led_by.append(by)
            else:
                found[one.log_id] = LogState(one.log_id, one.node, by, one.state, batches=one.batches)
    for log_id, leader, takers in _lost(answers):
        if log_id not in found:
            found[log_id] = LogState(log_id, _publisher(answers, log_id), leader, LOST, takers)
        else:  # its leader responds, but not to others: their failover matters only once it is in progress
            found[log_id].takers = [one for one in takers if one.state]
    for _, answer in sorted(answers.items()):
        for log_id, node in answer.closed.items():
            found.setdefault(log_id, LogState(log_id, node, None, CLOSED))
    return sorted(found.values(), key=lambda one: (one.node is None, one.node or 0, one.state == CLOSED, one.log_id))


def several_leaders(logs: list[LogState]) -> Iterator[str]:
    """Yield the logs that several nodes lead, by their own responses."""
    for one in logs:
        if one.also_led_by:
            names = ", ".join(map(str, [one.leader, *one.also_led_by[:10]]))
            yield f"Nodes {names} all say that they lead the log {one.log_id} of node {one.node}."


def new_leaders(logs: list[LogState]) -> dict[str, int]:
    """Return which node has promoted a log of another one, by log id."""
    return {
        one.log_id: one.leader
        for one in logs
        if one.leader is not None and one.leader != one.node and one.state not in (LOST, CLOSED)
    }


def _lost(answers: Mapping[int, Answer]) -> Iterator[tuple[str, int, list[Taker]]]:
    """Yield each log whose leader a node has lost: its id, the leader by the latest epoch, and what each such node does."""
    by_log: dict[str, list[tuple[int, ElectionState]]] = {}
    for by, answer in sorted(answers.items()):
        for one in answer.elections:
            by_log.setdefault(one.log_id, []).append((by, one))
    for log_id, elections in by_log.items():
        latest = max((one for _, one in elections), key=lambda one: one.epoch)
        takers = [
            Taker(by, one.state, one.is_clean, one.reason, answers[by].holds(log_id))
            for by, one in elections
            if one.is_lost and one.epoch == latest.epoch
        ]
        if takers:
            yield log_id, latest.leader, takers


def _publisher(answers: Mapping[int, Answer], log_id: str) -> int | None:
    """Return which node published into a log, as nodes that have a copy of it or know its publisher say; None: unknown."""
    for answer in answers.values():
        for leader, known in answer.replicas:
            if known == log_id:
                return leader
        for node, record in answer.records.items():
            if record.log_id == log_id:
                return node
    return None
