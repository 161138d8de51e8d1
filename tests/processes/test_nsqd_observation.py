"""What a real nsqd tells those who watch it: percentiles, statsd, /metrics, the log as JSON, and the debug routes."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from nsqd.http.figures import LABELLED
from tests.daemons import OK, Conversation, Daemon, eventually, nsqd, several, sized

pytestmark = pytest.mark.process

PERCENTILES = ("-e2e-processing-latency-percentile", "0.5,1", "-e2e-processing-latency-percentile", "0.99")


def get(daemon: Daemon, path: str, **options: Any) -> httpx.Response:
    return httpx.get(f"http://{daemon.http}{path}", timeout=20.0, **options)


def consume(daemon: Daemon, topic: bytes, count: int) -> None:
    """Publish some messages to a channel and finish them."""
    with Conversation(daemon, b"  V2SUB " + topic + b" ch\nRDY 100\n") as client:
        assert client.frame() == OK
        client.send(b"MPUB " + topic + b"\n" + several(*[b"x"] * count))
        frames = [client.frame() for _ in range(count + 1)]
        for kind, data in filter(None, frames):
            if kind == 2:
                client.send(b"FIN " + data[10:26] + b"\n")
        client.send(b"CLS\n")
        assert client.frame() == (0, b"CLOSE_WAIT")  # by then the FINs are done


# percentiles


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with nsqd(tmp_path_factory.mktemp("measured"), *PERCENTILES) as daemon:
        consume(daemon, b"t", 7)
        httpx.post(f"http://{daemon.http}/channel/create?topic=t&channel=idle")
        httpx.post(f"http://{daemon.http}/topic/create?topic=alone")
        yield daemon


def test_percentiles_in_stats(measured: Daemon) -> None:
    alone, topic = get(measured, "/stats?format=json").json()["topics"]
    busy, idle = topic["channels"]
    assert alone["e2e_processing_latency"] == {"count": 0, "percentiles": None}
    for told in (topic, busy):
        latency = told["e2e_processing_latency"]
        assert latency["count"] == 7
        assert [entry["quantile"] for entry in latency["percentiles"]] == [1, 0.99, 0.5]
        assert all(0 < entry["value"] < 60e9 for entry in latency["percentiles"])
    values = [{"quantile": q, "value": 0} for q in (1, 0.99, 0.5)]
    assert idle["e2e_processing_latency"] == {"count": 0, "percentiles": values}
    assert '{"quantile":1,"value":' in get(measured, "/stats?format=json").text


def test_a_topics_percentiles_are_of_all_its_channels(measured: Daemon) -> None:
    (topic,) = get(measured, "/stats?format=json&topic=t&channel=idle").json()["topics"]
    assert topic["e2e_processing_latency"]["count"] == 7
    assert [channel["e2e_processing_latency"]["count"] for channel in topic["channels"]] == [0]


def test_percentiles_as_text(measured: Daemon) -> None:
    text = get(measured, "/stats").text
    value = r"[0-9]+\.[0-9](s|ms|us|ns)"
    assert re.search(rf"^   \[t +\] .* e2e%: {value}, {value}, {value}$", text, re.MULTILINE)
    assert re.search(r"^      \[idle +\] .* e2e%: 0\.0ns, 0\.0ns, 0\.0ns$", text, re.MULTILINE)
    assert re.search(r"^   \[alone +\] .* e2e%: $", text, re.MULTILINE)


def test_percentiles_as_a_histogram(measured: Daemon) -> None:
    text = get(measured, "/metrics").text
    assert "# TYPE nsqd_e2e_processing_latency_seconds histogram" in text
    assert 'nsqd_e2e_processing_latency_seconds_bucket{le="3600.0"} 7.0' in text
    assert 'nsqd_e2e_processing_latency_seconds_bucket{le="+Inf"} 7.0' in text
    assert "nsqd_e2e_processing_latency_seconds_count 7.0" in text


# statsd


class Statsd:
    """Somebody who listens on a UDP port."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.packets: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Statsd:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.sendto(b"", self.socket.getsockname())  # makes the reader end
        self._reader.join()
        self.socket.close()

    @property
    def address(self) -> str:
        host, port = self.socket.getsockname()
        return f"{host}:{port}"

    def lines(self) -> list[str]:
        return b"".join(self.packets).decode().splitlines()

    def _read(self) -> None:
        while packet := self.socket.recv(65536):
            self.packets.append(packet)


MEMORY_LINES = 9  # without any topic there are no others
STATSD = ("-statsd-interval", "100ms", "-broadcast-address", "a.b", "-broadcast-http-port", "1")


def test_statsd(tmp_path: Path) -> None:
    with Statsd() as statsd, nsqd(tmp_path, "-statsd-address", statsd.address, *STATSD) as daemon:
        with Conversation(daemon, b"  V2PUB t#ephemeral\n" + sized(b"hello")) as client:
            assert client.frame() == OK
        eventually(lambda: "nsq.a_b_1.topic.t#ephemeral.message_count:1|c" in statsd.lines())
        eventually(lambda: statsd.lines().count("nsq.a_b_1.topic.t#ephemeral.message_count:0|c") > 1)
        eventually(lambda: statsd.lines().count("nsq.a_b_1.mem.next_gc_bytes:0|g") > 1)
        assert statsd.lines().count("nsq.a_b_1.topic.t#ephemeral.message_count:1|c") == 1
        assert all(len(packet) <= 508 and packet.endswith(b"\n") for packet in statsd.packets)


def test_statsd_flags(tmp_path: Path) -> None:
    flags = ("-statsd-prefix", "x", "-statsd-mem-stats=false", "-statsd-udp-packet-size", "1", *STATSD)
    with (
        Statsd() as statsd,
        nsqd(tmp_path, "-statsd-address", statsd.address, *flags, "-statsd-exclude-ephemeral") as node,
    ):
        for topic in ("t", "t%23ephemeral"):
            httpx.post(f"http://{node.http}/topic/create?topic={topic}")
        eventually(lambda: len(statsd.packets) >= 8)
        names = ("message_count:0|c", "message_bytes:0|c", "depth:0|g", "backend_depth:0|g")
        assert statsd.packets[:8] == [f"x.topic.t.{name}\n".encode() for name in names] * 2


def test_what_was_not_yet_sent_is_sent_at_the_end(tmp_path: Path) -> None:
    with Statsd() as statsd:
        flags = (*STATSD, "-statsd-udp-packet-size", "1", "-statsd-interval", "2s")  # spread over the second one
        with nsqd(tmp_path, "-statsd-address", statsd.address, *flags):
            eventually(lambda: statsd.packets)
        assert len(statsd.packets) % MEMORY_LINES == 0  # of each interval all; a slow machine has more than one


@pytest.mark.parametrize("address", ["nobody.invalid:8125", "no-port", "127.0.0.1:99999", "255.255.255.255:8125"])
def test_a_statsd_that_cannot_be_reached_is_told_once(tmp_path: Path, address: str) -> None:
    with nsqd(tmp_path, "-statsd-address", address, "-statsd-interval", "10ms") as daemon:
        line = daemon.wait_for_line("ERROR: STATSD: ")
        assert address in line
        for _ in range(20):
            assert get(daemon, "/ping").text == "OK"
        assert daemon.stderr.count("ERROR") == 1


def test_a_statsd_that_nobody_runs_stops_nothing(tmp_path: Path) -> None:
    with Statsd() as statsd:
        address = statsd.address
    with nsqd(tmp_path, "-statsd-address", address, *STATSD, "-statsd-udp-packet-size", "1") as daemon:
        daemon.wait_for_line("Connection refused")  # of the second packet: the first one's answer
        assert get(daemon, "/ping").text == "OK"
        host, _, port = address.rpartition(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as late:
            late.bind((host, int(port)))
            late.settimeout(20.0)
            assert late.recv(65536).startswith(b"nsq.a_b_1.")
            daemon.wait_for_line("works again")


# /metrics


def test_metrics_of_topics_and_channels(tmp_path: Path) -> None:
    with nsqd(tmp_path) as daemon:
        consume(daemon, b"t", 3)
        assert httpx.post(f"http://{daemon.http}/mpub?topic=t", content=b"four\nmore\n").text == "OK"
        text = get(daemon, "/metrics").text
        for line in (
            'nsqd_topic_messages_total{topic="t"} 5.0',
            'nsqd_topic_message_bytes_total{topic="t"} 11.0',
            'nsqd_topic_depth{topic="t"} 0.0',
            'nsqd_channel_messages_total{channel="ch",topic="t"} 5.0',
            'nsqd_channel_depth{channel="ch",topic="t"} 2.0',
            'nsqd_channel_clients{channel="ch",topic="t"} 0.0',
            'nsqd_channel_in_flight{channel="ch",topic="t"} 0.0',
            'nsqd_channel_deferred{channel="ch",topic="t"} 0.0',
            'nsqd_channel_requeued_total{channel="ch",topic="t"} 0.0',
            'nsqd_channel_timed_out_total{channel="ch",topic="t"} 0.0',
            "nsqd_depth 2.0",
            "nsqd_messages_total 5.0",
            "nsqd_topics 1.0",
            "nsqd_channels 1.0",
        ):
            assert f"{line}\n" in text, line
        assert "(other)" not in text
        assert "e2e_processing" not in text


def test_the_number_of_labels_is_capped(tmp_path: Path) -> None:
    with nsqd(tmp_path) as daemon, httpx.Client(base_url=f"http://{daemon.http}") as web:
        for number in range(LABELLED + 10):
            web.post(f"/topic/create?topic=t{number}")
            web.post(f"/channel/create?topic=t{number}&channel=c")
            web.post(f"/mpub?topic=t{number}", content=b"x\n" * (number // LABELLED + 1))
        text = web.get("/metrics").text
        assert len(re.findall(r"^nsqd_topic_messages_total\{", text, re.MULTILINE)) == LABELLED + 1
        assert len(re.findall(r"^nsqd_channel_depth\{", text, re.MULTILINE)) == LABELLED + 1
        assert f'nsqd_channel_depth{{channel="c",topic="t{LABELLED}"}} 2.0\n' in text  # the largest backlogs are there
        assert 'nsqd_channel_depth{channel="(other)",topic="(other)"} 10.0\n' in text
        assert 'nsqd_topic_messages_total{topic="(other)"} 10.0\n' in text
        assert f"nsqd_messages_total {LABELLED + 20}.0\n" in text
        before = set(re.findall(r"^nsqd_topic_depth\{(.*)\}", text, re.MULTILINE))
        web.post("/mpub?topic=t198", content=b"x\n" * 50)
        again = web.get("/metrics").text
        assert set(re.findall(r"^nsqd_topic_depth\{(.*)\}", again, re.MULTILINE)) == before


# the log


def test_the_log_as_json(tmp_path: Path) -> None:
    with nsqd(tmp_path, "-log-format", "json", listens=()) as daemon:
        daemon.wait_for_line('"message": "HTTP: listening on ')
        daemon.stop()
        told = [json.loads(line) for line in daemon.stderr.splitlines()]
    assert {tuple(line) for line in told} == {("ts", "level", "program", "message")}
    assert {line["program"] for line in told} == {"nsqd"}
    assert told[-1]["message"] == "NSQ: bye"
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["ts"]) for line in told)


# debug routes

PROFILE = b"GET /debug/pprof/profile?seconds=60 HTTP/1.1\r\nHost: localhost\r\n\r\n"
DEBUG_ROUTES = {
    "/debug/pprof/": "GET",
    "/debug/pprof/cmdline": "GET",
    "/debug/pprof/symbol": "GET",
    "/debug/pprof/profile": "GET",
    "/debug/pprof/heap": "GET",
    "/debug/pprof/goroutine": "GET",
    "/debug/pprof/block": "GET",
    "/debug/pprof/threadcreate": "GET",
    "/debug/setblockrate": "PUT",
    "/debug/freememory": "POST",
}


@pytest.fixture(scope="module")
def debugged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    secret = "http://user:password@127.0.0.1:1/auth"
    with nsqd(tmp_path_factory.mktemp("debugged"), "-debug-routes", "-statsd-address", secret) as daemon:
        yield daemon


def test_without_the_flag_there_are_no_debug_routes(measured: Daemon) -> None:
    for path, method in DEBUG_ROUTES.items():
        answer = httpx.request(method, f"http://{measured.http}{path}?seconds=1&rate=1")
        assert (answer.status_code, answer.text) == (404, '{"message":"NOT_FOUND"}'), path


def test_with_the_flag_there_are(debugged: Daemon) -> None:
    for path, method in DEBUG_ROUTES.items():
        answer = httpx.request(method, f"http://{debugged.http}{path}?seconds=1&rate=1", timeout=20.0)
        assert answer.status_code in (200, 501), path
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_command_line_has_no_passwords(debugged: Daemon) -> None:
    words = get(debugged, "/debug/pprof/cmdline").text.split("\0")
    assert words[-1] == "http://***@127.0.0.1:1/auth"
    assert "-debug-routes" in words


def test_stacks_of_threads_and_tasks(debugged: Daemon) -> None:
    text = get(debugged, "/debug/pprof/goroutine").text
    for part in ("thread MainThread (", "thread http (", "task nsqd.net.reactor.Reactor.run:"):
        assert part in text, part


def test_heap(debugged: Daemon) -> None:
    text = get(debugged, "/debug/pprof/heap").text
    assert re.search(r"^allocated blocks: \d{5,}$", text, re.MULTILINE)
    assert "PYTHONTRACEMALLOC" in text


def test_a_profile_and_no_second_one_meanwhile(debugged: Daemon) -> None:
    with socket.create_connection(tuple(debugged.http.split(":"))) as first:
        first.sendall(PROFILE)
        eventually(lambda: "thread sampler (" in get(debugged, "/debug/pprof/goroutine").text)
        assert get(debugged, "/debug/pprof/profile?seconds=1").status_code == 503
    # It hung up: its profile ends, and the next one may begin.
    answers: list[httpx.Response] = []

    def served() -> bool:
        answers.append(get(debugged, "/debug/pprof/profile?seconds=1"))
        return answers[-1].status_code == 200

    eventually(served)
    lines = answers[-1].text.splitlines()
    assert lines
    assert all(re.fullmatch(r".+;.+ \d+", line) for line in lines)
    assert any(line.startswith("MainThread;") and "trio" in line for line in lines)


def test_a_stop_does_not_wait_for_a_profile(tmp_path: Path) -> None:
    with nsqd(tmp_path, "-debug-routes") as daemon, socket.create_connection(tuple(daemon.http.split(":"))) as client:
        client.sendall(PROFILE)
        eventually(lambda: "thread sampler (" in get(daemon, "/debug/pprof/goroutine").text)
        assert daemon.stop() == 0


def test_a_block_rate_that_is_no_number(debugged: Daemon) -> None:
    answer = httpx.put(f"http://{debugged.http}/debug/setblockrate?rate=%0afast")
    assert (answer.status_code, answer.text) == (400, "invalid block rate : '\\nfast'\n")


def test_memory_can_be_freed(debugged: Daemon) -> None:
    answer = httpx.post(f"http://{debugged.http}/debug/freememory")
    assert re.fullmatch(r"OK, \d+ objects were unreachable\n", answer.text)


def test_the_story_of_a_message(debugged: Daemon) -> None:
    with Conversation(debugged, b"  V2SUB told c\nRDY 1\n") as client:
        assert client.frame() == OK
        client.send(b"PUB told\n" + sized(b"x"))
        frames = [client.frame(), client.frame()]
        message = next(data[10:26] for kind, data in filter(None, frames) if kind == 2)
        client.send(b"FIN " + message + b"\nCLS\n")
        assert client.frame() == (0, b"CLOSE_WAIT")
    lines = get(debugged, f"/debug/story?id={message.decode()}").text.splitlines()
    assert len(lines) >= 3, "published, delivered and finished"
    assert all(": message " in line for line in lines), lines
    for wrong, status in (("", 400), ("short", 400), ("f" * 16, 404)):
        assert get(debugged, f"/debug/story?id={wrong}").status_code == status
