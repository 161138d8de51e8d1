"""Clients that connect by a unix socket: known by the machine's user, without showing anything, until the file changes."""

import json
from collections.abc import Callable

from nsqd.protocols.nsq.settings import Settings
from shared.auth.verbs import Verb
from shared.process.unix_sockets import NOBODY
from shared.tls.info import TlsInfo
from tests.cases import each
from tests.nsqd.protocols.beanstalk.wire import Wire as BeanstalkWire
from tests.nsqd.protocols.disque.wire import Wire as DisqueWire
from tests.nsqd.protocols.nsq.wire import Wire, body
from tests.nsqd.protocols.rights.limited_clients import beanstalk_client, disque_client
from tests.nsqd.protocols.rights.proofs import SIDECAR, Proofs, token

SETTINGS = Settings(auth_required=True)
STRANGERS = (SIDECAR + 1, 0, NOBODY)
Client = Wire | BeanstalkWire


def pub(topic: bytes) -> bytes:
    return b"PUB %s\n" % topic + body(b"x")


def auth(name: str) -> bytes:
    return b"AUTH\n" + body(token(name))


def shown(subject: str) -> TlsInfo:
    """A connection over TLS whose certificate has this subject."""
    return TlsInfo("TLS1.3", "Unknown", "", True, "", subject=subject)


def nsq(proofs: Proofs, user: int = SIDECAR) -> Wire:
    return Wire(None, SETTINGS, proofs=proofs, asks=False, user=user)


def publishes(client: Client, topic: str) -> bool:
    """Let a client publish its first message, and return whether it may."""
    if isinstance(client, Wire):
        return client.send(pub(topic.encode())).replies() == [b"OK"]
    if isinstance(client, DisqueWire):
        return str(client.do("ADDJOB", topic, "x", 0)).startswith("D-")
    return client.ask(b"use %s\r\nput 0 0 9 1\r\nx\r\n" % topic.encode()).endswith(b"\r\nINSERTED 1\r\n")


@each("connect", [nsq, beanstalk_client, disque_client])
def test_a_client_may_what_its_user_may_and_no_longer(connect: Callable[[Proofs, int], Client]) -> None:
    proofs = Proofs()
    assert not any(publishes(connect(proofs, user), "work") for user in STRANGERS)
    assert not publishes(connect(proofs, SIDECAR), "other")
    client = connect(proofs, SIDECAR)
    assert publishes(client, "work")
    proofs.set(has_socket=False)
    client.peer.rights_changed()
    assert client.peer.outbox.closing


@each("connect", [nsq, beanstalk_client, disque_client])
def test_a_user_who_is_entered_later_is_known_on_open_connections(connect: Callable[[Proofs, int], Client]) -> None:
    proofs = Proofs()
    proofs.set(has_socket=False)
    client = connect(proofs, SIDECAR)
    proofs.set()
    client.peer.rights_changed()
    assert publishes(client, "work")


def test_a_token_or_a_certificate_replaces_the_user() -> None:
    refused, proofs = b'E_UNAUTHORIZED AUTH failed for PUB on "work" ""', Proofs("orders")
    client, revoked = nsq(proofs), nsq(proofs)
    (said,) = client.send(b"IDENTIFY\n" + body(b'{"feature_negotiation":true}')).replies()
    assert json.loads(said)["auth_required"] is True, "a known user is asked for a token, which counts instead"
    assert client.send(pub(b"work") + auth("orders") + pub(b"orders")).replies()[::2] == [b"OK", b"OK"]
    assert client.send(pub(b"work")).replies() == [refused]
    client = nsq(Proofs())
    assert client.send(pub(b"work")).replies() == [b"OK"]
    client.peer.upgraded(TlsInfo("TLS1.3", "", "", True, "shop", subject="CN=shop"))
    assert client.send(pub(b"orders") + pub(b"work")).replies() == [b"OK", b"OK", refused]
    revoked.send(auth("orders")).replies()
    proofs.set()
    revoked.peer.rights_changed()
    assert revoked.peer.closing, "it is not its user again"


def test_a_client_stays_its_user_when_it_shows_nothing_better() -> None:
    credential = nsq(Proofs()).credential
    assert not credential.show_token(b"guess")
    assert not credential.show_certificate(shown("CN=stranger"))
    assert credential.may(Verb.PUBLISH, "work")
    assert credential.show_certificate(shown("CN=billing"))
    assert credential.may(Verb.PUBLISH, "any")
