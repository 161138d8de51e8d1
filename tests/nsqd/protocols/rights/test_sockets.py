"""Clients that connect by a unix socket: known by the machine's user, without showing anything, until the file changes."""

import json

from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.nsq.settings import Settings
from shared.auth.verbs import Verb
from shared.process.unix_sockets import NOBODY
from shared.tls.info import TlsInfo
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.beanstalk.wire import Wire as BeanstalkWire
from tests.nsqd.protocols.disque.wire import Wire as DisqueWire
from tests.nsqd.protocols.disque.wire import context_of
from tests.nsqd.protocols.nsq.wire import Wire, body
from tests.nsqd.protocols.rights.proofs import SIDECAR, Proofs, token

SETTINGS = Settings(auth_required=True)
STRANGERS = (SIDECAR + 1, 0, NOBODY)


def pub(topic: bytes) -> bytes:
    return b"PUB %s\n" % topic + body(b"x")


def auth(name: str) -> bytes:
    return b"AUTH\n" + body(token(name))


def shown(subject: str) -> TlsInfo:
    """A connection over TLS whose certificate has this subject."""
    return TlsInfo("TLS1.3", "Unknown", "", True, "", subject=subject)


def nsq(proofs: Proofs, user: int = SIDECAR) -> Wire:
    return Wire(None, SETTINGS, proofs=proofs, asks=False, user=user)


def disque(proofs: Proofs, user: int = SIDECAR) -> DisqueWire:
    node = Node()
    context = context_of(node)
    context.proofs = proofs
    return DisqueWire(node, context, user)


# NSQ


def test_a_client_of_nsq_may_what_its_user_may() -> None:
    client = nsq(Proofs())
    (said,) = client.send(b"IDENTIFY\n" + body(b'{"feature_negotiation":true}')).replies()
    assert json.loads(said)["auth_required"] is True, "a known user is asked for a token, which counts instead"
    assert client.send(pub(b"work") + b"SUB work c\n").replies() == [b"OK", b"OK"]
    assert nsq(Proofs()).send(pub(b"other")).replies() == [b'E_UNAUTHORIZED AUTH failed for PUB on "other" ""']
    for user in STRANGERS:
        assert nsq(Proofs(), user).send(pub(b"work")).replies() == [b"E_AUTH_FIRST AUTH required before PUB"]


def test_a_token_or_a_certificate_replaces_the_user() -> None:
    refused, proofs = b'E_UNAUTHORIZED AUTH failed for PUB on "work" ""', Proofs("orders")
    client, revoked = nsq(proofs), nsq(proofs)
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


def test_a_connection_ends_with_the_right_of_its_user() -> None:
    proofs = Proofs()
    client, credential = nsq(proofs), nsq(proofs).credential
    assert not credential.show_token(b"guess")
    assert not credential.show_certificate(shown("CN=stranger"))
    assert credential.may(Verb.PUBLISH, "work"), "it stays what it was when nothing better is shown"
    assert credential.show_certificate(shown("CN=billing"))
    assert credential.may(Verb.PUBLISH, "any")
    client.send(b"SUB work c\n").replies()
    client.peer.rights_changed()
    assert not client.peer.closing
    proofs.set(has_socket=False)
    client.peer.rights_changed()
    assert client.replies() == [b"E_UNAUTHORIZED AUTH is no longer valid"]
    assert client.peer.closing


def test_a_user_who_is_entered_later_is_known_on_open_connections() -> None:
    proofs = Proofs()
    proofs.set(has_socket=False)
    client, worker, queue = nsq(proofs), BeanstalkWire(None, BeanstalkContext(proofs=proofs), SIDECAR), disque(proofs)
    assert queue.do("ADDJOB", "work", "x", 0) == "-NOAUTH Authentication required."
    proofs.set()
    for peer in (client.peer, worker.peer, queue.peer):
        peer.rights_changed()
    assert client.send(pub(b"work")).replies() == [b"OK"]
    assert worker.ask(b"use work\r\nput 0 0 9 1\r\nx\r\n") == b"USING work\r\nINSERTED 1\r\n"
    assert str(queue.do("ADDJOB", "work", "x", 0)).startswith("D-")


# beanstalkd and Disque


def test_a_client_of_beanstalkd_may_what_its_user_may() -> None:
    proofs = Proofs()
    client = BeanstalkWire(None, BeanstalkContext(proofs=proofs), SIDECAR)
    assert client.ask(b"use work\r\nput 0 0 9 1\r\nx\r\n") == b"USING work\r\nINSERTED 1\r\n"
    assert client.ask(b"use other\r\nput 0 0 9 1\r\nx\r\n").endswith(b"UNAUTHORIZED\r\n")
    proofs.set(has_socket=False)
    client.peer.rights_changed()
    assert client.peer.outbox.closing
    for user in STRANGERS:
        stranger = BeanstalkWire(None, BeanstalkContext(proofs=proofs), user)
        assert stranger.ask(b"list-tubes\r\n") == b"UNAUTHORIZED\r\n"


def test_a_client_of_disque_may_what_its_user_may() -> None:
    proofs = Proofs("orders")
    client = disque(proofs)
    assert str(client.do("ADDJOB", "work", "x", 0)).startswith("D-")
    assert str(client.do("ADDJOB", "orders", "x", 0)).startswith("-NOPERM")
    assert client.do("AUTH", token("orders")) == "OK"
    assert str(client.do("ADDJOB", "work", "x", 0)).startswith("-NOPERM")
    other = disque(proofs)
    proofs.set(has_socket=False)
    other.peer.rights_changed()
    assert other.peer.outbox.closing
    for user in STRANGERS:
        assert disque(proofs, user).do("QLEN", "work") == "-NOAUTH Authentication required."
