"""Disque's configuration: words and quotes, every key, errors, includes, flags, and its rewriting."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.commands.disque_config import (
    KEYS,
    NO_DAEMON,
    NO_RENAMING,
    ConfigError,
    DisqueSettings,
    lines_of_flags,
    quoted,
    read_config,
    rewritten,
)
from nsqd.protocols.disque.config import DEFAULTS
from nsqd.protocols.disque.resp import split_words
from tests.cases import each


def no_file(name: str) -> bytes:
    raise FileNotFoundError(name)


def read(text: bytes | str) -> DisqueSettings:
    return read_config(text.encode() if isinstance(text, str) else text, no_file)


def refused(text: bytes | str) -> str:
    with pytest.raises(ConfigError) as error:
        read(text)
    lines = str(error.value).split("\n")
    assert lines[:2] == ["", "*** FATAL CONFIG FILE ERROR ***"]
    assert lines[2].startswith("Reading the configuration file, at line ")
    assert lines[3].startswith(">>> '")
    return lines[4]


WORDS = {
    b"": [], b"  a\t b\r c  ": [b"a", b"b", b"c"], b"a \"\" ''": [b"a", b"", b""], b"\"a b\" 'c d'": [b"a b", b"c d"],
    rb'"\x41\xfF\n\r\t\b\a\"\\\q\x4"': [b'A\xff\n\r\t\b\a"\\qx4'], rb"'\'\n\x41'": [rb"'\n\x41"],
    b'a"b c"': [b"ab c"], b'"a" "b"': [b"a", b"b"], b'"a"b': None, b'"a""b"': None,
    b"'a'b": None, b'"a': None, b"'a": None, b"a'": None, b'"a\\"': None, b"'a\\'": None,
}  # fmt: skip


@each("line", WORDS)
def test_the_words_of_a_line(line: bytes) -> None:
    assert split_words(line) == WORDS[line]


@given(st.lists(st.binary(max_size=8), max_size=4))
def test_what_is_quoted_is_read(words: list[bytes]) -> None:
    line = b" ".join(map(quoted, words))
    assert split_words(line) == words
    assert all(32 <= byte < 127 for byte in line)


@given(st.lists(st.sampled_from([b'"', b"'", b"\\", b" ", b"x", b"4", b"1", b"n", b"\t", b"\0", b"\xff"]), max_size=12))
def test_any_line_has_words_or_is_refused(parts: list[bytes]) -> None:
    line = b"".join(parts)
    assert split_words(line) is None or b"".join(split_words(line) or []).count(b"x") <= line.count(b"x")


def test_an_empty_configuration_has_the_defaults_that_config_get_shows() -> None:
    settings = read(b"\n# comment\n  # port 1\n")
    assert not settings.given
    assert (settings.shown, settings.addresses, settings.notes) == (DEFAULTS, [":7711"], [])


GOOD = {
    "timeout 010": ("timeout", "10"), "TCP-Keepalive 60": ("tcp-keepalive", "60"), "port 0": ("port", "0"),
    "port 1\nport 65535": ("port", "65535"), "tcp-backlog 1": ("tcp-backlog", "1"),
    "bind 10.0.0.1   ::1": ("bind", "10.0.0.1 ::1"), "unixsocket '/a b'": ("unixsocket", "/a b"),
    "unixsocketperm 0770": ("unixsocketperm", "770"), "dir /a": ("dir", "/a"), "dir /a\ndir b": ("dir", "/a/b"),
    "dir /a\ndir /b": ("dir", "/b"), "loglevel VERBOSE": ("loglevel", "verbose"), 'logfile ""': ("logfile", ""),
    "syslog-enabled YES": ("syslog-enabled", "yes"), "syslog-ident x": ("syslog-ident", "x"),
    "syslog-facility LOCAL7": ("syslog-facility", "local7"), "databases 1": ("databases", "1"),
    'requirepass "a b\\x00c"': ("requirepass", "a b"), "maxclients 1": ("maxclients", "1"),
    "maxmemory 1gb": ("maxmemory", str(1 << 30)), "maxmemory 2G": ("maxmemory", "2000000000"),
    "maxmemory 3kb": ("maxmemory", "3072"), "maxmemory-policy NOEVICTION": ("maxmemory-policy", "noeviction"),
    "maxmemory-samples 1": ("maxmemory-samples", "1"), "appendonly Yes": ("appendonly", "yes"),
    "appendfilename x.aof": ("appendfilename", "x.aof"), "appendfsync ALWAYS": ("appendfsync", "always"),
    "no-appendfsync-on-rewrite yes": ("no-appendfsync-on-rewrite", "yes"),
    "auto-aof-rewrite-percentage 0": ("auto-aof-rewrite-percentage", "0"),
    "auto-aof-rewrite-min-size 64mb": ("auto-aof-rewrite-min-size", str(64 << 20)),
    "cluster-config-file x": ("cluster-config-file", "x"), "cluster-node-timeout 1": ("cluster-node-timeout", "1"),
    "slowlog-log-slower-than -1": ("slowlog-log-slower-than", "-1"),
    "latency-monitor-threshold 0": ("latency-monitor-threshold", "0"), "slowlog-max-len 0": ("slowlog-max-len", "0"),
    "activerehashing no": ("activerehashing", "no"),
    "client-output-buffer-limit normal 1mb 2k 3": ("client-output-buffer-limit", "normal 1048576 2000 3"),
    "hz 0": ("hz", "1"), "hz 1000": ("hz", "500"),
    "aof-rewrite-incremental-fsync no": ("aof-rewrite-incremental-fsync", "no"),
    "aof-load-truncated no": ("aof-load-truncated", "no"),
    "aof-enqueue-jobs-once yes": ("aof-enqueue-jobs-once", "yes"),
    "enable-debug-command yes": ("enable-debug-command", "yes"), "daemonize no": ("daemonize", "no"),
    "pidfile /x": ("pidfile", "/x"),
}  # fmt: skip


@each("text", GOOD)
def test_a_key(text: str) -> None:
    key, value = GOOD[text]
    settings = read(text)
    assert (settings[key], settings.given) == (value, {key})


def test_every_key_has_a_case() -> None:
    assert {key for key, _ in GOOD.values()} == set(KEYS)


BAD_DIRECTIVE = "Bad directive or wrong number of arguments"
BAD = {
    "nonsense 1": BAD_DIRECTIVE, "port": BAD_DIRECTIVE, "port 1 2": BAD_DIRECTIVE, "bind": BAD_DIRECTIVE,
    "include": BAD_DIRECTIVE, "slaveof 127.0.0.1 8888": BAD_DIRECTIVE,
    '"a': "Unbalanced quotes in configuration line", "timeout -1": "Invalid timeout value",
    "timeout x": "Invalid timeout value", "tcp-keepalive -1": "Invalid tcp-keepalive value",
    "port 65536": "Invalid port", "port ''": "Invalid port", "port 1x": "Invalid port",
    "tcp-backlog -1": "Invalid backlog value", "bind " + "x " * 17: "Too many bind addresses specified",
    "unixsocketperm 888": "Invalid socket file permissions", "unixsocketperm 1000": "Invalid socket file permissions",
    "loglevel info": "Invalid log level. Must be one of debug, verbose, notice, warning",
    "syslog-enabled 1": "argument must be 'yes' or 'no'",
    "syslog-facility x": "Invalid log facility. Must be one of USER or between LOCAL0-LOCAL7",
    "databases 0": "Invalid number of databases",
    "requirepass " + "x" * 513: "Password is longer than CONFIG_AUTHPASS_MAX_LEN",
    "maxclients 0": "Invalid max clients limit",
    "maxmemory 0": "You need to specify a memory limit greater than zero",
    "maxmemory -1gb": "You need to specify a memory limit greater than zero",
    "maxmemory 99999999999999999gb": "You need to specify a memory limit greater than zero",
    "maxmemory-policy x": "Invalid maxmemory policy", "maxmemory-samples 0": "maxmemory-samples must be 1 or greater",
    "appendonly always": "argument must be 'yes' or 'no'",
    "appendfilename a/b": "appendfilename can't be a path, just a filename",
    "appendfsync yes": "argument must be 'no', 'always' or 'everysec'",
    "auto-aof-rewrite-percentage -1": "Invalid negative percentage for AOF auto rewrite",
    "cluster-node-timeout 0": "cluster node timeout must be 1 or greater",
    "latency-monitor-threshold -1": "The latency threshold can't be negative",
    "client-output-buffer-limit slave 0 0 0": "Unrecognized client limit class",
    "client-output-buffer-limit normal 0 0 -1": "Negative number of seconds in soft limit is invalid",
    "client-output-buffer-limit normal 0 0": BAD_DIRECTIVE, "daemonize yes": NO_DAEMON,
    "daemonize x": "argument must be 'yes' or 'no'", "rename-command DEBUG ''": NO_RENAMING,
    "rename-command NOSUCH x": "No such command in rename-command", "rename-command DEBUG": BAD_DIRECTIVE,
}  # fmt: skip


@each("text", BAD)
def test_a_bad_line(text: str) -> None:
    assert refused(text) == BAD[text]


def test_an_error_names_the_line() -> None:
    with pytest.raises(ConfigError, match=re.escape("at line 3\n>>> 'Port  \"x\"'\nInvalid port")):
        read(b'# one\nport 1\n \tPort  "x" \r\nport 2')
    with pytest.raises(ConfigError) as error:
        read(b"port \xff\xfe")
    str(error.value).encode("utf-8", "surrogateescape")


def test_includes() -> None:
    files = {
        "a": b"port 1\ninclude b\n", "b": b"maxclients 7", "/d/c": b"port 3", "bad": b"\nport x",
        "self": b"include self",
    }  # fmt: skip
    settings = read_config(b"port 9\ninclude a\nhz 20\ninclude b", files.__getitem__)
    assert (settings["port"], settings["maxclients"], settings["hz"]) == ("1", "7", "20")
    assert read_config(b"dir /d\ninclude c", files.__getitem__)["port"] == "3"
    with pytest.raises(ConfigError, match="at line 2\n>>> 'port x'"):
        read_config(b"include bad", files.__getitem__)
    with pytest.raises(ConfigError, match="more than 16 files include each other"):
        read_config(b"include self", files.__getitem__)
    with pytest.raises(FileNotFoundError):
        read(b"include none")


def test_flags_are_lines() -> None:
    assert lines_of_flags([]) == b""
    text = lines_of_flags(["--port", "7", "--bind", "a", "b", "--requirepass", 'x "y\\', "--logfile", ""])
    assert text == b'port "7" \nbind "a" "b" \nrequirepass "x \\"y\\\\" \nlogfile "" '
    settings = read(b"port 1\nhz 3\n" + text)
    assert (settings["port"], settings["hz"], settings["bind"], settings["requirepass"]) == ("7", "3", "a b", 'x "y\\')
    assert read(lines_of_flags(["--port 7", "--hz 5"]))["hz"] == "5"
    assert refused(lines_of_flags(["--port"])) == BAD_DIRECTIVE
    assert refused(lines_of_flags(["-port", "7"])) == BAD_DIRECTIVE


def test_addresses() -> None:
    assert read("bind 10.0.0.1 ::1\nport 7").addresses == ["10.0.0.1:7", "[::1]:7"]
    assert read("unixsocket /s").addresses == [":7711", "/s"]
    assert read("unixsocket /s\nport 0\nbind 1.2.3.4").addresses == ["/s"]
    assert read("port 0\nbind 1.2.3.4").addresses == ["1.2.3.4:0"]


def test_settings_without_effect_are_reported() -> None:
    assert [line.split()[0] for line in read("maxmemory 1gb\ntimeout 5\nsyslog-enabled yes").notes] == [
        "maxmemory", "timeout", "syslog-enabled",
    ]  # fmt: skip
    assert read("timeout 0\nsyslog-enabled no\nhz 50").notes == []


def test_config_get_shows_the_configuration() -> None:
    told = read("tcp-keepalive 60\nenable-debug-command yes\nappendfilename x").shown
    assert (told["tcp-keepalive"], set(told)) == ("yes", set(DEFAULTS))


def test_a_rewrite() -> None:
    text = b"# head\r\n\n\nPORT 1\nport 2\n\nunixsocket /s\nappendonly no\nsomething else\n'broken\nmaxmemory 5\n"
    values = read("port 9\nappendonly yes\nmaxmemory 200mb\nbind a b\nrequirepass 'a \"b\" \x01'\nlogfile x").values
    assert rewritten(text, values).decode() == (
        "# head\n\nport 9\n\nappendonly yes\nsomething else\n# ??? 'broken\nmaxmemory 200mb\n"
        '# Generated by CONFIG REWRITE\nbind a b\nlogfile "x"\nrequirepass "a \\"b\\" \\x01"\n'
    )


@given(st.dictionaries(st.sampled_from(sorted({text for text in GOOD if "\n" not in text})), st.none(), max_size=8))
def test_any_settings_are_read_again_from_their_rewrite(lines: dict[str, None]) -> None:
    values = read("\n".join(lines)).values
    assert read(rewritten(b"hz 3\n# x\nport 5", values)).values == values
