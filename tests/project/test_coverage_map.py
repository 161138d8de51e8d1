"""Every module of the product is tested: by a file of its name, by a test that imports it, or as is listed here.

A test of the module nsqd/core/pauses.py is tests/nsqd/core/test_pauses.py. TRIED_BY names the test to look at first for a
module that has no such file, and that tests try only through others.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.daemons import ROOT

ROOMS = ("nsqd", "lookupd", "admin", "shared", "apps", "penstock", "pipeline")

# the test to look at first: the modules, with dots
TRIED_BY = {
    "admin/pages/test_oidc.py": ("admin.users.oidc_provider",),
    "admin/pages/test_start.py": ("admin.output.requests", "admin.output.site",),
    "admin/pages/test_start_process.py": ("admin.pages.record_pages",),
    "admin/terminal/test_messages.py": ("admin.terminal.targets",),
    "admin/terminal/test_listing.py": (
        "admin.terminal.arguments", "admin.terminal.channel_counts", "admin.terminal.session",
    ),
    "admin/test_operating_process.py": ("admin.messages.message_forms",),
    "apps/test_apps.py": (
        "apps.interrupts", "penstock.client.links", "penstock.client.lookup", "penstock.client.producer",
    ),
    "lookupd/test_http.py": ("lookupd.metrics",),
    "nsqd/auth/test_servers.py": ("nsqd.auth.exchange",),
    "nsqd/core/channel/test_channel.py": ("nsqd.core.sequence.delay_queue",),
    "nsqd/core/test_model.py": (
        "nsqd.core.directory", "nsqd.core.node_context", "nsqd.core.distribution", "nsqd.core.sequence.intake",
        "nsqd.core.sequence.journal", "nsqd.core.sequence.spans",
    ),
    "nsqd/http/test_cursors.py": ("nsqd.http.all_cursors",),
    "nsqd/http/test_read_back.py": ("nsqd.http.offsets",),
    "nsqd/http/test_stats.py": ("shared.http.extensions",),
    "nsqd/net/test_reactor.py": ("nsqd.net.timers", "nsqd.net.unread", "nsqd.net.upkeep",),
    "nsqd/protocols/beanstalk/test_conversations.py": (
        "nsqd.protocols.beanstalk.states", "nsqd.protocols.beanstalk.stats",
    ),
    "nsqd/protocols/nsq/test_fast_slow.py": ("nsqd.protocols.nsq.fast",),
    "nsqd/protocols/nsq/test_peer.py": ("nsqd.protocols.nsq.introduction", "nsqd.protocols.nsq.liveness",),
    "nsqd/protocols/rights/test_disque.py": ("nsqd.protocols.disque.rights",),
    "nsqd/protocols/rights/test_recording.py": ("nsqd.protocols.disque.audited",),
    "nsqd/storage/log/test_contents.py": ("nsqd.core.retention.contents",),
    "nsqd/storage/log/test_retention.py": ("nsqd.storage.log.journal", "nsqd.storage.log.recorder",),
    "nsqd/tasks/test_queue_expiry.py": ("nsqd.tasks.time_slices",),
    "penstock/aio/test_consumer_process.py": ("penstock.aio.consumer", "penstock.aio.lookup",),
    "penstock/aio/test_producer_process.py": (
        "penstock.aio.node", "penstock.aio.producer", "penstock.aio.publish", "penstock.aio.streams",
        "penstock.aio.waiter",
    ),
    "penstock/aio/test_reader_process.py": ("penstock.aio.reader",),
    "penstock/jobs/test_examples_process.py": (
        "penstock.jobs.aio", "penstock.jobs.client", "penstock.jobs.errors", "penstock.jobs.job",
        "penstock.jobs.settings",
    ),
    "penstock/lake/test_table.py": ("penstock.lake.selection",),
    "penstock/spark/test_spark_process.py": ("penstock.spark.publishing",),
    "penstock/taskiq/test_broker_process.py": ("penstock.taskiq.broker",),
    "pipeline/test_jobs.py": ("pipeline.counts",),
    "pipeline/test_pipeline_process.py": ("pipeline.replay", "pipeline.saying",),
    "processes/test_backup.py": ("nsqd.core.retention.backup", "nsqd.http.backup", "nsqd.storage.log.backup",),
    "processes/test_beanstalkd.py": ("nsqd.commands.beanstalkd",),
    "processes/test_celery.py": (
        "penstock.celery.entry", "penstock.celery.outlet", "penstock.celery.subscription", "penstock.celery.transport",
    ),
    "processes/test_certificate_dates.py": ("shared.http.process_metrics",),
    "processes/test_chaos.py": ("nsqd.http.cuts",),
    "processes/test_cluster.py": (
        "apps.cluster_promote", "apps.cluster_forget", "nsqd.http.archive", "nsqd.http.cluster", "nsqd.cluster.port",
    ),
    "processes/test_configuration.py": ("shared.daemon_options", "shared.http.options",),
    "processes/test_disque_server.py": ("nsqd.commands.disque_server",),
    "processes/test_lookupd.py": ("lookupd.main",),
    "processes/test_nsq_import.py": ("nsqd.commands.import_command",),
    "processes/test_nsq_to_file.py": ("apps.to_file.discovery", "apps.to_file.main",),
    "processes/test_nsqd.py": (
        "nsqd.start.daemon", "nsqd.start.identity", "nsqd.main", "nsqd.start.signals", "nsqd.storage.saver",
        "shared.files", "shared.process.trio_thread",
    ),
    "processes/test_nsqd_observation.py": ("nsqd.statsd.pusher", "shared.process.stacks",),
    "processes/test_penstock_up.py": ("apps.signal_queue",),
    "processes/test_penstock_use.py": ("apps.client_context", "apps.consuming", "apps.publishing",),
    "processes/test_tls.py": ("shared.tls.any_certificate",),
    "project/test_runbooks.py": ("apps.backup", "nsqd.commands.restore_command",),
    "shared/cluster/test_state.py": ("shared.cluster.answer", "shared.cluster.logs",),
    "shared/http/test_exchange.py": ("shared.http.answer_log",),
    "shared/http/test_server.py": ("shared.http.acceptor",),
}  # fmt: skip


def modules() -> Iterator[tuple[str, Path]]:
    """Yield the product's modules with dots, and their files below the root; packages that define nothing are left out."""
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            if file.stem != "__init__":
                path = file.relative_to(ROOT)
                yield ".".join(path.with_suffix("").parts), path


def with_a_test() -> set[str]:
    """Return the modules that have a test file of their name."""
    return {name for name, path in modules() if (ROOT / "tests" / path.parent / f"test_{path.name}").exists()}


def imported() -> set[str]:
    """Return the modules that tests import."""
    found = set[str]()
    for path in (ROOT / "tests").rglob("*.py"):
        for package, names in re.findall(r"^ *from ([\w.]+) import (\([^)]*\)|.*)", path.read_text(), re.MULTILINE):
            found |= {package, *(f"{package}.{name}" for name in re.findall(r"\w+", names))}
    return found


def test_every_module_is_tested() -> None:
    listed = {name for names in TRIED_BY.values() for name in names}
    missing = {name for name, _ in modules()} - with_a_test() - imported() - listed
    assert not missing, "write a test of that name, or name the test that tries it in TRIED_BY"


def test_the_table_names_what_is_there_and_no_more_than_it_must() -> None:
    listed = [name for names in TRIED_BY.values() for name in names]
    assert [name for name in listed if listed.count(name) > 1] == []
    assert sorted(set(listed) - {name for name, _ in modules()}) == []
    assert sorted(set(listed) & with_a_test()) == [], "these have a test now: remove them from TRIED_BY"
    assert [test for test in TRIED_BY if not (ROOT / "tests" / test).exists()] == []
