"""Each rule: a snapshot in which it holds, and its neighbors in which it does not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from admin.alarms.checks import UNPAUSE, Checks
from admin.alarms.node_checks import CHECKS, HANGS
from admin.alarms.past import DISK_SAMPLES, DISK_SPACING, LEAST_DISK
from admin.alarms.rules import RULES, Severity, Thresholds
from admin.alarms.subject import Place, Subject, channel_subject, node_subject, topic_subject
from admin.nodes.inventory import NodeState, Stuck
from admin.nodes.snapshot import OWN, ChannelFigures, CursorFigures, Key, NodeFacts, Snapshot, TopicFigures
from admin.times import clock, second
from shared.cluster.state import DOWN, ClusterState, LogCopy, MemberState
from tests.admin.looks import MINUTE, NOW, SECOND, channel, facts, found, look, look_at, producer, record, topic, words
from tests.cases import each

KEY = ("t", "c")
GONE = (NodeState.DOWN, NodeState.STOPPED)


def one(figures: ChannelFigures, at: int = NOW, **more: Any) -> Snapshot:
    return look({KEY: figures}, at, **more)


def nodes(*given: NodeFacts, at: int = NOW, **more: Any) -> Snapshot:
    return look(at=at, nodes={each.record.producer.hostname: each for each in given}, **more)


def topics(**figures: TopicFigures) -> Snapshot:
    return look(topics=figures)


def test_every_rule_is_checked_and_one_that_is_off_is_not() -> None:
    checks = Checks(Thresholds())
    assert list(checks._checks) == [rule.name for rule in RULES]
    assert checks.check(look()) == []
    assert not found("buried", one(channel(buried=9)), settings=("buried=off",))
    assert [rule.name for rule in RULES if rule.name in CHECKS and rule.thresholds] == [], "checks of nodes know none"


def test_buried() -> None:
    (subject,) = found("buried", one(channel(buried=5)), settings=("buried.messages=5",))
    assert (subject.key, subject.words, subject.topic, subject.value) == ("t/c", "5 buried", "t", 5)
    assert subject.path == "messages/t/c?state=buried"
    assert not words("buried", one(channel(buried=4)), settings=("buried.messages=5",))
    assert not words("buried", one(channel()), settings=("buried.messages=0",)), "nothing is buried"
    (subject,) = found("buried", look({("a/b?", "c#d"): channel(buried=1)}))
    assert subject.path == "messages/a%2Fb%3F/c%23d?state=buried", "names are quoted"


def test_buried_growing() -> None:
    before, settings = one(channel(buried=3), NOW - 9 * MINUTE), ("buried-growing.messages=5",)
    grown = words("buried-growing", before, one(channel(buried=8)), settings=settings)
    assert grown == {"t/c": "5 buried in 9.0 min, 8 in all"}
    assert not words("buried-growing", before, one(channel(buried=7)), settings=settings)
    assert not words("buried-growing", before, one(channel(buried=2))), "they were kicked, or a node restarted"
    assert not words("buried-growing", one(channel(buried=8))), "nothing to compare with"
    assert words("buried-growing", look(at=NOW - MINUTE), one(channel(buried=2))), "it had no problem before"
    both = one(channel(buried=1), NOW - 20 * SECOND, answered=("n:1", "m:1"))
    alone = one(channel(buried=1), NOW - 10 * SECOND)
    assert words("buried-growing", both, alone, one(channel(buried=9))), "a node leaves, and no minute is lost"


@each("rule", ["buried-growing", "failures", "backlog-growing"])
def test_looks_are_compared_only_if_they_are_comparable(rule: str) -> None:
    then = channel(buried=1, depth=1000, messages=5000, requeued=5)
    now = channel(buried=900, depth=9000, messages=20_000, requeued=9000)
    at = NOW - 9 * MINUTE
    assert words(rule, one(then, at), one(now))
    part = look_at({"n:1": {KEY: channel(buried=1, depth=900, requeued=5)}, "m:1": {KEY: now}}, at)
    assert not words(rule, part, look_at({"m:1": {KEY: now}})), "another node was in the sum (D12)"
    new = look_at({"n:1": {KEY: then}, "m:1": {KEY: now}})
    assert not words(rule, look_at({"n:1": {KEY: then}}, at), new), "it is new"
    assert not words(rule, one(then, at, left_out=1), one(now)), "figures were missing in it"
    assert not words(rule, one(then, NOW - 11 * MINUTE), one(now)), "it is older than the window"
    assert not words(rule, one(then, NOW + SECOND), one(now)), "the clock was set back"
    assert not words(rule, one(then, NOW), one(now)), "no time has passed"


@each("rule, expected", [
    ("buried-growing", "28 buried in 10.0 min, 80 in all"),
    ("failures", "100 % of deliveries fail: 2,800 requeued and 0 timed out in 10.0 min"),
    ("backlog-growing", "8,200 messages, 2,800 more in 10.0 min"),
])  # fmt: skip
def test_a_node_that_comes_or_goes_shortens_no_window(rule: str, expected: str) -> None:
    def at(minute: int) -> Snapshot:
        mine = channel(buried=minute, depth=1000 + 100 * minute, requeued=100 * minute, messages=2, clients=1)
        names = ["n:1", "m:1"]
        names += ["new:1"] if minute >= 9 else []  # it comes
        names += ["gone:1"] if minute < 6 else []  # it leaves
        names += ["flaps:1"] if minute % 2 else []
        parts = {name: {KEY: mine if name in ("n:1", "m:1") else channel(buried=9, depth=1000)} for name in names}
        return look_at(parts, NOW + minute * MINUTE)

    settings = (f"{rule}.minutes=10",)
    checks, seen = Checks(Thresholds(settings)), dict[int, str]()
    for minute in range(15):
        found_now = [each.words for each in checks.check(at(minute)) if each.rule == rule]
        seen |= dict.fromkeys([minute] if found_now else [], "".join(found_now))
    assert sorted(seen)[-9:] == list(range(6, 15)), "it is raised all the time"
    assert " in 10.0 min" in seen[14]
    last = {KEY: channel(buried=15, depth=1600, requeued=1500, messages=30, clients=1)}
    first = {KEY: channel(buried=1, depth=200, requeued=100, messages=2, clients=1)}
    before = look_at({"n:1": first, "m:1": first}, NOW)
    now = look_at({"n:1": last, "m:1": last, "new:1": {KEY: channel(buried=50, depth=5000)}}, NOW + 10 * MINUTE)
    assert words(rule, before, now, settings=settings) == {"t/c": expected}


def test_a_log_that_another_node_has_promoted_is_no_growth() -> None:
    settings = ("buried-growing.messages=1", "backlog-growing.messages=1000")
    half, whole = channel(buried=5, depth=1000), channel(buried=10, depth=2000)
    before = look_at({"n:1": {KEY: half}, "m:1": {KEY: half}}, NOW - 9 * MINUTE)
    gone = facts(NodeState.DOWN, record("m", failing_since=NOW - MINUTE, led_by=1))
    for rule in ("buried-growing", "backlog-growing"):
        assert not words(rule, before, look_at({"n:1": {KEY: whole}}, nodes={"m:1": gone}), settings=settings)
        assert words(rule, before, look_at({"n:1": {KEY: whole}}), settings=settings), "it was not promoted"


def test_many_nodes_that_come_and_a_clock_that_is_set_back_do_not_shorten_the_past() -> None:
    checks = Checks(Thresholds(("backlog-growing.minutes=15",)))
    for number in range(100):
        mine = {"n:1": {KEY: channel(depth=1000 + 10 * number)}}
        others = {f"new{one}:1": dict[Key, ChannelFigures]() for one in range(number)}
        found = checks.check(look_at(mine | others, NOW + number * 9 * SECOND))
    growing = [one.words for one in found if one.rule == "backlog-growing"]
    assert growing == ["1,990 messages, 990 more in 14.8 min"]
    hour = 60 * MINUTE
    looks = [one(channel(buried=1)), one(channel(buried=1), NOW - hour), one(channel(buried=2), NOW - hour + MINUTE)]
    assert words("buried-growing", *looks) == {"t/c": "1 buried in 1.0 min, 2 in all"}, "the clock was set back"


def test_failures() -> None:
    then, settings = channel(messages=100, requeued=10, timed_out=1), ("failures.failures=20", "failures.percent=50")
    before = one(then, NOW - MINUTE)

    def expected(now: ChannelFigures) -> dict[str, str]:
        return words("failures", before, one(now), settings=settings)

    assert expected(channel(messages=120, requeued=25, timed_out=6)) == {
        "t/c": "50 % of deliveries fail: 15 requeued and 5 timed out in 1.0 min"
    }
    assert not expected(channel(messages=120, requeued=25, timed_out=5)), "19 failed"
    assert not expected(channel(messages=121, requeued=25, timed_out=6)), "21 of 41 were finished"
    assert expected(channel(messages=121, requeued=25, timed_out=6, buried=1)), "one of those was buried instead"
    assert not expected(channel(messages=20, requeued=300, timed_out=60)), "a node counts from 0 again"
    assert not expected(channel(messages=120, requeued=0, timed_out=60)), "a node counts from 0 again"
    assert not expected(channel(messages=120, requeued=60, timed_out=0)), "a node counts from 0 again"


def test_a_channel_that_begins_to_fail_raises_an_alarm_within_minutes() -> None:
    healthy = [look(at=NOW + each * MINUTE) for each in range(10)]  # no node lists a healthy channel
    first = one(channel(messages=50, requeued=5), NOW + 10 * MINUTE)
    second = one(channel(messages=60, requeued=50), NOW + 11 * MINUTE)
    assert not words("failures", *healthy, first)
    assert words("failures", *healthy, first, second) == {
        "t/c": "82 % of deliveries fail: 45 requeued and 0 timed out in 1.0 min"
    }


def test_channel_without_consumer() -> None:
    rule, settings = "channel-without-consumer", ("channel-without-consumer.messages=5",)
    expected = words(rule, one(channel(depth=5, oldest=NOW - 2 * MINUTE)), settings=settings)
    assert expected == {"t/c": "5 messages waiting, the oldest for 2.0 min"}
    assert words(rule, one(channel(depth=5)), settings=settings) == {"t/c": "5 messages waiting"}
    assert not words(rule, one(channel(depth=4)), settings=settings)
    assert not words(rule, one(channel(depth=5, clients=1)), settings=settings)
    assert not words(rule, one(channel(depth=5, paused=True)), settings=settings), "D17"


def test_backlog_growing() -> None:
    settings = ("backlog-growing.messages=1000", "backlog-growing.growth=10")
    before = one(channel(depth=1000), NOW - 5 * MINUTE)

    def expected(depth: int, *earlier: Snapshot) -> dict[str, str]:
        return words("backlog-growing", *(earlier or (before,)), one(channel(depth=depth)), settings=settings)

    assert expected(1100) == {"t/c": "1,100 messages, 100 more in 5.0 min"}
    assert not expected(1099)
    assert not expected(900)
    assert expected(1000, look(at=NOW - 5 * MINUTE)), "it had few messages then"
    assert not expected(999, look(at=NOW - 5 * MINUTE))
    assert not expected(2000, one(channel(depth=1000), NOW - 5 * MINUTE + 1)), "half of the window is not over"
    looks = [one(channel(depth=1000 + 100 * each), NOW + each * MINUTE) for each in range(91)]
    settings = ("backlog-growing.minutes=600", "buried-growing.minutes=600")  # of which 60 count
    assert words("backlog-growing", *looks, settings=settings) == {"t/c": "10,000 messages, 6,000 more in 1.0 h"}


def slow(depth: Callable[[int], int], *settings: str, paused: bool = False) -> dict[int, str]:
    """Return by minute the alarm of a backlog that grows slowly. `depth`: by the minute."""
    checks, raised = Checks(Thresholds(settings)), dict[int, str]()
    for minute in range(150):
        for subject in checks.check(one(channel(depth=depth(minute), paused=paused), NOW + minute * MINUTE)):
            if subject.rule == "backlog-growing-slowly":
                raised[minute] = subject.words
    return raised


def test_backlog_growing_slowly() -> None:
    raised = slow(lambda minute: 5000 + 20 * minute)
    assert sorted(raised) == list(range(46, 150))
    assert raised[60] == "6,200 messages, 1,200 more in 1.0 h"
    assert not slow(lambda minute: 5000 + 5 * minute), "less than a tenth"
    assert not slow(lambda minute: 500 + minute), "few messages"
    assert not slow(lambda minute: 5000 + 20 * minute, paused=True)
    assert not slow(lambda minute: int(1000 * 1.02**minute)), "the other alarm says so"
    for burst in (1, 50, 100):
        assert not slow(lambda minute, at=burst: 5000 + 1000 * (minute >= at) + minute % 3), "it does not grow"  # type: ignore[misc]
    assert not slow(lambda minute: 5000 + 900 * (minute % 30 < 10) + minute), "it comes and goes"
    assert min(slow(lambda minute: 5000 + 40 * minute, "backlog-growing-slowly.minutes=20")) == 17


def test_oldest_message_and_topic_without_channel() -> None:
    rule, old = "oldest-message", NOW - 30 * MINUTE
    assert words(rule, one(channel(depth=3, oldest=old))) == {"t/c": "oldest message: 30.0 min, of 3 ready"}
    for figures in ({"oldest": old + 1}, {"paused": True}, {"depth": 0}, {"oldest": NOW + MINUTE}):
        assert not words(rule, one(channel(**{"depth": 3, "oldest": old} | figures)))
    assert not words(rule, one(channel(depth=3, oldest=0))), "its age is not known"
    rule, settings = "topic-without-channel", ("topic-without-channel.messages=5",)
    assert words(rule, topics(t=topic(depth=5)), settings=settings) == {"t": "5 messages and no channel"}
    assert not words(rule, topics(t=topic(depth=4)), settings=settings)
    assert not words(rule, topics(t=topic(depth=5, paused=True)), settings=settings)


def test_paused() -> None:
    long, short = NOW - 60 * MINUTE, NOW - 60 * MINUTE + 1
    channels = {KEY: channel(paused=True, paused_at=long, depth=3), ("t", "d"): channel(paused=True, paused_at=short)}
    channels |= {("t", "e"): channel(paused=True), ("t", "f"): channel(paused_at=long)}
    of_topics = {"t": (long, 4), "u": (short, 0), "v": (0, 0)}
    expected = topics(
        **{name: topic(paused=True, paused_at=at, depth=depth) for name, (at, depth) in of_topics.items()}
    )
    expected.channels = channels
    waits = {"t/c": "paused for 1.0 h, 3 messages waiting", "t": "paused for 1.0 h, 4 messages waiting"}
    assert words("paused", expected) == waits


def test_tube_buried_cursor_lag_and_too_many() -> None:
    expected = look(tubes={("we ird", "n:1"): 5, ("mails", "n:1"): 4})
    (subject,) = found("tube-buried", expected, settings=("tube-buried.jobs=5",))
    assert (subject.key, subject.words, subject.topic) == ("we ird at n:1", "5 buried jobs", "we ird")
    assert subject.path == "tube?name=we%20ird&node=n%3A1&state=buried"
    cursors = [CursorFigures("t", "r", "n:1", 100), CursorFigures("t", "s", "n:1", 99)]
    lagging = words("cursor-lag", look(cursors=cursors), settings=("cursor-lag.messages=100",))
    assert lagging == {"t/r at n:1": "100 messages behind"}
    assert words("too-many", look(left_out=3)) == {"channels": "3 more channels in need of attention, not listed"}
    assert not words("too-many", look())


def test_the_pages_of_an_alarm() -> None:
    of_channel, of_topic = channel_subject("buried", ("t", "c"), "x", 1), topic_subject("paused", "t", "x", 1)
    of_node = node_subject("disk-low", "n:1", "x", path="storage?node=n%3A1")
    (of_tube,) = found("tube-buried", look(tubes={("t", "n:1"): 5}))
    (of_reader,) = found("cursor-lag", look(cursors=[CursorFigures("t", "r", "n:1", 1_000_000)]))
    lookupd = node_subject("lookupd-down", "l:1", "x", path="lookup")
    pages = {
        "topics": Place(), "t": Place(topic="t"), "t/c": Place(topic="t", channel="c"),
        "t/d": Place(topic="t", channel="d"), "u/c": Place(topic="u", channel="c"), "n": Place("nodes", node="n:1"),
        "m": Place("nodes", node="m:1"), "storage": Place("storage"), "storage of n": Place("storage", node="n:1"),
        "tube t at n": Place("tube", "t", node="n:1"), "tube t at m": Place("tube", "t", node="m:1"),
        "lookup": Place("lookup"), "readers": Place("readers"),
    }  # fmt: skip

    def pages_of(subject: Subject) -> set[str]:
        return {name for name, place in pages.items() if subject.is_about(place)}

    assert pages_of(of_channel) == {"t", "t/c"}
    assert pages_of(of_topic) == {"t", "t/c", "t/d"}
    assert pages_of(of_node) == {"n", "storage", "storage of n"}
    assert pages_of(of_tube) == {"t", "n", "storage of n", "tube t at n"}
    assert pages_of(of_reader) == {"t", "n", "storage of n", "tube t at n", "readers"}
    assert pages_of(lookupd) == {"lookup"}


def test_node_down() -> None:
    dead = record(failing_since=NOW - MINUTE, figures_at=NOW, figures={"depth": 3}, stuck=(Stuck("t", 3, 0),))
    (subject,) = found("node-down", nodes(facts(NodeState.DOWN, dead)))
    assert subject.words == f"no answer for 1.0 min. 3 messages stuck on it: t (3). That is as of {second(NOW)}."
    assert (subject.since, subject.severity, subject.topic) == (NOW - MINUTE, Severity.CRITICAL, "")
    for state in NodeState:
        if state is not NodeState.DOWN:
            assert not words("node-down", nodes(facts(state, dead)))
    (subject,) = found("node-down", nodes(facts(NodeState.DOWN, replace(dead, led_by=2))))
    assert subject.words == "no answer for 1.0 min. Node 2 leads its log now and delivers its messages."
    assert (subject.severity, subject.value) == (Severity.WARNING, 0)


def test_node_refusing_log_corrupt_log_cut_and_sync_slow() -> None:
    assert words("node-refusing", nodes(facts(refusal="disk full", health="NOK"))) == {"n": "disk full"}
    assert words("node-refusing", nodes(facts(health="NOK"))) == {"n": "NOK"}
    assert not words("node-refusing", nodes(facts()))
    assert words("log-corrupt", nodes(facts(damage=1))) == {"n": "1 B are corrupt"}
    assert words("log-cut", nodes(facts(torn=2000))) == {"n": "2.0 kB were cut off at the last start"}
    assert not words("log-corrupt", nodes(facts(torn=1)))
    assert not words("log-cut", nodes(facts(damage=1)))
    assert words("sync-slow", nodes(facts(sync_p99_ms=500.0))) == {"n": "the 99th percentile of a sync is 500 ms"}
    assert not words("sync-slow", nodes(facts(sync_p99_ms=499.9)))
    assert not words("sync-slow", nodes(facts(sync_p99_ms=0.0)), settings=("sync-slow.ms=0",))


@each("state", GONE)
@each("rule", ["node-refusing", "disk-low", "version-skew", "draining"])
def test_a_node_that_is_gone_has_no_other_alarm(rule: str, state: NodeState) -> None:
    old = record(is_draining=True, is_drained=True)
    problems = {"refusal": "x", "disk_total": 10, "disk_free": 0}
    newer = facts(node=record(producer=producer("m", version="2.0.0")))
    assert words(rule, nodes(facts(node=old, **problems), newer)).keys() == {"n"}
    assert not words(rule, nodes(facts(state, old, **problems), newer))


def test_lookupd_down() -> None:
    (subject,) = found("lookupd-down", look(lookupds={"l:1": "refused", "l:2": ""}))
    assert (subject.key, subject.words, subject.severity) == ("l:1", "refused", Severity.WARNING)
    every = found("lookupd-down", look(lookupds={"l:1": "refused", "l:2": "y" * 300}))
    assert [each.severity for each in every] == [Severity.CRITICAL] * 2
    assert len(every[1].words) == 200
    assert not words("lookupd-down", look(lookupds={"l:1": ""}))
    assert not words("lookupd-down", look()), "nodes are configured"


def test_node_unregistered() -> None:
    rule, both = "node-unregistered", {"l:1": "", "l:2": ""}
    assert words(rule, nodes(facts(), lookupds=both)) == {"n": "registered with 1 of 2 reachable nsqlookupds"}
    assert not words(rule, nodes(facts(), lookupds={"l:1": "", "l:2": "refused"}))
    unnamed = facts(NodeState.UNREGISTERED, record(is_named=False))
    assert words(rule, nodes(unnamed, lookupds={"l:1": ""}))
    assert not words(rule, nodes(unnamed)), "nodes are configured"
    for state in (NodeState.UNANSWERED, *GONE):
        assert not words(rule, nodes(facts(state), lookupds=both))


def cluster(*copies: LogCopy, state: str = "up", possible: int = 2) -> Snapshot:
    member = MemberState(1, "", "", "n:1", state, [], 1, [], possible, 2, 0)
    return look(clusters=[ClusterState("main", nodes=[member], copies=list(copies))])


def test_cluster() -> None:
    assert not words("cluster", cluster())
    (down,) = found("cluster", cluster(state=DOWN))
    assert (down.name, down.words, down.severity) == ("node 1 of cluster main", "it is down", Severity.CRITICAL)
    (short,) = found("cluster", cluster(possible=1))
    assert short.severity is Severity.WARNING
    (slow,) = found("cluster", cluster(LogCopy(1, 2, "l", "lagging", 44, 7, 7, lag_seconds=7.4)))
    assert (slow.words, slow.severity) == ("it has confirmed nothing for 7 s", Severity.WARNING)
    keys = set()
    for failure in ("at byte 5", "at byte 6", "x" * 1000):  # an alarm of a copy is the same whatever its reason
        (subject,) = found("cluster", cluster(LogCopy(1, 2, "l", "failed", None, None, None, failure)))
        assert failure[:100] in subject.words
        assert len(subject.words) <= 300
        keys.add(subject.key)
    assert keys == {"main: copy of the log of node 1 at node 2: failed"}


def test_replies_given_up() -> None:
    rule = "replies-given-up"

    def given_up(count: int | None, at: int) -> Snapshot:
        snapshot, member = look(at=at), MemberState(1, "", "", "n:1", "up", [], 1, [], 2, 2, count)
        snapshot.add_clusters([ClusterState("main", nodes=[member])])
        return snapshot

    before, later = given_up(5, NOW - 9 * MINUTE), given_up(8, NOW)
    (subject,) = found(rule, before, later)
    assert (subject.words, subject.value) == ("3 publishes failed in 9.0 min: no copy in time", 3)
    assert (subject.name, subject.path) == ("node 1 of cluster main", "cluster")
    assert not words(rule, later), "nothing to compare with"
    assert not words(rule, before, given_up(5, NOW))
    assert not words(rule, before, given_up(None, NOW)), "the node does not answer"
    assert not words(rule, before, later, settings=("replies-given-up.publishes=4",))
    restarted = given_up(0, NOW - MINUTE)
    assert not words(rule, before, restarted)
    assert words(rule, before, restarted, given_up(2, NOW)) == {
        "node 1 of cluster main": "2 publishes failed in 1.0 min: no copy in time"
    }


@each("free, severity, bound", [
    (20, Severity.WARNING, "20 %"), (6, Severity.WARNING, "20 %"), (5, Severity.CRITICAL, "5 %"),
    (0, Severity.CRITICAL, "5 %"),
])  # fmt: skip
def test_disk_low(free: int, severity: Severity, bound: str) -> None:
    (subject,) = found("disk-low", nodes(facts(disk_free=free * 1000, disk_total=100_000)))
    assert subject.severity is severity
    assert subject.words.endswith(f"({free} %), the threshold is {bound}"), "D20"
    assert subject.path == "storage?node=n"
    for room, total in ((21, 100), (0, 0)):  # enough, and not known
        assert not words("disk-low", nodes(facts(disk_free=room, disk_total=total)))


def disks(*free: int, spacing: int = LEAST_DISK) -> list[Snapshot]:
    return [nodes(facts(disk_free=each, disk_total=1000), at=NOW + at * spacing) for at, each in enumerate(free)]


def test_disk_days() -> None:
    days = 3 * 24 * 60 * 60 * SECOND // LEAST_DISK  # looks in the days of the threshold
    assert words("disk-days", *disks(days + 1, days)) == {"n": "full in 3.0 d at the rate of the last 25.0 min"}
    assert not words("disk-days", *disks(days + 2, days + 1))
    assert not words("disk-days", *disks(50, 50))
    assert not words("disk-days", *disks(50, 60))
    assert not words("disk-days", *disks(50, 40, spacing=LEAST_DISK - 1)), "too short for a rate"
    assert not words("disk-days", *disks(50))


def test_a_disk_that_fills_within_six_hours_is_critical() -> None:
    looks = 6 * 60 * 60 * SECOND // LEAST_DISK
    for left, severity in ((looks, Severity.CRITICAL), (looks + 2, Severity.WARNING)):
        (subject,) = found("disk-days", *disks(left + 1, left))
        assert subject.severity is severity, subject.words


def test_an_alarm_about_a_disk_is_about_each_node_on_it() -> None:
    one_host = [facts(node=record("n", port), disk_free=1, disk_total=100) for port in (1, 2)]
    other = facts(node=record("m"), disk_free=50, disk_total=100)
    every = {each.record.address: each for each in (*one_host, other)}
    (subject,) = found("disk-low", look(nodes=every))
    assert [subject.is_about(Place(node=address)) for address in every] == [True, True, False]


def test_consumers_lost() -> None:
    settings = ("consumers-lost.consumers=3",)
    before, now = channel(lost_consumers=2), channel(lost_consumers=5, orphaned=1, in_flight=1)
    (subject,) = found("consumers-lost", one(before, NOW - 2 * MINUTE), one(now), settings=settings)
    assert subject.words == (
        "3 consumers disconnected with messages in flight in 2.0 min; 1 in flight that no client holds"
    )
    assert subject.path == "messages/t/c?state=in_flight"
    then = one(channel(lost_consumers=3), NOW - 2 * MINUTE)
    assert not words("consumers-lost", then, one(now), settings=settings)
    assert not words("consumers-lost", one(now, NOW - MINUTE), one(before), settings=settings), "the node was restarted"


def test_advice_is_about_the_subject() -> None:
    then, now = channel(depth=1000), channel(depth=3000)
    (running,) = found("backlog-growing", one(then, NOW - 9 * MINUTE), one(now))
    (paused,) = found("backlog-growing", one(then, NOW - 9 * MINUTE), one(now._replace(paused=True)))
    assert (running.advice, paused.advice) == ("", UNPAUSE)
    assert paused.words == f"paused: {running.words}"
    for reason, advice in (("http://n:1/ping did not answer within 5 s", HANGS), ("n:1: connection refused", "")):
        gone = facts(NodeState.DOWN, record(failing_since=NOW - 12 * SECOND, reason=reason))
        (down,) = found("node-down", nodes(gone))
        assert down.advice == advice
        assert down.words.startswith("it runs, but has not answered" if advice else "no answer")


def test_the_value_now_of_an_alarm_that_is_held() -> None:
    checks, since = (
        Checks(Thresholds()),
        look(nodes={"n:1": facts(disk_free=7_000, disk_total=9_000, sync_p99_ms=40.0)}),
    )
    key = ("t", "c")
    now = one(channel(buried=2, depth=1234), nodes=since.nodes)
    for subject, text in (
        (channel_subject("buried-growing", key, "", 0), "2 buried"), (channel_subject("failures", key, "", 0), ""),
        (channel_subject("backlog-growing", key, "", 0), "1,234 messages"), (node_subject("sync-slow", "n:1", ""), "40 ms"),
        (node_subject("disk-days", "n:1", ""), "7.0 kB free"), (node_subject("disk-days", "gone:1", ""), ""),
    ):  # fmt: skip
        assert checks.current(subject, now) == text, subject.rule
    assert checks.current(channel_subject("buried-growing", key, "", 0), look()) == "0 buried", (
        "nodes list it no longer"
    )
    assert checks.current(channel_subject("backlog-growing", key, "", 0), look()) == "", "it has fewer than nodes list"


def test_the_past_is_bounded() -> None:
    checks = Checks(Thresholds())
    for at in range(10 * DISK_SAMPLES):
        disk = facts(disk_free=5, disk_total=10)
        checks.check(nodes(disk, at=NOW + at * DISK_SPACING, channels={KEY: channel(buried=1)}))
    assert len(checks.past._disks) == DISK_SAMPLES
    for at in range(300):
        checks.check(one(channel(), NOW + 10 * DISK_SAMPLES * DISK_SPACING + at * 15 * SECOND))
    assert 15 <= len(checks.past._kept) <= 17
    assert not any(each.nodes or each.cursors or each.topics or each.tubes for each in checks.past._kept)


def clocks(*ahead: int | None) -> Snapshot:
    return nodes(*(facts(node=record(f"n{at}"), clock_ahead=each) for at, each in enumerate(ahead)))


def test_clock_skew() -> None:
    two = 2 * SECOND
    assert words("clock-skew", clocks(0, SECOND, two + SECOND)) == {"n2": "its clock is 2.0 s ahead of the others"}
    assert words("clock-skew", clocks(0, 0, -two)) == {"n2": "its clock is 2.0 s behind the others"}
    assert not words("clock-skew", clocks(0, SECOND, two + SECOND - 1))
    assert words("clock-skew", clocks(two)) == {"n0": "its clock is 2.0 s ahead of nsqadmin's"}
    assert not words("clock-skew", clocks(two - 1))
    assert words("clock-skew", clocks(two, 0)) == {"n0": "its clock is 2.0 s ahead of the others"}
    assert not words("clock-skew", clocks(None, None))
    assert not words("clock-skew", clocks(60 * two, 60 * two, 60 * two)), "nsqadmin's own clock is wrong"


@each("left, severity, expected", [
    (14, Severity.WARNING, "expires on 2027-01-29 08:00:00 UTC, in 14.0 d"),
    (2, Severity.CRITICAL, "expires on 2027-01-17 08:00:00 UTC, in 2.0 d"),
    (0, Severity.CRITICAL, "expired on 2027-01-15 08:00:00 UTC"),
])  # fmt: skip
def test_certificate_expiring(left: int, severity: Severity, expected: str) -> None:
    ends = NOW // SECOND + left * 24 * 3600
    certificates = {("n:1", "tls-cert"): ends, (OWN, "http-client-tls-cert"): ends, ("https://l:1", "tls-cert"): ends}
    seen = look(certificates=certificates, nodes={"n:1": facts()}, lookupds={"https://l:1": ""})
    subjects = found("certificate-expiring", seen)
    assert [each.words for each in subjects] == [f"--{option} {expected}" for _, option in certificates]
    assert [each.severity for each in subjects] == [severity] * 3
    assert [each.path for each in subjects] == ["nodes/n%3A1", "health", "lookup"]
    assert subjects[0].is_about(Place("nodes", node="n:1"))
    later = {key: ends + 1 for key, ends in certificates.items()} if left == 14 else {}
    assert not words("certificate-expiring", look(certificates=later))


def versions(*running: str) -> Snapshot:
    return nodes(*(facts(node=record(producer=producer(f"n{at}", version=each))) for at, each in enumerate(running)))


def test_version_skew() -> None:
    assert words("version-skew", versions("1.2.0", "1.10.0", "1.10.0-rc1")) == {
        "n0": "runs NSQ 1.2.0",
        "n2": "runs NSQ 1.10.0-rc1",
    }
    assert not words("version-skew", versions("1.2.0", "1.2.0", ""))
    upgrading = (
        facts(node=record(producer=producer(one, version="1.3.0", penstock_version=one))) for one in ("0.1.0", "0.2.0")
    )
    assert words("version-skew", nodes(*upgrading)) == {"0.1.0": "runs Penstock 0.1.0 (NSQ API 1.3.0)"}
    assert not words("version-skew", versions())


def test_an_alarm_about_a_channel_has_the_time_of_its_oldest_counts() -> None:
    for late, suffix in ((0, ""), (60 * SECOND, f", as of {clock(NOW - 60 * SECOND)}")):
        asked = {"n:1": facts(channels_at=NOW), "n:2": facts(channels_at=NOW - late)}
        parts = {name: {KEY: channel(buried=2)} for name in asked}
        assert words("buried", look_at(parts, nodes=asked)) == {"t/c": f"4 buried{suffix}"}


def test_draining() -> None:
    (subject,) = found("draining", nodes(facts(node=record(is_draining=True, figures={"depth": 1, "deferred": 2}))))
    assert (subject.words, subject.severity) == ("3 messages left", Severity.INFO)
    drained = facts(node=record(is_draining=True, is_drained=True))
    assert words("draining", nodes(drained)) == {"n": "drained: it can be stopped"}
    assert not words("draining", nodes(facts()))
