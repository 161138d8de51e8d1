"""The alarm rules about nodes that have no threshold, and the disks of the nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from admin.alarms.rules import Severity
from admin.alarms.subject import Check, Found, Subject, node_subject
from admin.nodes.cluster import newest_version
from admin.nodes.inventory import NodeState, words_of
from admin.nodes.snapshot import NodeFacts, Snapshot
from admin.nodes.views import size
from admin.times import old
from shared.counted import counted

HANGS = "Check the CPU, memory and disk of its host. If it does not recover, stop the process, and start it again."


def down(look: Snapshot) -> Found:
    """Yield the nodes that do not answer; critical if no other node delivers their messages."""
    for name, one in look.nodes.items():
        if one.state is NodeState.DOWN:
            record = one.record
            words = f"{words_of(record, look.at)}. {record.losses(True, (each.topic for each in record.stuck))}"
            severity = Severity.CRITICAL if record.led_by is None else Severity.WARNING
            subject = node_subject("node-down", name, words, record.held, severity, since=record.failing_since)
            yield replace(subject, advice=HANGS) if record.hangs else subject


def refusing(look: Snapshot) -> Found:
    """Yield the nodes that answer, and reject publishes or are unhealthy."""
    for name, one in look.nodes.items():
        refusal = f"{one.refusal}{old(one.storage_at, look.at)}" if one.refusal else ""
        words = refusal or (one.health if one.health != "OK" else "")
        if words and not one.state.is_gone:
            path = "storage" if one.refusal else ""
            yield node_subject("node-refusing", name, words, severity=Severity.CRITICAL, path=path)


def lookupds(look: Snapshot) -> Found:
    """Yield each nsqlookupd that does not answer; critical if it is all of them."""
    failed = {name: why for name, why in look.lookupds.items() if why}
    severity = Severity.CRITICAL if len(failed) == len(look.lookupds) else Severity.WARNING
    for name, why in failed.items():
        yield node_subject("lookupd-down", name, why[:200], severity=severity, path="lookup")


def unregistered(look: Snapshot) -> Found:
    """Yield the nodes that not every nsqlookupd names which answers."""
    asked = sum(not why for why in look.lookupds.values())
    for name, one in look.nodes.items():
        known = len(one.record.producer.remote_addresses) if one.record.is_named else 0
        if one.state in (NodeState.UP, NodeState.UNREGISTERED) and known < asked:
            words = f"registered with {known} of {counted(asked, 'reachable nsqlookupd')}"
            yield node_subject("node-unregistered", name, words, path="nodes")


def corrupt(look: Snapshot) -> Found:
    """Yield the nodes with bytes of their logs that cannot be read."""
    for name, one in look.nodes.items():
        if one.damage:
            words = f"{size(one.damage)} are corrupt{old(one.storage_at, look.at)}"
            yield node_subject("log-corrupt", name, words, one.damage, Severity.CRITICAL, "storage")


def cut(look: Snapshot) -> Found:
    """Yield the nodes that cut off the end of their logs at the start."""
    for name, one in look.nodes.items():
        if one.torn:
            words = f"{size(one.torn)} were cut off at the last start"
            yield node_subject("log-cut", name, words, one.torn, Severity.INFO, "storage")


def cluster(look: Snapshot) -> Found:
    """Yield the problems that the members of a cluster report."""
    for cluster in look.clusters:
        for one in cluster.problems():
            severity = Severity.CRITICAL if one.is_critical else Severity.WARNING
            key = f"{cluster.name}: {one.subject}: {one.kind}"[:200]
            yield Subject("cluster", key, one.subject[:200], "cluster", one.words[:300], 0.0, severity)


def versions(look: Snapshot) -> Found:
    """Yield the nodes that run an older version than the newest one."""
    running = {name: one.record.producer for name, one in look.nodes.items() if not one.state.is_gone}
    older = set[str]()
    for key in ("version", "penstock_version"):
        versions = {name: getattr(one, key) for name, one in running.items() if getattr(one, key)}
        newest = newest_version(versions.values())
        older |= {name for name, version in versions.items() if newest_version((version,)) != newest}
    for name in sorted(older):
        yield node_subject("version-skew", name, f"runs {running[name].runs}", severity=Severity.INFO, path="nodes")


def draining(look: Snapshot) -> Found:
    """Yield the nodes that an operator drains, and the number of messages left on them."""
    for name, one in look.nodes.items():
        if one.record.is_draining and not one.state.is_gone:
            left = f"{counted(one.record.held, 'message')} left{old(one.record.held_at, look.at)}"
            if not one.record.held:
                left = "no message left, but jobs, schedules or batches, which the node's page counts"
            words = "drained: it can be stopped" if one.record.is_drained else left
            yield node_subject("draining", name, words, severity=Severity.INFO)


def too_many(look: Snapshot) -> Found:
    """Yield one subject if nodes left out channels that need attention."""
    if look.left_out:
        words = f"{counted(look.left_out, 'more channel')} in need of attention, not listed"
        yield Subject("too-many", "channels", "channels", "", words, look.left_out, Severity.WARNING)


CHECKS: Mapping[str, Check] = {
    "node-down": down, "node-refusing": refusing, "lookupd-down": lookupds, "node-unregistered": unregistered,
    "log-corrupt": corrupt, "log-cut": cut, "cluster": cluster, "version-skew": versions, "draining": draining,
    "too-many": too_many,
}  # fmt: skip


def disks(look: Snapshot) -> Iterator[tuple[list[str], NodeFacts, str]]:
    """Yield each disk once: its nodes, the newest facts about it, and a text about all nodes but the first.

    Nodes of one host whose disks have the same size are taken to have one disk.
    """
    found: dict[tuple[str, int], list[str]] = {}
    for name, one in look.nodes.items():
        if one.disk_total and not one.state.is_gone:
            host = one.record.producer.hostname or one.record.producer.broadcast_address
            found.setdefault((host, one.disk_total), []).append(name)
    for names in found.values():
        first = max((look.nodes[name] for name in names), key=lambda one: one.storage_at)  # the newest one
        others = f"; also the disk of {', '.join(names[1:5])}" if len(names) > 1 else ""
        others += f" and {len(names) - 5} more" if len(names) > 5 else ""
        yield names, first, old(first.storage_at, look.at) + others
