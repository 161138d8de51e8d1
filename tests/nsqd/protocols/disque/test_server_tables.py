"""What the server tells clients of Disque of itself and of the cluster. Expected are the replies of Disque 1.0-rc1, if any."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from nsqd.core.limits import Limits
from nsqd.protocols.disque.arguments import COMMANDS
from nsqd.protocols.disque.config import DEFAULTS
from nsqd.protocols.disque.context import Alone, DisqueContext, NodeFacts, Priority
from shared.version import PENSTOCK_VERSION
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.disque.wire import NUMBER, Reply, Wire, context_of, request

Words = tuple[bytes | str | int, ...]
SYNTAX_ERROR = "-ERR syntax error"
NO_AUTH = "-NOAUTH Authentication required."
BAD_CLIENT = "-ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)"
BAD_CLUSTER = "-ERR Wrong CLUSTER subcommand or number of arguments"
BAD_NAME = "-ERR Client names cannot contain spaces, newlines or special characters."
LEAVING = "-LEAVING This node is leaving the cluster, please connect to a different one"
TOO_FEW = "-NOREPL Not enough reachable nodes for the requested replication level"
LEAVES = TOO_FEW + ", since I'm unable to hold a copy of the message for the following reason: I'm leaving the cluster"


class Server:
    """The clients of one node, and what DisqueContext has of its process."""

    def __init__(self, **facts: Any) -> None:
        self.node = Node(Limits(whole_job_ids=True))
        self.context: DisqueContext = replace(context_of(self.node), **facts)
        self._wires: list[Wire] = []
        self.context.clients = lambda: [wire.peer for wire in self._wires if not wire.peer.outbox.closing]

    def client(self) -> Wire:
        wire = Wire(self.node, self.context)
        self._wires.append(wire)
        return wire


@pytest.fixture
def server() -> Server:
    return Server(has_debug=True)


@pytest.fixture
def wire(server: Server) -> Wire:
    return server.client()


def wrong(command: str) -> str:
    return f"-ERR wrong number of arguments for '{command}' command"


def as_dict(pairs: Sequence[Any]) -> dict[str, Any]:
    return {key.decode(): value for key, value in zip(pairs[::2], pairs[1::2], strict=True)}


# who the client is


def own_id(wire: Wire) -> bytes:
    return wire.context.ids.node_id(NUMBER)


def test_hello_tells_the_node_that_is_alone(wire: Wire) -> None:
    for word in ("HELLO", "hello"):
        assert wire.do(word) == [1, own_id(wire), [own_id(wire), b"", b"7711", b"1"]]


@pytest.mark.parametrize("version", [2, 3])
def test_hello_with_a_version_answers_as_redis_does(wire: Wire, version: int) -> None:
    said = wire.ask(request("HELLO", version, "SETNAME", "worker"))
    assert said.startswith(b"%7\r\n" if version == 3 else b"*14\r\n")
    wire.peer.receive(request("HELLO", version), wire.node.now)
    (found,) = wire.replies()
    told = as_dict(found)
    assert told == {
        "server": b"disque", "version": PENSTOCK_VERSION.encode(), "proto": version, "id": told["id"],
        "mode": b"standalone", "role": b"master", "modules": [],
    }  # fmt: skip
    assert wire.do("CLIENT", "ID") == told["id"]
    assert wire.do("CLIENT", "GETNAME") == b"worker"
    assert wire.do("HELLO")[0] == 1  # Disque's own, whatever the version


def test_the_nil_of_a_reply_is_that_of_the_version(wire: Wire) -> None:
    unknown = "D-aaaaaaaa-" + "b" * 24 + "-05a1"
    commands: list[Words] = [
        ("SHOW", unknown),
        ("GETJOB", "NOHANG", "FROM", "q"),
        ("QSTAT", "nosuch"),
        ("CLIENT", "GETNAME"),
    ]
    old = [b"$-1\r\n", b"*-1\r\n", b"*-1\r\n", b"$-1\r\n"]
    assert [wire.ask(request(*words)) for words in commands] == old
    wire.do("HELLO", 3)
    assert [wire.ask(request(*words)) for words in commands] == [b"_\r\n"] * 4
    assert wire.ask(request("COMMAND", "INFO", "nosuch")) == b"*1\r\n_\r\n"
    assert wire.replies(request("GETJOB", "TIMEOUT", 10, "FROM", "q")) == []
    assert wire.advance(10).said() == b"_\r\n"
    wire.do("HELLO", 2)
    assert [wire.ask(request(*words)) for words in commands] == old


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("HELLO", "x"), wrong("hello")),
        (("HELLO", "1"), "-NOPROTO unsupported protocol version"),
        (("HELLO", "4"), "-NOPROTO unsupported protocol version"),
        (("HELLO", "-3"), wrong("hello")),
        (("HELLO", "3", "AUTH", "default"), "-ERR Syntax error in HELLO option 'AUTH'"),
        (("HELLO", "3", "SETNAME"), "-ERR Syntax error in HELLO option 'SETNAME'"),
        (("HELLO", "3", "SETNAME", "a b"), BAD_NAME),
        (("HELLO", "3", "NOSUCH", "x", "y"), "-ERR Syntax error in HELLO option 'NOSUCH'"),
    ],
)
def test_a_hello_that_is_refused_changes_nothing(wire: Wire, words: Words, expected: str) -> None:
    assert wire.do(*words) == expected
    assert wire.ask(request("CLIENT", "GETNAME")) == b"$-1\r\n"


def test_a_password(server: Server, wire: Wire) -> None:
    other = server.client()
    assert wire.do("AUTH", "x") == "-ERR Client sent AUTH, but no password is set"
    assert wire.do("HELLO", 3, "AUTH", "default", "x")
    assert wire.do("CONFIG", "SET", "requirepass", "p" * 513).startswith("-ERR Invalid argument 'ppp")
    assert wire.do("CONFIG", "SET", "requirepass", "sesame") == "OK"
    table: list[tuple[Words, Reply]] = [
        (("PING",), NO_AUTH),
        (("QLEN",), wrong("qlen")),
        (("NOSUCH",), "-ERR unknown command 'NOSUCH'"),
        (("AUTH",), wrong("auth")),
        (("HELLO",), NO_AUTH),
        (("HELLO", 3), "-NOAUTH HELLO must be called with the client already authenticated"),
        (("HELLO", 3, "AUTH", "default", "no"), "-WRONGPASS invalid username-password pair or user is disabled."),
        (("COMMAND",), NO_AUTH),
        (("ADDJOB", "q", "b", 0), NO_AUTH),
        (("AUTH", "wrong"), "-ERR invalid password"),
        (("AUTH", "default", "sesame"), wrong("auth")),
        (("AUTH", "sesame"), "OK"),
        (("PING",), "PONG"),
        (("AUTH", "wrong"), "-ERR invalid password"),
        (("PING",), NO_AUTH),
    ]
    for words, expected in table:
        assert [other.do(*words), words] == [expected, words]
    assert other.do("HELLO", 2, "AUTH", "anybody", "sesame", "SETNAME", "me")[:2] == [b"server", b"disque"]
    assert other.do("CLIENT", "GETNAME") == b"me"
    assert wire.do("PING") == NO_AUTH
    assert wire.do("AUTH", "sesame") == "OK"
    assert wire.do("CONFIG", "GET", "requirepass") == [b"requirepass", b"sesame"]
    assert wire.do("CONFIG", "SET", "requirepass", "") == "OK"
    assert server.client().do("PING") == "PONG"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("PING",), "PONG"),
        (("PING", "x"), b"x"),
        (("PING", ""), b""),
        (("PING", "a", "b"), wrong("ping")),
        (("LOADJOB", "x"), "-ERR LOADJOB is a special command only processed from AOF"),
        (("LOADJOB",), wrong("loadjob")),
        (("BGREWRITEAOF", "x"), wrong("bgrewriteaof")),
        (("TIME", "x"), wrong("time")),
        (("SELECT", 0), "-ERR unknown command 'SELECT'"),
        (("",), "-ERR unknown command ''"),
        (("a\r\nb",), "-ERR unknown command 'a  b'"),
        (("SLOWLOG", "RESET"), "OK"),
        (("SLOWLOG", "LEN"), 0),
        (("SLOWLOG", "GET"), []),
        (("SLOWLOG", "GET", "-1"), []),
        (("SLOWLOG", "GET", "x"), "-ERR value is not an integer or out of range"),
        (("SLOWLOG", "GET", 1, 2), "-ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN."),
        (("SLOWLOG", "LEN", "x"), "-ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN."),
        (("LATENCY", "LATEST"), []),
        (("LATENCY", "LATEST", "x"), SYNTAX_ERROR),
        (("LATENCY", "HISTORY", "command"), []),
        (("LATENCY", "HISTORY"), SYNTAX_ERROR),
        (("LATENCY", "GRAPH", "command"), "-ERR No samples available for event 'command'"),
        (("LATENCY", "RESET"), 0),
        (("LATENCY", "RESET", "a", "b"), 0),
        (("LATENCY", "BOGUS"), SYNTAX_ERROR),
        (("DEBUG", "ERROR", "MY error\r\ntext"), "-MY error  text"),
        (("DEBUG", "ERROR", ""), "-"),
        (("DEBUG", "ERROR"), "-ERR Unknown DEBUG subcommand or wrong number of arguments for 'ERROR'"),
        (("DEBUG", "BOGUS"), "-ERR Unknown DEBUG subcommand or wrong number of arguments for 'BOGUS'"),
        (("COMMAND", "COUNT"), 32),
        (("COMMAND", "COUNT", "x"), "-ERR Unknown subcommand or wrong number of arguments."),
        (("COMMAND", "DOCS"), "-ERR Unknown subcommand or wrong number of arguments."),
        (("COMMAND", "INFO"), []),
        (("COMMAND", "INFO", "addjob", "GETJOB", "nosuch", "hello"),
         [[b"addjob", -4, ["write", "denyoom", "fast"], 0, 0, 0], [b"getjob", -2, ["write", "fast"], 0, 0, 0], None,
          [b"hello", 1, ["readonly", "fast"], 0, 0, 0]]),
    ],
)  # fmt: skip
def test_small_commands(wire: Wire, words: Words, expected: Reply) -> None:
    assert wire.do(*words) == expected


def test_each_command_has_its_arity(wire: Wire) -> None:
    described = {one[0].decode(): one[1] for one in wire.do("COMMAND")}
    assert len(described) == len(COMMANDS) == 32
    for name, arity in described.items():
        counts = [count for count in range(1, abs(arity) + 2) if (count != arity if arity > 0 else count < -arity)]
        for count in counts:
            if name == "hello":
                continue  # clients of Redis send more words
            assert wire.do(name.upper(), *["x"] * (count - 1)) == wrong(name)


def test_the_time_is_that_of_the_wall_clock(wire: Wire) -> None:
    wire.advance(1_250)
    seconds, microseconds = wire.do("TIME")
    assert int(seconds) * 1_000_000 + int(microseconds) == wire.node.broker.wall // 1_000


# INFO and CONFIG

SECTIONS = {
    "server": ("disque_version", "tcp_port", "run_id", "config_file"),
    "clients": ("connected_clients", "client_longest_output_list", "client_biggest_input_buf", "blocked_clients"),
    "memory": ("used_memory", "used_memory_human", "mem_allocator"),
    "jobs": ("registered_jobs",),
    "queues": ("registered_queues",),
    "persistence": ("loading", "aof_enabled", "aof_state", "aof_last_write_status"),
    "stats": ("total_connections_received", "total_commands_processed", "rejected_connections"),
    "cpu": ("used_cpu_sys", "used_cpu_user", "used_cpu_sys_children", "used_cpu_user_children"),
}


def info(wire: Wire, *section: str) -> dict[str, str]:
    lines = wire.do("INFO", *section).decode().split("\r\n")
    return dict(line.split(":", 1) for line in lines if line and not line.startswith("#"))


def headings(text: bytes) -> list[str]:
    return [line[2:].lower() for line in text.decode().split("\r\n") if line.startswith("# ")]


def test_the_sections_of_info(wire: Wire) -> None:
    for section, keys in SECTIONS.items():
        assert headings(wire.do("INFO", section)) == [section]
        assert set(keys) <= set(info(wire, section))
    assert wire.do("INFO", "SERVER") == wire.do("INFO", "server")
    assert headings(wire.do("INFO")) == headings(wire.do("INFO", "default")) == list(SECTIONS)
    assert headings(wire.do("INFO", "all")) == [*SECTIONS, "commandstats"]
    for section in ("nosuch", "", "keyspace"):
        assert wire.do("INFO", section) == b""
    assert wire.do("INFO", "a", "b") == SYNTAX_ERROR
    assert info(wire)["disque_version"] == "1.0-rc1"


def test_info_counts(server: Server, wire: Wire) -> None:
    wire.add("q")
    wire.add("r", b"x", "DELAY", 5)
    other = server.client()
    other.replies(request("GETJOB", "FROM", "s"))
    assert wire.do("INFO", "jobs") == b"# Jobs\r\nregistered_jobs:2\r\n"
    assert info(wire, "queues") == {"registered_queues": "2"}
    told = info(wire, "clients")
    assert (told["connected_clients"], told["blocked_clients"]) == ("2", "1")
    counts = info(wire, "commandstats")
    assert (counts["cmdstat_addjob"], counts["cmdstat_getjob"]) == ("calls=2", "calls=1")
    assert wire.do("CONFIG", "RESETSTAT") == "OK"
    assert set(info(wire, "commandstats")) == {"cmdstat_info"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("GET", "maxmemory"), [b"maxmemory", b"1073741824"]),
        (("GET", "MAXMEMORY"), []),
        (("GET", "nosuch"), []),
        (("GET", "appendfilename"), []),
        (("GET", "[" * 100_000), []),  # is not read: that would take minutes
        (("GET", "*" * 100), [part.encode() for pair in DEFAULTS.items() for part in pair]),
        (("GET", "?z"), [b"hz", b"10"]),
        (("GET", "max*"), [b"maxmemory", b"1073741824", b"maxmemory-samples", b"5", b"maxclients", b"10000",
                           b"maxmemory-policy", b"acks"]),
        (("GET",), "-ERR Wrong number of arguments for CONFIG GET"),
        (("GET", "a", "b"), "-ERR Wrong number of arguments for CONFIG GET"),
        (("SET",), "-ERR Wrong number of arguments for CONFIG SET"),
        (("sEt", "a"), "-ERR Wrong number of arguments for CONFIG sEt"),
        (("SET", "a", "b"), "-ERR Unsupported CONFIG parameter: a"),
        (("REWRITE",), "-ERR The server is running without a config file"),
        (("REWRITE", "x"), "-ERR Wrong number of arguments for CONFIG REWRITE"),
        (("RESETSTAT", "x"), "-ERR Wrong number of arguments for CONFIG RESETSTAT"),
        (("BOGUS",), "-ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE"),
    ],
)  # fmt: skip
def test_config(wire: Wire, words: Words, expected: Reply) -> None:
    assert wire.do("CONFIG", *words) == expected


def test_all_settings_come_in_the_order_of_disque(wire: Wire) -> None:
    found = wire.do("CONFIG", "GET", "*")
    assert [one.decode() for one in found[::2]] == list(DEFAULTS)
    assert len(DEFAULTS) == 35
    wire.do("HELLO", 3)
    assert wire.ask(request("CONFIG", "GET", "hz")) == b"%1\r\n$2\r\nhz\r\n$2\r\n10\r\n"


# by setting: values, and what CONFIG GET tells afterwards; None: the value is refused
SETTINGS: dict[str, list[tuple[str, str | None]]] = {
    "maxclients": [("0", None), ("x", None), ("-1", None), ("200", "200"), ("--5", None)],
    "appendonly": [("maybe", None), ("no", "no")],
    "client-output-buffer-limit": [
        ("x", None), ("normal 1 2", None), ("normal 1 2 x", None), ("slave 1 2 3", None), ("normal 1mb 0 0", None),
        ("normal 1000000 500000 10", "normal 1000000 500000 10"),
    ],
    "tcp-keepalive": [("60", None), ("yes", "yes")],
    "timeout": [("-1", None), ("--1", None), ("-", None), ("5", "5"), ("9" * 19, None)],
    "hz": [("0", "1"), ("x", None), ("-1", None), ("--1", None), ("100000", "500"), ("10", "10")],
    "cluster-node-timeout": [("-1", None), ("0", "0")],
    "maxmemory": [
        ("x", None), ("-1", None), ("1gb", "1073741824"), ("1GB", "1073741824"), ("1g", "1000000000"),
        ("100k", "100000"), ("100kb", "102400"), ("0", "0"), ("1kk", None), ("k", None),
    ],
    "loglevel": [("x", None), ("debug", "debug"), ("warning", "warning")],
    "maxmemory-policy": [("x", None), ("volatile-lru", None), ("noeviction", "noeviction")],
    "appendfsync": [("x", None), ("always", "always"), ("no", "no")],
    "slowlog-log-slower-than": [("-1", None), ("0", "0")],
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting(wire: Wire, name: str) -> None:
    kept = DEFAULTS[name]
    for value, expected in SETTINGS[name]:
        refusal = f"-ERR Invalid argument '{value}' for CONFIG SET '{name}'"
        assert wire.do("CONFIG", "SET", name, value) == (refusal if expected is None else "OK"), value
        kept = kept if expected is None else expected
        assert wire.do("CONFIG", "GET", name) == [name.encode(), kept.encode()]
    assert wire.do("CONFIG", "SET", name.upper(), kept) == "OK"


@pytest.mark.parametrize(
    "name",
    ["port", "bind", "databases", "logfile", "pidfile", "daemonize", "tcp-backlog", "unixsocket", "appendfilename",
     "no-appendfsync-on-rewrite", "cluster-config-file", "nosuch"],
)  # fmt: skip
def test_a_setting_that_cannot_be_changed(wire: Wire, name: str) -> None:
    assert wire.do("CONFIG", "SET", name, "1") == f"-ERR Unsupported CONFIG parameter: {name}"


def test_a_configuration_file_is_written_again() -> None:
    reasons = ["", "no space"]
    wire = Server(rewrite=lambda: reasons.pop(0)).client()
    assert wire.do("CONFIG", "REWRITE") == "OK"
    assert wire.do("CONFIG", "REWRITE") == "-ERR Rewriting config file: no space"


# CLIENT


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("GETNAME",), None),
        (("SETNAME", "a b"), BAD_NAME),
        (("SETNAME", ""), "OK"),
        (("SETINFO", "LIB-NAME", "redis-py"), "OK"),  # chosen: clients of today send it
        (("LIST", "x"), BAD_CLIENT),
        (("GETNAME", "x"), BAD_CLIENT),
        (("SETNAME",), BAD_CLIENT),
        (("SETNAME", "a", "b"), BAD_CLIENT),
        (("BOGUS",), BAD_CLIENT),
        (("REPLY",), BAD_CLIENT),
        (("REPLY", "x"), SYNTAX_ERROR),
        (("REPLY", "ON"), "OK"),
        (("PAUSE",), BAD_CLIENT),
        (("PAUSE", "x"), "-ERR timeout is not an integer or out of range"),
        (("PAUSE", "-1"), "-ERR timeout is negative"),
        (("KILL",), SYNTAX_ERROR),
        (("KILL", "1.2.3.4:5"), "-ERR No such client"),
        (("KILL", "ADDR", "1.2.3.4:5"), 0),
        (("KILL", "ID", "x"), "-ERR value is not an integer or out of range"),
        (("KILL", "ID", "99999"), 0),
        (("KILL", "TYPE", "bogus"), "-ERR Unknown client type 'bogus'"),
        (("KILL", "TYPE", "normal", "ID", "99999"), 0),
        (("KILL", "SKIPME", "maybe"), SYNTAX_ERROR),
        (("KILL", "SKIPME", "yes", "ID", "99999"), 0),
        (("KILL", "BOGUS", "x"), SYNTAX_ERROR),
        (("KILL", "ID", "1", "ADDR"), SYNTAX_ERROR),
        (("TRACKING", "on"), BAD_CLIENT),
    ],
)
def test_client(wire: Wire, words: Words, expected: Reply) -> None:
    assert wire.do("CLIENT", *words) == expected


def test_client_pause_is_refused(wire: Wire) -> None:
    assert wire.do("CLIENT", "PAUSE", 300).startswith("-ERR CLIENT PAUSE is not supported")


def test_the_list_of_clients(server: Server, wire: Wire) -> None:
    waiting = server.client()
    waiting.replies(request("GETJOB", "FROM", "q"))
    wire.do("CLIENT", "SETNAME", "bob")
    wire.advance(3_000)
    lines = wire.do("CLIENT", "LIST").decode().splitlines()
    told = [dict(field.split("=", 1) for field in line.split(" ")) for line in lines]
    assert [(one["name"], one["flags"], one["cmd"], one["age"]) for one in told] == [
        ("bob", "N", "client", "3"), ("", "b", "getjob", "3"),
    ]  # fmt: skip
    assert [one["idle"] for one in told] == ["0", "3"]
    assert told[0]["addr"] == "10.0.0.1:5555"


def test_clients_are_ended(server: Server, wire: Wire) -> None:
    other, third = server.client(), server.client()
    number = other.do("CLIENT", "ID")
    assert wire.do("CLIENT", "KILL", "ID", number) == 1
    assert other.peer.outbox.closing
    assert wire.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") == 1
    assert third.peer.outbox.closing
    assert wire.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no") == 1
    assert wire.peer.outbox.closing


def test_replies_that_are_not_wanted(wire: Wire) -> None:
    ping, data = request("PING"), request("CLIENT", "REPLY", "OFF")
    assert wire.replies(data + ping + ping + request("CLIENT", "REPLY", "ON") + request("PING", "x")) == ["OK", b"x"]
    skip = request("CLIENT", "REPLY", "SKIP")
    assert wire.replies(skip + request("PING", 1) + request("PING", 2)) == [b"2"]
    assert wire.replies(skip + request("ADDJOB", "q", "b", 0) + request("QLEN", "q")) == [1]


# DEBUG, MONITOR, SHUTDOWN


def test_debug_flushall_throws_all_away(server: Server, wire: Wire) -> None:
    ids = [wire.add("q", b"x", *options) for options in ((), ("DELAY", 50), ("RETRY", 0))]
    ids += [wire.add(f"many{number % 7}") for number in range(1_500)]
    assert wire.do("DEQUEUE", ids[2]) == 1
    wire.get("many1", "many2", count=30)
    assert wire.do("PAUSE", "p", "in") == "in"
    assert wire.do("PAUSE", "q", "out") == "out"
    waiting = server.client()
    assert waiting.replies(request("GETJOB", "FROM", "w")) == []
    assert wire.do("DEBUG", "FLUSHALL", "x") == "OK"
    assert waiting.replies() == [None]
    assert [wire.do("QLEN", "q"), wire.do("SHOW", ids[0]), wire.do("QSTAT", "q")] == [0, None, None]
    assert (wire.do("PAUSE", "p", "state"), wire.do("PAUSE", "q", "state")) == ("none", "none")
    assert info(wire, "jobs") == {"registered_jobs": "0"}
    assert all(wire.do("SHOW", one) is None for one in ids[::100])
    wire.add("w")
    assert waiting.replies() == []
    assert wire.do("QLEN", "w") == 1
    assert wire.do("CLUSTER", "RESET", "soft") == "OK"
    assert wire.do("QLEN", "w") == 0
    server.node.broker.check()


def test_jobs_are_thrown_away_only_where_that_is_allowed() -> None:
    wire = Server().client()
    wire.add("q")
    assert wire.do("DEBUG", "FLUSHALL").startswith("-ERR DEBUG is switched off")
    assert wire.do("CLUSTER", "RESET").startswith("-ERR CLUSTER RESET would lose all jobs")
    assert wire.do("QLEN", "q") == 1


def test_monitor_shows_commands_and_no_password(server: Server, wire: Wire) -> None:
    monitor = server.client()
    assert monitor.do("MONITOR") == "OK"
    assert monitor.replies(request("MONITOR")) == []

    def shown() -> list[str]:
        lines = [str(line).partition(" [10.0.0.1:5555] ") for line in monitor.replies()]
        assert all(float(time) > 1_800_000_000 for time, _, _ in lines)
        return [words for _, _, words in lines]

    table: list[tuple[Words, list[str]]] = [
        (("PING", "hello"), ['"PING" "hello"']),
        (("PING", b'a\0"\\\xff\r\n'), [r'"PING" "a\x00\"\\\xff\r\n"']),
        (("PING", b"'\"\a\b\t"), ['"PING" "\'\\"\\a\\b\\t"']),
        (("NOSUCH",), []),
        (("ADDJOB", "q"), []),
        (("AUTH", "secret"), ['"AUTH" "(redacted)"']),
        (("HELLO", 3, "AUTH", "default", "secret"), ['"HELLO"' + ' "(redacted)"' * 4]),
        (("config", "set", "requirepass", ""), ['"config"' + ' "(redacted)"' * 3]),
        (("CONFIG", "SET", "RequirePass", ""), ['"CONFIG"' + ' "(redacted)"' * 3]),
        (("CONFIG", "SET", "hz", "10"), ['"CONFIG" "SET" "hz" "10"']),
    ]
    for words, expected in table:
        wire.do(*words)
        assert shown() == expected
    wire.replies(request("ADDJOB", "q", "b", 0) * 3)  # also those that are taken together
    assert shown() == ['"ADDJOB" "q" "b" "0"'] * 3
    line, pong = monitor.replies(request("PING"))
    assert (str(line).endswith('"PING"'), pong) == (True, "PONG")
    monitor.leave()
    assert wire.do("PING") == "PONG"
    assert not server.context.monitors


def test_shutdown(server: Server, wire: Wire) -> None:
    assert wire.do("SHUTDOWN").startswith("-ERR SHUTDOWN is switched off here")
    calls: list[bool] = []
    for words in (("SHUTDOWN",), ("shutdown", "rewrite-aof")):
        other = Server(stop=lambda: calls.append(True)).client()
        assert other.do("SHUTDOWN", "a", "b") == SYNTAX_ERROR
        assert other.do("SHUTDOWN", "x") == SYNTAX_ERROR
        assert other.replies(request(*words)) == []
        assert other.peer.outbox.closing
    assert calls == [True, True]


# CLUSTER


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("NODES", "x"), BAD_CLUSTER),
        (("INFO", "x"), BAD_CLUSTER),
        (("MYID", "x"), BAD_CLUSTER),
        (("SAVECONFIG",), "OK"),
        (("MEET",), BAD_CLUSTER),
        (("MEET", "127.0.0.1"), BAD_CLUSTER),
        (("MEET", "127.0.0.1", "x"), "-ERR Invalid TCP port specified: x"),
        (("MEET", "127.0.0.1", "--5"), "-ERR Invalid TCP port specified: --5"),
        (("MEET", "no.address", "7711"), "-ERR Invalid node address specified: no.address:7711"),
        (("MEET", "127.0.0.1", "0"), "-ERR Invalid node address specified: 127.0.0.1:0"),
        (("MEET", "127.0.0.1", "-1"), "-ERR Invalid node address specified: 127.0.0.1:-1"),
        (("MEET", "127.0.0.1", "99999"), "-ERR Invalid node address specified: 127.0.0.1:99999"),
        (("MEET", "127.0.0.1", "4154"), "-ERR This node is in no cluster: start it with -cluster-address"),
        (("FORGET",), BAD_CLUSTER),
        (("FORGET", "x"), "-ERR Invalid node identifier"),
        (("FORGET", "a" * 40), "-ERR Unknown node " + "a" * 40),
        (("RESET", "x"), SYNTAX_ERROR),
        (("RESET", "SOFT", "HARD"), BAD_CLUSTER),
        (("LEAVING",), "no"),
        (("LEAVING", "maybe"), "-ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'"),
        (("LEAVING", "yes", "no"), BAD_CLUSTER),
        (("LEAVING", "no"), "OK"),
        (("BOGUS",), BAD_CLUSTER),
        (("SLOTS",), BAD_CLUSTER),
    ],
)
def test_cluster_of_a_node_that_is_alone(words: Words, expected: Reply) -> None:
    wire = Server(is_ip=lambda text: text == "127.0.0.1").client()
    assert wire.do("CLUSTER", *words) == expected


def test_what_a_node_that_is_alone_tells_of_its_cluster(wire: Wire) -> None:
    node_id = own_id(wire)
    assert wire.do("CLUSTER", "MYID") == wire.do("CLUSTER", "myid") == node_id
    assert wire.do("CLUSTER", "NODES") == node_id + b" :7711 myself 0 0 connected\n"
    assert wire.do("CLUSTER", "INFO") == (
        b"cluster_state:ok\r\ncluster_known_nodes:1\r\ncluster_reachable_nodes:0\r\ncluster_size:1\r\n"
        b"cluster_stats_messages_sent:0\r\ncluster_stats_messages_received:0\r\n"
    )
    assert wire.do("CLUSTER", "FORGET", node_id) == "-ERR I tried hard but I can't forget myself..."


class Three:
    """Three nodes, one of which is suspected. Implements ClusterFacts."""

    number = NUMBER

    def __init__(self) -> None:
        self.done: list[tuple[object, ...]] = []
        self.why = ""
        self.is_leaving = False

    def nodes(self) -> Sequence[NodeFacts]:
        own = Priority.GONE if self.is_leaving else Priority.GOOD
        return [
            NodeFacts(NUMBER, "10.0.0.7", 7711, own, self.is_leaving),
            NodeFacts(8, "10.0.0.8", 7811, Priority.GOOD),
            NodeFacts(9, "", 0, Priority.SUSPECTED),
        ]

    def size(self) -> int:
        return 3

    def meet(self, ip: str, port: int) -> bool:
        self.done.append(("meet", ip, port))
        return True

    def forget(self, number: int) -> str:
        self.done.append(("forget", number))
        return self.why

    def leave(self) -> str:
        self.is_leaving = not self.why
        return self.why

    def stay(self) -> str:
        return "it is too late"


def test_a_node_among_three(server: Server) -> None:
    cluster = Three()
    server.context.cluster = cluster
    wire, ids = server.client(), server.context.ids
    assert wire.do("HELLO") == [
        1, ids.node_id(7), [ids.node_id(7), b"10.0.0.7", b"7711", b"1"], [ids.node_id(8), b"10.0.0.8", b"7811", b"1"],
        [ids.node_id(9), b"", b"0", b"10"],
    ]  # fmt: skip
    assert wire.do("CLUSTER", "NODES").decode().splitlines() == [
        f"{ids.node_id(7).decode()} 10.0.0.7:7711 myself 0 0 connected",
        f"{ids.node_id(8).decode()} 10.0.0.8:7811 noflags 0 0 connected",
        f"{ids.node_id(9).decode()} :0 fail? 0 0 disconnected",
    ]
    told = dict(line.split(":") for line in wire.do("CLUSTER", "INFO").decode().split())
    assert (told["cluster_known_nodes"], told["cluster_reachable_nodes"], told["cluster_size"]) == ("3", "1", "3")
    server.context.is_ip = lambda text: True
    assert wire.do("CLUSTER", "MEET", "10.0.0.10", 4154) == "OK"
    assert wire.do("CLUSTER", "FORGET", ids.node_id(9)) == "OK"
    cluster.why = "node 8 is connected"
    assert wire.do("CLUSTER", "FORGET", ids.node_id(8)) == "-ERR node 8 is connected"
    assert cluster.done == [("meet", "10.0.0.10", 4154), ("forget", 9), ("forget", 8)]
    assert wire.do("CLUSTER", "RESET").startswith("-ERR CLUSTER RESET would lose all jobs")
    assert wire.do("CLUSTER", "LEAVING", "yes") == "-ERR node 8 is connected"
    assert wire.do("CLUSTER", "LEAVING") == "no"
    cluster.why = ""
    assert wire.do("CLUSTER", "LEAVING", "yes") == "OK"
    assert wire.do("CLUSTER", "LEAVING", "no") == "-ERR it is too late"
    assert wire.do("HELLO")[2][3] == b"100"


def test_a_node_that_is_alone_leaves_and_stays(server: Server, wire: Wire) -> None:
    server.context.cluster = Alone(NUMBER, 7711, server.node.broker.drain)
    first, second = wire.add("q", b"1"), wire.add("q", b"2")
    waiting = server.client()
    assert waiting.replies(request("GETJOB", "FROM", "w")) == []
    assert wire.do("CLUSTER", "LEAVING", "yes") == "OK"
    assert waiting.replies() == [LEAVING]
    assert wire.do("CLUSTER", "LEAVING", "yes") == "OK"
    assert wire.do("CLUSTER", "NODES").endswith(b" :7711 myself,leaving 0 0 connected\n")
    for options in ((), ("REPLICATE", 1), ("ASYNC",), ("RETRY", 0)):
        assert wire.do("ADDJOB", "q", "b", 0, *options) == LEAVES
    assert wire.do("ADDJOB", "q", "b", 0, "REPLICATE", 2) == TOO_FEW
    assert wire.do("ADDJOB", "q", "b", 0, "TTL", 0) == "-ERR TTL must be a number > 0"
    assert [job[1] for job in wire.get("q", count=2)] == [first, second]
    for _ in range(3):  # also when the same command comes again
        assert wire.do("GETJOB", "FROM", "q") == LEAVING
    assert wire.do("GETJOB", "NOHANG", "FROM", "q") is None
    assert [wire.do("NACK", first), wire.do("QLEN", "q"), wire.do("ACKJOB", first)] == [1, 1, 1]
    assert wire.do("CLUSTER", "LEAVING", "no") == "OK"
    assert wire.do("HELLO")[2][3] == b"1"
    wire.add("w")
    assert waiting.replies() == []


# any command

FUZZED = int(os.environ.get("PENSTOCK_FUZZED", "20000"))
ODD = (
    b"", b"a b", b"9" * 19, b"9" * 40, b"\xff\0\r\n", b"\xc2\xb2", b"D-" + b"z" * 38,
    b"D-zzzzzzzz-" + b"=" * 24 + b"-zzzz", b"D-zzzzzzzz-" + b"\xff" * 24 + b"-\xff\xff\xff\xff",
    *b"x q #q q#ephemeral 0 1 -1 --5 - +1 3 01 1.5 [ * on yes no id get set from count timeout nohang withcounters".split(),
    *b"retry ttl delay replicate maxlen async busyloop state queue reply all in out none bcast auth setname list".split(),
    *b"kill skipme type normal skip info nodes myid meet forget leaving hz maxmemory len reset latest graph error".split(),
    *b"127.0.0.1 flushall requirepass client-output-buffer-limit".split(),
)  # fmt: skip


BEGINNINGS = {  # so that odd words come to where they matter
    b"addjob": (b"q body 0", b"r body 0 retry", b"q body 0 ttl"),
    b"config": (b"get", b"set hz", b"set maxmemory", b"set client-output-buffer-limit", b"set requirepass"),
    b"cluster": (b"meet 127.0.0.1", b"leaving yes", b"leaving", b"forget", b"reset"),
    b"client": (b"kill id", b"kill addr", b"kill", b"pause", b"reply", b"setname"),
    b"hello": (b"3", b"2 auth x", b"3 setname"),
    b"slowlog": (b"get",),
    b"debug": (b"flushall", b"error"),
    b"latency": (b"graph", b"history"),
    b"qpeek": (b"q",),
    b"pause": (b"q",),
}


def test_no_command_with_odd_words_ends_the_node() -> None:
    """Each is answered, or waits, or ends its own connection; the same again, too, which takes a shorter way."""
    random, names, added = Random(1), [*COMMANDS, b"quit", b"nosuch"], 0
    for _ in range(0, FUZZED, 200):
        server = Server(has_debug=True)
        server.context.cluster = Alone(NUMBER, 7711, server.node.broker.drain)
        added += some_odd_words(server, random, names)
        server.node.broker.check()
    assert added


def some_odd_words(server: Server, random: Random, names: list[bytes]) -> int:
    """Send 200 commands, and return how many jobs were added."""
    wire, ids = server.client(), list[bytes]()
    for number in range(200):
        name = random.choice(names)
        words = [name, *random.choices([*ODD, *ids[-3:]], k=random.choice([0, 0, 1, 1, 2, 3, 5]))]
        if name in BEGINNINGS and random.random() < 0.8:
            words[1:1] = random.choice(BEGINNINGS[name]).split()
        if name == b"getjob" and random.random() < 0.8:
            words += [b"from", random.choice([b"q", b"r"])]
        said = wire.ask(request(*words) * random.choice([1, 1, 2, 3]))
        ids += [line[1:] for line in said.split(b"\r\n") if line.startswith(b"+D-")]
        server.context.password = b""
        if wire.peer.outbox.closing or wire.peer.worker.waiting or wire.peer.silence or not wire.peer.authorized:
            wire.leave()
            wire = server.client()
        if not number % 50:
            wire.advance(1_000)
    return len(ids)
