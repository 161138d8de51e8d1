"""CONFIG. The expected replies are those of Disque 1.0-rc1."""

from nsqd.protocols.disque.config import DEFAULTS, MOST_PASSWORD, MOST_PATTERN
from tests.cases import each
from tests.nsqd.protocols.disque.wire import Wire, new_wire, request

NO_AUTH = "-NOAUTH Authentication required."


def get(wire: Wire, pattern: str) -> dict[str, str]:
    words = [word.decode() for word in wire.do("CONFIG", "GET", pattern)]
    return dict(zip(words[::2], words[1::2], strict=True))


@each("words, reply", [
    ("GET", "-ERR Wrong number of arguments for CONFIG GET"),
    ("GET a b", "-ERR Wrong number of arguments for CONFIG GET"),
    ("SET", "-ERR Wrong number of arguments for CONFIG SET"),
    ("sEt a", "-ERR Wrong number of arguments for CONFIG sEt"),
    ("SET a b c", "-ERR Wrong number of arguments for CONFIG SET"), ("SET a b", "-ERR Unsupported CONFIG parameter: a"),
    ("SET Port 1", "-ERR Unsupported CONFIG parameter: Port"),
    ("REWRITE", "-ERR The server is running without a config file"),
    ("REWRITE x", "-ERR Wrong number of arguments for CONFIG REWRITE"), ("RESETSTAT", "OK"),
    ("RESETSTAT x", "-ERR Wrong number of arguments for CONFIG RESETSTAT"),
    ("BOGUS", "-ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE"),
], wire=new_wire)  # fmt: skip
def test_a_command_and_its_reply(wire: Wire, words: str, reply: str) -> None:
    assert wire.do("CONFIG", *words.split()) == reply


@each("pattern, names", [
    ("maxmemory", ["maxmemory"]), ("MAXMEMORY", []),
    ("max*", ["maxmemory", "maxmemory-samples", "maxclients", "maxmemory-policy"]),
    ("[dh]*", ["databases", "hz", "daemonize", "dir"]), ("?z", ["hz"]), ("nosuch", []), ("appendfilename", []),
    ("cluster-config-file", []), ("", []),
], wire=new_wire)  # fmt: skip
def test_settings_are_found_by_a_pattern(wire: Wire, pattern: str, names: list[str]) -> None:
    assert list(get(wire, pattern)) == names


def test_a_pattern_has_a_greatest_length_and_settings_the_defaults_of_disque(wire: Wire) -> None:
    assert list(get(wire, "*" * MOST_PATTERN).items()) == list(get(wire, "*").items()) == list(DEFAULTS.items())
    assert len(DEFAULTS) == 35
    assert get(wire, "*" * (MOST_PATTERN + 1)) == {}
    assert get(wire, "[" * 100_000) == {}  # is not read: that would take minutes
    wire.context.config |= {"port": "7999", "dir": "/d\xe9"}  # as the process sets it
    assert get(wire, "port") == {"port": "7999"}
    assert wire.do("CONFIG", "GET", "dir") == [b"dir", b"/d\xe9"]
    wire.do("HELLO", 3)
    assert wire.ask(request("CONFIG", "GET", "hz")) == b"%1\r\n$2\r\nhz\r\n$2\r\n10\r\n"


@each("key, refused, taken", [
        ("maxclients", ["0", "x", "-1"], {"200": "200"}),
        ("appendonly", ["maybe", "1"], {"no": "no", "YES": "yes"}),
        ("client-output-buffer-limit",
         ["x", "normal 1 2", "normal 1 2 x", "slave 1 2 3", "pubsub 1 2 3", "normal 1mb 0 0"],
         {"normal 1000000 500000 10": "normal 1000000 500000 10"}),
        ("aof-rewrite-incremental-fsync", ["x"], {"no": "no"}),
        ("aof-load-truncated", ["x"], {"no": "no"}),
        ("activerehashing", ["1"], {"no": "no"}),
        ("tcp-keepalive", ["60", "x"], {"yes": "yes"}),
        ("aof-enqueue-jobs-once", ["x"], {"yes": "yes"}),
        ("maxmemory-samples", ["0", "x"], {"16": "16"}),
        ("timeout", ["-1", "x", "-", "--5", "9" * 19, "9" * 30], {"10": "10", "0": "0", str(2**63 - 1): str(2**63 - 1)}),
        ("auto-aof-rewrite-percentage", ["-1", "x"], {"50": "50"}),
        ("auto-aof-rewrite-min-size", ["x", "-1", "1mb"], {"1": "1"}),
        ("slowlog-log-slower-than", ["-1", "x"], {"1": "1"}),
        ("slowlog-max-len", ["-1"], {"0": "0"}),
        ("latency-monitor-threshold", ["-1"], {"100": "100"}),
        ("cluster-node-timeout", ["-1", "x"], {"0": "0"}),
        ("hz", ["x", "-1"], {"0": "1", "100000": "500", "10": "10"}),
        ("watchdog-period", ["-1"], {"0": "0"}),
        ("maxmemory", ["x", "-1", "", "kb", "1kk"],
         {"1gb": "1073741824", "1GB": "1073741824", "1g": "1000000000", "100k": "100000", "100kb": "102400", "7b": "7"}),
        ("loglevel", ["x"], {"debug": "debug", "verbose": "verbose", "warning": "warning", "notice": "notice"}),
        ("maxmemory-policy", ["x", "volatile-lru"], {"noeviction": "noeviction", "acks": "acks"}),
        ("appendfsync", ["x"], {"always": "always", "no": "no", "everysec": "everysec"}),
    ], wire=new_wire)  # fmt: skip
def test_a_setting_is_checked(wire: Wire, key: str, refused: list[str], taken: dict[str, str]) -> None:
    for value in refused:
        assert wire.do("CONFIG", "SET", key, value) == f"-ERR Invalid argument '{value}' for CONFIG SET '{key}'"
        assert get(wire, key) == {key: DEFAULTS[key]}
    for value, returned in taken.items():
        assert wire.do("CONFIG", "set", key.upper(), value) == "OK"
        assert get(wire, key) == {key: returned}


@each("key", ["port", "bind", "databases", "logfile", "pidfile", "daemonize", "tcp-backlog", "unixsocket",
     "no-appendfsync-on-rewrite", "appendfilename", "cluster-config-file"], wire=new_wire)  # fmt: skip
def test_a_setting_that_cannot_change(wire: Wire, key: str) -> None:
    assert wire.do("CONFIG", "SET", key, "1") == f"-ERR Unsupported CONFIG parameter: {key}"
    assert get(wire, key) == ({key: DEFAULTS[key]} if key in DEFAULTS else {})


def test_a_new_password_logs_all_clients_out_and_has_a_greatest_length(wire: Wire) -> None:
    other, long = wire.another(), "p" * (MOST_PASSWORD + 1)
    wire.context.clients = lambda: [wire.peer, other.peer]
    assert wire.do("CONFIG", "SET", "requirepass", "sesame") == "OK"
    assert [one.do("PING") for one in (wire, other, wire.another())] == [NO_AUTH] * 3
    assert wire.do("AUTH", "sesame") == "OK"
    assert get(wire, "requirepass") == {"requirepass": "sesame"}
    assert other.do("PING") == NO_AUTH
    assert wire.do("CONFIG", "SET", "requirepass", "") == "OK"
    assert wire.do("CONFIG", "SET", "requirepass", long).startswith("-ERR Invalid argument 'ppp")
    assert [one.do("PING") for one in (wire, other, wire.another())] == ["PONG"] * 3
    assert wire.do("CONFIG", "SET", "requirepass", long[1:]) == "OK"
    assert wire.do("AUTH", long[1:]) == "OK"


def test_a_rewrite_answers_whether_it_has_worked(wire: Wire) -> None:
    answers = ["", "Permission denied"]
    wire.context.rewrite = lambda: answers.pop(0)
    assert wire.do("CONFIG", "REWRITE") == "OK"
    assert wire.do("CONFIG", "REWRITE") == "-ERR Rewriting config file: Permission denied"
    assert answers == []
