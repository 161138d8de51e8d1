"""/config: every option in the form in which the original answers, and the two that can be changed while the node runs."""

import json
import logging

import pytest

from nsqd.options import NsqdOptions
from shared.options import specs
from tests.cases import each
from tests.local_node import LocalNode
from tests.nsqd.http.raw import JSON, MAX_MSG, SMALL, TEXT, V1, ask, is_error

FLAGS = SMALL

# As NSQ's example files: the same keys, with optional values left empty.
NSQD_FILE = """
log_level = "info"
id = 77
https_address = "127.0.0.1:0"
broadcast_address = "node.example"
nsqlookupd_tcp_addresses = []
http_client_connect_timeout = "2s"
http_client_request_timeout = "5s"
mem_queue_size = 123
max_bytes_per_file = 104857600
sync_every = 2500
sync_timeout = "2s"
msg_timeout = 61000
max_msg_timeout = "15m"
max_msg_size = "1024768"
max_req_timeout = "1h"
max_body_size = 5123840
max_heartbeat_interval = "60s"
max_rdy_count = 2500
max_output_buffer_size = 65536
max_output_buffer_timeout = "1s"
statsd_prefix = "nsq.%s"
statsd_interval = "60s"
statsd_mem_stats = true
statsd_udp_packet_size = 508
e2e_processing_latency_percentiles = [
    1.0,
    0.99
]
e2e_processing_latency_window_time = "10m"
tls_cert = ""
tls_key = ""
tls_root_ca_file = ""
tls_required = false
tls_min_version = ""
deflate = true
max_deflate_level = 6
snappy = "false"
"""

NO_TEXT = """
    cluster_address cluster_secret_file cluster_tls_cert cluster_tls_key cluster_tls_ca tcp_shared_address
    beanstalk_address beanstalk_tls_address disque_tls_address disque_address statistics_topic statsd_address otel_endpoint
    otel_token_file
    tls_cert tls_key tls_client_auth_policy lookupd_tls_root_ca_file lookupd_tls_cert lookupd_tls_key
    tls_root_ca_file auth_file auth_token_file audit_file audit_topic topology_region topology_zone
"""
AS_TEXT = dict.fromkeys(NO_TEXT.split(), "") | {  # strings stand as they are
    "cluster_name": "penstock", "log_prefix": "[nsqd] ", "tcp_address": "127.0.0.1:0", "http_address": "127.0.0.1:0",
    "https_address": "127.0.0.1:0", "broadcast_address": "node.example", "statistics_events": "off",
    "log_format": "nsq", "auth_http_request_method": "get", "failover_quorum": "majority", "durability": "always",
}  # fmt: skip
# integers, durations in ns, and what Go has as a number: levels and TLS
NUMBERS = """
    log_level=2 id=77 nsqlookupd_tcp_addresses=[] auth_http_addresses=[] broadcast_https_port=0
    http_client_connect_timeout=2000000000 http_client_request_timeout=5000000000 mem_queue_size=123
    max_bytes_per_file=104857600 mem_budget=134217728 buffer_budget=268435456 tls_security_level=2 retention=0
    retention_bytes=0 sync_every=2500 sync_timeout=2000000000 queue_scan_selection_count=20
    queue_scan_worker_pool_max=4 msg_timeout=61000000000 max_msg_timeout=900000000000 max_msg_size=1024768
    max_body_size=5123840 max_req_timeout=3600000000000 max_heartbeat_interval=60000000000 max_rdy_count=100
    max_output_buffer_size=65536 max_output_buffer_timeout=1000000000 min_output_buffer_timeout=25000000
    output_buffer_timeout=250000000 max_channel_consumers=0 statsd_interval=60000000000 statsd_mem_stats=true
    otel_sample_every=0
    statsd_udp_packet_size=508 statsd_exclude_ephemeral=false e2e_processing_latency_window_time=600000000000
    e2e_processing_latency_percentiles=[1,0.99] tls_required=0 tls_min_version=771 deflate=true max_deflate_level=6
    snappy=false
"""
NUMBERS_OF_OURS = """
    allowed_host=[] enable_experiment=[] max_attempts=[] requeue_on_disconnect=false debug_routes=false
    metrics_auth=false max_connections=10000 max_connections_per_ip=0 identify_timeout=10000000000 max_job_size=65535
    cluster_peer=[] failover_after=5000000000 unclean_after=600000000000 restart_grace=30000000000
    rejoin_timeout=2000000000 replicas=2 replicate=1 replicate_timeout=2000000000 replication_rate=0
    rereplicate_after=60000000000 dedup_window=600000000000 dedup_keys=100000 dedup_producers=10000 max_topics=50000
    max_channels=100000 max_schedules=5000 require_auth=false
"""
AS_JSON = dict(pair.split("=") for pair in f"{NUMBERS} {NUMBERS_OF_OURS}".split())
FOUND_AT_START = {
    "data_path": "/var/lib/data", "broadcast_tcp_port": "4150", "broadcast_http_port": "4151",
    "statsd_prefix": "nsq.node_example_4151.",
}  # fmt: skip
LOOKUPDS = "nsqlookupd_tcp_addresses"


@pytest.fixture(autouse=True)
def log_level(caplog: pytest.LogCaptureFixture) -> None:
    """Have the level of a daemon, and after the test the one before it, although tests change it."""
    caplog.set_level(logging.INFO, "penstock")


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> LocalNode:
    path = tmp_path_factory.mktemp("node") / "nsqd.cfg"
    path.write_text(NSQD_FILE)
    addresses = ("-tcp-address", "127.0.0.1:0", "-http-address", "127.0.0.1:0", "-data-path", "/var/lib/data")
    return LocalNode("-config", str(path), "-max-rdy-count=100", *addresses)


@each("key", AS_TEXT | AS_JSON | FOUND_AT_START)
def test_all_options_are_shown_and_all_but_two_stay(key: str, configured: LocalNode) -> None:
    kind = JSON if key in AS_JSON or key.endswith("_port") else TEXT
    expected = (200, (AS_TEXT | AS_JSON | FOUND_AT_START)[key].encode(), kind, V1)
    if key not in ("log_level", LOOKUPDS):
        assert is_error(ask(configured, "PUT", f"/config/{key}", b"1"), 400, "INVALID_OPTION")
    answer = ask(configured, "GET", f"/config/{key}")
    headers = answer.headers
    assert (answer.status, answer.body, headers["content-type"], headers["x-nsq-content-type"]) == expected


def test_the_tables_have_every_option() -> None:
    assert {spec.key for spec in specs(NsqdOptions, "nsqd") if spec.in_file} == {*AS_TEXT, *AS_JSON, *FOUND_AT_START}


@each("option", [
    "nope", "node_id", "lookupd_tcp_address", "config", "check_config", "print_config", "version", "verbose",
    "worker_id", "warnings", "__class__",
])  # fmt: skip
def test_what_is_no_option(node: LocalNode, option: str) -> None:
    assert is_error(ask(node, "GET", f"/config/{option}"), 400, "INVALID_OPTION")
    assert is_error(ask(node, "PUT", f"/config/{option}", b"1"), 400, "INVALID_OPTION")


def test_a_queue_in_memory_may_be_less_than_nothing() -> None:
    node = LocalNode("-mem-queue-size=-1")
    assert ask(node, "POST", "/pub?topic=t", b"x").body == b"OK"
    assert ask(node, "GET", "/config/mem_queue_size").body == b"-1"


def test_secrets_are_hidden() -> None:
    node = LocalNode("-auth-http-address", "http://app:s3cret@127.0.0.1:1/auth?key=s3cret")
    assert ask(node, "GET", "/config/auth_http_addresses").body == b'["http://***@127.0.0.1:1/auth?***"]'


def test_changing_the_log_level(node: LocalNode) -> None:
    for text, number in (("debug", b"1"), ("WARN", b"3"), ("Error", b"4"), ("fatal", b"5"), ("info", b"2")):
        answer = ask(node, "PUT", "/config/log_level", text.encode())
        assert (answer.status, answer.body) == (200, number)
        assert ask(node, "GET", "/config/log_level").body == number


def test_changing_the_lookupd_addresses_which_are_as_many_as_a_cluster_can_have(node: LocalNode) -> None:
    many = [f"127.0.0.1:{port}" for port in range(1, 102)]
    for addresses in (many[:1], [], many[:100]):
        body = json.dumps(addresses, separators=(",", ":")).encode()
        answer = ask(node, "PUT", f"/config/{LOOKUPDS}", body)
        assert (answer.status, answer.body, node.lookupds) == (200, body, addresses)
    assert is_error(ask(node, "PUT", f"/config/{LOOKUPDS}", json.dumps(many).encode()), 400, "INVALID_VALUE")
    assert json.loads(ask(node, "GET", f"/config/{LOOKUPDS}").body) == many[:100]


@each("option, body, status, text", [
    ("log_level", b"", 413, "INVALID_VALUE"), ("nope", b"", 413, "INVALID_VALUE"),
    ("log_level", b"x" * (MAX_MSG + 1), 413, "INVALID_VALUE"), ("log_level", b"warning", 400, "INVALID_VALUE"),
    ("log_level", b'"info"', 400, "INVALID_VALUE"), ("log_level", b"info\n", 400, "INVALID_VALUE"),
    ("log_level", b"\xff", 400, "INVALID_VALUE"), (LOOKUPDS, b"[", 400, "INVALID_VALUE"),
    (LOOKUPDS, b"{}", 400, "INVALID_VALUE"), (LOOKUPDS, b"[1]", 400, "INVALID_VALUE"),
    (LOOKUPDS, b"[]x", 400, "INVALID_VALUE"), (LOOKUPDS, b"[" * 1900, 400, "INVALID_VALUE"),
    ("msg_timeout", b"1s", 400, "INVALID_OPTION"),
])  # fmt: skip
def test_values_that_are_refused(node: LocalNode, option: str, body: bytes, status: int, text: str) -> None:
    assert is_error(ask(node, "PUT", f"/config/{option}", body), status, text)
