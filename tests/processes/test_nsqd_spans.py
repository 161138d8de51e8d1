"""nsqd exports spans to a collector; one that refuses them, or is not there, is logged once and loses them."""

from __future__ import annotations

import json
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
from tests.http_endpoint import OK, Endpoint, always, status

pytestmark = pytest.mark.process
TRACE, ABOVE = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def url(collector: Endpoint) -> str:
    return f"http://{collector.address}"


def resources(collector: Endpoint) -> list[dict[str, Any]]:
    """Return the resource of each request, with its spans."""
    kinds = {(one.method, one.target, one.headers["content-type"]) for one in collector.requests}
    assert kinds <= {("POST", "/v1/traces", "application/json")}
    return [json.loads(body)["resourceSpans"][0] for body in collector.bodies]


def spans_of(collector: Endpoint) -> list[dict[str, Any]]:
    return [span for one in resources(collector) for span in one["scopeSpans"][0]["spans"]]


def test_a_publish_and_its_delivery_reach_the_collector(tmp_path: Path) -> None:
    with (
        Endpoint() as collector,
        nsqd(tmp_path, "-otel-endpoint", url(collector), "-broadcast-address", "node") as node,
        Conversation(node, b"  V2SUB traced c\nRDY 1\n") as consumer,
    ):
        assert consumer.frame() == (0, b"OK")
        headers = {"X-Nsq-Header-Traceparent": f"00-{TRACE}-{ABOVE}-01"}
        pub = f"http://{node.http}/pub?topic=traced"
        assert httpx.post(pub, content=b"body", headers=headers).status_code == 200
        assert httpx.post(pub, content=b"not sampled").status_code == 200
        consumer.send(b"FIN " + consumer.message().id + b"\n")
        eventually(lambda: len(spans_of(collector)) == 2, what="exported")
        exported = ("nsqd_spans_exported_total 2.0", "nsqd_spans_lost_total 0.0")  # counted once it has answered
        metrics = lambda: httpx.get(f"http://{node.http}/metrics").text  # noqa: E731
        eventually(lambda: all(line in metrics() for line in exported))
    publish, delivery = sorted(spans_of(collector), key=lambda span: span["kind"], reverse=True)
    assert [publish["name"], delivery["name"]] == ["publish traced", "deliver traced"]
    for span in (publish, delivery):
        assert (span["traceId"], span["parentSpanId"], span["status"]) == (TRACE, ABOVE, {})
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
    assert {"key": "messaging.message.body.size", "value": {"intValue": "4"}} in publish["attributes"]
    assert {"key": "penstock.outcome", "value": {"stringValue": "finished"}} in delivery["attributes"]
    resource = resources(collector)[0]["resource"]["attributes"]
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


def test_a_collector_gets_the_token_that_the_file_has_at_each_export(tmp_path: Path) -> None:
    spans, token = Spans(lambda: 0), tmp_path / "token"
    token.touch(0o600)
    with Endpoint() as collector:
        options = parse(NsqdOptions, "nsqd", ["-otel-endpoint", url(collector), "-otel-token-file", str(token)], {})
        export = SpanExport(options, "node", 1, spans)
        for content in ("first", "second", "", "two words", "x\ny: z"):
            token.write_text(f"{content}\n")
            spans.end(Span("publish t", 2, TRACE, ABOVE, "", 1, 2, {}))
            trio.run(export.export)
        assert [one.headers["authorization"] for one in collector.requests] == ["Bearer first", "Bearer second"]
    assert (spans.exported, spans.lost) == (2, 3)


def test_spans_that_the_collector_does_not_take_are_lost_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "penstock")
    spans = Spans(lambda: 0)

    def end_and_export(count: int) -> None:
        for _ in range(count):
            spans.end(Span("publish t", 2, TRACE, ABOVE, "", 1, 2, {}, "not durable"))
        trio.run(export.export)

    with Endpoint(always(status(503))) as collector:
        options = parse(NsqdOptions, "nsqd", ["-otel-endpoint", url(collector) + "/"], {})
        export = SpanExport(options, "node", 1, spans)
        end_and_export(BATCH + 1)
        assert (len(resources(collector)), spans.lost, spans.exported) == (2, BATCH + 1, 0)
        collector.answer = always(OK)
        end_and_export(1)
        assert (spans.lost, spans.exported) == (BATCH + 1, 1)
        assert spans_of(collector)[-1]["status"] == {"code": 2, "message": "not durable"}
    end_and_export(1)
    assert (spans.lost, spans.exported) == (BATCH + 2, 1)
    lines = [record.getMessage().partition(" - ") for record in caplog.records]
    assert [line[0] for line in lines] == [
        f"OTEL: cannot export spans to {url(collector)}/v1/traces",
        f"OTEL: exporting to {url(collector)}/v1/traces works again",
        f"OTEL: cannot export spans to {url(collector)}/v1/traces",
    ]
    assert lines[0][2] == "it answers 503"
