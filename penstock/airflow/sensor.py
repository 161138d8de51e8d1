"""MessageSensor: a task that waits for one message of a channel, and returns its content."""

from datetime import timedelta
from typing import Any

from airflow.sdk import BaseHook, BaseSensorOperator, PokeReturnValue
from airflow.sdk.configuration import conf

from penstock.airflow.messages import consumer_arguments, content_of
from penstock.airflow.trigger import CONNECTION, FirstMessageTrigger
from penstock.client import Consumer


class MessageSensor(BaseSensorOperator):
    """Waits for a message of a channel, finishes it, and returns its content (penstock.airflow.messages.content_of).

    Each poke waits for `wait_s` seconds at most. With `deferrable` the triggerer waits, and no worker.
    """

    template_fields = ("topic", "channel")

    def __init__(
        self,
        *,
        topic: str,
        channel: str,
        conn_id: str = CONNECTION,
        wait_s: float = 10,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.topic, self.channel, self.conn_id, self.wait_s = topic, channel, conn_id, wait_s
        self.deferrable = deferrable

    def execute(self, context: Any) -> Any:
        """Wait for a message, here or in the triggerer, and return its content. Raises ConsumerError, TaskDeferred."""
        if self.deferrable:
            trigger = FirstMessageTrigger(self.topic, self.channel, self.conn_id)
            self.defer(trigger=trigger, method_name="execute_complete", timeout=timedelta(seconds=self.timeout))
        return super().execute(context)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> dict[str, Any]:
        """Return the content of the message that the triggerer took."""
        return event

    def poke(self, context: Any) -> PokeReturnValue:
        """Take a message, if one comes in time. Raises ConsumerError."""
        arguments = consumer_arguments(BaseHook.get_connection(self.conn_id))
        with Consumer(self.topic, self.channel, max_in_flight=1, **arguments) as consumer:
            for message in consumer.poll(self.wait_s):
                message.finish()
                return PokeReturnValue(is_done=True, xcom_value=content_of(message))
        return PokeReturnValue(is_done=False)
