"""The config file: NSQ's TOML with its oddities, its place among the sources, and the way back by --print-config.

The expectations are those of the original, where it does not end in nonsense or a stack trace.
"""

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookupd.options import LookupdOptions
from nsqd.option_values import odd_auth_address, statsd_prefix
from nsqd.options import NsqdOptions
from shared.config_file import MAX_SIZE
from shared.configuration import Reading, parse, read
from shared.options import OptionError, Spec, specs
from shared.print_config import as_toml
from shared.tls.options import TLS_REQUIRED, TLS_VERSIONS
from shared.values import MILLISECOND, SECOND, Duration
from tests.cases import each
from tests.effort import EXAMPLES, tries

# Every key of NSQ's own examples.
NSQD_KEYS = """
    log_level id tcp_address http_address https_address broadcast_address nsqlookupd_tcp_addresses http_client_connect_timeout
    http_client_request_timeout data_path mem_queue_size max_bytes_per_file sync_every sync_timeout msg_timeout max_msg_timeout
    max_msg_size max_req_timeout max_body_size max_heartbeat_interval max_rdy_count max_output_buffer_size
    max_output_buffer_timeout statsd_address statsd_prefix statsd_interval statsd_mem_stats statsd_udp_packet_size
    e2e_processing_latency_percentiles e2e_processing_latency_window_time tls_cert tls_key tls_client_auth_policy
    tls_root_ca_file tls_required tls_min_version deflate max_deflate_level snappy
"""
LOOKUPD_KEYS = "log_level tcp_address http_address broadcast_address inactive_producer_timeout tombstone_lifetime"


def written(directory: Path, content: str | bytes) -> str:
    path = directory / "daemon.cfg"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def reading(directory: Path, content: str | bytes, *argv: str, **environ: str) -> Reading[NsqdOptions]:
    return read(NsqdOptions, "nsqd", ["-config", written(directory, content), *argv], environ)


def options(directory: Path, content: str, *argv: str, **environ: str) -> NsqdOptions:
    """The options, where nothing may be wrong."""
    found = reading(directory, content, *argv, **environ)
    assert [str(error) for error in found.errors] == []
    return found.options


def the_error(found: Reading[NsqdOptions]) -> str:
    """The one error, which must be one line and ask for exit code 1."""
    (error,) = found.errors
    assert error.code == 1
    assert "\n" not in str(error)
    return str(error)


@each("kind, program, keys", [(NsqdOptions, "nsqd", NSQD_KEYS), (LookupdOptions, "nsqlookupd", LOOKUPD_KEYS)])
def test_every_key_of_nsqs_examples_is_known(kind: type, program: str, keys: str) -> None:
    assert set(keys.split()) <= {spec.key for spec in specs(kind, program) if spec.in_file}


# Coercions


@each("line, name, value", [
    ("mem_queue_size = 12", "mem_queue_size", 12), ("mem_queue_size = 0x10", "mem_queue_size", 16),
    ('mem_queue_size = "12"', "mem_queue_size", 12), ('mem_queue_size = "+012"', "mem_queue_size", 12),
    ("mem_queue_size = 9223372036854775807", "mem_queue_size", 2**63 - 1),
    ("snappy = false", "snappy", False), ('snappy = "F"', "snappy", False), ('snappy = "0"', "snappy", False),
    ("snappy = 1", "snappy", False),  # an integer is inverted
    ("statsd_exclude_ephemeral = 0", "statsd_exclude_ephemeral", True),
    ("msg_timeout = 1500", "msg_timeout", 1500 * MILLISECOND), ('msg_timeout = "1.5h"', "msg_timeout", 5400 * SECOND),
    ('msg_timeout = "0"', "msg_timeout", 0),
    ('nsqlookupd_tcp_addresses = "a:1, b:2,"', "lookupd_tcp_address", ("a:1", "b:2")),
    ('nsqlookupd_tcp_addresses = ["a:1,b:2", " c:3"]', "lookupd_tcp_address", ("a:1,b:2", " c:3")),
    ("nsqlookupd_tcp_addresses = []", "lookupd_tcp_address", ()),
    ('nsqlookupd_tcp_addresses = ""', "lookupd_tcp_address", ()),
    ('e2e_processing_latency_percentiles = "0.5, 0.9"', "e2e_processing_latency_percentile", (0.5, 0.9)),
    ("e2e_processing_latency_percentiles = [1, 0.5]", "e2e_processing_latency_percentile", (1.0, 0.5)),
    ("tls_required = false", "tls_required", "false"), ("tls_required = 0", "tls_required", "false"),
    ('tls_required = "F"', "tls_required", "false"), ('tls_min_version = ""', "tls_min_version", "tls1.2"),
    ('tls_min_version = "TLS1.3"', "tls_min_version", "tls1.3"), ('tls_min_version = "tls1.0"', "tls_min_version", "tls1.0"),
    ('log_level = "WARN"', "log_level", "warn"), ('log_format = "JSON"', "log_format", "json"),
    ('auth_http_request_method = "Post"', "auth_http_request_method", "post"),
    ('max_attempts = "5,orders=3"', "max_attempts", ("5", "orders=3")),
    ('enable_experiment = ["topology-aware-consumption"]', "enable_experiment", ("topology-aware-consumption",)),
    ("\ufeffsnappy = false", "snappy", False), ("snappy = false\r\n", "snappy", False),
])  # fmt: skip
def test_values(line: str, name: str, value: object, tmp_path: Path) -> None:
    assert getattr(options(tmp_path, line), name) == value


@each("line, required", [
    ("tls_required = true", "true"), ("tls_required = 1", "true"), ("tls_required = 1.0", "true"),
    ('tls_required = "T"', "true"), ('tls_required = "TCP-HTTPS"', "tcp-https"),
    ('tls_client_auth_policy = "require"', "true"),
    ('tls_client_auth_policy = "require"\ntls_required = false', "true"),
    ('tls_client_auth_policy = "require"\ntls_required = "tcp-https"', "tcp-https"),
    ('tls_client_auth_policy = "verify-if-given"', "false"), ('tls_client_auth_policy = ""', "false"),
])  # fmt: skip
def test_when_tls_is_required(line: str, required: str, tmp_path: Path) -> None:
    assert options(tmp_path, f'{line}\ntls_cert = "c"\ntls_key = "k"').tls_required == required


WRONG_FOR_ALL = ["{ a = 1 }", "1979-05-27T07:32:00Z", "1979-05-27", "07:32:00", "[[1]]", "nan"]
WRONG = {  # by type: values that are no mistake anywhere else
    bool: [*WRONG_FOR_ALL, '""', '"yes"', '"2"', "1.0", "[]", "[true]"],
    int: [*WRONG_FOR_ALL, '""', '"abc"', '"0x10"', '" 1"', '"1_0"', '"١"', "1.0", "true", "[]", "[1]", "9223372036854775808"],
    Duration: [*WRONG_FOR_ALL, '""', '"5"', '"soon"', "1.5", "true", "[]", '["1s"]', "9223372036855"],
    str: [*WRONG_FOR_ALL, "1", "1.5", "true", "[]", '["a"]'],
    tuple[str, ...]: [*WRONG_FOR_ALL, "1", "1.5", "true", "[1]", '["a", 1]', '[["a"]]'],
    tuple[float, ...]: [*WRONG_FOR_ALL, '""', '"a"', '"0.5,"', "1", "0.5", "true", '["0.5"]', "[true]", "[[0.5]]"],
}  # fmt: skip
WORDS = {
    "log_level": ["12", "0", "true", '""', '"warning"', '"loud"', "[]"],
    "log_format": ["1", '""', '"xml"'],
    "tls_required": ["2", "-1", "1.5", '""', '"yes"', '"2"', '"https"', "[]", "{ a = 1 }"],
    "tls_min_version": ["1", "1.2", "true", '"ssl3.0"', '"1.2"', '"tls1.4"', "[]"],
    "auth_http_request_method": ["1", '""', '"put"', "[]"],
    "durability": ["1", '""', '"never"', "[]"],
    "failover_quorum": ["1", '""', '"all"', "[]"],
}


def test_a_value_of_the_wrong_type_is_fatal(tmp_path: Path) -> None:
    """Each file has a wrong value of every option, as long as there are more of them."""
    wrong = {
        one.key: WORDS[one.key] if one.read else WRONG[one.type] for one in specs(NsqdOptions, "nsqd") if one.in_file
    }
    for number in range(max(map(len, wrong.values()))):
        values = {key: values[number] for key, values in wrong.items() if number < len(values)}
        errors = reading(tmp_path, "\n".join(f"{key} = {value}" for key, value in values.items())).errors
        assert [error.code for error in errors] == [1] * len(values)
        for (key, value), error in zip(values.items(), errors, strict=True):
            line = str(error)
            assert line.startswith(f"config file {tmp_path / 'daemon.cfg'}: invalid value "), (key, value)
            assert f" for {key}: expected " in line or line.endswith("value out of range"), (key, value, line)
            assert "\n" not in line


@each("line, reason", [
    ("max_msg_size = 0", "invalid value 0 for max_msg_size: expected 1 or more"),
    ("msg_timeout = -1", "invalid value -1 for msg_timeout: expected 0 or more"),
    ('msg_timeout = "-1s"', "invalid value '-1s' for msg_timeout: expected 0 or more"),
    ('max_attempts = ["x"]', "invalid value ['x'] for max_attempts: expected <attempts> or <topic>=<attempts>, not 'x'"),
    ("mem_queue_size = 1.5", "invalid value 1.5 for mem_queue_size: expected an integer"),
    (f'data_path = ["{"x" * 9999}"]', "xxx... for data_path: expected a string"),
    ("max_deflate_level = 10", "--max-deflate-level must be [1,9]"), ("id = 1024", "--node-id must be [0,1024)"),
    ("e2e_processing_latency_percentiles = [0.5, 1.5]", "invalid E2E processing latency percentile: 1.5"),
    ("e2e_processing_latency_percentiles = [0.0]", "invalid E2E processing latency percentile: 0"),
    ("e2e_processing_latency_percentiles = [nan]", "invalid E2E processing latency percentile: nan"),
    ("tls_required = true", "cannot require TLS client connections without TLS key and cert"),
    ('tls_client_auth_policy = "require"', "cannot require TLS client connections without TLS key and cert"),
    ('tls_cert = "/x"', "failed to build TLS config - --tls-cert and --tls-key must be given together"),
    ('tls_key = "/x"', "failed to build TLS config - --tls-cert and --tls-key must be given together"),
])  # fmt: skip
def test_values_that_are_out_of_range(line: str, reason: str, tmp_path: Path) -> None:
    assert reason in the_error(reading(tmp_path, line))


def test_all_errors_are_found_first_of_the_flags(tmp_path: Path) -> None:
    content = "max_msg_size = 1.5\nsnappy = 'x'"
    found = reading(tmp_path, content, "-msg-timeout", "x", "-mem-queue-size=y", NSQD_DEFLATE="z")
    assert [error.code for error in found.errors] == [2, 2, 2, 1, 1]
    subjects = ("flag -msg-timeout", "flag -mem-queue-size", "variable NSQD_DEFLATE", "max_msg_size", "snappy")
    for subject, error in zip(subjects, found.errors, strict=True):
        assert f"{subject}: " in str(error)


# Files that cannot be read


@each("content, reason", [
    (b"snappy", "Expected '=' after a key in a key/value pair (at end of document)"),
    (b"snappy = true\nsnappy = true\n", "Cannot overwrite a value (at line 2, column 14)"),
    (b'# one\nlog_prefix = "\xff"\n', "invalid UTF-8 byte 0xff (at line 2)"),
    (b"a = " + b"[" * 100_000, "nested too deep"), (b"a = " + b"9" * 100_000, "Exceeds the limit"),
    (b"#" * (MAX_SIZE + 1), f"larger than {MAX_SIZE} bytes"), (b"\x00", "Invalid statement (at line 1, column 1)"),
])  # fmt: skip
def test_a_file_that_is_no_toml(content: bytes, reason: str, tmp_path: Path) -> None:
    line = the_error(reading(tmp_path, content))
    assert line.startswith(f"failed to load config file {tmp_path / 'daemon.cfg'} - {reason}")


@each(
    "path, reason", [("missing", "No such file or directory"), (".", "Is a directory"), ("a\0b", "embedded null byte")]
)
def test_a_path_that_is_no_file(path: str, reason: str, tmp_path: Path) -> None:
    line = the_error(read(NsqdOptions, "nsqd", ["-config", f"{tmp_path}/{path}"], {}))
    assert line == f"failed to load config file {tmp_path}/{path} - {reason}"


@given(st.binary(max_size=60))
def test_no_content_is_a_bug(content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        read(NsqdOptions, "nsqd", ["-config", file.name], {})


# Warnings


@each("line, warning", [
    ("snapy = true", "unknown key 'snapy': did you mean snappy?"),
    ("SNAPPY = true", "unknown key 'SNAPPY': did you mean snappy?"),
    ("max-msg-size = 5", "unknown key 'max-msg-size': did you mean max_msg_size?"),
    ('lookupd_tcp_address = "a:1"', "unknown key 'lookupd_tcp_address': did you mean nsqlookupd_tcp_addresses?"),
    ("node_id = 5", "unknown key 'node_id': did you mean id?"),
    ("[nsqd]\nsnappy = false", "section 'nsqd' is ignored, with all that is in it: NSQ's file has no sections"),
    ("[[nsqd]]\nid = 1", "section 'nsqd' is ignored, with all that is in it: NSQ's file has no sections"),
    ("nothing_like_it = [[]]", "unknown key 'nothing_like_it'"), ('"a\\nb" = 1', r"unknown key 'a\nb'"),
    ("version = true", "version is for the command line only"), ("worker_id = 5", "worker_id is for the command line only"),
    ("deflate = 1", "deflate = 1 means false, as NSQ reads it: write false"),
])  # fmt: skip
def test_what_is_odd_is_one_warning(line: str, warning: str, tmp_path: Path) -> None:
    assert options(tmp_path, line).warnings == (f"config file {tmp_path / 'daemon.cfg'}: {warning}",)


@each("flags, warning", [
    (["-enable-experiment", "warp"], "--enable-experiment 'warp' is unknown"),
    (["-tls-client-auth-policy", "ask", "-tls-cert=c", "-tls-key=k"],
     "--tls-client-auth-policy 'ask' is unknown: client certificates are not requested"),
    (["-deflate", "false", "-node-id=1"], "arguments from 'false' on are ignored"),
    (["-tcp-address", "localhost"],
     "--tcp-address 'localhost': used as the path of a unix socket: expected <addr>:<port>"),
    (["-http-address=4151"], "--http-address '4151': used as the path of a unix socket: expected <addr>:<port>"),
    (["-lookupd-tcp-address=127.0.0.1"], "--lookupd-tcp-address '127.0.0.1': missing port in address"),
    (["-lookupd-tcp-address=lookup1"], "--lookupd-tcp-address 'lookup1': expected <addr>:<port>"),
    (["-lookupd-tcp-address=a:1,b:1"], "--lookupd-tcp-address 'a:1,b:1': expected <addr>:<port>"),
    (["-lookupd-tcp-address=http://h:4161"], "--lookupd-tcp-address 'http://h:4161': expected <addr>:<port>"),
    (["-lookupd-tcp-address=h:0"], "--lookupd-tcp-address 'h:0': expected <addr>:<port>"),
    (["-lookupd-tcp-address="], "--lookupd-tcp-address '': missing address"),
    (["-statsd-address", "127.0.0.1"], "--statsd-address '127.0.0.1': missing port in address"),
    (["-statsd-address", "u:p@statsd"], "--statsd-address '***@statsd': expected <addr>:<port>"),
    (["-statsd-address", "h:99999"], "--statsd-address 'h:99999': invalid port 99999"),
    (["-statsd-address", "/run/statsd"], "--statsd-address '/run/statsd': expected <addr>:<port>"),
    (["-auth-http-address=auth"], "--auth-http-address 'auth': expected <addr>:<port>"),
    (["-auth-http-address=http:/127.0.0.1:80"],
     "--auth-http-address 'http:/127.0.0.1:80': expected <addr>:<port> or a full url"),
    (["-broadcast-http-port", "99999"], "--broadcast-http-port 99999: not a valid port: clients cannot connect to it"),
    (["-broadcast-tcp-port=-1"], "--broadcast-tcp-port -1: not a valid port: clients cannot connect to it"),
])  # fmt: skip
def test_what_the_original_accepts_in_silence(flags: list[str], warning: str) -> None:
    assert parse(NsqdOptions, "nsqd", flags, {}).warnings == (warning,)


URL_WANTED = "expected http:// or https://, a host, and a port of 1 to 65535 if any"


@each("url", ["ftp://h/x", "http://", "http:///x", "http://h:0/x", "http://h:65536/x", "http://h:x/", "http://[::1/x"])
def test_what_is_no_url_of_an_authorization_server(url: str) -> None:
    assert odd_auth_address(url) == URL_WANTED


@each("flag", [
    "-lookupd-tcp-address=[::1]:4160", "-lookupd-tcp-address=/run/lookupd", "-lookupd-tcp-address=./lookupd",
    "-lookupd-tcp-address=:4160", "-statsd-address=statsd.example:8125", "-auth-http-address=h:4180",
    "-auth-http-address=[::1]:4180", "-auth-http-address=https://u:p@h/auth?x=1", "-auth-http-address=http://h:80",
    "-tcp-address=/run/nsqd", "-tcp-address=./nsqd", "-http-address=", "-broadcast-tcp-port=65535",
])  # fmt: skip
def test_addresses_that_are_not_odd(flag: str) -> None:
    assert parse(NsqdOptions, "nsqd", [flag], {}).warnings == ()


def test_nsqlookupd_finds_odd_addresses_too_and_what_forbids_a_start() -> None:
    found = parse(LookupdOptions, "nsqlookupd", ["-tcp-address=a", "-http-address=b"], {})
    reason = "used as the path of a unix socket: expected <addr>:<port>"
    assert found.warnings == (f"--tcp-address 'a': {reason}", f"--http-address 'b': {reason}")
    found = parse(LookupdOptions, "nsqlookupd", ["-tcp-address=", "-http-address=127.0.0.1"], {})
    assert found.obstacles() == [
        "--tcp-address '': missing address",
        "--http-address '127.0.0.1': missing port in address",
    ]


def test_odd_variables_and_warnings_of_all_sources_in_their_order(tmp_path: Path) -> None:
    found = parse(NsqdOptions, "nsqd", [], {"NSQD_TLS_REQURED": "true", "NSQD_VERSION": "1.3.0", "NSQLOOKUPD_X": "y"})
    assert found.warnings == ("unknown environment variable NSQD_TLS_REQURED: did you mean NSQD_TLS_REQUIRED?",)
    found = reading(tmp_path, "snapy = true\nmax_msg_size = 1.5", "word", NSQD_SNAPY="true")
    assert len(found.errors) == 1
    assert [line.partition(":")[0] for line in found.options.warnings] == [
        "arguments from 'word' on are ignored",
        "unknown environment variable NSQD_SNAPY",
        f"config file {tmp_path / 'daemon.cfg'}",
    ]


def test_a_misspelt_policy_is_named_before_what_it_implies() -> None:
    found = read(NsqdOptions, "nsqd", ["-tls-client-auth-policy=requre"], {})
    assert [str(error) for error in found.errors] == [
        "--tls-client-auth-policy 'requre': expected require, require-verify or verify-if-given",
        "cannot require TLS client connections without TLS key and cert",
    ]
    assert found.options.warnings == ()


@each("text, size", [("-1", 0), ("0", 0), ("7", 7), ("-9223372036854775808", 0)])
def test_a_queue_in_memory_of_less_than_nothing_is_none(text: str, size: int, tmp_path: Path) -> None:
    assert parse(NsqdOptions, "nsqd", ["-mem-queue-size", text], {}).limits().mem_queue_size == size
    assert options(tmp_path, f"mem_queue_size = {text}").limits().mem_queue_size == size


# What forbids a start


@each("flags, lines", [
    ([], []), (["-tcp-address=127.0.0.1"], ["--tcp-address '127.0.0.1': missing port in address"]),
    (["-tcp-address=::1"],
     ["--tcp-address '::1': missing port in address (an IPv6 address is written [::1]:4160)"]),
    (["-tcp-address="], ["--tcp-address '': missing address"]),
    (["-tcp-address=h:65536", "-http-address=h:http!"],
     ["--tcp-address 'h:65536': invalid port 65536", "--http-address 'h:http!': unknown port http!"]),
    ([f"-tcp-address=h:{'9' * 5000}"], [f"--tcp-address 'h:{'9' * 5000}': unknown port {'9' * 5000}"]),
    (["-tcp-address=h:\ud800"], ["--tcp-address 'h:\\ud800': unknown port \ud800"]),
    (["-tcp-address=/nonexistent/nsqd"],
     ["--tcp-address '/nonexistent/nsqd': must be a directory that exists: no such file or directory"]),
    (["-http-address="], []),
    (["-https-address=127.0.0.1"], []),  # unused without a certificate
    (["-https-address=127.0.0.1", "-tls-cert=c", "-tls-key=k"],
     ["--https-address '127.0.0.1': missing port in address"]),
    (["-data-path=/nonexistent"],
     ["--data-path '/nonexistent': must be a directory that exists: no such file or directory"]),
    (["-data-path=/dev/null"], ["--data-path '/dev/null': must be a directory that exists: not a directory"]),
    (["-data-path=a\0b"], ["--data-path 'a\\x00b': must be a directory that exists: embedded null byte"]),
])  # fmt: skip
def test_what_forbids_a_start(flags: list[str], lines: list[str]) -> None:
    assert parse(NsqdOptions, "nsqd", flags, {}).obstacles() == lines


CLUSTER = ["-node-id=1", "-cluster-secret-file=s"]
CLUSTER_TLS = ["-cluster-tls-cert=c", "-cluster-tls-key=k", "-cluster-tls-ca=a"]


def test_a_node_of_a_cluster_needs_loopback_or_tls() -> None:
    for flags in (["-cluster-address=[::1]:1"], ["-cluster-address=0.0.0.0:1", *CLUSTER_TLS]):
        assert parse(NsqdOptions, "nsqd", [*CLUSTER, *flags], {}).obstacles() == []
    found = parse(NsqdOptions, "nsqd", [*CLUSTER, "-cluster-address=./socket"], {})
    assert "a unix socket cannot be reached by other nodes" in found.obstacles()[0]


@each("flags, why", [
    (["-cluster-address=10.0.0.1:1"], "beyond loopback the nodes need TLS: give -cluster-tls-cert"),
    (["-cluster-address=:1"], "beyond loopback the nodes need TLS"),
    *((["-cluster-address=127.0.0.1:1", flag], "must be given together") for flag in CLUSTER_TLS),
    *((["-cluster-address=:1", *CLUSTER_TLS[:n], *CLUSTER_TLS[n + 1 :]], "given together") for n in range(3)),
    *(([flag], "need --cluster-address") for flag in CLUSTER_TLS),
])  # fmt: skip
def test_a_cluster_beyond_loopback_has_all_files_of_tls(flags: list[str], why: str) -> None:
    with pytest.raises(OptionError, match=re.escape(why)):
        parse(NsqdOptions, "nsqd", [*CLUSTER, *flags], {})


OPEN = ["-tcp-address=:1", "-http-address=0.0.0.0:1", "-beanstalk-address=10.0.0.1:1", "-disque-address=n:1"]


def test_authentication_may_be_required_beyond_loopback() -> None:
    for flag in OPEN:
        with pytest.raises(OptionError, match="anyone could connect: give --auth-file"):
            parse(NsqdOptions, "nsqd", ["-require-auth", flag], {})
    for flags in (["-require-auth", "-https-address=:1"], ["-require-auth", *OPEN, "-auth-file=f"], OPEN):
        parse(NsqdOptions, "nsqd", flags, {})


@given(st.text(max_size=20))
def test_no_address_is_a_bug(text: str) -> None:
    found = NsqdOptions(
        tcp_address=(text,), http_address=f"h:{text}", data_path=text, statsd_address=text,
        lookupd_tcp_address=(text,), auth_http_address=(text, f"http://{text}", f"http://h:{text}"),
    )  # fmt: skip
    assert all(isinstance(line, str) for line in [*found.obstacles(), *found.oddities()])


# Precedence


def test_flag_over_environment_over_file_over_default(tmp_path: Path) -> None:
    content = "max_msg_size = 1\nmax_body_size = 2\nmem_queue_size = 3\nsnappy = false"
    found = reading(tmp_path, content, "-max-msg-size=10", NSQD_MAX_MSG_SIZE="20", NSQD_MAX_BODY_SIZE="21")
    assert not found.errors
    for name, value, origin in (
        ("max_msg_size", 10, "flag -max-msg-size"), ("max_body_size", 21, "environment NSQD_MAX_BODY_SIZE"),
        ("mem_queue_size", 3, f"file {tmp_path / 'daemon.cfg'}"), ("snappy", False, f"file {tmp_path / 'daemon.cfg'}"),
        ("deflate", True, "default"),
    ):  # fmt: skip
        assert (getattr(found.options, name), found.origins[name]) == (value, origin)


def test_there_is_some_address(tmp_path: Path) -> None:
    for content in ("tcp_address = []", 'tcp_address = ""'):
        (error,) = reading(tmp_path, content).errors
        assert str(error).endswith("for tcp_address: missing address")
    found = reading(tmp_path, "", "-tcp-address=a:1", "-tcp-address=b:2", "-tcp-shared-address=b:2")
    assert "--tcp-shared-address must not be --tcp-address" in str(found.errors[0])


@each("content, environ, flags, addresses", [
    ("", {}, [], ("127.0.0.1:4150",)),
    ('tcp_address = "f:1"', {}, [], ("f:1",)),  # NSQ's own file
    ('tcp_address = ["f:1", "unix:/run/f?mode=600"]', {}, [], ("f:1", "unix:/run/f?mode=600")),
    ('tcp_address = "f:1"', {"NSQD_TCP_ADDRESS": "e:1, e:2"}, [], ("e:1", "e:2")),
    ('tcp_address = "f:1"', {}, ["-tcp-address=a:1"], ("a:1",)),
    ("", {}, ["-tcp-address=a:1", "-tcp-address", "/run/a,b"], ("a:1", "/run/a,b")),
])  # fmt: skip
def test_nsqd_may_listen_at_several_addresses(
    tmp_path: Path, content: str, environ: dict[str, str], flags: list[str], addresses: tuple[str, ...]
) -> None:
    assert options(tmp_path, content, *flags, **environ).tcp_address == addresses


@each("kind, program", [(NsqdOptions, "nsqd"), (LookupdOptions, "nsqlookupd")])
def test_metrics_need_rights_only_with_an_auth_file(kind: type, program: str) -> None:
    (error,) = read(kind, program, ["-metrics-auth"], {}).errors
    assert str(error) == "--metrics-auth needs --auth-file, which grants the right to see stats"
    assert parse(kind, program, ["-metrics-auth", "-auth-file=a"], {}).metrics_auth


def test_the_file_of_the_environment_and_of_a_version(tmp_path: Path) -> None:
    path = written(tmp_path, "snappy = false")
    assert not parse(NsqdOptions, "nsqd", [], {"NSQD_CONFIG": path}).snappy
    assert parse(NsqdOptions, "nsqd", ["-config="], {"NSQD_CONFIG": path}).snappy
    assert parse(NsqdOptions, "nsqd", ["-version", "-config", str(tmp_path)], {"NSQD_SNAPPY": "x"}).version
    with pytest.raises(OptionError):
        parse(NsqdOptions, "nsqd", ["-version", "-nope"], {})


# The way back

VALUES: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(64, 2**63 - 1),
    Duration: st.integers(MILLISECOND, 2**63 - 1),
    str: st.text(st.characters(exclude_categories=["Cs"], exclude_characters="@?")),
    tuple[str, ...]: st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="@?"))).map(tuple),
    tuple[float, ...]: st.lists(st.floats(0, 1, exclude_min=True)).map(tuple),
}
BOUNDED: dict[str, st.SearchStrategy[Any]] = {
    "log_level": st.sampled_from(["debug", "info", "warn", "error", "fatal"]),
    "log_format": st.sampled_from(["nsq", "json"]),
    "auth_file": st.just("/etc/auth"),  # metrics_auth needs one
    "tcp_address": st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="@?")), min_size=1, max_size=3,
    ).map(tuple),
    "auth_http_request_method": st.sampled_from(["get", "post"]), "statistics_topic": st.sampled_from(["", "_statistics"]),
    "audit_topic": st.sampled_from(["", "_statistics"]), "statistics_events": st.sampled_from(["off", "full", "0.25"]),
    "tcp_shared_address": st.sampled_from(["", ":4149", "[::1]:4149"]),
    "durability": st.sampled_from(["always", "interval", "os"]),
    "max_attempts": st.lists(st.sampled_from(["5", "orders=3", "0"])).map(tuple),
    "max_deflate_level": st.integers(1, 9),
    "node_id": st.integers(0, 1023),  # a node of a cluster needs one
    "failover_after": st.integers(3 * SECOND, 2**63 - 1), "failover_quorum": st.sampled_from(["none", "majority", "any"]),
    "replicas": st.integers(1, 15), "replicate": st.integers(1, 2), "cluster_address": st.just(":4153"),
    "cluster_name": st.sampled_from(["penstock", "é"]), "cluster_secret_file": st.just("/etc/secret"),
    "cluster_tls_cert": st.just("/etc/é.crt"), "cluster_tls_key": st.just('/etc/"key"\n'),
    "cluster_tls_ca": st.just("/etc/ca.pem"), "lookupd_tls_root_ca_file": st.just("/etc/ca.pem"),
    "lookupd_tls_cert": st.just("/etc/é.crt"), "lookupd_tls_key": st.just('/etc/"key"\n'),
    "tls_required": st.sampled_from(list(TLS_REQUIRED)), "tls_min_version": st.sampled_from(list(TLS_VERSIONS)),
    "tls_security_level": st.integers(0, 2), "tls_cert": st.just("/etc/é.crt"), "tls_key": st.just('/etc/"key"\n'),
}  # fmt: skip


def in_file() -> list[Spec]:
    return [spec for spec in specs(NsqdOptions, "nsqd") if spec.in_file]


@settings(max_examples=tries(EXAMPLES, in_short=8))
@given(st.fixed_dictionaries({spec.name: BOUNDED.get(spec.name, VALUES[spec.type]) for spec in in_file()}))
def test_printed_options_read_back(values: dict[str, Any]) -> None:
    before = NsqdOptions(**values).completed()
    printed = as_toml(Reading(before, dict.fromkeys(values, "file /etc/\n\x7f\u2028é"), ()), "nsqd")
    assert printed.isascii()
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(printed)
        file.flush()
        found = read(NsqdOptions, "nsqd", ["-config", file.name], {})
    assert not found.errors
    assert {name: getattr(found.options, name) for name in values} == {name: getattr(before, name) for name in values}


def test_print_config_shows_the_sources_of_values(tmp_path: Path) -> None:
    content = 'tls_client_auth_policy = "require"\ntls_cert = "c"\ntls_key = "k"'
    found = reading(tmp_path, content, "-snappy=false", "-check-config", NSQD_MSG_TIMEOUT="90s")
    lines = as_toml(found, "nsqd").splitlines()
    assert "snappy = false  # flag -snappy" in lines
    assert 'msg_timeout = "1m30s"  # environment NSQD_MSG_TIMEOUT' in lines
    assert f'tls_cert = "c"  # file {tmp_path / "daemon.cfg"}' in lines
    assert 'tls_required = "true"  # implied by another option' in lines
    assert "deflate = true  # default" in lines
    assert {line.partition(" ")[0] for line in lines} == {spec.key for spec in in_file()}
    assert not [line for line in lines if line.startswith(("config", "check_config", "version", "worker_id"))]


def test_print_config_hides_secrets() -> None:
    flags = ["-auth-http-address", "https://app:s3cret@auth.example/x?token=s3cret&a=1", "-auth-http-address", "h:1"]
    printed = as_toml(read(NsqdOptions, "nsqd", [*flags, "-statsd-address=u:s3cret@h:8125"], {}), "nsqd")
    assert "s3cret" not in printed
    assert (
        'auth_http_addresses = ["https://***@auth.example/x?***", "h:1"]  '
        "# flag -auth-http-address; secrets are hidden\n" in printed
    )
    assert 'statsd_address = "***@h:8125"  # flag -statsd-address; secrets are hidden\n' in printed


# Words with rules of their own


@each(
    "word",
    [
        "", "x", "-1", "+1", "1.5", "65536", "9" * 5000, "=5", "a=", "a b=1", "a=b=1", "a" * 65 + "=1", "a=-1", "²",
        "1,a=2",
    ],
)  # fmt: skip
def test_what_are_no_attempts(word: str) -> None:
    with pytest.raises(OptionError, match=r"^invalid value .* for flag -max-attempts: expected "):
        parse(NsqdOptions, "nsqd", ["-max-attempts", word], {})


@each("template, host, prefix", [
    ("nsq.%s", "node.example", "nsq.node_example_4151."), ("%s.%s.", "n", "n_4151.n_4151."), ("", "n", ""),
    ("x", "::1", "x."), ("%s", "::1", "[__1]_4151."),
])  # fmt: skip
def test_the_prefix_of_statistics(template: str, host: str, prefix: str) -> None:
    assert statsd_prefix(template, host, 4151) == prefix
