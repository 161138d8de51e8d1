"""The data that all connections of NSQ clients share: the node, its settings, and the servers to ask."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from nsqd.core.broker import Broker
from nsqd.protocols.account import Accounts
from nsqd.protocols.credential import Proofs
from nsqd.protocols.nsq.authorization import Authorization, AuthRefused, AuthRequest
from nsqd.protocols.nsq.settings import Settings
from nsqd.protocols.transport import UntilRegistered
from shared.audit.event import Note

Ask = Callable[[AuthRequest, Callable[[Authorization | AuthRefused], None]], None]
# takes a topic, and a function to call when nsqlookupd knows the topic


def no_auth_servers(*_: object) -> NoReturn:
    """Stand for authorization servers where there are none."""
    raise AssertionError("AUTH was required without servers to ask")


@dataclass(slots=True)
class Context:
    """The node as its NSQ peers know it. A listener makes its peers with `partial(Peer, context)`."""

    broker: Broker
    settings: Settings
    # asks the authorization servers; the answer comes in the reactor's thread, between turns
    ask: Ask = no_auth_servers
    until_registered: UntilRegistered | None = None  # calls back in the reactor's thread, too, within a bounded time
    proofs: Proofs | None = None  # the auth file; None: there is none
    audit: Note | None = None  # where refusals are recorded; None: nowhere
    accounts: Accounts | None = None  # of the identities in the auth file
