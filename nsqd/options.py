"""The options of nsqd: NSQ's names and defaults; only the addresses default to loopback.

An option is declared once: the field is the flag, the key of /config and of the TOML file, the environment name, and the help.
`nsqd -help` needs no more than this file, so only the methods that make the core's limits import the core.

See docs/contributing/design/nsq-programs.md#flags.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsqd.option_values import (
    EXPERIMENTS,
    TOPOLOGY_AWARE,
    check_attempts,
    check_events,
    cluster_problems,
    is_beyond_loopback,
    lookupd_tls_problems,
    needs_auth_file,
    no_address_of_nodes,
    odd_auth_address,
    read_attempts,
    read_events,
)
from penstock.protocol.names import is_valid_name
from shared.budget import DEFAULT_BUDGET
from shared.checks import (
    accidental_path,
    at_least,
    between,
    complaints,
    metrics_problems,
    min_duration,
    missing_directory,
    no_host_port,
    no_place_for_file,
    no_port,
    no_url,
    not_dialable,
    obstructed,
    read_word,
    require_address,
)
from shared.options import option
from shared.tls.options import NOT_REQUIRED, TlsOptions
from shared.values import MILLISECOND, SECOND, Duration
from shared.version import NSQ_VERSION

if TYPE_CHECKING:
    from nsqd.core.limits import Limits
    from nsqd.protocols.nsq.settings import Settings

PROGRAM = "nsqd"


def _duration(value: int, help: str, least: int = 0) -> Duration:
    """Return a duration option; `value` and `least` are in ns."""
    result: Duration = option(Duration(value), help, check=min_duration(least))
    return result


@dataclass(frozen=True, slots=True)
class NsqdOptions(TlsOptions):
    """The values of all options of nsqd, as given or by default."""

    log_prefix: str = option("[nsqd] ", "log message prefix")
    node_id: int = option(
        -1,
        "unique part of message ids, 0 to 1023 (default: derived from the hostname)",
        key="id",
    )
    worker_id: bool = option(False, "[deprecated] use --node-id", in_file=False)

    tcp_address: tuple[str, ...] = option(
        ("127.0.0.1:4150",),
        "<addr>:<port> or unix socket path to listen on for TCP clients; the first <addr>:<port> is announced"
        " (may be given multiple times)",
        check=require_address,
    )
    tcp_shared_address: str = option(
        "",
        "<addr>:<port> to share with other nsqd of this machine: each producer that connects there gets one of them"
        ' ("": none)',
    )
    http_address: str = option("127.0.0.1:4151", '<addr>:<port> or unix socket path for HTTP clients ("": none)')
    https_address: str = option(
        "127.0.0.1:4152", "<addr>:<port> to listen on for HTTPS clients, when tls-cert and tls-key are given"
    )
    beanstalk_address: str = option(
        "", '<addr>:<port> or unix socket path to listen on for beanstalkd clients ("": none)'
    )
    beanstalk_tls_address: str = option(
        "", "<addr>:<port> to listen on for beanstalkd clients over TLS, when tls-cert and tls-key are given"
    )
    disque_address: str = option("", '<addr>:<port> or unix socket path to listen on for Disque clients ("": none)')
    disque_tls_address: str = option(
        "", "<addr>:<port> to listen on for Disque clients over TLS, when tls-cert and tls-key are given"
    )
    max_job_size: int = option(65_535, "maximum size of a beanstalkd job in bytes", check=at_least(1))
    broadcast_address: str = option("", "address registered with lookupd (default: loopback address, or OS hostname)")
    broadcast_tcp_port: int = option(0, "TCP port registered with lookupd (default: the one listened on)")
    broadcast_http_port: int = option(0, "HTTP port registered with lookupd (default: the one listened on)")
    broadcast_https_port: int = option(0, "HTTPS port registered with lookupd (default: the one listened on)")
    allowed_host: tuple[str, ...] = option(
        (), "DNS name, or .suffix, that the Host header of an HTTP request may have (may be given multiple times)"
    )
    lookupd_tcp_address: tuple[str, ...] = option(
        (), "lookupd TCP address (may be given multiple times)", key="nsqlookupd_tcp_addresses"
    )
    lookupd_tls_root_ca_file: str = option(
        "", "path to the certificate authority file of lookupd: use TLS only, for its TCP and HTTP address"
    )
    lookupd_tls_cert: str = option("", "path to the certificate file of this node, for lookupd")
    lookupd_tls_key: str = option("", "path to the key file of lookupd-tls-cert")
    auth_http_address: tuple[str, ...] = option(
        (), "<addr>:<port> or a full url to query auth server (may be given multiple times)", key="auth_http_addresses"
    )
    auth_http_request_method: str = option(
        "get", "HTTP method to use for auth server requests: get or post", read=read_word("get", "post")
    )
    auth_file: str = option("", "path to a file that says who may do what, on every port (penstock auth)")
    require_auth: bool = option(False, "refuse to start beyond loopback without auth-file")
    auth_token_file: str = option("", "path to a file with the token that this node shows to nsqlookupd")
    metrics_auth: bool = option(False, "answer /metrics only to those who may see stats, by auth-file")
    audit_file: str = option(
        "", "path to the audit log, a line of JSON for each change and each refusal (penstock audit)"
    )
    audit_topic: str = option("", "topic to which the records of the audit are published")
    http_client_connect_timeout: Duration = _duration(2 * SECOND, "timeout for HTTP connect")
    http_client_request_timeout: Duration = _duration(5 * SECOND, "timeout for HTTP request")
    topology_region: str = option(
        "", "region of this node, a domain of one or more zones; consumers in it are preferred"
    )
    topology_zone: str = option(
        "", "zone of this node, a failure domain within the region; consumers in it are preferred most"
    )
    enable_experiment: tuple[str, ...] = option(
        (), f"enable experimental feature (may be given multiple times): {', '.join(EXPERIMENTS)}"
    )
    cluster_address: str = option(
        "", '<addr>:<port> to listen on for the other nodes of a cluster ("": this node is in none)'
    )
    cluster_peer: tuple[str, ...] = option(
        (), "cluster address of another node, from which this one learns of all others (may be given multiple times)"
    )
    cluster_name: str = option("penstock", "name of the cluster: nodes of another one are refused")
    cluster_secret_file: str = option("", "path to a file with the secret, 16 bytes or more, that all nodes share")
    cluster_tls_cert: str = option("", "path to the certificate of this node, for TLS between the nodes of the cluster")
    cluster_tls_key: str = option("", "path to the key of cluster-tls-cert")
    cluster_tls_ca: str = option("", "path to the certificate authority that signs the certificates of all nodes")
    failover_after: Duration = _duration(
        5 * SECOND,
        "time without contact after which a node of the cluster is suspected (2s if its host refuses connections)",
        least=3 * SECOND,
    )
    failover_quorum: str = option(
        "majority",
        "votes needed for a failover: majority, any (of reachable nodes), or none (no automatic failover)",
        read=read_word("none", "majority", "any"),
    )
    unclean_after: Duration = _duration(
        600 * SECOND, "delay before a failover to a replica that may lack messages", least=MILLISECOND
    )
    rejoin_timeout: Duration = _duration(
        2 * SECOND, "how long a start waits for another node that may have more of this node's log", least=MILLISECOND
    )
    restart_grace: Duration = _duration(
        30 * SECOND, "how long the other nodes wait for this one after SIGTERM before they suspect it"
    )
    replicas: int = option(
        2,
        "number of other nodes of the cluster that keep a replica of this node's log, or more if topics ask for more copies",
        check=between(0, 15),
    )
    replicate: int = option(
        1, "nodes that must have a message before its publish is acknowledged, this one included", check=between(1, 16)
    )
    replicate_timeout: Duration = _duration(
        2 * SECOND, "how long a publish waits for its copies before its client gets an error (0: without end)"
    )
    replication_rate: int = option(
        0,
        "bytes a second that are read for followers that are more than 64 MiB behind (0: no limit)",
        check=at_least(0),
    )
    rereplicate_after: Duration = _duration(
        60 * SECOND, "how long a follower may be disconnected before another node replaces it"
    )
    max_connections: int = option(10_000, "maximum TCP connection count", check=at_least(1))
    max_connections_per_ip: int = option(
        0,
        "maximum TCP connection count of one IP address (0: a tenth of max-connections; no limit for loopback)",
        check=at_least(0),
    )
    identify_timeout: Duration = _duration(
        10 * SECOND,
        "maximum time from connecting to the first complete command, and to the proof of identity where one is needed",
        least=MILLISECOND,
    )
    debug_routes: bool = option(False, "serve /debug/pprof and the other debug routes over HTTP")

    data_path: str = option("", "path to store metadata and messages (default: the working directory)")
    mem_queue_size: int = option(10_000, "number of messages to keep in memory (per topic/channel)")
    mem_budget: int = option(
        128 * 1024 * 1024,
        "maximum bytes of messages to keep in memory, for all topics together; other messages are read from disk",
        check=at_least(0),
    )
    buffer_budget: int = option(
        DEFAULT_BUDGET,
        "maximum bytes of incomplete requests and unsent responses, for all connections together (one IP address: half)",
        check=at_least(1),
    )
    max_bytes_per_file: int = option(104_857_600, "[no effect] bytes per file of NSQ's disk queue", check=at_least(0))
    durability: str = option(
        "always",
        "when a publish is acknowledged: always (synced), interval (written; see sync-every and sync-timeout), os (written)",
        read=read_word("always", "interval", "os"),
    )
    sync_every: int = option(2500, "number of messages per fsync, with -durability=interval", check=at_least(0))
    sync_timeout: Duration = _duration(
        2 * SECOND, "duration of time per fsync, with -durability=interval", least=MILLISECOND
    )
    retention: Duration = _duration(
        0, "how long finished messages stay readable, from the time of publishing (0: not retained)"
    )
    retention_bytes: int = option(
        0,
        "retain at most this many bytes of the newest messages of each topic, finished or not (0: no limit)",
        check=at_least(0),
    )
    dedup_window: Duration = _duration(
        600 * SECOND,
        "how long deduplication keys are remembered: a message with a remembered key is not published again",
    )
    dedup_keys: int = option(
        100_000, "maximum number of deduplication keys to remember, for all topics together", check=at_least(0)
    )
    dedup_producers: int = option(
        10_000,
        "maximum number of producers whose last sequence number is remembered, for all topics together",
        check=at_least(0),
    )
    max_topics: int = option(50_000, "maximum topic count", check=at_least(1))
    max_channels: int = option(100_000, "maximum channel count, for all topics together", check=at_least(1))
    max_schedules: int = option(5_000, "maximum schedule count, for all topics together", check=at_least(0))
    queue_scan_worker_pool_max: int = option(
        4, "max number of workers for checking in-flight and deferred message timeouts", check=at_least(1)
    )
    queue_scan_selection_count: int = option(20, "number of channels to check per pass", check=at_least(1))

    msg_timeout: Duration = _duration(60 * SECOND, "default duration to wait before auto-requeing a message")
    max_msg_timeout: Duration = _duration(900 * SECOND, "maximum duration before a message will timeout")
    max_msg_size: int = option(1024 * 1024, "maximum size of a single message in bytes", check=at_least(1))
    max_req_timeout: Duration = _duration(3600 * SECOND, "maximum requeuing timeout for a message")
    max_body_size: int = option(5 * 1024 * 1024, "maximum size of a single command body", check=at_least(1))
    max_attempts: tuple[str, ...] = option(
        (),
        "failures after which a message is buried: <attempts> for all topics or <topic>=<attempts> for one; 0: no limit "
        "(may be given multiple times)",
        check=check_attempts,
    )
    requeue_on_disconnect: bool = option(
        False, "requeue the messages in flight of a consumer as soon as its connection closes"
    )

    max_heartbeat_interval: Duration = _duration(60 * SECOND, "maximum client configurable time between heartbeats")
    max_rdy_count: int = option(2500, "maximum RDY count for a client", check=at_least(0))
    max_output_buffer_size: int = option(
        64 * 1024, "maximum client configurable size (in bytes) for a client output buffer", check=at_least(64)
    )
    max_output_buffer_timeout: Duration = _duration(
        30 * SECOND, "maximum client configurable duration of time between flushing to a client"
    )
    min_output_buffer_timeout: Duration = _duration(
        25 * MILLISECOND, "minimum client configurable duration of time between flushing to a client"
    )
    output_buffer_timeout: Duration = _duration(
        250 * MILLISECOND, "default duration of time between flushing data to clients"
    )
    max_channel_consumers: int = option(0, "maximum channel consumer connection count (0: unlimited)")

    statsd_address: str = option("", "UDP <addr>:<port> of a statsd daemon for pushing stats")
    statsd_prefix: str = option("nsq.%s", "prefix used for keys sent to statsd (%s for host replacement)")
    statistics_topic: str = option(
        "", 'topic to which counts and latencies of every topic and channel are published every second ("": none)'
    )
    statistics_events: str = option(
        "off",
        "also publish message events to statistics-topic: off, full, or for a share of the messages such as 0.01",
        check=check_events,
    )
    statsd_interval: Duration = _duration(60 * SECOND, "duration between pushing to statsd", least=MILLISECOND)
    statsd_mem_stats: bool = option(True, "send memory and GC stats to statsd")
    statsd_udp_packet_size: int = option(508, "the size in bytes of statsd UDP packets", check=at_least(1))
    statsd_exclude_ephemeral: bool = option(False, "skip ephemeral topics and channels when sending stats to statsd")

    otel_endpoint: str = option(
        "",
        'URL of an OTLP/HTTP collector, which gets spans of publishes and deliveries as JSON at /v1/traces ("": none)',
    )
    otel_token_file: str = option("", "path to a file with the bearer token for the collector, read at each export")
    otel_sample_every: int = option(
        0,
        "also export spans of every nth message that has no traceparent header (0: none)",
        check=at_least(0),
    )

    e2e_processing_latency_percentile: tuple[float, ...] = option(
        (),
        "message processing time percentiles (0 to 1.0) to track (may be given multiple times, or with commas: 1.0,0.99)",
        key="e2e_processing_latency_percentiles",
    )
    e2e_processing_latency_window_time: Duration = _duration(
        600 * SECOND, "calculate end to end latency quantiles for this duration of time", least=MILLISECOND
    )

    deflate: bool = option(True, "enable deflate feature negotiation (client compression)")
    max_deflate_level: int = option(6, "max deflate compression level a client can negotiate (1 to 9)")
    snappy: bool = option(True, "enable snappy feature negotiation (client compression)")

    def problems(self) -> list[str]:
        """Return the errors that the original finds when it is built, in its words."""
        wrong = []
        if not 1 <= self.max_deflate_level <= 9:
            wrong.append("--max-deflate-level must be [1,9]")
        if not -1 <= self.node_id < 1024:
            wrong.append("--node-id must be [0,1024)")
        wrong += self.tls_problems()
        wrong += lookupd_tls_problems(self.lookupd_tls_root_ca_file, self.lookupd_tls_cert, self.lookupd_tls_key)
        if self.statistics_topic and not is_valid_name(self.statistics_topic):
            wrong.append(f"--statistics-topic {self.statistics_topic!r} is not a valid topic name")
        if self.audit_topic and not is_valid_name(self.audit_topic):
            wrong.append(f"--audit-topic {self.audit_topic!r} is not a valid topic name")
        wrong += complaints("tcp-shared-address", filter(None, [self.tcp_shared_address]), no_host_port)
        if self.tcp_shared_address and self.tcp_shared_address in self.tcp_address:
            wrong.append("--tcp-shared-address must not be --tcp-address, where consumers find this node alone")
        wrong += metrics_problems(self.metrics_auth, self.auth_file)
        if self.require_auth and not self.auth_file:
            addresses = (
                *self.tcp_address, self.tcp_shared_address, self.http_address, self.https_address if self.tls_cert else "",
                self.beanstalk_address, self.beanstalk_tls_address, self.disque_address, self.disque_tls_address,
            )  # fmt: skip
            wrong += complaints("require-auth", filter(is_beyond_loopback, addresses), needs_auth_file)
        for name, given in (("beanstalk", self.beanstalk_tls_address), ("disque", self.disque_tls_address)):
            if given and not self.tls_cert:
                wrong.append(f"--{name}-tls-address needs --tls-cert and --tls-key")
        wrong += cluster_problems(
            self.cluster_address,
            self.cluster_name,
            self.cluster_secret_file,
            self.cluster_peer,
            self.node_id,
            (self.cluster_tls_cert, self.cluster_tls_key, self.cluster_tls_ca),
        )
        if self.replicate > 1 and not self.cluster_address:
            wrong.append("--replicate needs --cluster-address: nothing could be published")
        for value in self.e2e_processing_latency_percentile:
            if not 0 < value <= 1:
                wrong.append(f"invalid E2E processing latency percentile: {value:g}")
        return wrong

    def obstacles(self) -> list[str]:
        """Return complaints about addresses that cannot be bound, and about a missing data path."""
        return [
            *complaints("tcp-address", self.tcp_address, obstructed),
            *complaints("http-address", filter(None, [self.http_address]), obstructed),
            *self.tls_obstacles(),
            *complaints("beanstalk-address", filter(None, [self.beanstalk_address]), obstructed),
            *complaints("beanstalk-tls-address", filter(None, [self.beanstalk_tls_address]), obstructed),
            *complaints("disque-address", filter(None, [self.disque_address]), obstructed),
            *complaints("disque-tls-address", filter(None, [self.disque_tls_address]), obstructed),
            *complaints("cluster-address", filter(None, [self.cluster_address]), no_address_of_nodes),
            *complaints("data-path", [self.data_path], missing_directory),
            *complaints("audit-file", filter(None, [self.audit_file]), no_place_for_file),
        ]

    def oddities(self) -> list[str]:
        """Return complaints about values that the original accepts in silence."""
        odd = [f"--enable-experiment {name!r} is unknown" for name in self.enable_experiment if name not in EXPERIMENTS]
        odd += self.tls_oddities()
        if max(self.max_body_size, self.max_msg_size, self.max_job_size) > self.buffer_budget // 2:
            odd.append(
                "--buffer-budget is less than twice --max-body-size, --max-msg-size or --max-job-size: "
                "the largest requests must wait until the buffer is empty"
            )
        if self.auth_file and self.lookupd_tcp_address and not self.auth_token_file:
            odd.append("--auth-file without --auth-token-file: an nsqlookupd that has an auth file refuses this node")
        for flag in ("otel-sample-every", "otel-token-file"):
            if getattr(self, flag.replace("-", "_")) and not self.otel_endpoint:
                odd.append(f"--{flag} has no effect without --otel-endpoint")
        if not self.statistics_topic and read_events(self.statistics_events):
            odd.append(f"--statistics-events {self.statistics_events!r} has no effect without --statistics-topic")
        return [*odd, *self._odd_addresses()]

    def _odd_addresses(self) -> list[str]:
        return [
            *complaints("tcp-address", self.tcp_address, accidental_path),
            *complaints("http-address", [self.http_address], accidental_path),
            *complaints("https-address", [self.https_address], accidental_path),
            *complaints("beanstalk-address", [self.beanstalk_address], accidental_path),
            *complaints("beanstalk-tls-address", [self.beanstalk_tls_address], accidental_path),
            *complaints("disque-address", [self.disque_address], accidental_path),
            *complaints("disque-tls-address", [self.disque_tls_address], accidental_path),
            *complaints("cluster-peer", self.cluster_peer, no_host_port),
            *complaints("lookupd-tcp-address", self.lookupd_tcp_address, not_dialable),
            *complaints("auth-http-address", self.auth_http_address, odd_auth_address),
            *complaints("statsd-address", filter(None, [self.statsd_address]), no_host_port),
            *complaints("otel-endpoint", filter(None, [self.otel_endpoint]), no_url),
            *complaints("broadcast-tcp-port", [self.broadcast_tcp_port], no_port),
            *complaints("broadcast-http-port", [self.broadcast_http_port], no_port),
            *complaints("broadcast-https-port", [self.broadcast_https_port], no_port),
        ]

    def settings(self) -> Settings:
        """Return the limits and defaults that NSQ connections are held to."""
        from nsqd.protocols.nsq.settings import Settings

        return Settings(
            version=NSQ_VERSION,
            max_rdy_count=self.max_rdy_count,
            max_msg_size=self.max_msg_size,
            max_body_size=self.max_body_size,
            msg_timeout=self.msg_timeout,
            max_msg_timeout=self.max_msg_timeout,
            max_req_timeout=self.max_req_timeout,
            max_heartbeat_interval=self.max_heartbeat_interval,
            max_output_buffer_size=self.max_output_buffer_size,
            max_output_buffer_timeout=self.max_output_buffer_timeout,
            min_output_buffer_timeout=self.min_output_buffer_timeout,
            output_buffer_timeout=self.output_buffer_timeout,
            max_channel_consumers=self.max_channel_consumers,
            identify_timeout=self.identify_timeout,
            tls=bool(self.tls_cert),
            tls_required=self.tls_required != NOT_REQUIRED,
            deflate=self.deflate,
            max_deflate_level=self.max_deflate_level,
            snappy=self.snappy,
            auth_required=bool(self.auth_http_address or self.auth_file),
            topology_region=self.topology_region,
            topology_zone=self.topology_zone,
            most_copies=self.most_copies(),
        )

    def limits(self) -> Limits:
        """Return the limits of the core."""
        from nsqd.core.limits import Limits
        from nsqd.core.retention.policy import StoragePolicy
        from nsqd.core.sequence.dedup import DedupLimits
        from shared.topic_config import Durability

        return Limits(
            mem_queue_size=max(0, self.mem_queue_size),  # NSQ's operators write -1 for none
            queue_scan_selection_count=self.queue_scan_selection_count,
            queue_scan_worker_pool_max=self.queue_scan_worker_pool_max,
            max_topics=self.max_topics,
            max_channels=self.max_channels,
            max_attempts=read_attempts(self.max_attempts),
            requeue_on_disconnect=self.requeue_on_disconnect,
            whole_job_ids=bool(self.cluster_address),  # a node may lead the logs of others, with other node numbers
            topology_aware=TOPOLOGY_AWARE in self.enable_experiment,
            latency_percentiles=self.e2e_processing_latency_percentile,
            latency_window=self.e2e_processing_latency_window_time,
            measures=bool(self.statistics_topic),
            events=read_events(self.statistics_events),
            policy=StoragePolicy(Durability(self.durability), self.retention, self.retention_bytes, self.replicate),
            dedup=DedupLimits(self.dedup_window, self.dedup_keys, self.dedup_producers),
        )

    def most_copies(self) -> int:
        """Return for how many copies a publish may ask, that of this node included. Topics may be configured with more."""
        return max(1 + self.replicas, self.replicate) if self.cluster_address else 1

    def node_number(self) -> int:
        """Return the node's part of the message ids: as given, or NSQ's default from the hostname."""
        if self.node_id >= 0:
            return self.node_id
        import hashlib
        import socket
        import zlib

        digest = hashlib.md5(socket.gethostname().encode(), usedforsecurity=False).digest()
        return zlib.crc32(digest) % 1024
