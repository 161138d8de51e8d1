"""The bounds of a simulated cluster that is well and idle: unneeded files are deleted, and no operation waits forever.

* A node keeps a replica only of a log whose leader has it among its followers, and none of a closed log.
* Promoted logs and old logs that are closed are gone, and so is every file that was only begun.
* No reply, election, vote or promotion waits.
* Every channel drains: consumers of all channels finish what they get, and DRAINED_WITHIN later no message is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.nsqd.core.node import MS, SECOND

if TYPE_CHECKING:
    from tests.simulation.cluster import ClusterRun
    from tests.simulation.cluster_node import ClusterNode, Consumer
    from tests.simulation.machine import Machine

WITHIN = 200 * SECOND
DRAINED_WITHIN = 60 * SECOND  # messages may be deferred for 3 s, and be in flight for 20 s


def judge_bounds(run: ClusterRun) -> None:
    """Let time pass until nothing is left that should go. AssertionError if something stays."""
    run.is_healing = True
    deadline = run.now + WITHIN
    while left := [one for machine in run.members for one in _left(run, machine)]:
        assert run.now < deadline, f"it stays: {left}"
        run.step(250 * MS)
    run.is_healing = False


def judge_drained(run: ClusterRun) -> None:
    """Let consumers at all nodes finish everything. AssertionError if a channel does not drain in time."""
    run.is_healing = True
    began, consumers = run.now, []
    for machine in run.members:
        consumers += _subscribe(run, machine.node)
    while left := {one.name: found for one in run.members if (found := _undelivered(one))}:
        assert run.now < began + DRAINED_WITHIN, f"channels do not drain within {DRAINED_WITHIN // SECOND} s: {left}"
        for consumer in consumers:
            run.finish_seen(consumer)
        run.step(250 * MS)
    run.books.counts["ms until all channels were empty"] += (run.now - began) // MS
    run.is_healing = False


def _subscribe(run: ClusterRun, node: ClusterNode) -> list[Consumer]:
    consumers: list[Consumer] = []

    def subscribe() -> None:
        run.wide.allow_copies(node, len(run.members))
        run.governed.relax(node, True)
        consumers.extend(node.subscribe(name, 1 << 20) for name in run.channel_topics())

    node.turn(subscribe)
    return consumers


def _undelivered(machine: Machine) -> dict[str, int]:
    node = machine.node
    if node is None:
        return {"its node is down": 1}
    topics = [topic for broker in node.broker.logs for topic in broker.topics.values()]
    left = {topic.name: topic.depth + sum(sum(one.counts()) for one in topic.channels.values()) for topic in topics}
    return {name: count for name, count in left.items() if count and name in machine.run.channel_topics()}


def _left(run: ClusterRun, machine: Machine) -> list[str]:
    node, name = machine.node, machine.name
    if node is None:
        return [f"{name} is down"]
    left = [f"{name} keeps {one}" for one in _needless(run, machine)]
    if node.replies:
        left.append(f"{len(node.replies)} replies wait at {name}")
    if node.elections.candidate.attempt is not None:
        left.append(f"{name} claims {node.elections.candidate.attempt.case.log_id.hex()[:6]}")
    if node.facts_file.is_busy:
        left.append(f"{name} writes what it knows")
    if node.cluster.is_leaving:
        left.append(f"{name} leaves")
    return left


def _needless(run: ClusterRun, machine: Machine) -> list[str]:
    node, disks = machine.node, machine.disks
    closed = node.cluster.leaders.closed
    needless = [f"the replica of {one.hex()[:6]}" for one in disks.replicas if not _is_needed(run, machine, one)]
    closed_logs = closed.keys() & {*disks.promoted, *(one.log_id for one in disks.old_logs)}
    needless += [f"{log_id.hex()[:6]}, which is closed" for log_id in closed_logs]
    needless += [file for disk in disks.all() for file in disk.names() if file.endswith(".partial")]
    return needless


def _is_needed(run: ClusterRun, machine: Machine, log_id: bytes) -> bool:
    """Return True if the leader of a log has a machine's node among its followers, or if it has no leader.

    Then nodes may not promote it, or nothing of it is in the replica, and its node is gone permanently.
    """
    leaders = run.leaders().get(log_id, [])
    kept = machine.node.replicas.kept.get(log_id) if machine.node is not None else None
    if not leaders and kept is not None and kept.replica is not None and not kept.replica.end:
        return True
    leader_sides = [one.node.copying.leader_sides.get(log_id) for one in leaders if one.node is not None]
    has_closed = any(log_id in one.node.cluster.leaders.closed for one in run.members if one.node is not None)
    is_orphan = not run.takes_over and not leaders and not has_closed
    followers = {number for one in leader_sides if one is not None for number in one.followers}
    return is_orphan or machine.number in followers
