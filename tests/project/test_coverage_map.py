"""Every module of the product is tested by name, imported by a test, or listed here with the test that runs it.

A test of the module nsqd/core/pauses.py is tests/nsqd/core/test_pauses.py. A larger test, mostly of a real process, runs each
module that has no such file and that no test imports: COVERED_BY names the one to look at first. The table may only shrink.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.daemons import ROOT

ROOMS = ("nsqd", "lookupd", "admin", "shared", "apps", "penstock", "pipeline")

# covering test: the modules, with dots
COVERED_BY = {
    "admin/test_api_process.py": (),
    "admin/test_pages_process.py": (
        "admin.node_pages", "admin.record_pages",
    ),
    "admin/test_monitor_process.py": ("admin.alarm_pages",),
    "admin/test_access.py": ("admin.login",),
    "admin/test_oidc.py": ("admin.oidc_provider",),
    "admin/test_users.py": ("admin.users_command",),
    "processes/test_backup.py": (
        "nsqd.core.retention.backup", "nsqd.http.backup", "nsqd.storage.log.backup",
    ),
    "apps/test_apps.py": ("apps.interrupts", "penstock.client.links",
                          "penstock.client.lookup", "penstock.client.producer"),
    "penstock/aio/test_consumer_process.py": ("penstock.aio.consumer", "penstock.aio.lookup"),
    "penstock/aio/test_producer_process.py": (
        "penstock.aio.node", "penstock.aio.producer", "penstock.aio.publish", "penstock.aio.streams",
        "penstock.aio.waiter",
    ),
    "penstock/aio/test_reader_process.py": ("penstock.aio.reader",),
    "processes/test_celery.py": (
        "penstock.celery.channel", "penstock.celery.entry", "penstock.celery.outlet", "penstock.celery.subscription",
        "penstock.celery.transport",
    ),
    "penstock/jobs/test_examples_process.py": (
        "penstock.jobs.aio", "penstock.jobs.aio_operators", "penstock.jobs.client", "penstock.jobs.errors", "penstock.jobs.job",
        "penstock.jobs.operators", "penstock.jobs.settings",
    ),
    "processes/test_lookupd.py": ("lookupd.main",),
    "lookupd/test_http.py": ("lookupd.metrics",),
    "processes/test_penstock_up_secure.py": ("nsqd.node_tls",),
    "processes/test_penstock_up.py": ("apps.signal_queue",),
    "nsqd/protocols/rights/test_recording.py": ("nsqd.protocols.disque.audited", "nsqd.protocols.recording"),
    "nsqd/auth/test_servers.py": ("nsqd.auth.exchange",),
    "processes/test_beanstalkd.py": ("nsqd.beanstalk", "nsqd.beanstalkd"),
    "processes/test_disque_server.py": ("nsqd.disque_server",),
    "nsqd/core/test_model.py": (
        "nsqd.core.directory", "nsqd.core.node_context", "nsqd.core.readers",
        "nsqd.core.sequence.intake", "nsqd.core.sequence.journal", "nsqd.core.sequence.spans",
    ),
    "nsqd/core/channel/test_channel.py": ("nsqd.core.sequence.delay_lane",),
    "nsqd/storage/log/test_contents.py": ("nsqd.core.retention.contents",),
    "nsqd/storage/log/test_retention.py": (
        "nsqd.storage.log.journal",
        "nsqd.storage.log.recorder", "nsqd.storage.log.upkeep",
    ),
    "processes/test_nsqd.py": (
        "nsqd.daemon", "nsqd.identity", "nsqd.main", "nsqd.opening", "nsqd.signals",
        "nsqd.storage.saver", "shared.files", "shared.trio_thread",
    ),
    "processes/test_cluster.py": (
        "apps.cluster_forget", "apps.cluster_adopt",
        "nsqd.core.sequence.gate", "nsqd.http.archive", "nsqd.http.cluster",
        "nsqd.replication.joining",
    ),
    "processes/test_chaos.py": ("nsqd.http.cuts",),
    "nsqd/test_queue_expiry.py": ("nsqd.time_slices",),
    "processes/test_configuration.py": ("nsqd.http.config", "shared.daemon_options", "shared.http.options"),
    "processes/test_nsqd_http.py": (
        "nsqd.http.health", "nsqd.http.publish", "nsqd.http.routes",
        "nsqd.http.stats_text", "nsqd.http.topology", "shared.http.extensions",
    ),
    "processes/test_nsq_to_file.py": ("apps.to_file.discovery", "apps.to_file.main"),
    "admin/test_cluster_state.py": ("admin.cluster_answer", "admin.cluster_logs"),
    "nsqd/http/test_read_back.py": ("nsqd.http.offsets",),
    "processes/test_nsqd_observation.py": (
        "nsqd.statsd.pusher", "shared.sampler", "shared.stacks",
    ),
    "processes/test_nsq_import.py": ("nsqd.import_command",),
    "nsqd/net/test_reactor.py": ("nsqd.net.timers", "nsqd.net.unread", "nsqd.net.upkeep", "nsqd.net.wakeup"),
    "nsqd/protocols/beanstalk/test_conversations.py": ("nsqd.protocols.beanstalk.states",
        "nsqd.protocols.beanstalk.stats",
    ),
    "nsqd/protocols/nsq/test_fast_slow.py": ("nsqd.protocols.nsq.fast",),
    "nsqd/protocols/nsq/test_peer.py": ("nsqd.protocols.nsq.introduction", "nsqd.protocols.nsq.liveness"),
    "penstock/spark/test_spark_process.py": ("penstock.spark.sink",),
    "pipeline/test_pipeline_process.py": (
        "pipeline.compact", "pipeline.doctor", "pipeline.history", "pipeline.progress", "pipeline.replay",
    ),
    "shared/http/test_server.py": ("shared.http.acceptor", "shared.http.uvicorn_server"),
    "processes/test_tls.py": ("shared.tls_any_certificate",),
    "processes/test_certificate_dates.py": ("shared.http.expiry",),
}  # fmt: skip


def modules() -> Iterator[tuple[str, Path]]:
    """Yield the product's modules with dots, and their files below the root; packages that define nothing are left out."""
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            if file.stem != "__init__":
                path = file.relative_to(ROOT)
                yield ".".join(path.with_suffix("").parts), path


@cache
def imported() -> set[str]:
    """Return the modules, and names in modules, that some file below tests imports."""
    found = set[str]()
    for file in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def with_a_test() -> set[str]:
    """Return the modules that a test imports or that have a test file of their name."""
    seen = imported()
    return {
        name
        for name, path in modules()
        if name in seen or (ROOT / "tests" / path.parent / f"test_{path.name}").exists()
    }


def test_every_module_is_tested() -> None:
    listed = {name for names in COVERED_BY.values() for name in names}
    missing = {name for name, _ in modules()} - with_a_test() - listed
    assert not missing, "write a test, or name the test that runs them in COVERED_BY"


def test_the_table_names_what_is_there_and_no_more_than_it_must() -> None:
    listed = [name for names in COVERED_BY.values() for name in names]
    assert [name for name in listed if listed.count(name) > 1] == []
    assert sorted(set(listed) - {name for name, _ in modules()}) == []
    assert sorted(set(listed) & with_a_test()) == [], "these have a test now: remove them from COVERED_BY"
    assert [test for test in COVERED_BY if not (ROOT / "tests" / test).exists()] == []
