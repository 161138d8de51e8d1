"""What can go wrong in the client, by who can mend it."""


class ClientError(Exception):
    """Base of all errors of penstock.client."""


class ConnectionLost(ClientError):
    """An nsqd cannot be reached, went away or does not speak the protocol. A consumer mends this itself."""


class PublishError(ClientError):
    """A publish was refused, or its fate is unknown because the connection went away.

    `code` is the server's (E_BAD_TOPIC ...), or "" when no server said anything.
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class ConsumerError(ClientError):
    """An nsqd refused the subscription for a reason that trying again does not mend."""
