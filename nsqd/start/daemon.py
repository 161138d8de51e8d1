"""nsqd: put the parts of a node together, and run it until a signal.

All wiring is here; `nsqd/main.py` comes before it. One trio thread owns all state; the HTTP thread reaches it through the
bridge. TCP clients are served first: modules that only HTTP, authorization servers or statsd need are imported where they are
used, and those of HTTP in a thread.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING

import trio

from nsqd.core.limits import MAY_BE_DELIVERED
from nsqd.core.observation.series import Series
from nsqd.core.registry import Change
from nsqd.discovery.lookupds import PING_INTERVAL, Lookupds, ping_interval
from nsqd.http.node import Node
from nsqd.net.promised import HttpReplies
from nsqd.net.reactor import Reactor
from nsqd.options import NsqdOptions
from nsqd.protocols.account import Accounts
from nsqd.protocols.disque.ids import JobIds
from nsqd.protocols.nsq.context import Context
from nsqd.start.audit import NodeAudit, note_signal, open_trail
from nsqd.start.client_ports import ClientPorts
from nsqd.start.fence import Fence, open_patiently
from nsqd.start.front_ends import (
    all_peers,
    listen_to_beanstalk,
    listen_to_disque,
    listen_to_nsq,
    make_admission,
    make_auth_servers,
    nsq_peers,
    open_shared_port,
)
from nsqd.start.http_server import HttpFrontEnd
from nsqd.start.identity import lookup_identity, node_info
from nsqd.start.listeners import again, close_sockets
from nsqd.start.opening import Opened, clocks, sync_by_time, tune_interpreter
from nsqd.start.signals import reload_files, until_over
from nsqd.storage.directory import DataDirectory, DirectoryError
from nsqd.storage.saver import Health, Saver
from nsqd.tasks.batch_task import BatchTask
from nsqd.tasks.dead_letter_topics import DeadLetterTopics
from nsqd.tasks.pause_expiry import end_pauses
from nsqd.tasks.rights_task import watch_rights
from nsqd.tasks.schedule_task import ScheduleTask
from nsqd.tasks.series_task import note_series
from nsqd.tasks.topology_log import log_changes
from shared.budget import Budget
from shared.http.bridge import Bridge
from shared.log import log
from shared.process.daemon import SIGNALS, note_slow_interpreter
from shared.process.memory import Memory
from shared.process.trio_thread import TrioThread

if TYPE_CHECKING:
    from nsqd.auth.servers import AuthServers
    from nsqd.cluster.joined import Joined
    from nsqd.cluster.remote_jobs.lent_jobs import LentJobs
    from nsqd.protocols.beanstalk.client import BeanstalkContext
    from nsqd.protocols.disque.client import DisqueContext
    from nsqd.protocols.job_client import JobContext
    from nsqd.start.listeners import Listeners
    from nsqd.start.shared_port import SharedPort
    from nsqd.storage.log.epochs import Epoch
    from shared.audit.trail import Trail

LINGER = 3.0  # s for which a node that has left its cluster still says so over HTTP, before it ends
COPIES_WITHIN = 0.5  # s for the copies of publishes over HTTP when the node stops; the HTTP server stops within 1 s


def serve(options: NsqdOptions, directory: DataDirectory, listeners: Listeners) -> None:
    """Serve until SIGINT or SIGTERM. Raises DirectoryError before any client is served."""
    if listeners.dates is not None:
        listeners.dates.start()
    with open_trail(options) as trail:
        try:
            trio.run(_run, options, directory, listeners, trail)
        except ExceptionGroup as group:
            match group.exceptions:
                case [DirectoryError() as error]:
                    raise error from None
            raise


async def _run(options: NsqdOptions, directory: DataDirectory, listeners: Listeners, trail: Trail | None) -> None:
    """Serve until SIGINT or SIGTERM. Any exception that leaves here is a bug, or a machine that has ceased to work."""
    tune_interpreter()
    auth_servers = make_auth_servers(options, listeners.auth_tls)
    with trio.open_signal_receiver(*SIGNALS) as signals:
        opened = await open_patiently(options, directory, listeners, signals)
        while opened is not None:
            fence = await _serve(options, directory, listeners, opened, auth_servers, signals, trail)
            opened = None  # the next log may need the memory
            if fence is not None:
                gc.collect()
                close_sockets(listeners)
                listeners = fence.listeners
                opened = await open_patiently(options, directory, listeners, signals, fence)
        if auth_servers:
            await auth_servers.close()
    log.info("NSQ: bye")


async def _serve(
    options: NsqdOptions,
    directory: DataDirectory,
    listeners: Listeners,
    opened: Opened,
    auth_servers: AuthServers | None,
    signals: AsyncIterator[int],
    trail: Trail | None,
) -> Fence | None:
    """Serve an open log until a signal, or until another node has promoted the log: then its fence is returned."""
    fence: Fence | None = None
    async with trio.open_nursery() as nursery:
        daemon = Daemon(options, directory, listeners, opened, nursery, trail)
        daemon.ports.add(partial(listen_to_nsq, daemon.reactor, listeners, daemon.context, auth_servers, nursery))
        daemon.prepare_beanstalk()
        daemon.join_cluster(directory)
        daemon.prepare_disque()
        daemon.ports.add(daemon.open_shared_port)
        daemon.open_ports()
        daemon.start()
        daemon.accept_http()
        daemon.start_reporting()
        await daemon.start_http()
        note_slow_interpreter()
        reload = partial(reload_files, options, listeners, trail)
        await until_over(signals, reload, daemon.is_fenced, daemon.has_left)
        daemon.stop_promoting()
        if daemon.is_fenced.is_set():
            fence = daemon.hang_up()
        elif not daemon.has_left.is_set():
            daemon.announce_stop()
        note_signal(trail, "process/stop" if fence is None else "process/fenced")
        daemon.close_shared_port()
        await daemon.stop_http()
        nursery.cancel_scope.cancel()
    daemon.close()
    return fence


class Daemon:
    """The parts of a node, each built from those before it."""

    def __init__(
        self,
        options: NsqdOptions,
        directory: DataDirectory,
        listeners: Listeners,
        opened: Opened,
        nursery: trio.Nursery,
        trail: Trail | None,
    ) -> None:
        self._options, self._listeners, self._opened, self._nursery = options, listeners, opened, nursery
        self._broker = broker = opened.broker
        self._info = node_info(options, listeners)
        self._memory, self._series, self._health = Memory(), Series(), Health()
        self._budget = Budget(options.buffer_budget)
        self._trio_thread = TrioThread()
        self._bridge = Bridge(opened.wake)
        self._saver = Saver(broker, directory, self._health, nursery)
        timeouts = (options.http_client_connect_timeout / 1e9, options.http_client_request_timeout / 1e9)
        identity = lookup_identity(options, listeners, self._info, opened.log.identity.log_id)
        ping = ping_interval(options.failover_after) if options.cluster_address else PING_INTERVAL
        self._lookupds = Lookupds(broker, identity, timeouts, opened.wake, nursery, ping, listeners.lookupd_tls)
        self._accounts = Accounts() if listeners.keyring is not None else None
        self.context = Context(
            broker,
            options.settings(),
            until_registered=self._lookupds.until_registered,
            proofs=listeners.keyring,
            accounts=self._accounts,
        )
        self._audit = NodeAudit(trail, broker, options.audit_topic, opened.wake)
        self.context.audit = self._audit.note
        admission = make_admission(options, listeners, broker.refused, self._budget)
        self.reactor = Reactor(broker, clocks, self._answer_http_requests, self._report_changes, admission)
        opened.wake.reactor = self.reactor
        self._schedule_task = ScheduleTask(broker, self.reactor.when_sent, opened.wake)
        self.ports = ClientPorts(broker)
        self._http: HttpFrontEnd | None = None
        self._shared_port: SharedPort | None = None
        self._cluster: Joined | None = None
        self._lent_jobs: LentJobs | None = None
        self._beanstalk_context: BeanstalkContext | None = None
        self._disque_context: DisqueContext | None = None
        self.is_fenced = trio.Event()  # set: another node leads the log
        self._fencing_epoch: Epoch | None = None  # by which it does
        self.has_left = trio.Event()  # set: the node has left its cluster, or gave up leaving, and ends

    def prepare_beanstalk(self) -> None:
        """Prepare to accept clients of beanstalkd, if there is a port for them."""
        if self._listeners.beanstalk or self._listeners.beanstalk_tls:
            from nsqd.start.beanstalk import FrontEnd

            peers = partial(all_peers, self.reactor)
            front_end = FrontEnd(self._broker, self._options.max_job_size, peers, self._opened.log.files)
            self._beanstalk_context = front_end.context
            self._share_with(front_end.context)
            timeout = self._options.identify_timeout
            self.ports.add(partial(listen_to_beanstalk, self.reactor, self._listeners, front_end, timeout))

    def prepare_disque(self) -> None:
        """Prepare to accept clients of Disque, if there is a port for them, and share jobs with the other nodes."""
        listener = self._listeners.disque or self._listeners.disque_tls
        if listener is None and self._cluster is None:
            return
        from nsqd.start.disque import FrontEnd, cluster_facts

        options, identity = self._options, self._opened.log.identity
        port = listener.port if listener is not None else 0
        cluster = cluster_facts(identity.node, port, self._cluster, self._drain)
        front_end = FrontEnd(
            self._broker, self._job_ids, cluster, options.max_msg_size, partial(all_peers, self.reactor)
        )
        self._disque_context = front_end.context
        front_end.context.has_debug, front_end.port = options.debug_routes, port
        self._share_with(front_end.context)
        front_end.context.config |= {"port": str(port), "dir": options.data_path, "appendonly": "yes"}
        if listener is not None:
            from nsqd.tasks.queue_expiry import delete_idle_queues

            timeout = options.identify_timeout
            self.ports.add(partial(listen_to_disque, self.reactor, self._listeners, front_end, timeout))
            self._nursery.start_soon(delete_idle_queues, front_end.context.queues, self._opened.wake)
        if self._cluster is not None:
            from nsqd.cluster.remote_jobs.lent_jobs import LentJobs

            joined, contexts = self._cluster, (front_end.context, self._beanstalk_context)
            self._lent_jobs = LentJobs(self._broker, joined.cluster, joined.port.flush, *contexts)
            self.reactor.others = self._lent_jobs

    def _share_with(self, context: JobContext) -> None:
        """Let clients that put and reserve jobs be known, counted and recorded, and wait for nsqlookupd, as all others are."""
        context.proofs, context.accounts = self._listeners.keyring, self._accounts
        context.audit, context.until_registered = self._audit.note, self._lookupds.until_registered

    def join_cluster(self, directory: DataDirectory) -> None:
        """Connect to the other nodes of the cluster, if this one is in a cluster. Raises DirectoryError."""
        if self._listeners.cluster is None:
            return
        from nsqd.start.clustering import DaemonPart, join_cluster

        part = DaemonPart(
            witnesses=partial(self._lookupds.ask_witnesses, self._options.cluster_name),
            fenced=self.fenced,
            refused=self._audit.record_peer_refused,
            hold=partial(self._drain, True),
            end=partial(self._nursery.start_soon, self._end_after_leaving),
        )
        self._cluster = joined = join_cluster(
            self._options, self._listeners, self._info, directory.path, self._opened, self.reactor, self._nursery, part
        )
        self._nursery.start_soon(joined.run, self._nursery)
        self._nursery.start_soon(joined.port.discover, self._lookupds.find_cluster_peers)

    async def _end_after_leaving(self) -> None:
        if self._disque_context is not None:
            from nsqd.protocols.disque.jobs import end_waits

            end_waits(self._disque_context)  # no other node delivers jobs to them any longer
        await trio.sleep(LINGER)
        self.has_left.set()

    def stop_promoting(self) -> None:
        """Stop to take over logs, so that no thread which does so delays the end."""
        if self._cluster is not None:
            self._cluster.stop_promoting()

    def announce_stop(self) -> None:
        """Notify the other nodes of the cluster that this one stops, and will be back."""
        if self._cluster is not None:
            self._cluster.announce_restart(self._options.restart_grace)

    def fenced(self, log_id: bytes, epoch: Epoch) -> None:
        """Handle that another node owns this node's log, by `epoch`: deliver nothing more, and serve another log.

        May be called in a turn, and more than once.
        """
        if log_id == self._opened.log.identity.log_id and not self.is_fenced.is_set():
            if epoch.node == self._opened.log.identity.node:
                log.error("CLUSTER: other nodes know a later run of this node's log: it opens its log again")
            else:
                log.error("CLUSTER: node %d has promoted the log of this node, which begins another one", epoch.node)
            self._fencing_epoch = epoch
            self.reactor.halt()
            self.is_fenced.set()

    def hang_up(self) -> Fence:
        """Close all connections at once. Returns what is needed to serve again. Raises ListenError, OSError."""
        assert self._fencing_epoch is not None
        from nsqd.core.observation.drain_status import count_in_flight

        in_flight = count_in_flight(self._broker)
        self._bridge.close()
        self._audit.stop_publishing()
        self._schedule_task.stop_publishing()
        self.reactor.hang_up()
        return Fence(self._opened.log.identity.log_id, self._fencing_epoch, again(self._listeners), in_flight)

    def open_ports(self) -> None:
        """Open the clients' ports: at once, or when as many nodes can have a copy as publishes ask for."""
        copies = 1
        if self._cluster is not None:
            from nsqd.start.clustering import copies_to_wait_for

            copies = copies_to_wait_for(self._options, self._cluster, bool(self._listeners.disque))
        if copies > self._broker.context.copies:
            self._nursery.start_soon(self.ports.open_with, copies)
        else:
            self.ports.open()

    def start(self) -> None:
        """Begin to serve TCP clients, and start the tasks that run by the clock."""
        wake, start = self._opened.wake, self._nursery.start_soon
        start(self._trio_thread.raise_bugs)
        if not self._opened.metadata.is_own:
            # so that the next start does not take nsqd.dat for a file that another program changed
            self._saver.topology_changed()
        start(note_series, self._broker, self._series)
        start(end_pauses, self._broker, wake)
        start(DeadLetterTopics(self._broker, self._options.node_number(), wake).run)
        start(self._schedule_task.publish)
        start(BatchTask(self._broker, self.reactor.when_sent, wake).run)
        start(self.reactor.run)
        start(sync_by_time, self._options, self._opened.log, wake)
        self._audit.publish_from(self._trio_thread.run_soon)
        if self._listeners.keyring is not None:
            self._listeners.keyring.on_read = partial(note_signal, self._audit.trail, "auth/reload")
            start(watch_rights, self._listeners.keyring, partial(all_peers, self.reactor), wake)
        self._lookupds.set_addresses(self._options.lookupd_tcp_address)

    def start_reporting(self) -> None:
        """Begin to report to statsd, to a collector of spans and to the statistics topic, if they are configured."""
        options = self._options
        if options.statsd_address:
            from nsqd.statsd.pusher import Pusher

            info = self._info
            pusher = Pusher(options, info.broadcast_address, info.http_port, self._broker, self._memory.figures)
            self._nursery.start_soon(pusher.run)
        if self._opened.spans is not None:
            from nsqd.tasks.span_export import SpanExport

            export = SpanExport(options, self._info.broadcast_address, self._info.tcp_port, self._opened.spans)
            self._nursery.start_soon(export.run)
        if options.statistics_topic:
            from nsqd.tasks.deliveries import Deliveries

            deliveries = Deliveries(self._broker, options.statistics_topic, options.node_number(), self._opened.wake)
            self._nursery.start_soon(deliveries.run)

    def open_shared_port(self) -> None:
        """Take connections from the port that several nodes share, if there is one."""
        self._shared_port = open_shared_port(self._options, self.reactor, self._listeners, self.context)

    def close_shared_port(self) -> None:
        """Leave new connections at the shared port to the other nodes."""
        if self._shared_port is not None:
            self._shared_port.close()

    def accept_http(self) -> None:
        """Answer what the reactor can answer over HTTP; the rest waits for `start_http`."""
        self._http = HttpFrontEnd(self._options, self._node(), self._listeners, self._trio_thread, self._budget)
        self._http.accept(self.reactor)

    async def start_http(self) -> None:
        """Start the HTTP server, and return when it is serving."""
        assert self._http is not None
        await self._http.start()

    async def stop_http(self) -> None:
        """Answer the requests in progress, and accept no others."""
        if self._http is not None:
            self._broker.receives.stop()
            self._broker.context.batches.stop()
            for broker in self._broker.logs:
                if broker.context.history is not None:
                    broker.context.history.end_waiting()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._give_up_waiting)
                await self._http.stop(self.reactor)
                nursery.cancel_scope.cancel()

    async def _give_up_waiting(self) -> None:
        """Answer the requests that wait for copies in vain, before the HTTP server cancels them."""
        await trio.sleep(COPIES_WITHIN)
        self.reactor.give_up_http_replies()

    def close(self) -> None:
        """Close all connections, and write everything that the next start needs."""
        self.reactor.close_all()
        if self._cluster is not None:
            self._cluster.close()
        del self._broker.logs[1:]  # they are closed
        self._audit.publish_rest()
        self._saver.save(self._saver.current_topology())
        self._broker.commit()
        if not self.is_fenced.is_set():  # the messages of all ticks are in the log
            self._broker.context.schedules.note_all()
            self._broker.commit()
        self._opened.log.close()

    def _node(self) -> Node:
        broker, opened, reactor = self._broker, self._opened.log, self.reactor
        return Node(
            options=self._options,
            info=self._info,
            bridge=self._bridge,
            broker=broker,
            drain=self._drain,
            peers=partial(nsq_peers, reactor),
            set_lookupds=self._lookupds.set_addresses,
            lookupds=self._lookupds.addresses,
            until_registered=self._until_registered,
            turns=reactor.turn_times.histogram,
            take_topology=self._saver.current_topology,
            save_topology=self._saver.save,
            health=lambda: f"NOK - {broker.store.refusal}" if broker.store.refusal else self._health.text,
            memory=self._memory.figures,
            log=opened.figures,
            backup=opened.backup(),
            contents=opened.contents(),
            series=self._series,
            refused=self._refused,
            buffers=self._budget.figures,
            cluster=self._cluster,
            job_ids=self._job_ids,
            audit=self._audit.trail,
            dates=self._listeners.dates,
            accounts=self._accounts,
            spans=self._opened.spans,
            are_ports_open=lambda: self.ports.are_open,
            until_ports_open=self.ports.until_open,
        )

    @cached_property
    def _job_ids(self) -> JobIds:
        """The ids by which clients of Disque name jobs: those of the cluster, or of the node that is in none."""
        name = self._options.cluster_name.encode() if self._cluster is not None else self._opened.log.identity.log_id
        return JobIds(name)

    # Calls from the reactor and from HTTP

    def _drain(self, draining: bool) -> bool:
        """Begin or cancel draining, and return whether that changed anything."""
        has_changed = self._broker.drain(draining)
        if has_changed and self._shared_port is not None:
            self._shared_port.follow(draining)
        return has_changed

    def _answer_http_requests(self) -> HttpReplies:
        """Do what the HTTP thread asked for in this turn, and return its replies."""
        calls = self._bridge.serve()
        refuse = partial(self._bridge.refuse, calls)
        return HttpReplies(partial(self._bridge.deliver, calls), refuse, partial(refuse, MAY_BE_DELIVERED))

    def _report_changes(self, changes: list[Change]) -> None:
        """Report topics and channels that were created, deleted or paused to the log, nsqlookupd and nsqd.dat."""
        log_changes(changes)
        self._audit.record_changes(changes)
        self._lookupds.queue_changes(changes)
        if any(change.lasting for change in changes):
            self._saver.topology_changed()

    def _until_registered(self, topic: str, then: Callable[[], None]) -> None:
        """Call `then` when nsqlookupd knows the topic, or after a bounded time."""
        self.reactor.until_over(partial(self._lookupds.until_registered, topic), then)

    def _refused(self) -> Counter[str]:
        """Return the numbers of refused clients, by reason."""
        return self._broker.refused + (self._http.refused if self._http is not None else Counter())
