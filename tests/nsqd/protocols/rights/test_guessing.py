"""Clients that guess tokens: after some wrong ones of their address each further one ends its connection, on every port."""

from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.credential import Credential
from shared.auth.failures import FAILURES_WITHIN, MOST_FAILURES
from tests.cases import each
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.beanstalk.wire import Wire as BeanstalkWire
from tests.nsqd.protocols.disque.wire import Wire as DisqueWire
from tests.nsqd.protocols.disque.wire import context_of
from tests.nsqd.protocols.nsq.wire import Wire as NsqWire
from tests.nsqd.protocols.nsq.wire import body
from tests.nsqd.protocols.rights.proofs import Proofs, token

WRONG = b"pst_" + b"x" * 43


def nsq(proofs: Proofs, secret: bytes) -> bool:
    """Whether a new client of NSQ is known by this token."""
    (said,) = NsqWire(proofs=proofs, asks=False).send(b"AUTH\n" + body(secret)).replies()
    assert said == b"E_AUTH_FAILED AUTH failed" or said.startswith(b"{")
    return said.startswith(b"{")


def beanstalk(proofs: Proofs, secret: bytes) -> bool:
    said = BeanstalkWire(None, BeanstalkContext(proofs=proofs)).ask(b"auth %s\r\n" % secret)
    assert said in (b"AUTHORIZED\r\n", b"UNAUTHORIZED\r\n")
    return said == b"AUTHORIZED\r\n"


def disque(proofs: Proofs, secret: bytes) -> bool:
    node = Node()
    context = context_of(node)
    context.proofs = proofs
    said = DisqueWire(node, context).do("AUTH", secret)
    assert said in ("OK", "-ERR invalid password")
    return bool(said == "OK")


PORTS = (nsq, beanstalk, disque)


def test_a_right_token_is_never_held_up_and_the_ports_count_together() -> None:
    proofs = Proofs("orders")
    for at in range(3 * MOST_FAILURES):
        shown = PORTS[at % len(PORTS)]
        assert shown(proofs, token("orders"))
        assert not shown(proofs, WRONG)
    wire = connected("beanstalk", proofs)
    guess(wire)
    assert wire.peer.outbox.closing


@each("port", ["beanstalk", "disque"])
def test_who_guesses_too_often_is_disconnected_and_who_does_so_now_and_then_is_not(port: str) -> None:
    proofs = Proofs("orders")
    wire = connected(port, proofs)
    for _ in range(3 * MOST_FAILURES):
        proofs.now += FAILURES_WITHIN / MOST_FAILURES
        guess(wire)
        assert not wire.peer.outbox.closing
    wire = connected(port, Proofs("orders"))  # of a node without wrong tokens
    for _ in range(MOST_FAILURES):
        guess(wire)
        assert not wire.peer.outbox.closing
    guess(wire)
    assert wire.peer.outbox.closing


def connected(port: str, proofs: Proofs) -> BeanstalkWire | DisqueWire:
    if port == "beanstalk":
        return BeanstalkWire(None, BeanstalkContext(proofs=proofs))
    node = Node()
    context = context_of(node)
    context.proofs = proofs
    return DisqueWire(node, context)


def guess(wire: BeanstalkWire | DisqueWire) -> None:
    """Show a wrong token."""
    if isinstance(wire, DisqueWire):
        assert wire.do("AUTH", WRONG) == "-ERR invalid password"
    else:
        assert wire.ask(b"auth %s\r\n" % WRONG) == b"UNAUTHORIZED\r\n"


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
