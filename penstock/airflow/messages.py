"""The messages of a channel as Airflow has them: JSON, and finished when Airflow has stored what it derived from them."""

from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Protocol

from penstock.aio import Consumer
from penstock.sansio.message import Message
from penstock.sansio.settings import Settings

MOST_IN_FLIGHT = 100  # messages whose events Airflow has not stored yet


class Connection(Protocol):
    """A connection of Airflow: host and port are nsqlookupd's, the password is the secret of AUTH.

    The extra may have `nsqd` and `lookupd`, lists of addresses, and the names of Settings.
    """

    @property
    def host(self) -> str | None: ...
    @property
    def port(self) -> int | None: ...
    @property
    def password(self) -> str | None: ...
    @property
    def extra_dejson(self) -> dict[str, Any]: ...


def consumer_arguments(connection: Connection) -> dict[str, Any]:
    """Return the arguments of a Consumer that the connection decides. Raises TypeError, ValueError."""
    settings = dict(connection.extra_dejson)
    nsqds, lookupds = settings.pop("nsqd", []), settings.pop("lookupd", [])
    if connection.host:
        lookupds = [f"{connection.host}:{connection.port or 4161}", *lookupds]
    if connection.password:
        settings["auth_secret"] = connection.password
    return {"nsqd_addresses": nsqds, "lookupd_addresses": lookupds, "settings": Settings(**settings)}


def content_of(message: Message) -> dict[str, Any]:
    """Return a message as JSON has it. A body that is not UTF-8 is in `body_base64`."""
    content: dict[str, Any] = {
        "id": message.id.decode(),
        "timestamp": message.timestamp,  # ns since the epoch
        "attempts": message.attempts,
        "headers": dict(message.headers),
    }
    try:
        return content | {"body": message.body.decode()}
    except UnicodeDecodeError:
        return content | {"body_base64": b64encode(message.body).decode()}


class MessageStream:
    """The messages of a channel, each with its content."""

    def __init__(
        self, topic: str, channel: str, connect: Callable[[], Awaitable[Connection]], most: int = MOST_IN_FLIGHT
    ) -> None:
        """Connect later. `most`: messages in flight."""
        self._topic, self._channel, self._connect, self._most = topic, channel, connect, most
        self._unanswered: set[Message] = set()

    async def open(self) -> AsyncGenerator[tuple[dict[str, Any], Message]]:
        """Yield messages until cancelled. Those that are not answered then are requeued. Raises ConsumerError."""
        arguments = consumer_arguments(await self._connect())
        async with Consumer(self._topic, self._channel, max_in_flight=self._most, **arguments) as consumer:
            try:
                async for message in consumer:
                    self._unanswered.add(message)
                    yield content_of(message), message
            finally:
                for message in self._unanswered:
                    message.requeue(0)
                self._unanswered.clear()

    def answer(self, message: Message, is_stored: bool) -> None:
        """Finish a message whose events are stored, and requeue any other one."""
        self._unanswered.discard(message)
        if is_stored:
            message.finish()
        else:
            message.requeue()
