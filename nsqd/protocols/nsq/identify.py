"""Handle IDENTIFY: the values that a client asks for, checked in the original's order, and the reply.

See docs/contributing/design/nsq-protocol.md#identify.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from nsqd.protocols.nsq.authorization import JsonPairs, read_json
from nsqd.protocols.nsq.errors import WireError
from nsqd.protocols.nsq.settings import CLIENT_TIMEOUT, DEFAULT_OUTPUT_BUFFER, Settings
from nsqd.protocols.transport import DEFLATE_LEVEL, Upgrade
from shared.text import without_surrogates
from shared.values import MILLISECOND, SECOND


@dataclass(frozen=True, slots=True)
class Field:
    """A field of IDENTIFY, from which the checks and docs/reference/client-settings.md follow.

    `least` and `most` bound a number that is not 0: in the unit of the field, or by the name of a setting, whose times are in
    ns. Out of bounds is an error.
    """

    kind: type
    about: str
    default: str = ""
    least: int | str = 0
    most: int | str = 0


FIELDS: dict[str, Field] = {
    "client_id": Field(str, "Name of the client in `/stats` and in nsqadmin"),
    "hostname": Field(str, "Name of its machine"),
    "user_agent": Field(str, "Its program and version"),
    "heartbeat_interval": Field(
        int, "ms between heartbeats; -1: none, and SUB is refused", "30,000", 1000, "max_heartbeat_interval"
    ),
    "output_buffer_size": Field(
        int,
        "Bytes of messages that are held to be sent together; -1: none, reported as 1",
        "16,384",
        64,
        "max_output_buffer_size",
    ),
    "output_buffer_timeout": Field(
        int,
        "ms for which they are held; -1: until another event sends them",
        "`-output-buffer-timeout`",
        "min_output_buffer_timeout",
        "max_output_buffer_timeout",
    ),
    "sample_rate": Field(int, "Percent of the messages to deliver; 0: all", "0", 0, 99),
    "msg_timeout": Field(
        int, "ms after which a message that is not finished is ready again", "`-msg-timeout`", 1000, "max_msg_timeout"
    ),
    "topology_region": Field(str, "Region of the client, for `-enable-experiment topology-aware-consumption`"),
    "topology_zone": Field(str, "Its zone"),
    "feature_negotiation": Field(
        bool, "The reply is JSON; without it the reply is `OK`, and the fields below are ignored", "false"
    ),
    "tls_v1": Field(bool, "TLS, if nsqd has a certificate", "false"),
    "deflate": Field(bool, "Compression by deflate, if nsqd has `-deflate`", "false"),
    "deflate_level": Field(int, "Its level; above `-max-deflate-level` it is lowered", "6"),
    "snappy": Field(bool, "Compression by snappy, if nsqd has `-snappy`; not with deflate", "false"),
    "deduplication": Field(
        bool, "PUB, DPUB and MPUB may end in a key, or in a producer and a sequence (Penstock's own)", "false"
    ),
    "headers": Field(
        bool,
        "Headers: messages come with them, in frames of type 3, and HPUB, HDPUB and HMPUB publish them (Penstock's own)",
        "false",
    ),
    "replicate": Field(
        int, "Nodes that must have each message before its OK (Penstock's own)", "as the topic's", 1, "most_copies"
    ),
}


MOST_SHOWN = 100  # characters of a text of the client in the log
NO_UPGRADE = Upgrade()


@dataclass(frozen=True, slots=True)
class Agreement:
    """The values agreed on with a client. Times are in ns; 0 means off."""

    client_id: str = ""
    hostname: str = ""
    user_agent: str = ""
    heartbeat_interval: int = CLIENT_TIMEOUT // 2
    output_buffer_size: int = DEFAULT_OUTPUT_BUFFER  # bytes; 1: nothing is held back
    output_buffer_timeout: int = 250 * MILLISECOND
    sample_rate: int = 0  # percent; 0: all messages
    msg_timeout: int = 60 * SECOND
    negotiates: bool = field(default=False, compare=False)  # True: the answer is JSON, not just OK
    upgrade: Upgrade = NO_UPGRADE
    topology_region: str = ""
    topology_zone: str = ""
    replicate: int = 0  # copies that each publish asks for; 0: as many as its topic does
    deduplication: bool = False  # PUB, DPUB and MPUB may name a key, or a producer and a sequence (publisher.py)
    headers: bool = False  # messages come with their headers, and HPUB, HDPUB and HMPUB publish them

    def summary(self) -> str:
        """Return the line of the log about a client, with the original's names; long texts are cut off."""
        names = [text[:MOST_SHOWN] for text in (self.client_id, self.hostname, self.user_agent)]
        interval = self.heartbeat_interval // MILLISECOND
        return "{{ClientID:{} Hostname:{} HeartbeatInterval:{} UserAgent:{}}}".format(*names[:2], interval, names[2])


NOTHING_AGREED = Agreement()


def decode(body: bytes) -> dict[str, Any]:
    """Parse the body's fields, with names in lower case and types checked as Go's decoder does. Raises WireError."""
    try:
        pairs = read_json(body, "replace")
    except ValueError:
        raise _decode_failed() from None
    if pairs is None:
        return {}
    if not isinstance(pairs, JsonPairs):
        raise _decode_failed()
    found: dict[str, Any] = {}
    for name, value in pairs:
        known = FIELDS.get(name.lower())
        if known is None or value is None:
            continue
        if type(value) is not known.kind or (isinstance(value, int) and not -(2**63) <= value < 2**63):
            raise _decode_failed()
        found[name.lower()] = without_surrogates(value) if isinstance(value, str) else value
    if not -(2**31) <= found.get("sample_rate", 0) < 2**31:
        raise _decode_failed()
    return found


def _decode_failed() -> WireError:
    """Return a new exception each time: one that is raised again and again keeps every frame it came through."""
    return WireError("E_BAD_BODY", "IDENTIFY failed to decode JSON body")


def apply(asked: dict[str, Any], settings: Settings) -> tuple[Agreement, WireError | None]:
    """Return the agreement, and the first error or None. With an error, all earlier values still hold, as in the original."""
    identity = Agreement(
        client_id=asked.get("client_id", ""),
        hostname=asked.get("hostname", ""),
        user_agent=asked.get("user_agent", ""),
        output_buffer_timeout=settings.output_buffer_timeout,
        msg_timeout=settings.msg_timeout,
        negotiates=asked.get("feature_negotiation", False),
        topology_region=asked.get("topology_region", ""),
        topology_zone=asked.get("topology_zone", ""),
        deduplication=asked.get("feature_negotiation", False) and asked.get("deduplication", False),
        headers=asked.get("feature_negotiation", False) and asked.get("headers", False),
    )
    try:
        for step in (_heartbeat, _output_timeout, _output_size, _sample_rate, _msg_timeout, _replicate, _upgrade):
            identity = step(identity, asked, settings)
    except WireError as error:
        return identity, error
    return identity, None


def _in_range(asked: dict[str, Any], name: str, settings: Settings) -> int:
    """Return a number that was asked for, or 0 if it was not. Raises WireError if it is out of range."""
    value: int = asked.get(name, 0)
    known = FIELDS[name]
    if value and not _bound(known.least, settings) <= value <= _bound(known.most, settings):
        raise WireError("E_BAD_BODY", f"IDENTIFY {name.replace('_', ' ')} ({value}) is invalid")
    return value


def _bound(bound: int | str, settings: Settings) -> int:
    """Return a bound of a field as a number: that of a setting is in ms for a time."""
    if isinstance(bound, int):
        return bound
    value: int = getattr(settings, bound)
    return value // MILLISECOND if bound.endswith(("_interval", "_timeout")) else value


def _heartbeat(identity: Agreement, asked: dict[str, Any], settings: Settings) -> Agreement:
    if asked.get("heartbeat_interval") == -1:
        return replace(identity, heartbeat_interval=0)
    value = _in_range(asked, "heartbeat_interval", settings)
    return replace(identity, heartbeat_interval=value * MILLISECOND) if value else identity


def _output_timeout(identity: Agreement, asked: dict[str, Any], settings: Settings) -> Agreement:
    if asked.get("output_buffer_timeout") == -1:
        return replace(identity, output_buffer_timeout=0)
    value = _in_range(asked, "output_buffer_timeout", settings)
    return replace(identity, output_buffer_timeout=value * MILLISECOND) if value else identity


def _output_size(identity: Agreement, asked: dict[str, Any], settings: Settings) -> Agreement:
    if asked.get("output_buffer_size") == -1:
        return replace(identity, output_buffer_size=1, output_buffer_timeout=0)
    value = _in_range(asked, "output_buffer_size", settings)
    return replace(identity, output_buffer_size=value) if value else identity


def _replicate(identity: Agreement, asked: dict[str, Any], settings: Settings) -> Agreement:
    return replace(identity, replicate=_in_range(asked, "replicate", settings) if identity.negotiates else 0)


def _sample_rate(identity: Agreement, asked: dict[str, Any], settings: Settings) -> Agreement:
    return replace(identity, sample_rate=_in_range(asked, "sample_rate", settings))


def _msg_timeout(identity: Agreement, asked: dict[str, Any], settings: Settings) -> Agreement:
    value = _in_range(asked, "msg_timeout", settings)
    return replace(identity, msg_timeout=value * MILLISECOND) if value else identity


def _upgrade(identity: Agreement, asked: dict[str, Any], settings: Settings) -> Agreement:
    if not identity.negotiates:
        return identity
    level = asked.get("deflate_level", 0) if settings.deflate and asked.get("deflate") else 0
    upgrade = Upgrade(
        tls=settings.tls and asked.get("tls_v1", False),
        snappy=settings.snappy and asked.get("snappy", False),
        deflate=settings.deflate and asked.get("deflate", False),
        deflate_level=min(level if level > 0 else DEFLATE_LEVEL, settings.max_deflate_level),
    )
    if upgrade.snappy and upgrade.deflate:
        raise WireError("E_IDENTIFY_FAILED", "cannot enable both deflate and snappy compression")
    return replace(identity, upgrade=upgrade)


def answer(identity: Agreement, settings: Settings) -> bytes:
    """Return the answer to IDENTIFY: OK, or a JSON object of what was agreed, in the original's key order."""
    if not identity.negotiates:
        return b"OK"
    upgrade = identity.upgrade
    agreed = {
        "max_rdy_count": settings.max_rdy_count,
        "version": settings.version,
        "max_msg_timeout": settings.max_msg_timeout // MILLISECOND,
        "msg_timeout": identity.msg_timeout // MILLISECOND,
        "tls_v1": upgrade.tls,
        "deflate": upgrade.deflate,
        "deflate_level": upgrade.deflate_level,
        "max_deflate_level": settings.max_deflate_level,
        "snappy": upgrade.snappy,
        "sample_rate": identity.sample_rate,
        "auth_required": settings.auth_required,
        "output_buffer_size": identity.output_buffer_size,
        "output_buffer_timeout": identity.output_buffer_timeout // MILLISECOND,
    }
    if settings.topology_region or settings.topology_zone:  # the release of 1.3.0 does not know these keys
        agreed |= {"topology_region": settings.topology_region, "topology_zone": settings.topology_zone}
    if identity.replicate:
        agreed["replicate"] = identity.replicate
    if identity.deduplication:
        agreed["deduplication"] = True
    if identity.headers:
        agreed["headers"] = True
    return json.dumps(agreed, separators=(",", ":")).encode()
