"""What comes to an end in a simulated cluster when all is well and nobody publishes: files that are not needed, and waiting.

* A node keeps a replica only of a log whose leader has it among its followers, and none of a closed log.
* Promoted logs and old logs that are closed are gone, and so is every file that was only begun.
* No reply, election, vote or promotion waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.nsqd.core.node import MS, SECOND

if TYPE_CHECKING:
    from tests.simulation.cluster import ClusterRun
    from tests.simulation.machine import Machine

WITHIN = 200 * SECOND


def judge_bounds(run: ClusterRun) -> None:
    """Let time pass until nothing is left that should go. AssertionError if something stays."""
    run.is_healing = True
    deadline = run.now + WITHIN
    while left := [one for machine in run.members for one in _left(run, machine)]:
        assert run.now < deadline, f"it stays: {left}"
        run.step(250 * MS)
    run.is_healing = False


def _left(run: ClusterRun, machine: Machine) -> list[str]:
    """Return what a machine has or waits for that should have an end."""
    node, name = machine.node, machine.name
    if node is None:
        return [f"{name} is down"]
    left = [f"{name} keeps {one}" for one in _needless(run, machine)]
    if node.replies:
        left.append(f"{len(node.replies)} replies wait at {name}")
    if node.elections.attempt is not None:
        left.append(f"{name} claims {node.elections.attempt.case.log_id.hex()[:6]}")
    if node.facts_file.is_busy:
        left.append(f"{name} writes what it knows")
    if node.cluster.is_leaving:
        left.append(f"{name} leaves")
    return left


def _needless(run: ClusterRun, machine: Machine) -> list[str]:
    """Return what is on the disks of a machine that nobody needs."""
    node, disks = machine.node, machine.disks
    assert node is not None
    closed = node.cluster.leaders.closed
    needless = [
        f"the replica of {log_id.hex()[:6]}" for log_id in disks.replicas if not _is_needed(run, machine, log_id)
    ]
    needless += [
        f"the promoted log {log_id.hex()[:6]}, which is closed" for log_id in disks.promoted if log_id in closed
    ]
    needless += [
        f"an old log {one.log_id.hex()[:6]}, which is closed" for one in disks.old_logs if one.log_id in closed
    ]
    needless += [file for disk in disks.all() for file in disk.names() if file.endswith(".partial")]
    return needless


def _is_needed(run: ClusterRun, machine: Machine, log_id: bytes) -> bool:
    """Return True if the leader of a log has a machine's node among its followers, or if nobody leads it."""
    leaders = run.leaders().get(log_id, [])
    leader_sides = [one.node.copying.leader_sides.get(log_id) for one in leaders if one.node is not None]
    has_closed = any(log_id in one.node.cluster.leaders.closed for one in run.members if one.node is not None)
    is_orphan = not run.takes_over and not leaders and not has_closed
    return is_orphan or any(
        leader_side is not None and machine.number in leader_side.followers for leader_side in leader_sides
    )
