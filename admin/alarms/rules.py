"""The alarms of nsqadmin: meaning, action, and the thresholds that an operator sets. Pure.

A threshold is set by `-alarm RULE.NAME=VALUE` (flag, environment, configuration file) or on the page Alarm rules, which has
precedence; `-alarm RULE=off` turns a rule off. `docs.generate` makes Prometheus's rules from this table, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

OFF = "off"
MOST_VALUE = 1e15


class Severity(IntEnum):
    """How urgent an alarm is; the most urgent first."""

    CRITICAL = 0  # an operator has to act now
    WARNING = 1  # an operator has to act today
    INFO = 2  # good to know

    @property
    def word(self) -> str:
        """The severity as pages and programs read it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number that an operator can change."""

    name: str
    default: float
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of alarm, with its meaning, the action to take, and its thresholds."""

    name: str
    severity: Severity
    title: str  # of one subject: "Node down"
    meaning: str
    action: str
    runbook: str  # file and anchor below docs
    thresholds: tuple[Threshold, ...] = ()
    hold: float = 0.0  # s for which an alarm continues after its condition has ended, so that it does not flap
    delay: float = 0.0  # s for which the condition has to hold before the alarm is raised


def _minutes(name: str, default: float, meaning: str) -> Threshold:
    return Threshold(name, default, "min", meaning)


def _count(default: float, meaning: str, name: str = "messages", unit: str = "messages") -> Threshold:
    return Threshold(name, default, unit, meaning)


WINDOW = _minutes("minutes", 10, "The time over which it is measured (at most 60)")

RULES: tuple[Rule, ...] = (
    Rule("node-down", Severity.CRITICAL, "Node down",
        "The node is unreachable. Unless another node leads its log now, its messages are neither delivered nor counted.",
        "Start it again on the same data directory. If its disk is lost, recover it from a copy. Dismiss it only if it will"
        " never come back.", "troubleshooting/lost-node.md"),
    Rule("node-refusing", Severity.CRITICAL, "Node rejects messages",
        "The nsqd answers, but rejects publishes or is unhealthy, as with a full or failing disk.",
        "Read the reason. Free space: publishing resumes by itself. Replace a disk that fails, and restart the node.",
        "troubleshooting/disk-full.md"),
    Rule("lookupd-down", Severity.WARNING, "nsqlookupd down",
        "An nsqlookupd does not answer. Consumers that ask it find no new nodes.",
        "Start it again. It keeps no state: the nodes register within 15 seconds.", "troubleshooting/nsqlookupd-down.md"),
    Rule("node-unregistered", Severity.WARNING, "Node not registered",
        "The nsqd answers, but not every nsqlookupd names it. Consumers that ask that nsqlookupd do not find it.",
        "Check the node's -lookupd-tcp-address and the network between them.", "troubleshooting/nsqlookupd-down.md", delay=30),
    Rule("log-corrupt", Severity.CRITICAL, "Commit log corrupt",
        "Bytes of the node's commit log cannot be read. The messages in them are lost unless another node has a copy.",
        "Check the disk, and repair the log from a copy.", "troubleshooting/corruption.md"),
    Rule("log-cut", Severity.INFO, "Commit log cut off at the end",
        "At its start the node cut off an incomplete end of its log. After a power cut it may have held messages.",
        "Nothing, unless the disk is known to lie about syncs.", "troubleshooting/corruption.md#a-torn-end"),
    Rule("cluster", Severity.CRITICAL, "Copies are missing",
        "A log is not served, a copy of it failed or lags, or fewer copies are possible than topics ask for.",
        "Open the Cluster page, or run penstock cluster status: it names the nodes and what they wait for.",
        "troubleshooting/lost-node.md"),
    Rule("replies-given-up", Severity.WARNING, "Publishes without copies",
        "Publishes that ask for several copies failed, because no copy was made in time. Their messages may be delivered"
        " anyway.",
        "Open the Cluster page: a follower lags or is away. Check its node, its disk and the network.",
        "troubleshooting/lost-node.md",
        (_count(1, "Failed publishes within the window, at least", "publishes", "publishes"), WINDOW), hold=120),
    Rule("buried-growing", Severity.CRITICAL, "Messages are being buried",
        "Consumers fail on messages until their attempts are used up. Buried messages are not delivered again.",
        "Check the consumer's log and the buried messages. Kick them once the consumer is fixed.",
        "troubleshooting/backlog.md#dead-letters",
        (_count(1, "Messages buried within the window, at least"), WINDOW), hold=120),
    Rule("buried", Severity.WARNING, "Buried messages",
        "Buried messages are kept, but are not delivered until an operator kicks them.",
        "Kick them, finish them, or move them to another topic.", "troubleshooting/backlog.md#dead-letters",
        (_count(1, "Buried messages, at least"),)),
    Rule("failures", Severity.WARNING, "High consumer failure rate",
        "Many deliveries end in a requeue or a timeout instead of a finish.",
        "Check the consumer's log. If messages time out, its msg_timeout is too short or it hangs.",
        "troubleshooting/backlog.md#messages-time-out-again-and-again",
        (
            Threshold("percent", 30, "%", "Share of deliveries that failed, at least"),
            _count(20, "Failed deliveries within the window, at least", "failures", "deliveries"), WINDOW,
        ), hold=120),
    Rule("consumers-lost", Severity.WARNING, "Consumers crash",
        "Consumers of the channel disconnect with messages in flight. A message may crash them; it is redelivered after its"
        " timeout.",
        "Check the consumer's log and the messages in flight. Bury or finish the message that crashes it.",
        "troubleshooting/backlog.md#messages-time-out-again-and-again",
        (_count(3, "Consumers lost within the window, at least", "consumers", "consumers"), WINDOW), hold=120),
    Rule("channel-without-consumer", Severity.WARNING, "Channel without consumer",
        "The channel has messages, and no consumer is connected.",
        "Start the consumers. If the channel is no longer needed, delete it.", "troubleshooting/backlog.md#no-consumer",
        (_count(1, "Messages ready, at least"),), delay=20),
    Rule("backlog-growing", Severity.WARNING, "Backlog growing",
        "The channel gets more messages than its consumers finish.",
        "Add consumers, raise their max_in_flight, or find out what slows them down.", "troubleshooting/backlog.md",
        (
            _count(1000, "Messages ready, at least"),
            Threshold("growth", 10, "%", "Growth within the window, at least"), WINDOW,
        ), hold=120),
    Rule("backlog-growing-slowly", Severity.WARNING, "Backlog growing slowly",
        "The channel has gained messages in each quarter of an hour, too slowly for the alarm backlog-growing.",
        "Add consumers, raise their max_in_flight, or find out what slows them down.", "troubleshooting/backlog.md",
        (
            _count(1000, "Messages ready, at least"),
            Threshold("growth", 10, "%", "Growth within the window, at least"),
            _minutes("minutes", 60, "The time over which it is measured, in four parts (at most 60)"),
        ), hold=600),
    Rule("oldest-message", Severity.WARNING, "Oldest message too old",
        "The oldest ready message of the channel has waited longer than allowed.",
        "Check whether consumers are connected and finish messages.", "troubleshooting/backlog.md",
        (_minutes("minutes", 30, "Age of the oldest ready message, at least"),)),
    Rule("topic-without-channel", Severity.WARNING, "Topic without channel",
        "The topic has messages and no channel, so consumers cannot receive them.",
        "Create the channel, or stop the producer.", "troubleshooting/backlog.md#no-consumer",
        (_count(1, "Messages, at least"),), delay=20),
    Rule("paused", Severity.WARNING, "Paused for long",
        "A topic or channel is paused for longer than allowed. Its messages pile up.",
        "Unpause it, or raise the threshold if it is meant to stay paused.", "troubleshooting/backlog.md",
        (_minutes("minutes", 60, "Duration of the pause, at least"),)),
    Rule("tube-buried", Severity.WARNING, "Tube with buried jobs",
        "Workers buried jobs, or their attempts were used up. Such jobs are not delivered until they are kicked.",
        "Kick or delete the jobs.", "troubleshooting/backlog.md#dead-letters",
        (_count(1, "Buried jobs, at least", "jobs", "jobs"),)),
    Rule("disk-low", Severity.WARNING, "Disk almost full",
        "Little space is free on the disk of the node's log. When it is full, the node rejects publishes.",
        "Free space, shorten the retention, or move the log to a larger disk.", "troubleshooting/disk-full.md",
        (
            Threshold("percent", 20, "%", "Free space, at most"),
            Threshold("critical", 5, "%", "Free space at which the alarm is critical"),
        )),
    Rule("disk-days", Severity.WARNING, "Disk fills up",
        "At the rate of the last hours, the disk of the node's log is full in a few days.",
        "Shorten the retention, or add disk space in time.", "troubleshooting/disk-full.md",
        (
            Threshold("days", 3, "days", "Days until the disk is full, at most"),
            Threshold("critical", 6, "h", "Hours until the disk is full at which the alarm is critical"),
        ), hold=600),
    Rule("sync-slow", Severity.WARNING, "Disk slow",
        "One sync of the log in a hundred takes longer than allowed. Publishers wait for it.",
        "Check what else uses the disk, and whether it fails.", "troubleshooting/disk-full.md#a-disk-that-fails",
        (Threshold("ms", 500, "ms", "99th percentile of a sync, at least"),), hold=120),
    Rule("cursor-lag", Severity.WARNING, "Reader behind",
        "A reader with a cursor, such as a Spark query, is far behind the end of its topic.",
        "Check whether the reader runs. Messages may expire before it reads them.", "how-to/replay.md#cursors",
        (_count(100_000, "Messages not yet read, at least"),)),
    Rule("clock-skew", Severity.WARNING, "Clocks differ",
        "The clock of the node differs from that of the others. Timestamps, schedules, delivery times and"
        " ends of pauses are wrong by as much.",
        "Check NTP on the node.", "how-to/run-several-nodes.md#clocks",
        (Threshold("seconds", 2, "s", "Difference to the other nodes, at least"),)),
    Rule("certificate-expiring", Severity.WARNING, "Certificate expires",
        "A certificate that a daemon serves, shows or trusts expires soon, or has expired. Others refuse it from then on.",
        "Renew the certificate on that host, and send the daemon SIGHUP.", "how-to/certificates.md",
        (
            Threshold("days", 14, "days", "Days until it expires, at most"),
            Threshold("critical", 2, "days", "Days until it expires at which the alarm is critical"),
        )),
    Rule("version-skew", Severity.INFO, "Versions differ",
        "The node runs an older version than the newest node.",
        "Complete the upgrade, one node after the other.", "how-to/upgrade.md"),
    Rule("draining", Severity.INFO, "Node draining",
        "An operator drains the node: it rejects new messages while consumers empty its queues.",
        "Stop the node when it is drained, or stop draining.", "how-to/drain-or-remove-a-node.md"),
    Rule("too-many", Severity.WARNING, "More problems than can be listed",
        "Nodes do not list all channels that need attention, because there are too many.",
        "Fix the listed ones first.", "troubleshooting/backlog.md"),
)  # fmt: skip

BY_NAME: Mapping[str, Rule] = {rule.name: rule for rule in RULES}


class Thresholds:
    """The values of all thresholds: a value set on the page, or else the configured one, or else the default."""

    def __init__(self, configured: Iterable[str] = (), on_page: Mapping[str, str] | None = None) -> None:
        """Read the values of -alarm, and those set on the page, of which invalid ones are ignored. Raises ValueError."""
        self.configured = dict(map(parse_setting, configured))
        self.on_page = {name: value for name, value in (on_page or {}).items() if not problem_of(name, value)}

    def is_on(self, rule: Rule) -> bool:
        """Return whether the rule is checked."""
        return self._setting(rule.name) != OFF

    def value(self, rule: str, name: str) -> float:
        """Return the value of a threshold."""
        default = next(one.default for one in BY_NAME[rule].thresholds if one.name == name)
        given = self._setting(f"{rule}.{name}")
        return float(given) if given else default

    def source(self, name: str) -> str:
        """Return the source of the value of `RULE` or `RULE.NAME`, as text."""
        return "set on this page" if name in self.on_page else "configured" if name in self.configured else "default"

    def set(self, name: str, value: str) -> None:
        """Set a value as the page does; "" returns to the configured one. Raises ValueError."""
        if value and (wrong := problem_of(name, value)):
            raise ValueError(wrong)
        if value:
            self.on_page[name] = value
        else:
            self.on_page.pop(name, None)

    def _setting(self, name: str) -> str:
        return self.on_page.get(name) or self.configured.get(name, "")


def parse_setting(text: str) -> tuple[str, str]:
    """Return the name and the value of `RULE.NAME=VALUE` or `RULE=off`. Raises ValueError."""
    name, found, value = text.partition("=")
    wrong = problem_of(name, value) if found else f"expected RULE.NAME=VALUE or RULE=off, not {text[:100]!r}"
    if wrong:
        raise ValueError(wrong)
    return name, value


def problem_of(name: str, value: str) -> str:
    """Return the error in a setting, or ""."""
    rule_name, dot, threshold = name.partition(".")
    rule = BY_NAME.get(rule_name)
    if rule is None:
        return f"unknown alarm rule {rule_name[:100]!r}: use one of {', '.join(BY_NAME)}"
    if not dot:
        return "" if value in (OFF, "on") else f"{rule_name}: expected off or on"
    if threshold not in (one.name for one in rule.thresholds):
        names = ", ".join(one.name for one in rule.thresholds) or "none"
        return f"the alarm rule {rule_name} has no threshold {threshold[:100]!r}: it has {names}"
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    return "" if 0 <= number <= MOST_VALUE else f"{name}: expected a number that is not negative"


def no_alarm_settings(texts: tuple[str, ...]) -> str:
    """Check the option -alarm, as an option check."""
    for text in texts:
        try:
            parse_setting(text)
        except ValueError as error:
            return str(error)
    return ""
