"""The task that exports spans to a collector of OpenTelemetry, as JSON of OTLP over HTTP, in a thread.

What the collector does not take is lost, and counted: publishes and deliveries never wait for it.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import httpx
import trio

from nsqd.core.spans import Span, Spans
from nsqd.options import NsqdOptions
from penstock import __version__
from shared.auth.own_token import OwnTokenError, read_secret
from shared.log import log
from shared.secrets import hide

EVERY = 1.0  # s between two exports
BATCH = 512  # spans in a request, as the SDKs have it
_BEARER = re.compile(rb"[\w.~+/-]+=*", re.ASCII)  # as in RFC 6750
LAST = 1.0  # s for what is left when the node stops


class SpanExport:
    """The task of a node that exports its spans."""

    def __init__(self, options: NsqdOptions, host: str, port: int, spans: Spans) -> None:
        """Set up the task. `host` and `port` (TCP) are those that are broadcast."""
        self._url = options.otel_endpoint.rstrip("/") + "/v1/traces"
        self._token_file = options.otel_token_file
        self._resource = _values({"service.name": "nsqd", "service.instance.id": f"{host}:{port}"})
        self._spans = spans
        timeout = httpx.Timeout(
            options.http_client_request_timeout / 1e9, connect=options.http_client_connect_timeout / 1e9
        )
        self._client = httpx.Client(timeout=timeout, trust_env=False)
        self._failure = ""  # why the last export failed; "": it did not fail

    async def run(self) -> None:
        """Export what has ended every second until cancelled."""
        log.info("OTEL: exporting spans to %s", hide(self._url))
        try:
            while True:
                await trio.sleep(EVERY)
                await self.export()
        finally:
            with trio.move_on_after(LAST, shield=True):
                await self.export()

    async def export(self) -> None:
        """Export all spans that have ended. Spans that the collector does not take are lost."""
        while spans := self._spans.take(BATCH):
            failure = await trio.to_thread.run_sync(self._post, spans, abandon_on_cancel=True)
            if failure:
                self._spans.lost += len(spans)
            else:
                self._spans.exported += len(spans)
            self._report(failure)

    def _post(self, spans: Sequence[Span]) -> str:
        """Send spans to the collector. Returns why it did not take them, or "". The answer's body is not read."""
        scope = {"scope": {"name": "penstock", "version": __version__}, "spans": [_encode(span) for span in spans]}
        content = json.dumps({"resourceSpans": [{"resource": {"attributes": self._resource}, "scopeSpans": [scope]}]})
        headers = {"content-type": "application/json"}
        try:
            if self._token_file:
                headers["authorization"] = f"Bearer {_bearer_token(self._token_file)}"
            with self._client.stream("POST", self._url, content=content, headers=headers) as response:
                return "" if response.is_success else f"it answers {response.status_code}"
        except (httpx.HTTPError, httpx.InvalidURL, OSError, OwnTokenError) as error:
            return str(error) or type(error).__name__

    def _report(self, failure: str) -> None:
        """Log a failure when it begins and when it is over."""
        if failure and not self._failure:
            log.error("OTEL: cannot export spans to %s - %s", hide(self._url), failure)
        elif self._failure and not failure:
            log.info("OTEL: exporting to %s works again", hide(self._url))
        self._failure = failure


def _bearer_token(path: str) -> str:
    """Return the token in a file. Raises OSError, OwnTokenError."""
    token = read_secret(path)
    if not _BEARER.fullmatch(token):
        raise OwnTokenError(f"{path} has no bearer token")
    return token.decode()


def _encode(span: Span) -> dict[str, Any]:
    return {
        "traceId": span.trace,
        "spanId": span.id,
        "parentSpanId": span.parent,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _values(span.attributes),
        "status": {"code": 2, "message": span.error} if span.error else {},
    }


def _values(attributes: dict[str, str | int]) -> list[dict[str, Any]]:
    """Return attributes as OTLP's JSON has them, in which 64-bit integers are texts."""
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in attributes.items()
    ]
