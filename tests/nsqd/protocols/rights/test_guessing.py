"""Clients that guess tokens: after some wrong ones no further one of their address is looked at, on every port."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.credential import Credential
from shared.auth.failures import FAILURES_WITHIN, MOST_FAILURES
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


@pytest.mark.parametrize("shown", PORTS, ids=lambda port: port.__name__)
def test_a_port_stops_looking_at_tokens_of_an_address_that_guesses(shown: Callable[[Proofs, bytes], bool]) -> None:
    proofs = Proofs("orders")
    for _ in range(MOST_FAILURES):
        assert shown(proofs, token("orders"))  # right ones do not count
        assert not shown(proofs, WRONG)
    proofs.looked_at.clear()
    assert not shown(proofs, WRONG)
    assert not shown(proofs, token("orders"))
    assert proofs.looked_at == []
    proofs.now += FAILURES_WITHIN
    assert shown(proofs, token("orders"))


def test_the_ports_count_together() -> None:
    proofs = Proofs("orders")
    for at in range(MOST_FAILURES):
        assert not PORTS[at % len(PORTS)](proofs, WRONG)
    assert not any(port(proofs, token("orders")) for port in PORTS)


def credential(proofs: Proofs, address: str) -> Credential:
    """The credential of a new client of that address."""
    return NsqWire(proofs=proofs, address=address).credential


def test_who_is_known_already_stays_known() -> None:
    proofs = Proofs("orders")
    known = credential(proofs, "10.0.0.1")
    assert known.show_token(token("orders"))
    for _ in range(MOST_FAILURES):
        credential(proofs, "10.0.0.1").show_token(WRONG)
    assert known.renew()
    assert not known.show_token(token("orders"))  # but another proof is not looked at
    assert known.identity is not None
    assert credential(proofs, "10.0.0.2").show_token(token("orders"))


def test_what_authorization_servers_are_asked_about_is_no_guess() -> None:
    proofs = Proofs("orders")
    for _ in range(2 * MOST_FAILURES):
        assert not credential(proofs, "10.0.0.1").show_token(b"their secret", is_final=False)
    assert credential(proofs, "10.0.0.1").show_token(token("orders"))
