"""PenstockMessageQueueProvider: MessageQueueTrigger(scheme="penstock", ...) is a MessageTrigger."""

from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider
from airflow.triggers.base import BaseEventTrigger

from penstock.airflow.trigger import MessageTrigger


class PenstockMessageQueueProvider(BaseMessageQueueProvider):
    """Names the trigger of the scheme `penstock`."""

    scheme = "penstock"

    def trigger_class(self) -> type[BaseEventTrigger]:
        """Return the trigger, which takes the other arguments."""
        return MessageTrigger
