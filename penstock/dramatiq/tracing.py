"""Tracing: the middleware that makes a span of each message that a worker processes."""

from typing import Any

from dramatiq import Broker, MessageProxy, Middleware

from penstock.dramatiq.consumer import HeldMessage
from penstock.telemetry import JOBS, activated, telemetry


class Tracing(Middleware):
    """Has a span of kind CONSUMER around the call of an actor. Its parent is the context in the headers of the job."""

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        """Begin the span, and make it the current one."""
        tracing = telemetry()
        assert tracing is not None
        assert isinstance(message, HeldMessage)
        message.operation = tracing.process(JOBS, message.tube, str(message.job_id), message.headers)
        message.active.enter_context(activated(message.operation))

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        """End the span, with the exception if the actor has raised one."""
        assert isinstance(message, HeldMessage)
        message.active.close()
        if message.operation is not None:
            message.operation.end(exception)

    after_skip_message = after_process_message
