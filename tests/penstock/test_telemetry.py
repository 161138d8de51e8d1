"""Spans and durations of OpenTelemetry: when there are any, and what is in them."""

import json
import sys
from collections.abc import Iterator
from struct import pack

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from penstock.protocol import nsq
from penstock.protocol.headers import MOST_HEADERS
from penstock.sansio.errors import PublishError
from penstock.sansio.message import Message
from penstock.sansio.publisher import Publisher
from penstock.sansio.session import Session
from penstock.sansio.settings import Settings
from penstock.telemetry import JOBS, NSQ, OPT_IN, Telemetry, telemetry
from tests.penstock.spans import Recorded, recording


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    with recording(monkeypatch) as found:
        yield found


@pytest.fixture
def tracing(recorded: Recorded) -> Telemetry:
    found = telemetry()
    assert found is not None
    return found


def test_there_are_none_unless_they_are_wanted_and_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    with recording(monkeypatch):
        assert telemetry() is not None
    for value in ("", "http", "messaging/no"):
        monkeypatch.setenv(OPT_IN, value)
        telemetry.cache_clear()
        assert telemetry() is None
    monkeypatch.setenv(OPT_IN, "messaging/dup")
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    telemetry.cache_clear()
    assert telemetry() is None
    telemetry.cache_clear()


def test_a_delivery_is_a_child_of_its_publish(recorded: Recorded, tracing: Telemetry) -> None:
    sent = tracing.send(NSQ, "t", 3)
    sent.end()
    headers = dict(sent.join((("source", "shop"),)))
    assert list(headers) == ["source", "traceparent"]
    tracing.process(NSQ, "t", "00af", headers, "c").end()
    publish, process = recorded.spans
    assert publish.context is not None
    assert (process.parent.span_id, process.parent.trace_id) == (publish.context.span_id, publish.context.trace_id)
    assert (publish.name, publish.kind) == ("publish t", SpanKind.PRODUCER)
    assert publish.attributes == {
        "messaging.system": "nsq", "messaging.operation.name": "publish", "messaging.operation.type": "send",
        "messaging.destination.name": "t", "messaging.batch.message_count": 3,
    }  # fmt: skip
    assert (process.name, process.kind) == ("process t", SpanKind.CONSUMER)
    assert process.attributes == {
        "messaging.system": "nsq", "messaging.operation.name": "process", "messaging.operation.type": "process",
        "messaging.destination.name": "t", "messaging.consumer.group.name": "c", "messaging.message.id": "00af",
    }  # fmt: skip
    assert recorded.durations() == {
        ("messaging.client.operation.duration", ""): 1, ("messaging.process.duration", ""): 1
    }  # fmt: skip


def test_a_failure_is_recorded_once_with_its_code(recorded: Recorded, tracing: Telemetry) -> None:
    refused, failed = tracing.send(JOBS, "tube"), tracing.process(JOBS, "", "7", {})
    refused.end(PublishError("no", "E_PUB_FAILED"))
    refused.end()
    failed.end(KeyError("x"))
    assert [span.name for span in recorded.spans] == ["publish tube", "process"]
    assert [span.status.status_code for span in recorded.spans] == [StatusCode.ERROR] * 2
    assert recorded.durations() == {
        ("messaging.client.operation.duration", "E_PUB_FAILED"): 1, ("messaging.process.duration", "KeyError"): 1
    }  # fmt: skip


def test_headers_of_the_application_come_first(tracing: Telemetry) -> None:
    sent = tracing.send(NSQ, "t")
    for headers in ((("traceparent", "mine"),), tuple((f"n{number}", "") for number in range(MOST_HEADERS))):
        assert sent.join(headers) == headers


@pytest.mark.parametrize("takes", [True, False])
def test_a_context_goes_only_to_a_server_that_takes_headers(takes: bool, tracing: Telemetry) -> None:
    answer = json.dumps({"headers": True} if takes else {}).encode()
    publisher: Publisher[None] = Publisher(Session("h:1", Settings()))
    publisher.session.take_output()
    publisher.session.receive(pack(">ii", 4 + len(answer), 0) + answer)
    publisher.publish(nsq.pub("t", b"x"), None, (), tracing.send(NSQ, "t"))
    assert publisher.session.take_output().startswith(b"HPUB t\n" if takes else b"PUB t\n")
    if not takes:
        with pytest.raises(PublishError, match="does not take headers"):
            publisher.publish(nsq.pub("t", b"x"), None, (("a", "b"),))


class Answers:
    is_lost = False

    def finish(self, message_id: bytes) -> None: ...
    def requeue(self, message_id: bytes, attempts: int, ms: int | None, backoff: bool) -> None: ...
    def touch(self, message_id: bytes) -> None: ...


def test_an_answer_ends_the_span_of_a_message(recorded: Recorded, tracing: Telemetry) -> None:
    one, two, three = (Message(nsq.Message(0, 1, b"%016d" % number, b""), Answers()) for number in range(3))
    for message in (one, two):
        message.operation = tracing.process(NSQ, "t", message.id.decode(), message.headers)
    assert (one.context is not None, three.context) == (True, None)
    one.finish()
    try:
        raise OSError("the work failed")
    except OSError:
        two.requeue(backoff=True)
    three.finish()
    assert [span.status.status_code for span in recorded.spans] == [StatusCode.UNSET, StatusCode.ERROR]
