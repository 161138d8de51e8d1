"""What all connections of NSQ clients have in common: the node, its settings, and whom to ask."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from nsqd.core.broker import Broker
from nsqd.protocols.nsq.authorization import Authorization, AuthRefused, Question
from nsqd.protocols.nsq.settings import Settings

Ask = Callable[[Question, Callable[[Authorization | AuthRefused], None]], None]
UntilRegistered = Callable[[str, Callable[[], None]], None]  # topic, what to call when nsqlookupd knows it


def _nobody_to_ask(*_: object) -> NoReturn:
    raise AssertionError("AUTH was required without servers to ask")


def _no_lookupd(*_: object) -> NoReturn:
    raise AssertionError("a topic is registered without an nsqlookupd")


@dataclass(slots=True)
class Context:
    """See above. A listener makes its peers with `partial(Peer, context)`."""

    broker: Broker
    settings: Settings
    ask: Ask = _nobody_to_ask  # the authorization servers; the answer comes in the reactor's thread, between turns
    until_registered: UntilRegistered = _no_lookupd  # likewise, in a bounded time
