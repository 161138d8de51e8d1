"""Describe a connection for /stats: the original's ClientStats, key for key.

See docs/contributing/design/nsq-http.md#clients-in-the-statistics.
"""

from typing import Any

from nsqd.core.channel.consumer import Consumer
from nsqd.protocols.http.publishers import HttpPublisher
from nsqd.protocols.nsq.peer import Peer
from shared.values import SECOND


def client(peer: Peer, topic: str, extended: bool = False) -> dict[str, Any]:
    """Return the whole picture of a connection.

    `extended`: with the keys that NSQ does not know.
    At most one topic that the client published to is shown, as in the original: `topic`, or the first one if that is empty.
    """
    identity, consumer = peer.introduction.identity, peer.consumer
    return {
        "client_id": identity.client_id,
        "hostname": identity.hostname,
        "version": "V2",
        "remote_address": address_of(peer),
        "state": peer.state,
        "ready_count": _rdy(consumer),
        "in_flight_count": _total(consumer, "in_flight"),
        "message_count": _total(consumer, "message_count"),
        "finish_count": _total(consumer, "finish_count"),
        "requeue_count": _total(consumer, "requeue_count"),
        "connect_ts": peer.connected // SECOND,
        "sample_rate": identity.sample_rate,
        "deflate": identity.upgrade.deflate,
        "snappy": identity.upgrade.snappy,
        "user_agent": identity.user_agent,
        **_authorization(peer),
        **_topology(peer),
        **_published(peer, topic),
        **_tls(peer),
        **({"error_count": peer.errors} if extended else {}),
    }


def http_publisher(one: HttpPublisher) -> dict[str, Any]:
    """Return an address that publishes over HTTP, in the form of a connection; for those who ask for extensions."""
    return {
        "client_id": "HTTP",
        "hostname": "",
        "version": "HTTP",
        "remote_address": one.address or "@",
        "user_agent": "",
        "connect_ts": one.since,
        "pub_counts": [{"topic": one.topic, "count": one.messages}],
    }


def address_of(peer: Peer) -> str:
    """Return the address from which a client has connected; "@": by a unix socket."""
    return f"{peer.remote_ip}:{peer.port}" if peer.remote_ip else "@"


def _rdy(consumer: Consumer | None) -> int:
    if consumer is None:
        return 0
    return consumer.window.rdy if consumer.window is not None else consumer.ready


def _total(consumer: Consumer | None, count: str) -> int:
    """Return a count of the consumer, over all logs from which it gets messages."""
    if consumer is None:
        return 0
    return consumer.window.total(count) if consumer.window is not None else int(getattr(consumer, count))


def _authorization(peer: Peer) -> dict[str, Any]:
    authorization = peer.introduction.access.authorization
    if authorization is None:
        return {}
    fields = {"auth_identity": authorization.identity, "auth_identity_url": authorization.identity_url}
    return {"authed": True, **{key: text for key, text in fields.items() if text}}


def _topology(peer: Peer) -> dict[str, str]:
    """Return the client's zone and region, or nothing without them: the release of 1.3.0 does not know these keys."""
    identity = peer.introduction.identity
    if not identity.topology_zone and not identity.topology_region:
        return {}
    return {"topology_zone": identity.topology_zone, "topology_region": identity.topology_region}


def _published(peer: Peer, topic: str) -> dict[str, Any]:
    name = topic or next(iter(peer.pub_counts), "")
    return {"pub_counts": [{"topic": name, "count": peer.pub_counts[name]}]} if name in peer.pub_counts else {}


def _tls(peer: Peer) -> dict[str, Any]:
    tls = peer.introduction.tls
    return {
        "tls": tls is not None,
        "tls_cipher_suite": tls.cipher_suite if tls else "",
        "tls_version": tls.version if tls else "",
        "tls_negotiated_protocol": tls.negotiated_protocol if tls else "",
        "tls_negotiated_protocol_is_mutual": tls.negotiated_protocol_is_mutual if tls else False,
    }
