"""Clients of NSQ and the auth file: AUTH with a token, certificates, and what ends when a right ends."""

import json

from nsqd.protocols.nsq.settings import Settings
from shared.auth.tokens import digest
from shared.tls.info import TlsInfo
from tests.cases import each
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.nsq.wire import Wire, body
from tests.nsqd.protocols.rights.proofs import Proofs, token

SETTINGS = Settings(auth_required=True)
PUB, SUB = b"PUB orders.eu\n" + body(b"x"), b"SUB orders.eu api\n"


def wire(proofs: Proofs, node: Node | None = None, asks: bool = False) -> Wire:
    return Wire(node, SETTINGS, proofs=proofs, asks=asks)


def auth(secret: bytes) -> bytes:
    return b"AUTH\n" + body(secret)


def test_a_token_or_a_certificate_allows_what_its_role_says() -> None:
    client = wire(Proofs("orders"))
    (said,) = client.send(auth(token("orders"))).replies()
    assert json.loads(said) == {"identity": "orders", "identity_url": "", "permission_count": 2}
    assert client.send(PUB + PUB).replies() == [b"OK", b"OK"]
    assert client.send(SUB).replies() == [b"OK"]
    for command, names in (
        (b"PUB other\n" + body(b"x"), b'"other" ""'),
        (b"SUB orders.eu web\n", b'"orders.eu" "web"'),
    ):
        other = wire(Proofs("orders"), client.node)
        said = other.send(auth(token("orders")) + command).replies()[1]
        assert said == b"E_UNAUTHORIZED AUTH failed for %s on %s" % (command[:3], names)
        assert other.peer.closing
    client = wire(Proofs())
    client.peer.upgraded(TlsInfo("TLS1.3", "", "", True, "billing", subject="CN=billing7"))
    assert client.send(PUB).replies() == [b"OK", b"OK"]
    stranger = wire(Proofs())
    stranger.peer.upgraded(TlsInfo("TLS1.3", "", "", True, "billing"))  # it was not verified
    assert stranger.send(PUB).replies()[1].startswith(b"E_AUTH_FIRST")


def test_a_second_token_replaces_the_first_and_an_unknown_one_is_a_request() -> None:
    client = wire(Proofs("orders", "worker"), asks=True)
    client.send(auth(token("orders")) + PUB + auth(token("worker")) + b"PUB work\n" + body(b"x"))
    assert client.replies()[1::2] == [b"OK", b"OK"]
    assert client.requests == []
    assert client.send(PUB).replies()[0].startswith(b"E_UNAUTHORIZED")
    client = wire(Proofs("orders"), asks=True)
    client.send(auth(token("worker")))
    assert [request.secret for request in client.requests] == [token("worker")]


def test_a_connection_ends_when_its_token_is_gone_and_goes_on_when_others_change() -> None:
    proofs = Proofs("orders", "worker")
    clients, stranger = [wire(proofs) for _ in range(2)], wire(proofs)
    for client in clients:
        client.send(auth(token("orders")))
    assert clients[0].send(PUB + SUB).replies()[1:] == [b"OK", b"OK"]
    proofs.set("orders")
    for client in (*clients, stranger):
        client.peer.rights_changed()
        assert not client.peer.closing
    assert clients[0].send(PUB).replies() == [b"OK"]
    proofs.set("worker")
    for client in clients:
        client.peer.rights_changed()
        assert client.replies()[-1] == b"E_UNAUTHORIZED AUTH is no longer valid"
        assert client.peer.closing


@each("is_under_way", [False, True])
def test_a_publisher_is_refused_as_soon_as_its_right_is_gone_also_in_a_large_mpub(is_under_way: bool) -> None:
    proofs = Proofs("orders")
    client = wire(proofs)
    client.send(auth(token("orders")) + PUB)  # the topic is known now
    batch = b"MPUB orders.eu\n" + body(b"\0\0\0\2" + (b"\0\3\0\0" + b"x" * 196_608) * 2) if is_under_way else b""
    client.send(batch[: len(batch) // 2])
    proofs.set("orders", "worker")
    proofs.file.tokens[digest(token("orders"))] = proofs.with_token(token("worker"))  # it has another role now
    client.peer.rights_changed()
    assert not client.peer.closing
    client.send(batch[len(batch) // 2 :] + PUB)
    assert client.replies()[-1].startswith(b"E_UNAUTHORIZED")
    assert client.peer.closing
    assert client.node.broker.topics["orders.eu"].intake.message_count == 1
