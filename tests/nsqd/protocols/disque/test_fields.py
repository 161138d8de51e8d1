"""Replies of Disque 1.0-rc1, field by field and in its order: clients and monitors read them by name."""

import re

from tests.cases import each
from tests.nsqd.protocols.disque.test_info import measured_wire, sections
from tests.nsqd.protocols.disque.test_info import wire as wire  # the fixture
from tests.nsqd.protocols.disque.wire import Wire

NUMBER, DECIMAL, TEXT, WORD = r"-?[0-9]+", r"[0-9]+\.[0-9]{2}", r".*", r"\S+"
INFO = {
    "Server": {
        "disque_version": WORD, "disque_git_sha1": r"[0-9a-f]{8}", "disque_git_dirty": "[01]", "disque_build_id": "[0-9a-f]+",
        "os": TEXT, "arch_bits": "32|64", "multiplexing_api": WORD, "gcc_version": r"[0-9]+\.[0-9]+\.[0-9]+",
        "process_id": NUMBER, "run_id": "[0-9a-f]{40}", "tcp_port": NUMBER, "uptime_in_seconds": NUMBER,
        "uptime_in_days": NUMBER, "hz": NUMBER, "executable": TEXT, "config_file": TEXT,
    },
    "Clients": dict.fromkeys(
        ("connected_clients", "client_longest_output_list", "client_biggest_input_buf", "blocked_clients"), NUMBER
    ),
    "Memory": {
        "used_memory": NUMBER, "used_memory_human": r"[0-9.]+[BKMG]", "used_memory_rss": NUMBER, "used_memory_peak": NUMBER,
        "used_memory_peak_human": r"[0-9.]+[BKMG]", "mem_fragmentation_ratio": DECIMAL, "mem_allocator": WORD,
    },
    "Jobs": {"registered_jobs": NUMBER},
    "Queues": {"registered_queues": NUMBER},
    "Persistence": {
        "loading": "[01]", "aof_enabled": "[01]", "aof_state": "on|off|waiting-rewrite", "aof_rewrite_in_progress": "[01]",
        "aof_rewrite_scheduled": "[01]", "aof_last_rewrite_time_sec": NUMBER, "aof_current_rewrite_time_sec": NUMBER,
        "aof_last_bgrewrite_status": "ok|err", "aof_last_write_status": "ok|err", "aof_current_size": NUMBER,
        "aof_base_size": NUMBER, "aof_pending_rewrite": "[01]", "aof_buffer_length": NUMBER,
        "aof_rewrite_buffer_length": NUMBER, "aof_pending_bio_fsync": NUMBER, "aof_delayed_fsync": NUMBER,
    },
    "Stats": {
        "total_connections_received": NUMBER, "total_commands_processed": NUMBER, "instantaneous_ops_per_sec": NUMBER,
        "total_net_input_bytes": NUMBER, "total_net_output_bytes": NUMBER, "instantaneous_input_kbps": DECIMAL,
        "instantaneous_output_kbps": DECIMAL, "rejected_connections": NUMBER, "latest_fork_usec": NUMBER,
    },
    "CPU": dict.fromkeys(("used_cpu_sys", "used_cpu_user", "used_cpu_sys_children", "used_cpu_user_children"), DECIMAL),
}  # fmt: skip


def words(text: str) -> list[str]:
    return text.split()


OUR_OWN = {"penstock_version"}
CONFIG = words(
    """requirepass unixsocket logfile pidfile maxmemory maxmemory-samples timeout auto-aof-rewrite-percentage
    auto-aof-rewrite-min-size slowlog-log-slower-than latency-monitor-threshold slowlog-max-len port tcp-backlog
    databases maxclients watchdog-period hz cluster-node-timeout tcp-keepalive no-appendfsync-on-rewrite daemonize
    activerehashing aof-rewrite-incremental-fsync aof-load-truncated aof-enqueue-jobs-once maxmemory-policy
    loglevel appendfsync syslog-facility appendonly dir client-output-buffer-limit unixsocketperm bind"""
)
CLIENT = words("id addr fd name age idle flags qbuf qbuf-free obl oll omem events cmd")
CLUSTER = words(
    """cluster_state cluster_known_nodes cluster_reachable_nodes cluster_size cluster_stats_messages_sent
    cluster_stats_messages_received"""
)
QSTAT = words("name len age idle blocked import-from import-rate jobs-in jobs-out pause")
SHOW = words(
    """id queue state repl ttl ctime delay retry nacks additional-deliveries nodes-delivered nodes-confirmed
    next-requeue-within next-awake-within body"""
)


@each("section", INFO, wire=measured_wire)
def test_info(wire: Wire, section: str) -> None:
    found = sections(wire)[section]
    assert [name for name in found if name not in OUR_OWN] == list(INFO[section])
    for name, form in INFO[section].items():
        assert re.fullmatch(form, found[name]), (name, found[name])


def test_other_commands_and_the_cluster(wire: Wire) -> None:
    wire.do("PING")
    assert re.fullmatch(
        r"calls=[0-9]+,usec=[0-9]+,usec_per_call=[0-9]+\.[0-9]{2}",
        sections(wire, "commandstats")["Commandstats"]["cmdstat_ping"],
    )
    assert [name.decode() for name in wire.do("CONFIG", "GET", "*")[::2]] == CONFIG
    (line,) = wire.do("CLIENT", "LIST").decode().splitlines()
    assert [word.partition("=")[0] for word in line.split(" ")] == CLIENT
    job_id = wire.add("q")
    assert [one.decode() for one in wire.do("QSTAT", "q")[::2]] == QSTAT
    assert [one.decode() for one in wire.do("SHOW", job_id)[::2]] == SHOW
    assert [line.partition(":")[0] for line in wire.do("CLUSTER", "INFO").decode().splitlines()] == CLUSTER
    (line,) = wire.do("CLUSTER", "NODES").decode().splitlines()
    assert re.fullmatch(r"[0-9a-f]{40} \S*:[0-9]+ \S+ [0-9]+ [0-9]+ (dis)?connected", line)
    version, own, node = wire.do("HELLO")
    assert (version, own, len(node)) == (1, node[0], 4)
