"""The errors of the clients, by who can act on them."""


class ClientError(Exception):
    """The base class of all errors of penstock.client and penstock.aio."""


class ConnectionLost(ClientError):
    """An nsqd cannot be reached, closed the connection or does not speak the protocol.

    A consumer connects again by itself and does not raise this. `code` is as in PublishError.
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class PublishError(ClientError):
    """A publish was refused, or its fate is unknown because the connection broke.

    `code` is the server's error code (E_BAD_TOPIC ...), or "" when no server answered.
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class ReadError(ClientError):
    """An nsqd refused to read a topic back, or could not be asked.

    `code` is the server's (OFFSET_GONE ...), or "" when no server answered.
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class ConsumerError(ClientError):
    """An nsqd refused the subscription for a reason that trying again does not fix."""
