"""Clients that guess tokens: after some wrong ones of their address each further one ends its connection, on every port."""

from collections.abc import Callable

from nsqd.protocols.credential import Credential
from shared.auth.failures import FAILURES_WITHIN, MOST_FAILURES
from tests.cases import each
from tests.nsqd.protocols.beanstalk.wire import Wire as BeanstalkWire
from tests.nsqd.protocols.disque.wire import Wire as DisqueWire
from tests.nsqd.protocols.nsq.wire import Wire as NsqWire
from tests.nsqd.protocols.nsq.wire import body
from tests.nsqd.protocols.rights.limited_clients import beanstalk_client, disque_client
from tests.nsqd.protocols.rights.proofs import Proofs, token

WRONG = b"pst_" + b"x" * 43


def nsq(proofs: Proofs) -> NsqWire:
    return NsqWire(proofs=proofs, asks=False)


def is_known(wire: NsqWire | BeanstalkWire, secret: bytes) -> bool:
    """Show a token, and return whether the client is known by it."""
    if isinstance(wire, NsqWire):
        (said,) = wire.send(b"AUTH\n" + body(secret)).replies()
        assert said == b"E_AUTH_FAILED AUTH failed" or said.startswith(b"{")
        return said.startswith(b"{")
    if isinstance(wire, DisqueWire):
        return {"OK": True, "-ERR invalid password": False}[wire.do("AUTH", secret)]
    return {b"AUTHORIZED\r\n": True, b"UNAUTHORIZED\r\n": False}[wire.ask(b"auth %s\r\n" % secret)]


def test_a_right_token_is_never_held_up_and_the_ports_count_together() -> None:
    proofs, ports = Proofs("orders"), (nsq, beanstalk_client, disque_client)
    for at in range(3 * MOST_FAILURES):
        connect = ports[at % len(ports)]
        assert is_known(connect(proofs), token("orders"))
        assert not is_known(connect(proofs), WRONG)
    wire = beanstalk_client(proofs)
    assert not is_known(wire, WRONG)
    assert wire.peer.outbox.closing


@each("connect", [beanstalk_client, disque_client])
def test_who_guesses_often_is_disconnected_and_now_and_then_is_not(connect: Callable[[Proofs], BeanstalkWire]) -> None:
    proofs = Proofs("orders")
    wire = connect(proofs)
    for _ in range(3 * MOST_FAILURES):
        proofs.now += FAILURES_WITHIN / MOST_FAILURES
        assert not is_known(wire, WRONG)
        assert not wire.peer.outbox.closing
    wire = connect(Proofs("orders"))  # of a node without wrong tokens
    for number in range(MOST_FAILURES + 1):
        assert not is_known(wire, WRONG)
        assert wire.peer.outbox.closing is (number == MOST_FAILURES)


def credential(proofs: Proofs, address: str) -> Credential:
    """The credential of a new client of that address."""
    return NsqWire(proofs=proofs, address=address).credential


def test_who_is_known_already_stays_known_and_what_authorization_servers_are_asked_about_is_no_guess() -> None:
    proofs = Proofs("orders")
    for _ in range(2 * MOST_FAILURES):
        assert not credential(proofs, "10.0.0.1").show_token(b"their secret", is_final=False)
    known = credential(proofs, "10.0.0.1")
    assert known.show_token(token("orders"))
    for _ in range(MOST_FAILURES):
        credential(proofs, "10.0.0.1").show_token(WRONG)
    assert known.renew()
    assert not known.is_guess
    assert known.identity is not None
    assert credential(proofs, "10.0.0.2").show_token(token("orders"))
