"""Which alarm rules hold, and for what: of the last look at the nodes, and those before it. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from urllib.parse import quote

from admin.alarm_rules import RULES, Severity, Thresholds
from admin.cluster import newest_version
from admin.inventory import NodeState, words_of
from admin.snapshot import ChannelFigures, Key, NodeFacts, Snapshot
from admin.views import count, duration, size

SPACING = 60_000_000_000  # ns between two looks that are kept
LONGEST_WINDOW = 15 * SPACING  # the longest time over which alarms compare
MOST_LOOKS = 32  # that are kept: more than one a minute if nodes come and go
DISK_SPACING, DISK_LOOKS, LEAST_DISK = 300_000_000_000, 36, 1_500_000_000_000  # ns; number of looks; ns
DAY = 86_400_000_000_000


@dataclass(frozen=True, slots=True)
class Subject:
    """What an alarm is about: a node, a channel, a topic, a tube."""

    rule: str
    key: str  # identifies it within the rule
    name: str  # for people
    path: str  # of the page about it, below the base path
    words: str  # what is wrong with it now
    value: float  # the larger, the worse
    severity: Severity
    topic: str = ""  # "": it concerns no topic, and everybody who may see all topics sees it
    since: int = 0  # ns since the epoch, if that is known; 0: since it was found


Found = Iterator[Subject]


class Past:
    """The looks of the last quarter of an hour, one a minute, and the disks of the last hours."""

    def __init__(self) -> None:
        self._kept: deque[Snapshot] = deque()
        self._disks: deque[tuple[int, dict[str, int]]] = deque(maxlen=DISK_LOOKS)

    def add(self, look: Snapshot) -> None:
        """Keep the channels of a look for later ones to compare with: one a minute, and the first of other nodes."""
        last = self._kept[-1] if self._kept else None
        if last is not None and look.at < last.at:  # the clock was set back: the times of before say nothing
            self._kept.clear()
            self._disks.clear()
        if last is None or not 0 <= look.at - last.at < SPACING or look.answered != last.answered:
            self._kept.append(Snapshot(look.at, answered=look.answered, channels=look.channels, left_out=look.left_out))
        while look.at - self._kept[0].at > LONGEST_WINDOW + SPACING or len(self._kept) > MOST_LOOKS:
            self._kept.popleft()
        if not self._disks or look.at - self._disks[-1][0] >= DISK_SPACING:
            self._disks.append((look.at, {name: one.disk_free for name, one in look.nodes.items() if one.disk_total}))

    def before(self, look: Snapshot, minutes: float) -> Snapshot | None:
        """Return the earliest look of the last minutes at which the same nodes answered, or None."""
        return next(self.looks_before(look, minutes), None)

    def looks_before(self, look: Snapshot, minutes: float) -> Iterator[Snapshot]:
        """Yield the looks of the last minutes at which the same nodes answered, the earliest first."""
        window = min(LONGEST_WINDOW, int(minutes * SPACING))
        for one in self._kept:
            if 0 < look.at - one.at <= window + SPACING // 2 and one.answered == look.answered:
                yield one

    def disk_before(self, look: Snapshot, node: str) -> tuple[int, int] | None:
        """Return the earliest (ns ago, bytes free) of a node's disk that is old enough to tell a rate, or None."""
        for at, free in self._disks:
            if node in free and look.at - at >= LEAST_DISK:
                return look.at - at, free[node]
        return None


class Checks:
    """Checks all rules against a look."""

    def __init__(self, thresholds: Thresholds) -> None:
        self.thresholds = thresholds
        self.past = Past()
        self._checks: dict[str, Callable[[Snapshot], Found]] = {
            "node-down": _down, "node-refusing": _refusing, "lookupd-down": _lookupds, "node-unregistered": _unregistered,
            "log-corrupt": _corrupt, "log-cut": _cut, "cluster": _cluster, "buried-growing": self._buried_growing,
            "buried": self._buried, "failures": self._failures, "channel-without-consumer": self._without_consumer,
            "backlog-growing": self._growing, "oldest-message": self._oldest, "topic-without-channel": self._without_channel,
            "paused": self._paused, "tube-buried": self._tubes, "disk-low": self._disk_low, "disk-days": self._disk_days,
            "sync-slow": self._sync_slow, "cursor-lag": self._cursors, "clock-skew": self._clocks,
            "version-skew": _versions, "draining": _draining, "too-many": _too_many,
        }  # fmt: skip

    def check(self, look: Snapshot) -> list[Subject]:
        """Return what every rule that is on has found, and keep the look for the next ones."""
        found = [one for rule in RULES if self.thresholds.is_on(rule) for one in self._checks[rule.name](look)]
        self.past.add(look)
        growing = {one.key for one in found if one.rule == "buried-growing"}  # it says all that the other would
        return [one for one in found if one.rule != "buried" or one.key not in growing]

    def _value(self, rule: str, name: str) -> float:
        return self.thresholds.value(rule, name)

    def _before(self, look: Snapshot, rule: str) -> Snapshot | None:
        return self.past.before(look, self._value(rule, "minutes"))

    # Channels

    def _buried_growing(self, look: Snapshot) -> Found:
        rule, least = "buried-growing", self._value("buried-growing", "messages")
        before = self._before(look, rule)
        for key, now, then in _pairs(look, before):
            gained = now.buried - (then.buried if then is not None else 0)
            if before is not None and gained >= max(1, least):
                words = f"{count(gained)} buried in {duration(look.at - before.at)}, {count(now.buried)} in all"
                yield _channel(rule, key, words, now.buried, Severity.CRITICAL, "?state=buried", "messages")

    def _buried(self, look: Snapshot) -> Found:
        least = max(1, self._value("buried", "messages"))
        for key, now in look.channels.items():
            if now.buried >= least:
                words = f"{count(now.buried)} buried"
                yield _channel("buried", key, words, now.buried, Severity.WARNING, "?state=buried", "messages")

    def _failures(self, look: Snapshot) -> Found:
        rule = "failures"
        share, least = self._value(rule, "percent"), max(1, self._value(rule, "failures"))
        earlier = [one for one in self.past.looks_before(look, self._value(rule, "minutes")) if not one.left_out]
        for key, now in look.channels.items():
            if now.requeued + now.timed_out < least:
                continue
            # a channel that had no trouble is in no look: the first one that has it is younger
            before = next((one for one in earlier if key in one.channels), None)
            failed = _failed(now, before.channels[key]) if before is not None else None
            if before is None or failed is None:
                continue
            percent = 100 * failed.share
            if failed.all >= least and percent >= share:
                causes = f"{count(failed.requeued)} requeued and {count(failed.timed_out)} timed out"
                words = f"{percent:.0f} % of deliveries fail: {causes} in {duration(look.at - before.at)}"
                yield _channel(rule, key, words, percent)

    def _without_consumer(self, look: Snapshot) -> Found:
        least = max(1, self._value("channel-without-consumer", "messages"))
        for key, now in look.channels.items():
            if now.depth >= least and not now.clients and not now.paused:
                age = f", the oldest for {duration(max(0, look.at - now.oldest))}" if now.oldest else ""
                yield _channel("channel-without-consumer", key, f"{count(now.depth)} messages wait{age}", now.depth)

    def _growing(self, look: Snapshot) -> Found:
        rule = "backlog-growing"
        least, growth = self._value(rule, "messages"), self._value(rule, "growth")
        before = self._before(look, rule)
        for key, now, then in _pairs(look, before):
            was = then.depth if then is not None else 0
            if before is None or now.depth < max(1, least) or now.depth - was < max(1, was * growth / 100):
                continue
            if 2 * (look.at - before.at) >= min(LONGEST_WINDOW, self._value(rule, "minutes") * SPACING):
                gained = f"{count(now.depth - was)} more in {duration(look.at - before.at)}"
                yield _channel(rule, key, f"{count(now.depth)} messages, {gained}", now.depth - was)

    def _oldest(self, look: Snapshot) -> Found:
        longest = self._value("oldest-message", "minutes") * SPACING
        for key, now in look.channels.items():
            age = look.at - now.oldest
            if now.oldest and now.depth and age >= longest and not now.paused:
                words = f"oldest message: {duration(age)}, of {count(now.depth)} ready"
                yield _channel("oldest-message", key, words, age)

    # Topics, tubes, readers

    def _without_channel(self, look: Snapshot) -> Found:
        least = max(1, self._value("topic-without-channel", "messages"))
        for name, topic in look.topics.items():
            if topic.depth >= least and not topic.paused:
                words = f"{count(topic.depth)} messages and no channel"
                yield _topic("topic-without-channel", name, words, topic.depth)

    def _paused(self, look: Snapshot) -> Found:
        longest = self._value("paused", "minutes") * SPACING
        for key, now in look.channels.items():
            if now.paused and now.paused_at and look.at - now.paused_at >= longest:
                words = f"paused for {duration(look.at - now.paused_at)}, {count(now.depth)} messages wait"
                yield _channel("paused", key, words, look.at - now.paused_at)
        for name, topic in look.topics.items():
            if topic.paused and topic.paused_at and look.at - topic.paused_at >= longest:
                words = f"paused for {duration(look.at - topic.paused_at)}, {count(topic.depth)} messages wait"
                yield _topic("paused", name, words, look.at - topic.paused_at)

    def _tubes(self, look: Snapshot) -> Found:
        least = max(1, self._value("tube-buried", "jobs"))
        for (tube, node), buried in look.tubes.items():
            if buried >= least:
                path = f"tube?name={quote(tube, safe='')}&node={quote(node, safe='')}&state=buried"
                words = f"{count(buried)} buried job{'' if buried == 1 else 's'}"
                yield Subject(
                    "tube-buried", f"{tube} at {node}", f"{tube} at {node}", path, words, buried, Severity.WARNING, tube
                )

    def _cursors(self, look: Snapshot) -> Found:
        least = max(1, self._value("cursor-lag", "messages"))
        for one in look.cursors:
            if one.lag >= least:
                name = f"{one.topic}/{one.name} at {one.node}"
                words = f"{count(one.lag)} messages behind"
                yield Subject("cursor-lag", name, name, "readers", words, one.lag, Severity.WARNING, one.topic)

    # Nodes

    def _disk_low(self, look: Snapshot) -> Found:
        most, critical = self._value("disk-low", "percent"), self._value("disk-low", "critical")
        for name, one, nodes in _disks(look):
            free = 100 * one.disk_free / one.disk_total
            if free <= max(most, critical):
                severity = Severity.CRITICAL if free <= critical else Severity.WARNING
                bound = f"the threshold is {critical if free <= critical else most:g} %"
                words = f"{size(one.disk_free)} of {size(one.disk_total)} free ({free:.0f} %), {bound}{nodes}"
                yield _node("disk-low", name, words, 100 - free, severity, f"storage?node={quote(name, safe='')}")

    def _disk_days(self, look: Snapshot) -> Found:
        most = self._value("disk-days", "days")
        for name, one, nodes in _disks(look):
            before = self.past.disk_before(look, name)
            if before is None or one.disk_free >= before[1]:
                continue
            days = one.disk_free / ((before[1] - one.disk_free) / before[0]) / DAY
            if days <= most:
                words = f"full in {duration(days * DAY)} at the rate of the last {duration(before[0])}{nodes}"
                yield _node("disk-days", name, words, -days, path=f"storage?node={quote(name, safe='')}")

    def _sync_slow(self, look: Snapshot) -> Found:
        most = self._value("sync-slow", "ms")
        for name, one in look.nodes.items():
            if one.sync_p99_ms >= most > 0:
                words = f"the 99th percentile of a sync is {one.sync_p99_ms:,.0f} ms"
                yield _node("sync-slow", name, words, one.sync_p99_ms, path="storage")

    def _clocks(self, look: Snapshot) -> Found:
        most = self._value("clock-skew", "seconds") * 1e9
        ahead = {name: one.clock_ahead for name, one in look.nodes.items() if one.clock_ahead is not None}
        if not ahead:
            return
        # nsqadmin's own clock is the third one of two nodes, and all that there is to compare a single node with
        middle = median([*ahead.values(), 0]) if len(ahead) == 2 else median(ahead.values()) if len(ahead) > 2 else 0
        than = "the others" if len(ahead) > 1 else "nsqadmin's"
        for name, one in ahead.items():
            apart = abs(one - middle)
            if apart >= most > 0:
                words = f"its clock is {duration(apart)} {'ahead of' if one > middle else 'behind'} {than}"
                yield _node("clock-skew", name, words, apart)


@dataclass(frozen=True, slots=True)
class _Failed:
    """The deliveries that failed between two looks, and how many ended well."""

    requeued: int
    timed_out: int
    finished: int

    @property
    def all(self) -> int:
        """The deliveries that failed."""
        return self.requeued + self.timed_out

    @property
    def share(self) -> float:
        """The share of deliveries that failed."""
        return self.all / max(1, self.all + self.finished)


def _failed(now: ChannelFigures, then: ChannelFigures) -> _Failed | None:
    """Return what failed between two looks, or None if a node has counted from 0 again since."""
    requeued, timed_out, messages = (
        now.requeued - then.requeued, now.timed_out - then.timed_out, now.messages - then.messages,
    )  # fmt: skip
    if min(requeued, timed_out, messages) < 0:
        return None
    return _Failed(requeued, timed_out, max(0, messages - (now.unfinished - then.unfinished)))


def _pairs(look: Snapshot, before: Snapshot | None) -> Iterator[tuple[Key, ChannelFigures, ChannelFigures | None]]:
    """Yield each channel with its figures in an earlier look; none if that look has left out channels."""
    if before is None or before.left_out:
        return
    for key, now in look.channels.items():
        yield key, now, before.channels.get(key)


def _disks(look: Snapshot) -> Iterator[tuple[str, NodeFacts, str]]:
    """Yield each disk once: the first of its nodes, its facts, and words about the others.

    Nodes of one host whose disks have the same size are taken to have one disk.
    """
    found: dict[tuple[str, int], list[str]] = {}
    for name, one in look.nodes.items():
        if one.disk_total and not one.state.is_gone:
            host = one.record.producer.hostname or one.record.producer.broadcast_address
            found.setdefault((host, one.disk_total), []).append(name)
    for names in found.values():
        others = f"; also the disk of {', '.join(names[1:5])}" if len(names) > 1 else ""
        yield names[0], look.nodes[names[0]], others + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _channel(
    rule: str, key: Key, words: str, value: float, severity: Severity = Severity.WARNING, asked: str = "", page: str = "topics"
) -> Subject:  # fmt: skip
    path = f"{page}/{'/'.join(quote(one, safe='') for one in key)}{asked}"
    return Subject(rule, "/".join(key), "/".join(key), path, words, value, severity, key[0])


def _topic(rule: str, name: str, words: str, value: float) -> Subject:
    return Subject(rule, name, name, f"topics/{quote(name, safe='')}", words, value, Severity.WARNING, name)


def _node(
    rule: str, name: str, words: str, value: float = 0.0, severity: Severity = Severity.WARNING, path: str = "", since: int = 0
) -> Subject:  # fmt: skip
    return Subject(rule, name, name, path or f"nodes/{quote(name, safe='')}", words, value, severity, since=since)


def _down(look: Snapshot) -> Found:
    for name, one in look.nodes.items():
        if one.state is NodeState.DOWN:
            words = (
                f"{words_of(one.record, look.at)}. {one.record.losses(True, (each.topic for each in one.record.stuck))}"
            )
            yield _node("node-down", name, words, one.record.held, Severity.CRITICAL, since=one.record.failing_since)


def _refusing(look: Snapshot) -> Found:
    for name, one in look.nodes.items():
        words = one.refusal or (one.health if one.health != "OK" else "")
        if words and not one.state.is_gone:
            yield _node("node-refusing", name, words, severity=Severity.CRITICAL, path="storage" if one.refusal else "")


def _lookupds(look: Snapshot) -> Found:
    failed = {name: why for name, why in look.lookupds.items() if why}
    severity = Severity.CRITICAL if len(failed) == len(look.lookupds) else Severity.WARNING
    for name, why in failed.items():
        yield _node("lookupd-down", name, why[:200], severity=severity, path="lookup")


def _unregistered(look: Snapshot) -> Found:
    asked = sum(not why for why in look.lookupds.values())
    for name, one in look.nodes.items():
        known = len(one.record.producer.remote_addresses) if one.record.is_named else 0
        if one.state in (NodeState.UP, NodeState.UNREGISTERED) and known < asked:
            yield _node(
                "node-unregistered", name, f"registered with {known} of {asked} nsqlookupds that answer", path="nodes"
            )


def _corrupt(look: Snapshot) -> Found:
    for name, one in look.nodes.items():
        if one.damage:
            yield _node(
                "log-corrupt", name, f"{size(one.damage)} are corrupt", one.damage, Severity.CRITICAL, "storage"
            )


def _cut(look: Snapshot) -> Found:
    for name, one in look.nodes.items():
        if one.torn:
            yield _node(
                "log-cut", name, f"{size(one.torn)} were cut off at the last start", one.torn, Severity.INFO, "storage"
            )


def _cluster(look: Snapshot) -> Found:
    for cluster in look.clusters:
        for level, words in cluster.alarms():
            severity = Severity.CRITICAL if level == "bad" else Severity.WARNING
            key = words.partition(": ")[0][:200]  # without a reason or a number, which may differ with each look
            yield Subject("cluster", key, words[:500], "cluster", f"cluster {cluster.name}", 0.0, severity)


def _versions(look: Snapshot) -> Found:
    running = {name: one.record.producer.version for name, one in look.nodes.items() if not one.state.is_gone}
    newest = newest_version(running.values())
    for name, version in running.items():
        if version and newest_version((version,)) != newest:
            yield _node("version-skew", name, f"runs {version}", severity=Severity.INFO, path="nodes")


def _draining(look: Snapshot) -> Found:
    for name, one in look.nodes.items():
        if one.record.is_draining and not one.state.is_gone:
            words = (
                "drained: it can be stopped" if one.record.is_drained else f"{count(one.record.held)} messages are left"
            )
            yield _node("draining", name, words, severity=Severity.INFO)


def _too_many(look: Snapshot) -> Found:
    if look.left_out:
        words = f"{count(look.left_out)} more channels need attention and are not listed"
        yield Subject("too-many", "channels", "channels", "", words, look.left_out, Severity.WARNING)
