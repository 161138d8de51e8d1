"""The subjects of each alarm rule, found in the latest snapshot of the nodes and those before it. Pure."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import quote

from admin.alarms import node_checks
from admin.alarms.past import LONGEST_WINDOW, SPACING, Past
from admin.alarms.rules import RULES, Severity, Thresholds
from admin.alarms.subject import Check, Found, Subject, channel_subject, node_subject, topic_subject
from admin.nodes.snapshot import OWN, ChannelFigures, Key, Snapshot
from admin.nodes.views import count, duration, size
from admin.times import old, second
from shared.counted import counted
from shared.values import SECOND

DAY = 86_400 * SECOND
UNPAUSE = "Unpause it. Nothing is delivered until then."
INCLUDED_IN = {
    "buried": "buried-growing",
    "backlog-growing-slowly": "backlog-growing",
}  # by rule: another that includes it
PARTS = (0.75, 0.5, 0.25)  # of the window of a backlog that grows slowly
NONE = ChannelFigures(*(0,) * 12, paused=False)


class Checks:
    """Checks all rules against a snapshot."""

    def __init__(self, thresholds: Thresholds) -> None:
        self.thresholds = thresholds
        self._value = thresholds.value
        self.past = Past()
        checks: dict[str, Check] = {
            **node_checks.CHECKS,
            "buried-growing": self._buried_growing, "buried": self._buried, "failures": self._failures,
            "consumers-lost": self._lost,
            "channel-without-consumer": self._without_consumer, "backlog-growing": self._growing,
            "backlog-growing-slowly": self._growing_slowly,
            "oldest-message": self._oldest, "topic-without-channel": self._without_channel, "paused": self._paused,
            "tube-buried": self._tubes, "cursor-lag": self._cursors, "disk-low": self._disk_low, "disk-days": self._disk_days,
            "sync-slow": self._sync_slow, "clock-skew": self._clocks,
            "certificate-expiring": self._certificates, "replies-given-up": self._given_up,
        }  # fmt: skip
        self._checks = {rule.name: checks[rule.name] for rule in RULES}

    def current(self, subject: Subject, look: Snapshot) -> str:
        """Return the value now of a subject whose condition has ended, as text; "" if it is not known."""
        node = look.nodes.get(subject.node)
        if subject.rule == "disk-days" and node is not None:
            return f"{size(node.disk_free)} free"
        if subject.rule == "sync-slow" and node is not None:
            return f"{node.sync_p99_ms:,.0f} ms"
        channel = look.channels.get((subject.topic, subject.name.removeprefix(f"{subject.topic}/")), NONE)
        if subject.rule == "buried-growing":
            return f"{count(channel.buried)} buried{_as_of(subject, look)}"
        if subject.rule.startswith("backlog-growing") and channel is not NONE:
            return counted(channel.depth, "message") + _as_of(subject, look)
        return ""

    def check(self, look: Snapshot) -> list[Subject]:
        """Return the subjects of every rule that is on, and keep the snapshot for the next ones."""
        found = [
            replace(one, words=one.words + _as_of(one, look))
            for rule in RULES
            if self.thresholds.is_on(rule)
            for one in self._checks[rule.name](look)
        ]
        self.past.add(look)
        raised = {(one.rule, one.key) for one in found}
        return [one for one in found if (INCLUDED_IN.get(one.rule), one.key) not in raised]

    # Channels

    def _buried_growing(self, look: Snapshot) -> Found:
        rule, least = "buried-growing", self._value("buried-growing", "messages")
        change = self.past.change(look, self._value(rule, "minutes"))
        for key, now in change.now.items():
            gained = now.buried - change.before.get(key, NONE).buried
            if gained >= max(1, least):
                total = look.channels.get(key, now).buried
                words = f"{count(gained)} buried in {duration(look.at - change.since)}, {count(total)} in all"
                yield channel_subject(rule, key, words, total, Severity.CRITICAL, "?state=buried", "messages")

    def _buried(self, look: Snapshot) -> Found:
        least = max(1, self._value("buried", "messages"))
        for key, now in look.channels.items():
            if now.buried >= least:
                words = f"{count(now.buried)} buried"
                yield channel_subject("buried", key, words, now.buried, Severity.WARNING, "?state=buried", "messages")

    def _failures(self, look: Snapshot) -> Found:
        rule = "failures"
        share, least = self._value(rule, "percent"), max(1, self._value(rule, "failures"))
        earlier = list(self.past.looks_before(look, self._value(rule, "minutes")))
        for key, now in look.channels.items():
            if now.requeued + now.timed_out < least:
                continue
            failed, since = _failed_since(look, earlier, key)
            count_of_failed = failed.requeued + failed.timed_out
            percent = 100 * count_of_failed / max(1, count_of_failed + failed.finished)
            if count_of_failed >= least and percent >= share:
                causes = f"{count(failed.requeued)} requeued and {count(failed.timed_out)} timed out"
                words = f"{percent:.0f} % of deliveries fail: {causes} in {duration(look.at - since)}"
                yield channel_subject(rule, key, words, percent)

    def _lost(self, look: Snapshot) -> Found:
        rule, least = "consumers-lost", max(1, self._value("consumers-lost", "consumers"))
        change = self.past.change(look, self._value(rule, "minutes"))
        for key, now in change.now.items():
            lost = now.lost_consumers - change.before.get(key, NONE).lost_consumers
            if lost >= least:
                held = f"; {count(now.orphaned)} in flight that no client holds" if now.orphaned else ""
                over = duration(look.at - change.since)
                words = f"{counted(lost, 'consumer')} disconnected with messages in flight in {over}{held}"
                yield channel_subject(rule, key, words, lost, asked="?state=in_flight", page="messages")

    def _without_consumer(self, look: Snapshot) -> Found:
        least = max(1, self._value("channel-without-consumer", "messages"))
        for key, now in look.channels.items():
            if now.depth >= least and not now.clients and not now.paused:
                age = f", the oldest for {duration(max(0, look.at - now.oldest))}" if now.oldest else ""
                words = f"{counted(now.depth, 'message')} waiting{age}"
                yield channel_subject("channel-without-consumer", key, words, now.depth)

    def _growing(self, look: Snapshot) -> Found:
        rule = "backlog-growing"
        least, growth = self._value(rule, "messages"), self._value(rule, "growth")
        change = self.past.change(look, self._value(rule, "minutes"))
        over = look.at - change.since
        if 2 * over < min(LONGEST_WINDOW, self._value(rule, "minutes") * SPACING):
            return
        for key, now in change.now.items():
            depth, was = look.channels.get(key, now).depth, change.before.get(key, NONE).depth
            if depth >= max(1, least) and now.depth - was >= max(1, was * growth / 100):
                words = f"{counted(depth, 'message')}, {count(now.depth - was)} more in {duration(over)}"
                subject = channel_subject(rule, key, words, now.depth - was)
                yield replace(subject, words=f"paused: {words}", advice=UNPAUSE) if now.paused else subject

    def _growing_slowly(self, look: Snapshot) -> Found:
        rule = "backlog-growing-slowly"
        least, growth, minutes = (self._value(rule, name) for name in ("messages", "growth", "minutes"))
        change = self.past.change(look, minutes)
        over = look.at - change.since
        if over < PARTS[0] * min(LONGEST_WINDOW, minutes * SPACING):
            return
        large = {
            key: (now, change.before.get(key, NONE).depth)
            for key, now in change.now.items()
            if not now.paused and look.channels.get(key, now).depth >= max(1, least)
        }
        grown = {key: (now, was) for key, (now, was) in large.items() if now.depth - was >= max(1, was * growth / 100)}
        parts = [self.past.change(look, part * minutes) for part in PARTS] if grown else []
        for key, (now, was) in grown.items():
            depths = [was, *(one.before.get(key, NONE).depth for one in parts), now.depth]
            gained = now.depth - was
            if all(later - earlier >= gained / 10 for earlier, later in pairwise(depths)):  # and not in one burst
                depth = look.channels.get(key, now).depth
                words = f"{counted(depth, 'message')}, {count(gained)} more in {duration(over)}"
                yield channel_subject(rule, key, words, gained)

    def _oldest(self, look: Snapshot) -> Found:
        longest = self._value("oldest-message", "minutes") * SPACING
        for key, now in look.channels.items():
            age = look.at - now.oldest
            if now.oldest and now.depth and age >= longest and not now.paused:
                words = f"oldest message: {duration(age)}, of {count(now.depth)} ready"
                yield channel_subject("oldest-message", key, words, age)

    # Topics, tubes, readers

    def _without_channel(self, look: Snapshot) -> Found:
        least = max(1, self._value("topic-without-channel", "messages"))
        for name, topic in look.topics.items():
            if topic.depth >= least and not topic.paused:
                words = f"{counted(topic.depth, 'message')} and no channel"
                yield topic_subject("topic-without-channel", name, words, topic.depth)

    def _paused(self, look: Snapshot) -> Found:
        longest = self._value("paused", "minutes") * SPACING
        for key, now in look.channels.items():
            if now.paused and now.paused_at and look.at - now.paused_at >= longest:
                words = f"paused for {duration(look.at - now.paused_at)}, {counted(now.depth, 'message')} waiting"
                yield channel_subject("paused", key, words, look.at - now.paused_at)
        for name, topic in look.topics.items():
            if topic.paused and topic.paused_at and look.at - topic.paused_at >= longest:
                words = f"paused for {duration(look.at - topic.paused_at)}, {counted(topic.depth, 'message')} waiting"
                yield topic_subject("paused", name, words, look.at - topic.paused_at)

    def _tubes(self, look: Snapshot) -> Found:
        least = max(1, self._value("tube-buried", "jobs"))
        for (tube, node), buried in look.tubes.items():
            if buried >= least:
                path = f"tube?name={quote(tube, safe='')}&node={quote(node, safe='')}&state=buried"
                words = counted(buried, "buried job")
                name = f"{tube} at {node}"
                yield Subject("tube-buried", name, name, path, words, buried, Severity.WARNING, tube, node=node)

    def _cursors(self, look: Snapshot) -> Found:
        least = max(1, self._value("cursor-lag", "messages"))
        for one in look.cursors:
            if one.lag >= least:
                name = f"{one.topic}/{one.name} at {one.node}"
                words = f"{counted(one.lag, 'message')} behind"
                severity, topic = Severity.WARNING, one.topic
                yield Subject("cursor-lag", name, name, "readers", words, one.lag, severity, topic, node=one.node)

    # Nodes

    def _given_up(self, look: Snapshot) -> Found:
        rule = "replies-given-up"
        least = self._value(rule, "publishes")
        earlier = list(self.past.looks_before(look, self._value(rule, "minutes")))
        for (cluster, node), now in look.given_up.items():
            # the first one since the node's start: from then on it counts from 0
            before = next((one for one in earlier if one.given_up.get((cluster, node), now + 1) <= now), None)
            gained = now - before.given_up[cluster, node] if before is not None else 0
            if before is not None and gained >= max(1, least):
                words = f"{counted(gained, 'publish')} failed in {duration(look.at - before.at)}: no copy in time"
                name = f"node {node} of cluster {cluster}"[:200]
                yield Subject(rule, name, name, "cluster", words, gained, Severity.WARNING)

    def _disk_low(self, look: Snapshot) -> Found:
        most, critical = self._value("disk-low", "percent"), self._value("disk-low", "critical")
        for names, one, nodes in node_checks.disks(look):
            free = 100 * one.disk_free / one.disk_total
            if free <= max(most, critical):
                severity = Severity.CRITICAL if free <= critical else Severity.WARNING
                bound = f"the threshold is {critical if free <= critical else most:g} %"
                words = f"{size(one.disk_free)} of {size(one.disk_total)} free ({free:.0f} %), {bound}{nodes}"
                yield _disk_subject("disk-low", names, words, 100 - free, severity)

    def _disk_days(self, look: Snapshot) -> Found:
        most, critical = self._value("disk-days", "days"), self._value("disk-days", "critical") / 24
        for names, one, nodes in node_checks.disks(look):
            before = self.past.disk_before(look, names[0])
            if before is None or one.disk_free >= before[1]:
                continue
            days = one.disk_free / ((before[1] - one.disk_free) / before[0]) / DAY
            if days <= max(most, critical):
                severity = Severity.CRITICAL if days <= critical else Severity.WARNING
                words = f"full in {duration(days * DAY)} at the rate of the last {duration(before[0])}{nodes}"
                yield _disk_subject("disk-days", names, words, -days, severity)

    def _sync_slow(self, look: Snapshot) -> Found:
        most = self._value("sync-slow", "ms")
        for name, one in look.nodes.items():
            if one.sync_p99_ms >= most > 0:
                words = f"the 99th percentile of a sync is {one.sync_p99_ms:,.0f} ms{old(one.storage_at, look.at)}"
                yield node_subject("sync-slow", name, words, one.sync_p99_ms, path="storage")

    def _clocks(self, look: Snapshot) -> Found:
        most = self._value("clock-skew", "seconds") * 1e9
        ahead = {name: one.clock_ahead for name, one in look.nodes.items() if one.clock_ahead is not None}
        if not ahead:
            return
        from statistics import median  # here, because it brings fractions and decimals, which a start does without

        # nsqadmin's own clock is the third one of two nodes, and the only one to compare a single node with
        middle = median([*ahead.values(), 0]) if len(ahead) == 2 else median(ahead.values()) if len(ahead) > 2 else 0
        than = "the others" if len(ahead) > 1 else "nsqadmin's"
        for name, one in ahead.items():
            apart = abs(one - middle)
            if apart >= most > 0:
                words = f"its clock is {duration(apart)} {'ahead of' if one > middle else 'behind'} {than}"
                yield node_subject("clock-skew", name, words, apart)

    def _certificates(self, look: Snapshot) -> Found:
        rule = "certificate-expiring"
        days, critical = self._value(rule, "days"), self._value(rule, "critical")
        for (name, option), ends in look.certificates.items():
            left = ends * SECOND - look.at
            if left <= max(days, critical) * DAY:
                severity = Severity.CRITICAL if left <= critical * DAY else Severity.WARNING
                end = second(ends * SECOND)
                words = f"expires on {end}, in {duration(left)}" if left > 0 else f"expired on {end}"
                page = "health" if name == OWN else f"nodes/{quote(name, safe='')}"
                page = "lookup" if name in look.lookupds else page
                node = name if name in look.nodes else ""
                key = f"{name}: {option}"
                yield Subject(rule, key, key, page, f"--{option} {words}", -left, severity, node=node)


def _as_of(subject: Subject, look: Snapshot) -> str:
    """Return the time of the oldest counts in a sum over the nodes, if one of them was not asked of late; or ""."""
    asked = [look.nodes[node].channels_at for node in look.parts if node in look.nodes]
    return old(min(asked, default=0), look.at) if subject.topic and not subject.node else ""


def _disk_subject(rule: str, nodes: list[str], words: str, value: float, severity: Severity) -> Subject:
    """Return a subject that is the disk of these nodes."""
    subject = node_subject(rule, nodes[0], words, value, severity, f"storage?node={quote(nodes[0], safe='')}")
    return replace(subject, neighbors=tuple(nodes[1:]))


class EndedDeliveries(NamedTuple):
    """The deliveries between two snapshots that ended, by their end."""

    requeued: int = 0
    timed_out: int = 0
    finished: int = 0


def _deliveries(now: ChannelFigures, then: ChannelFigures) -> EndedDeliveries | None:
    """Return the deliveries between two snapshots, or None if the node was restarted and counts from 0 again."""
    requeued, timed_out = now.requeued - then.requeued, now.timed_out - then.timed_out
    messages = now.messages - then.messages
    if min(requeued, timed_out, messages) < 0:
        return None
    return EndedDeliveries(requeued, timed_out, max(0, messages - (now.unfinished - then.unfinished)))


def _failed_since(look: Snapshot, earlier: list[Snapshot], key: Key) -> tuple[EndedDeliveries, int]:
    """Return the deliveries on all nodes, each since the earliest snapshot that can be compared, and the earliest time.

    A channel without a problem is in no snapshot, so the earliest one that has it may be younger than the window.
    """
    total, since = EndedDeliveries(), 0
    for node in look.answered:
        now = look.parts.get(node, {}).get(key)
        for before in earlier if now is not None else ():
            then = before.parts.get(node, {}).get(key)
            found = _deliveries(now, then) if now is not None and then is not None else None
            if found is not None:
                total, since = (
                    EndedDeliveries(*map(sum, zip(total, found, strict=True))),
                    min(since or before.at, before.at),
                )
                break
    return total, since
