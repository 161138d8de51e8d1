"""The command INFO: the state of the server as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from nsqd.protocols.disque import resp
from nsqd.protocols.disque.arguments import SYNTAX_ERROR, Refused
from nsqd.protocols.disque.config import DEFAULTS
from nsqd.protocols.disque.queues import is_shown
from shared.version import PENSTOCK_VERSION

if TYPE_CHECKING:
    from nsqd.protocols.disque.client import Client

Fields = Iterator[tuple[str, object]]
DAY = 86_400  # s


def info(client: Client, arguments: list[bytes]) -> None:
    """Execute INFO: reply with one section, or with all. Raises Refused for several arguments."""
    if len(arguments) > 2:
        raise Refused(SYNTAX_ERROR)
    section = arguments[1].lower().decode("latin-1") if len(arguments) == 2 else "default"
    shown = [
        f"# {name}\r\n" + "".join(f"{key}:{value}\r\n" for key, value in fields(client))
        for name, fields in _SECTIONS.items()
        if section in (name.lower(), "all") or (section == "default" and name != "Commandstats")
    ]
    client.reply(resp.bulk("\r\n".join(shown).encode()))


def _server(client: Client) -> Fields:
    figures = client.context.figures()
    yield "disque_version", "1.0-rc1"
    yield "disque_git_sha1", "00000000"  # as a build of Disque without a repository says
    yield "disque_git_dirty", 0
    yield "disque_build_id", 0
    yield "penstock_version", PENSTOCK_VERSION
    yield "os", figures.os
    yield "arch_bits", 64
    yield "multiplexing_api", "epoll"
    yield "gcc_version", figures.gcc
    yield "process_id", figures.pid
    yield "run_id", figures.run_id
    yield "tcp_port", figures.port
    yield "uptime_in_seconds", figures.uptime
    yield "uptime_in_days", figures.uptime // DAY
    yield "hz", client.context.config.get("hz", DEFAULTS["hz"])
    yield "executable", figures.executable
    yield "config_file", figures.config_file


def _clients(client: Client) -> Fields:
    clients = client.context.clients()
    yield "connected_clients", len(clients)
    yield "client_longest_output_list", 0
    yield "client_biggest_input_buf", max((one.buffered for one in clients), default=0)
    yield "blocked_clients", sum(one.is_blocked for one in clients)


def _memory(client: Client) -> Fields:
    figures = client.context.figures()
    yield "used_memory", figures.resident
    yield "used_memory_human", f"{figures.resident / 2**20:.2f}M"
    yield "used_memory_rss", figures.resident
    yield "used_memory_peak", figures.peak
    yield "used_memory_peak_human", f"{figures.peak / 2**20:.2f}M"
    yield "mem_fragmentation_ratio", "1.00"
    yield "mem_allocator", "libc"


def _jobs(client: Client) -> Fields:
    yield "registered_jobs", sum(tube.jobs.count for tube in client.context.queues.tubes.all() if is_shown(tube))


def _queues(client: Client) -> Fields:
    yield "registered_queues", sum(map(is_shown, client.context.queues.tubes.waiters.queues.values()))


def _persistence(client: Client) -> Fields:
    is_durable = client.context.figures().is_durable
    yield "loading", 0
    yield "aof_enabled", int(is_durable)
    yield "aof_state", "on" if is_durable else "off"
    yield "aof_rewrite_in_progress", 0
    yield "aof_rewrite_scheduled", 0
    yield "aof_last_rewrite_time_sec", -1
    yield "aof_current_rewrite_time_sec", -1
    yield "aof_last_bgrewrite_status", "ok"
    yield "aof_last_write_status", "err" if client.broker.store.refusal else "ok"
    if is_durable:  # the commit log is never rewritten, and no buffer waits for a sync in the background
        for name in ("current_size", "base_size", "pending_rewrite", "buffer_length", "rewrite_buffer_length"):
            yield f"aof_{name}", 0
        yield "aof_pending_bio_fsync", 0
        yield "aof_delayed_fsync", 0


def _stats(client: Client) -> Fields:
    yield "total_connections_received", client.context.connections
    yield "total_commands_processed", sum(client.context.counts.values())
    yield "instantaneous_ops_per_sec", client.context.figures().operations
    for name in ("total_net_input_bytes", "total_net_output_bytes"):  # not counted
        yield name, 0
    for name in ("instantaneous_input_kbps", "instantaneous_output_kbps"):
        yield name, "0.00"
    yield "rejected_connections", client.context.figures().rejected
    yield "latest_fork_usec", 0


def _cpu(client: Client) -> Fields:
    figures = client.context.figures()
    yield "used_cpu_sys", f"{figures.cpu_system:.2f}"
    yield "used_cpu_user", f"{figures.cpu_user:.2f}"
    yield "used_cpu_sys_children", "0.00"
    yield "used_cpu_user_children", "0.00"


def _commandstats(client: Client) -> Fields:
    for name, calls in sorted(client.context.counts.items()):
        yield f"cmdstat_{name.decode()}", f"calls={calls},usec=0,usec_per_call=0.00"  # times are not measured


_SECTIONS: dict[str, Callable[[Client], Fields]] = {
    "Server": _server,
    "Clients": _clients,
    "Memory": _memory,
    "Jobs": _jobs,
    "Queues": _queues,
    "Persistence": _persistence,
    "Stats": _stats,
    "CPU": _cpu,
    "Commandstats": _commandstats,
}
