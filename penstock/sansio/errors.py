"""The errors of the clients, by who can act on them."""

MAY_PASS = ("E_SUB_FAILED", "E_AUTH_FAILED")  # the channel is full, nsqd is exiting, or its auth server is silent
FORKED = "this consumer and its messages belong to the process that forked this one: make a new one after the fork"


class ClientError(Exception):
    """The base class of all errors of penstock.client and penstock.aio."""


class _CodedError(ClientError):
    """An error with a server's code."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class ConnectionLost(_CodedError):
    """An nsqd cannot be reached, closed the connection or does not speak the protocol.

    Producers and consumers connect again by themselves, and log this rather than raise it. `code` is as in PublishError.
    `is_final`: trying again does not help, because the nsqd and the settings do not fit each other.
    """

    def __init__(self, text: str, code: str = "", is_final: bool = False) -> None:
        super().__init__(text, code)
        self.is_final = is_final


class PublishError(_CodedError):
    """A publish was refused, or its outcome is unknown because the connection broke.

    `code` is the server's error code (E_BAD_TOPIC ...), or "" when no server answered.
    """


class ReadError(_CodedError):
    """An nsqd refused to read a topic back, or could not be asked.

    `code` is the server's (OFFSET_GONE ...), or "" when no server answered.
    """


class ConsumerError(ClientError):
    """An nsqd refused the subscription for a reason that trying again does not fix."""
