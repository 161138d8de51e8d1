"""nsqd exports spans to a collector; one that refuses them, or is not there, is logged once and loses them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from nsqd.core.spans import Span, Spans
from nsqd.options import NsqdOptions
from nsqd.tasks.span_export import BATCH, SpanExport
from shared.configuration import parse
from tests.cases import each
from tests.daemons import Conversation, eventually, nsqd

pytestmark = pytest.mark.process
TRACE, ABOVE = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(ThreadingHTTPServer):
    """A collector that answers `status`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.requests: list[dict[str, Any]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def spans(self) -> list[dict[str, Any]]:
        return [span for one in self.requests for span in one["resourceSpans"][0]["scopeSpans"][0]["spans"]]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        collector = self.server
        assert isinstance(collector, Collector)
        assert (self.path, self.headers["content-type"]) == ("/v1/traces", "application/json")
        collector.requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(collector.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_publish_and_its_delivery_reach_the_collector(collector: Collector, tmp_path: Path) -> None:
    with (
        nsqd(tmp_path, "-otel-endpoint", collector.url, "-broadcast-address", "node") as node,
        Conversation(node, b"  V2SUB traced c\nRDY 1\n") as consumer,
    ):
        assert consumer.frame() == (0, b"OK")
        headers = {"X-Nsq-Header-Traceparent": f"00-{TRACE}-{ABOVE}-01"}
        url = f"http://{node.http}/pub?topic=traced"
        assert httpx.post(url, content=b"body", headers=headers).status_code == 200
        assert httpx.post(url, content=b"not sampled").status_code == 200
        consumer.send(b"FIN " + consumer.message().id + b"\n")
        eventually(lambda: len(collector.spans()) == 2, what="exported")
        exported = ("nsqd_spans_exported_total 2.0", "nsqd_spans_lost_total 0.0")  # counted once it has answered
        metrics = lambda: httpx.get(f"http://{node.http}/metrics").text  # noqa: E731
        eventually(lambda: all(line in metrics() for line in exported))
    publish, delivery = sorted(collector.spans(), key=lambda span: span["kind"], reverse=True)
    assert [publish["name"], delivery["name"]] == ["publish traced", "deliver traced"]
    for span in (publish, delivery):
        assert (span["traceId"], span["parentSpanId"], span["status"]) == (TRACE, ABOVE, {})
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
    assert {"key": "messaging.message.body.size", "value": {"intValue": "4"}} in publish["attributes"]
    assert {"key": "penstock.outcome", "value": {"stringValue": "finished"}} in delivery["attributes"]
    resource = collector.requests[0]["resourceSpans"][0]["resource"]["attributes"]
    tcp_port = node.tcp.rpartition(":")[2]
    assert {"key": "service.instance.id", "value": {"stringValue": f"node:{tcp_port}"}} in resource


@each("endpoint", ["http://[", "nonsense", "http://a b"])
def test_a_url_that_names_no_server_is_warned_of_and_loses_the_spans(endpoint: str) -> None:
    options = parse(NsqdOptions, "nsqd", ["-otel-endpoint", endpoint], {})
    assert any("--otel-endpoint" in text for text in options.oddities())
    spans = Spans(lambda: 0)
    spans.end(Span("publish t", 2, TRACE, ABOVE, "", 1, 2, {}))
    trio.run(SpanExport(options, "node", 1, spans).export)
    assert (spans.lost, spans.exported) == (1, 0)


def test_spans_that_the_collector_does_not_take_are_lost_and_logged_once(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "penstock")
    options = parse(NsqdOptions, "nsqd", ["-otel-endpoint", collector.url + "/"], {})
    spans = Spans(lambda: 0)
    export = SpanExport(options, "node", 1, spans)

    def end_and_export(count: int) -> None:
        for _ in range(count):
            spans.end(Span("publish t", 2, TRACE, ABOVE, "", 1, 2, {}, "not durable"))
        trio.run(export.export)

    collector.status = 503
    end_and_export(BATCH + 1)
    assert (len(collector.requests), spans.lost, spans.exported) == (2, BATCH + 1, 0)
    collector.status = 200
    end_and_export(1)
    assert (spans.lost, spans.exported) == (BATCH + 1, 1)
    assert collector.spans()[-1]["status"] == {"code": 2, "message": "not durable"}
    collector.server_close()
    end_and_export(1)
    assert (spans.lost, spans.exported) == (BATCH + 2, 1)
    lines = [record.getMessage().partition(" - ") for record in caplog.records]
    assert [line[0] for line in lines] == [
        f"OTEL: cannot export spans to {collector.url}/v1/traces",
        f"OTEL: exporting to {collector.url}/v1/traces works again",
        f"OTEL: cannot export spans to {collector.url}/v1/traces",
    ]
    assert lines[0][2] == "it answers 503"
