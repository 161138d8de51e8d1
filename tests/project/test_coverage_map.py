"""Every module of the product has a test file of its name, or is listed here with the test that tries it.

A test of the module nsqd/core/pauses.py is tests/nsqd/core/test_pauses.py. A module that is tried through others has no such
file: TRIED_BY names the test to look at first.
"""

from collections.abc import Iterator
from pathlib import Path

from tests.daemons import ROOT

ROOMS = ("nsqd", "lookupd", "admin", "shared", "apps", "penstock", "pipeline")

# the test to look at first: the modules, with dots
TRIED_BY = {
    "nsqd/cluster/replication/test_leader.py": ("nsqd.cluster.replication.sending", "nsqd.cluster.replication.waits"),
    "shared/terminal/test_commands.py": ("shared.terminal.confirm",),
    "shared/cluster/test_state.py": (
        "shared.cluster.answer", "shared.cluster.logs", "shared.cluster.merge",
    ),
    "admin/users/test_access.py": ("admin.pages.login",),
    "admin/alarms/test_book.py": ("admin.alarms.subject",),
    "admin/alarms/test_checks.py": ("admin.alarms.past", "admin.alarms.node_checks",),
    "admin/test_operating_process.py": ("admin.messages.message_forms",),
    "admin/users/test_audit.py": ("admin.users.outbox",),
    "admin/test_commands.py": ("admin.messages.actions",),
    "admin/alarms/test_monitor.py": ("admin.nodes.cluster", "admin.nodes.queries",),
    "admin/pages/test_oidc.py": ("admin.users.oidc_provider",),
    "admin/users/test_oidc_options.py": ("admin.options",),
    "admin/pages/test_start.py": ("admin.output.layout", "admin.output.requests", "admin.output.site",),
    "admin/pages/test_start_process.py": ("admin.daemon", "admin.pages.node_pages", "admin.pages.record_pages",),
    "admin/terminal/test_listing.py": ("admin.terminal.arguments", "admin.terminal.channel_counts", "admin.terminal.session",),
    "admin/test_on_behalf.py": ("admin.nodes.answer_budget",),
    "apps/test_apps.py": (
        "apps.interrupts", "apps.nsq_tail", "apps.passthrough", "apps.to_nsq", "penstock.client.connection",
        "penstock.client.dial", "penstock.client.links", "penstock.client.lookup", "penstock.client.producer",
    ),
    "apps/test_chaos.py": ("apps.penstock", "apps.up",),
    "apps/test_cluster_certs.py": ("apps.certificate_authority",),
    "apps/test_forwarding.py": ("apps.nsq_to_http", "apps.nsq_to_nsq",),
    "apps/test_secure_set.py": ("apps.daemon_set",),
    "apps/test_to_file_names.py": ("apps.to_file.names", "apps.to_file.rotation",),
    "apps/test_to_file_options.py": ("apps.to_file.feeds", "apps.to_file.options",),
    "apps/test_to_file_output.py": ("apps.to_file.disk", "apps.to_file.output",),
    "apps/test_to_file_schedule.py": ("apps.to_file.schedule",),
    "apps/test_to_file_topic_log.py": ("apps.to_file.topic_log",),
    "lookupd/test_admission.py": ("lookupd.pending", "lookupd.producer_slots", "lookupd.rate_limit",),
    "lookupd/test_http.py": ("lookupd.metrics", "lookupd.net", "lookupd.producers",),
    "nsqd/auth/test_servers.py": ("nsqd.auth.exchange",),
    "nsqd/cluster/ownership/test_elections.py": ("nsqd.cluster.ownership.cases", "nsqd.cluster.ownership.candidate",),
    "nsqd/cluster/ownership/test_election_runs.py": ("nsqd.cluster.ownership.voter",),
    "nsqd/cluster/remote_jobs/test_lending.py": ("nsqd.cluster.remote_jobs.lent_jobs",),
    "nsqd/core/channel/test_backlog.py": ("nsqd.core.sequence.extent", "nsqd.core.sequence.offsets",),
    "nsqd/core/channel/test_buried.py": ("nsqd.core.channel.actions",),
    "nsqd/core/channel/test_channel.py": ("nsqd.core.channel.commands", "nsqd.core.sequence.delay_queue",),
    "nsqd/core/channel/test_dispatch.py": ("nsqd.core.channel.consumer",),
    "nsqd/core/channel/test_groups.py": ("nsqd.core.channel.queued",),
    "nsqd/core/channel/test_recorded.py": ("nsqd.core.channel.state",),
    "nsqd/core/message/test_deletion.py": ("nsqd.core.message.epoch",),
    "nsqd/core/batches/test_batches.py": ("nsqd.tasks.batch_task",),
    "nsqd/core/observation/test_series.py": ("nsqd.tasks.series_task",),
    "nsqd/core/test_limits.py": ("nsqd.core.topology",),
    "nsqd/core/test_model.py": (
        "nsqd.core.directory", "nsqd.core.node_context", "nsqd.core.distribution",
        "nsqd.core.sequence.intake", "nsqd.core.sequence.journal", "nsqd.core.sequence.spans",
        "nsqd.core.sequence.store",
    ),
    "nsqd/core/test_pauses.py": ("nsqd.core.timing.pause", "nsqd.tasks.pause_expiry",),
    "nsqd/core/test_shards.py": ("nsqd.core.channel.window", "nsqd.core.registry", "nsqd.core.sequence.mark",),
    "nsqd/core/test_tubes.py": ("nsqd.core.retention.policy",),
    "nsqd/core/work_queue/test_job_pages.py": ("nsqd.core.work_queue.job",),
    "nsqd/core/work_queue/test_tube.py": ("nsqd.core.work_queue.worker",),
    "nsqd/discovery/test_link.py": ("penstock.protocol.framing",),
    "nsqd/http/test_arguments.py": ("shared.http.argument",),
    "nsqd/http/test_cursors.py": ("nsqd.http.all_cursors",),
    "nsqd/http/test_labelled_metrics.py": ("nsqd.http.metrics",),
    "nsqd/http/test_stats_in_turn.py": ("nsqd.http.stats_client",),
    "nsqd/http/test_logs.py": ("nsqd.core.cluster_view", "nsqd.core.retention.history",),
    "nsqd/http/test_messages.py": ("nsqd.http.inspection",),
    "nsqd/http/test_parts.py": ("nsqd.http.node",),
    "nsqd/http/test_read_back.py": ("nsqd.http.offsets",),
    "nsqd/http/test_stats.py": ("shared.http.extensions",),
    "nsqd/net/test_inflow.py": ("nsqd.net.admission", "nsqd.protocols.conversation",),
    "nsqd/net/test_layers.py": ("nsqd.net.connection", "nsqd.net.endpoint",),
    "nsqd/net/test_reactor.py": ("nsqd.net.timers", "nsqd.net.unread", "nsqd.net.upkeep",),
    "nsqd/protocols/beanstalk/test_conversations.py": (
        "nsqd.protocols.beanstalk.client", "nsqd.protocols.beanstalk.states", "nsqd.protocols.beanstalk.stats",
    ),
    "nsqd/protocols/beanstalk/test_model.py": ("nsqd.protocols.beanstalk.peer",),
    "nsqd/protocols/beanstalk/test_shards.py": ("nsqd.http.tubes",),
    "nsqd/protocols/disque/test_cluster_commands.py": ("nsqd.protocols.disque.client",),
    "nsqd/protocols/disque/test_fast_slow.py": ("nsqd.protocols.disque.peer",),
    "nsqd/protocols/disque/test_info.py": ("nsqd.protocols.disque.context",),
    "nsqd/protocols/disque/test_queues.py": ("nsqd.core.queues",),
    "nsqd/protocols/disque/test_server.py": ("nsqd.protocols.disque.flush",),
    "nsqd/protocols/nsq/test_fast_slow.py": (
        "nsqd.protocols.nsq.commands", "nsqd.protocols.nsq.fast", "nsqd.protocols.nsq.publisher",
        "nsqd.protocols.nsq.subscription",
    ),
    "nsqd/protocols/nsq/test_peer.py": (
        "nsqd.protocols.nsq.context", "nsqd.protocols.nsq.errors", "nsqd.protocols.nsq.identify",
        "nsqd.protocols.nsq.introduction", "nsqd.protocols.nsq.liveness", "nsqd.protocols.nsq.settings",
        "nsqd.protocols.transport",
    ),
    "nsqd/cluster/wire/test_refused_frames.py": (
        "nsqd.cluster.membership.leader_frames",
        "nsqd.cluster.ownership.election_frames", "nsqd.cluster.promotion.diverged.salvage_frames",
    ),
    "nsqd/cluster/remote_jobs/test_job_frames.py": ("nsqd.core.work_queue.loan",),
    "nsqd/cluster/wire/test_node_identity.py": ("nsqd.cluster.wire.fields",),
    "nsqd/protocols/rights/test_beanstalk.py": ("nsqd.protocols.beanstalk.rights",),
    "nsqd/protocols/rights/test_disque.py": ("nsqd.protocols.disque.rights",),
    "nsqd/protocols/rights/test_guessing.py": ("nsqd.protocols.credential",),
    "nsqd/protocols/rights/test_recording.py": (
        "nsqd.protocols.beanstalk.operators", "nsqd.protocols.disque.audited",
    ),
    "nsqd/cluster/promotion/test_promotions.py": ("nsqd.cluster.promotion.promoted_log", "nsqd.cluster.promotion.opening",),
    "nsqd/cluster/replication/test_several_logs.py": ("nsqd.cluster.replication.copying",),
    "nsqd/cluster/membership/test_cluster_json.py": ("nsqd.cluster.membership.facts",),
    "nsqd/cluster/test_early.py": (
        "nsqd.cluster.replication.answers", "nsqd.cluster.replication.asking", "nsqd.cluster.wire.visit",
    ),
    "nsqd/cluster/replication/test_offers.py": ("nsqd.cluster.joined",),
    "nsqd/cluster/promotion/diverged/test_directory.py": ("nsqd.cluster.promotion.diverged.note",),
    "nsqd/cluster/remote_jobs/test_job_owners.py": ("nsqd.protocols.beanstalk.borrower", "nsqd.protocols.beanstalk.guest",),
    "nsqd/statsd/test_report.py": ("nsqd.option_values",),
    "nsqd/storage/log/test_contents.py": ("nsqd.core.retention.contents",),
    "nsqd/storage/log/test_damage.py": ("nsqd.storage.log.verify",),
    "nsqd/storage/log/test_epochs.py": ("nsqd.storage.log.identity", "nsqd.storage.log.space",),
    "nsqd/storage/log/test_followers.py": ("nsqd.storage.log.copying",),
    "nsqd/storage/log/test_idle.py": ("nsqd.storage.log.store",),
    "nsqd/storage/log/test_job_ids.py": ("nsqd.storage.log.reading",),
    "nsqd/storage/log/test_lease.py": ("nsqd.storage.log.files",),
    "nsqd/storage/log/test_pauses.py": (
        "nsqd.core.sequence.finished", "nsqd.core.work_queue.pausable", "nsqd.commands.verify",
    ),
    "nsqd/storage/log/test_records.py": ("nsqd.core.records",),
    "nsqd/storage/log/test_restore.py": (
        "nsqd.storage.log.frozen", "nsqd.storage.log.locations", "nsqd.storage.log.parent",
    ),
    "nsqd/storage/log/test_retention.py": (
        "nsqd.storage.log.journal",
    ),
    "nsqd/storage/log/test_state.py": (
        "nsqd.core.retention.cursors", "nsqd.core.topic_state", "nsqd.core.work_queue.state",
    ),
    "nsqd/storage/log/test_written_chunks.py": (
        "nsqd.core.channel.unfinished", "nsqd.core.written_chunks", "nsqd.storage.log.sources",
    ),
    "nsqd/cluster/replication/test_replica.py": ("nsqd.cluster.replication.manifest",),
    "nsqd/storage/test_disque_import.py": ("nsqd.storage.data_import",),
    "nsqd/storage/test_memory.py": ("nsqd.storage.sequence",),
    "nsqd/storage/test_one_state_machine.py": ("nsqd.core.reader_state", "nsqd.core.recovery",),
    "nsqd/start/test_fence.py": ("nsqd.start.listeners",),
    "nsqd/start/test_front_ends.py": ("nsqd.start.clustering",),
    "nsqd/test_options.py": ("nsqd.net.system", "shared.startup",),
    "nsqd/core/test_spans.py": ("nsqd.core.sequence.wrapper", "nsqd.core.spanned_store",),
    "nsqd/tasks/test_queue_expiry.py": ("nsqd.tasks.time_slices",),
    "penstock/aio/test_consumer_process.py": ("penstock.aio.consumer", "penstock.aio.lookup",),
    "penstock/aio/test_producer_process.py": (
        "penstock.aio.node", "penstock.aio.producer", "penstock.aio.publish", "penstock.aio.streams",
        "penstock.aio.waiter",
    ),
    "penstock/aio/test_reader_process.py": ("penstock.aio.reader",),
    "penstock/airflow/test_messages_process.py": ("penstock.airflow.info", "penstock.airflow.messages",),
    "penstock/airflow/test_provider_process.py": (
        "penstock.airflow.queue", "penstock.airflow.sensor", "penstock.airflow.trigger",
    ),
    "penstock/celery/test_pure.py": ("penstock.celery.address", "penstock.celery.envelope", "penstock.celery.names",),
    "penstock/client/test_slow_names_process.py": ("penstock.client.consumer",),
    "penstock/jobs/test_examples_process.py": (
        "penstock.jobs.aio", "penstock.jobs.client", "penstock.jobs.commands", "penstock.jobs.errors", "penstock.jobs.job",
        "penstock.jobs.settings",
    ),
    "penstock/django/test_backend_process.py": (
        "penstock.django.apps", "penstock.django.backend", "penstock.django.execution",
        "penstock.django.management.commands.penstock_worker", "penstock.django.tasks", "penstock.django.worker",
    ),
    "penstock/dramatiq/test_broker_process.py": (
        "penstock.dramatiq.broker", "penstock.dramatiq.consumer", "penstock.dramatiq.tracing", "penstock.jobs.shared",
    ),
    "penstock/jobs/test_holder_process.py": ("penstock.jobs.holder",),
    "penstock/jobs/test_session.py": ("penstock.jobs.retries",),
    "penstock/sansio/test_conversations.py": (
        "penstock.sansio.consumer", "penstock.sansio.message", "penstock.sansio.publisher", "penstock.sansio.session",
        "penstock.sansio.subscription",
    ),
    "penstock/sansio/test_introduction.py": ("penstock.sansio.layers", "penstock.sansio.tls",),
    "penstock/sansio/test_records.py": ("penstock.sansio.errors",),
    "penstock/sansio/test_requests.py": ("penstock.sansio.settings",),
    "penstock/sansio/test_small_parts.py": (
        "penstock.sansio.address", "penstock.sansio.backoff", "penstock.sansio.dials", "penstock.sansio.discovery",
    ),
    "penstock/spark/test_channel_process.py": ("penstock.spark.channel", "penstock.spark.staging",),
    "penstock/spark/test_spark_process.py": ("penstock.spark.publishing",),
    "penstock/spark/test_holders.py": ("penstock.spark.ask", "penstock.spark.nodes",),
    "penstock/spark/test_readers_process.py": ("penstock.spark.follower", "penstock.spark.reading", "penstock.spark.source",),
    "penstock/taskiq/test_broker_process.py": ("penstock.taskiq.broker",),
    "penstock/test_forks_process.py": ("penstock.forks", "penstock.launch",),
    "penstock/lake/test_table.py": ("penstock.lake.schema",),
    "pipeline/test_archiver_process.py": ("penstock.lake.task", "pipeline.archiver",),
    "pipeline/test_jobs.py": (
        "pipeline.compact", "pipeline.counts", "pipeline.history", "pipeline.report", "pipeline.rollup", "pipeline.rollups",
        "pipeline.vacuum",
    ),
    "processes/test_nsqd_spans.py": ("nsqd.tasks.span_export",),
    "pipeline/test_pipeline_process.py": (
        "pipeline.archive", "pipeline.doctor", "pipeline.main", "pipeline.replay", "pipeline.saying",
    ),
    "processes/test_penstock_use.py": ("apps.client_context", "apps.consuming", "apps.load", "apps.publishing",),
    "processes/test_backup.py": ("nsqd.core.retention.backup", "nsqd.http.backup", "nsqd.storage.log.backup",),
    "processes/test_beanstalkd.py": ("nsqd.start.beanstalk", "nsqd.commands.beanstalkd",),
    "processes/test_binlog_import.py": ("nsqd.storage.binlog_import",),
    "processes/test_celery.py": (
        "penstock.celery.entry", "penstock.celery.outlet", "penstock.celery.subscription", "penstock.celery.transport",
    ),
    "processes/test_certificate_dates.py": ("shared.http.process_metrics",),
    "processes/test_cluster.py": (
        "nsqd.http.archive",
        "nsqd.cluster.joining",
    ),
    "processes/test_configuration.py": ("shared.daemon_options", "shared.http.options",),
    "processes/test_disque_server.py": ("nsqd.commands.disque_server",),
    "processes/test_lookupd.py": ("lookupd.daemon", "lookupd.main",),
    "processes/test_nsq_import.py": ("nsqd.commands.import_command", "nsqd.storage.nsq_import",),
    "processes/test_nsq_to_file.py": ("apps.to_file.discovery", "apps.to_file.main",),
    "processes/test_nsqd.py": (
        "nsqd.start.daemon", "nsqd.start.identity", "nsqd.main", "nsqd.start.signals", "nsqd.storage.saver", "shared.files",
        "shared.process.trio_thread",
    ),
    "processes/test_nsqd_observation.py": ("nsqd.statsd.pusher", "shared.process.stacks",),
    "processes/test_tls.py": ("shared.tls.any_certificate",),
    "project/test_deploy.py": ("pipeline.command_line",),
    "project/test_runbooks.py": ("lookupd.options", "nsqd.commands.restore_command",),
    "project/test_start.py": ("shared.version",),
    "shared/audit/test_chain.py": ("shared.audit.event",),
    "shared/auth/test_limits.py": ("shared.auth.tokens",),
    "shared/auth/test_rules.py": ("shared.auth.verbs",),
    "shared/http/test_exchange.py": ("shared.http.answer_log",),
    "shared/http/test_hosts.py": ("shared.http.errors",),
    "shared/http/test_internals.py": ("shared.http.transport",),
    "shared/http/test_proof.py": ("shared.http.api",),
    "shared/http/test_server.py": ("shared.http.acceptor",),
    "shared/http/test_user_behind.py": ("shared.auth.on_behalf",),
    "shared/test_config_file.py": ("shared.print_config",),
    "shared/test_options.py": ("shared.environment", "shared.flags", "shared.values",),
    "shared/tls/test_certificates.py": ("shared.configuration", "shared.tls.info", "shared.tls.strength",),
    "shared/process/test_unix_sockets.py": ("shared.checks",),
    "simulation/test_cluster.py": ("nsqd.start.disque", "nsqd.storage.log.history",),
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


def test_every_module_is_tested() -> None:
    listed = {name for names in TRIED_BY.values() for name in names}
    missing = {name for name, _ in modules()} - with_a_test() - listed
    assert not missing, "write a test of that name, or name the test that tries it in TRIED_BY"


def test_the_table_names_what_is_there_and_no_more_than_it_must() -> None:
    listed = [name for names in TRIED_BY.values() for name in names]
    assert [name for name in listed if listed.count(name) > 1] == []
    assert sorted(set(listed) - {name for name, _ in modules()}) == []
    assert sorted(set(listed) & with_a_test()) == [], "these have a test now: remove them from TRIED_BY"
    assert [test for test in TRIED_BY if not (ROOT / "tests" / test).exists()] == []
