"""A node may answer anything: what reads an answer takes the sound parts of it, and fails at none."""

from collections.abc import Callable
from typing import Any

from hypothesis import given

from admin.alarms.book import AlarmBook
from admin.alarms.checks import Checks
from admin.alarms.rules import Thresholds
from admin.messages.browsing import _tube_row
from admin.nodes.backlogs import PartBacklog, add_backlogs, gains_of, slowest
from admin.nodes.inventory import Inventory, NodeState
from admin.nodes.loads import loads_of
from admin.nodes.merge import merged_channel, merged_topic, topic_of
from admin.nodes.observations import observation_of
from admin.nodes.overview import columns_for, ordered, overview_of, rows_of
from admin.nodes.publishers import publishers_of, with_publish_rates
from admin.nodes.snapshot import Snapshot, facts_of
from admin.nodes.views import top_talkers
from admin.output.tables import TOPICS
from admin.output.topic_settings import differences, may_remove, node_settings
from admin.pages.storage import drain_view, storage_view
from admin.users.roles import Who, of_role
from tests.admin.looks import JSON, NOW, producer, record

VIC = Who(of_role("vic", "viewer", ("eu.*",)))
KEYS = (
    "bytes", "backend_depth", "backlogs", "buried", "buried_count", "change", "changes", "channel", "channel_name",
    "channels", "client_count", "clients", "columns", "connect_ts", "count", "cpu_ms", "damage", "deferred", "depth",
    "disk_free", "disk_total", "draining", "drain", "durability", "e2e_processing_latency", "files", "health", "held",
    "hostname", "identities", "idle", "in_flight", "jobs", "left_out", "live_bytes", "log_bytes", "memory",
    "message_count", "messages", "name", "names", "node", "now", "number", "of_its_own", "oldest", "path", "paused",
    "percentiles", "process", "producers", "promoted", "pub_counts", "quantile", "ready_count", "refusal", "replicate",
    "requeued", "retention", "retention_bytes", "seconds", "since", "start_time", "sync_p99_ms", "timed_out", "topic",
    "topic_name", "topics", "torn", "totals", "tube", "tube_name", "tubes", "value", "zone_local_msg_count",
)  # fmt: skip


def are_counts(counts: Any) -> bool:
    return all(type(one) is int and one >= 0 for one in counts)


def read_loads(one: Any, other: Any) -> None:
    (load,) = loads_of({"n": one}, {"n": other}, 1.0).values()
    assert min(load.started, load.memory, load.cpu or 0, load.rate_in or 0) >= 0


def read_publishers(one: Any, other: Any) -> None:
    found, before = (publishers_of({"n:1": answer}, "t") for answer in (one, other))
    assert all((each.rate or 0) >= 0 for each in with_publish_rates(found, before, 1.0))


def read_observations(one: Any, other: Any) -> None:
    inventory = Inventory()
    inventory.note_named([producer("a")], NOW, is_complete=True)
    for path in ("/topics/figures", "/topics/rows", "/stats", "/channels/attention", "/node/drain"):
        for asked in ({}, {"topic": "t"}, {"topic": ["t"]}):
            if (seen := observation_of(path, asked, one)) is not None:
                assert are_counts(seen.totals.values())
                assert all(each >= 0 for held in seen.topics.values() for each in held)
                inventory.note("a:1", seen, NOW)
    (node,) = inventory.all()
    assert are_counts(node.figures.values())
    assert node.losses(True, ["t"])


def read_snapshot(one: Any, other: Any) -> None:
    look = Snapshot(NOW)
    look.add_attention("a:1", one)
    look.add_attention("b:1", other)
    look.nodes["a:1"] = facts_of(record(), NodeState.UP, "OK", one, None)
    every = [
        f"{rule}=0" for rule in ("buried.messages", "oldest-message.minutes", "paused.minutes", "disk-low.percent")
    ]
    changes = AlarmBook().update(Checks(Thresholds(every)).check(look), NOW)
    assert [alarm.json()["rule"] for alarm in changes.raised] == [alarm.rule.name for alarm in changes.raised]


def read_backlogs(one: Any, other: Any) -> None:
    parts: dict[str, PartBacklog] = {}
    add_backlogs(parts, one)
    add_backlogs(parts, [one, other])
    slowest(parts.values())
    gains_of({"a:1": one, "b:1": other})


def read_overview(one: Any, other: Any) -> None:
    for column in TOPICS.columns:
        found = overview_of({"a:1": one, "b:1": other}, [], columns_for(column.key))
        ordered(found.names, found, found, 1.0, "", "depth")
    rows_of([one, other], [])


def read_stats(one: Any, other: Any) -> None:
    parts = [topic_of(answer, f"n{place}:1", "h", NOW) for place, answer in enumerate((one, other))]
    assert merged_topic("t", parts)["depth"] == sum(part["depth"] for part in parts)
    for part in parts:
        for channel in part["channels"]:
            merged_channel("t", channel["channel_name"], [channel, channel])


def read_talkers(one: Any, other: Any) -> None:
    assert all(isinstance(each.name, str) and isinstance(each.bytes, int) for each in top_talkers(one))


def read_settings(one: Any, other: Any) -> None:
    node = node_settings("n:1", one)
    assert all(len(value) <= 40 for value in node.values.values())
    changes = {"durability": "os", "retention": "5s", "retention_bytes": "1", "replicate": "2"}
    assert isinstance(may_remove([node], changes), bool)
    assert {change.name for change in differences([node], changes)} <= set(changes)


def read_storage(one: Any, other: Any) -> None:
    storage_view(one, VIC)
    assert all(isinstance(value, int) for value in drain_view(one).values())
    assert _tube_row("a:1", one)["node"] == "a:1"


READERS: tuple[Callable[[Any, Any], None], ...] = (
    read_loads, read_publishers, read_observations, read_snapshot, read_backlogs, read_overview, read_stats, read_talkers,
    read_settings, read_storage,
)  # fmt: skip


@given(JSON, JSON)
def test_a_node_may_answer_anything(one: Any, other: Any) -> None:
    inner = dict.fromkeys(KEYS, other) | {"topic": "t", "channel": "c", "tube": "u"}
    answers = [dict.fromkeys(KEYS, one), {key: [inner, one] for key in KEYS}, dict.fromkeys(KEYS, inner), inner]
    for place, answer in enumerate(answers):
        for read in READERS:
            read(answer, answers[place - 1])
