"""A kombu message as the body of a job or a message, and the job's priority and delay. Pure.

The body is JSON: {"queue": name, "ttr": seconds, "priority": of the job, "message": kombu's payload}, or for broadcasts
{"routing_key": key, "message": payload}, or {"marker": id}.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from penstock.jobs.calls import MAX_U32

Payload = dict[str, Any]  # kombu's: body, headers, properties, content-type, content-encoding
LOWEST, STEP = 2048, 100  # the job's priority of kombu's 0; each higher one comes 100 before it


@dataclass(frozen=True, slots=True)
class Envelope:
    """The content of a job: a task of Celery, its queue and priority (0 to 9), and the time to run of its job."""

    queue: str
    ttr_s: int
    priority: int
    message: Payload


@dataclass(frozen=True, slots=True)
class Broadcast:
    """The content of a message of an exchange's topic."""

    routing_key: str
    message: Payload
    marker: str = ""  # not empty: no message, but the sign that a subscription is active


def pack_job(queue: str, ttr_s: int, message: Payload) -> bytes:
    """Return the body of a job. Raises TypeError for a message that JSON cannot hold."""
    fields = {"queue": queue, "ttr": ttr_s, "priority": priority_of(message), "message": message}
    return json.dumps(fields, separators=(",", ":")).encode()


def read_job(body: bytes) -> Envelope:
    """Read the body of a job. Raises ValueError for a body that this transport did not write."""
    fields = _read(body)
    try:
        ttr, priority = max(1, int(fields["ttr"])), min(max(0, int(fields["priority"])), MAX_U32)
        return Envelope(str(fields["queue"]), ttr, priority, _payload(fields["message"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a message of kombu: {error}") from error


def pack_broadcast(routing_key: str, message: Payload) -> bytes:
    """Return the body of a broadcast."""
    return json.dumps({"routing_key": routing_key, "message": message}, separators=(",", ":")).encode()


def pack_marker(marker: str) -> bytes:
    """Return the body of a marker."""
    return json.dumps({"marker": marker}).encode()


def read_broadcast(body: bytes) -> Broadcast:
    """Read the body of a broadcast. Raises ValueError."""
    fields = _read(body)
    if "marker" in fields:
        return Broadcast("", {}, str(fields["marker"]))
    try:
        return Broadcast(str(fields["routing_key"] or ""), _payload(fields["message"]))
    except KeyError as error:
        raise ValueError(f"not a broadcast of kombu: {error}") from error


def priority_of(message: Payload) -> int:
    """Return the job's priority: kombu's 9 comes first, 0 (the default) last."""
    try:
        asked = int(message["properties"]["priority"] or 0)
    except (KeyError, TypeError, ValueError):
        asked = 0
    return LOWEST - STEP * min(max(asked, 0), 9)


def delay_of(message: Payload, wall_s: float) -> int:
    """Return the whole seconds until the task's eta, rounded down (the worker waits for the rest); 0 without one.

    `wall_s` is the present time in seconds since the epoch. A date without a time zone is in UTC, as Celery sends it.
    """
    headers = message.get("headers")
    eta = headers.get("eta") if isinstance(headers, Mapping) else None
    if not isinstance(eta, str):
        return 0
    try:
        due = datetime.fromisoformat(eta)
    except ValueError:
        return 0  # not Celery's header: the worker decides
    if due.tzinfo is None:
        due = due.replace(tzinfo=UTC)
    return min(max(0, int(due.timestamp() - wall_s)), MAX_U32)


def _read(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    return fields


def _payload(value: object) -> Payload:
    """Return the payload if kombu can make a message of it. Raises ValueError."""
    if not isinstance(value, dict) or not isinstance(value.get("properties"), dict):
        raise ValueError("not a message of kombu: it has no properties")
    parts = value["properties"].get("delivery_info", {}), value.get("headers", {})
    if not all(isinstance(part, dict) for part in parts):
        raise ValueError("not a message of kombu: its headers are not a dictionary")
    return value
