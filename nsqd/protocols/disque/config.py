"""The command CONFIG. Only a few of Disque's settings have an effect here: the others are kept and returned."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate
from typing import TYPE_CHECKING

from nsqd.protocols.disque import resp
from nsqd.protocols.disque.arguments import Refused

if TYPE_CHECKING:
    from nsqd.protocols.disque.client import Client

NO_FILE = b"ERR The server is running without a config file"
MOST_PASSWORD = 512  # bytes
MOST_PATTERN = 128  # bytes of what CONFIG GET looks for: a pattern of 1 MB takes seconds
DEFAULTS = {  # in Disque's order
    "requirepass": "", "unixsocket": "", "logfile": "", "pidfile": "/var/run/disque.pid", "maxmemory": "1073741824",
    "maxmemory-samples": "5", "timeout": "0", "auto-aof-rewrite-percentage": "100",
    "auto-aof-rewrite-min-size": "67108864", "slowlog-log-slower-than": "10000", "latency-monitor-threshold": "0",
    "slowlog-max-len": "128", "port": "7711", "tcp-backlog": "511", "databases": "16", "maxclients": "10000",
    "watchdog-period": "0", "hz": "10", "cluster-node-timeout": "15000", "tcp-keepalive": "no",
    "no-appendfsync-on-rewrite": "no", "daemonize": "no", "activerehashing": "yes",
    "aof-rewrite-incremental-fsync": "yes", "aof-load-truncated": "yes", "aof-enqueue-jobs-once": "no",
    "maxmemory-policy": "acks", "loglevel": "notice", "appendfsync": "everysec", "syslog-facility": "local0",
    "appendonly": "no", "dir": "", "client-output-buffer-limit": "normal 0 0 0", "unixsocketperm": "0", "bind": "",
}  # fmt: skip
_NUMBER = re.compile(rb"-?[0-9]{1,19}")
_LIMIT = re.compile(rb"normal [0-9]{1,18} [0-9]{1,18} [0-9]{1,18}")
_UNITS = {b"": 1, b"b": 1, b"k": 1000, b"kb": 1 << 10, b"m": 10**6, b"mb": 1 << 20, b"g": 10**9, b"gb": 1 << 30}


def config_command(client: Client, arguments: list[bytes]) -> None:
    """Execute a subcommand of CONFIG. Raises Refused."""
    word = arguments[1].lower()
    needed = {b"get": 3, b"set": 4, b"rewrite": 2, b"resetstat": 2}.get(word)
    if needed is None:
        raise Refused(b"ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE")
    if len(arguments) != needed:
        raise Refused(b"ERR Wrong number of arguments for CONFIG " + arguments[1])
    match word:
        case b"get":
            _get(client, arguments[2].decode("latin-1"))
        case b"set":
            _set(client, arguments[2], arguments[3])
        case b"rewrite":
            _rewrite(client)
        case _:
            client.context.counts.clear()
            client.reply(resp.status(b"OK"))


def _get(client: Client, pattern: str) -> None:
    settings = DEFAULTS | client.context.config | {"requirepass": client.context.password.decode("latin-1")}
    wanted = re.compile(translate(pattern if len(pattern) <= MOST_PATTERN else ""))
    found = [(name, settings[name]) for name in DEFAULTS if wanted.match(name)]
    pairs = [(resp.bulk(name.encode()), resp.bulk(value.encode("latin-1", "replace"))) for name, value in found]
    is_third = client.nil == resp.NULL3  # clients of RESP3 expect a map
    client.reply(resp.mapping(pairs) if is_third else resp.array([part for pair in pairs for part in pair]))


def _rewrite(client: Client) -> None:
    if client.context.rewrite is None:
        raise Refused(NO_FILE)
    why = client.context.rewrite()
    if why:
        raise Refused(b"ERR Rewriting config file: " + why.encode())
    client.reply(resp.status(b"OK"))


def _set(client: Client, name: bytes, value: bytes) -> None:
    key = name.lower().decode("latin-1")
    read = _SETTABLE.get(key)
    if read is None:
        raise Refused(b"ERR Unsupported CONFIG parameter: " + name)
    read_value = read(value)
    if read_value is None:
        raise Refused(b"ERR Invalid argument '%s' for CONFIG SET '%s'" % (value, name))
    if key == "requirepass":
        client.context.password = value
        for one in client.context.clients():
            one.authorized = not value
        client.authorized = not value
    else:
        client.context.config[key] = read_value
    client.reply(resp.status(b"OK"))


def _number(least: int, most: int = (1 << 63) - 1) -> Callable[[bytes], str | None]:
    def read(value: bytes) -> str | None:
        if _NUMBER.fullmatch(value) is None:
            return None
        return str(int(value)) if least <= int(value) <= most else None

    return read


def _clamped(value: bytes) -> str | None:
    number = _number(0)(value)
    return None if number is None else str(min(500, max(1, int(number))))


def _memory(value: bytes) -> str | None:
    digits = value.rstrip(b"kKmMgGbB")
    unit = _UNITS.get(value[len(digits) :].lower())
    return str(int(digits) * unit) if digits.isdigit() and unit is not None and len(digits) < 15 else None


def _one_of(*words: str) -> Callable[[bytes], str | None]:
    def read(value: bytes) -> str | None:
        word = value.decode("latin-1").lower()
        return word if word in words else None

    return read


_YES_NO = _one_of("yes", "no")
_SETTABLE: dict[str, Callable[[bytes], str | None]] = {
    "requirepass": lambda value: "" if len(value) <= MOST_PASSWORD else None,
    "maxclients": _number(1),
    "maxmemory": _memory,
    "maxmemory-samples": _number(1),
    "maxmemory-policy": _one_of("acks", "noeviction"),
    "timeout": _number(0),
    "hz": _clamped,
    "watchdog-period": _number(0),
    "cluster-node-timeout": _number(0),
    "client-output-buffer-limit": lambda value: value.decode() if _LIMIT.fullmatch(value) else None,
    "slowlog-log-slower-than": _number(0),
    "slowlog-max-len": _number(0),
    "latency-monitor-threshold": _number(0),
    "auto-aof-rewrite-percentage": _number(0),
    "auto-aof-rewrite-min-size": _number(0),
    "loglevel": _one_of("debug", "verbose", "notice", "warning"),
    "appendfsync": _one_of("no", "always", "everysec"),
    **dict.fromkeys(
        ("appendonly", "tcp-keepalive", "activerehashing", "aof-rewrite-incremental-fsync", "aof-load-truncated",
         "aof-enqueue-jobs-once"),
        _YES_NO,
    ),
}  # fmt: skip
