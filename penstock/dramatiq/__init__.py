"""A broker for Dramatiq whose messages are jobs of tubes: install the extra `dramatiq`.

See docs/how-to/task-libraries.md#dramatiq.

* `broker`: PenstockBroker, the sending side. `consumer`: the consumer of one queue, which Dramatiq's worker asks for messages.
  `tracing`: the middleware with the spans of OpenTelemetry.

This package imports no room and not `shared`; only it imports dramatiq.
"""

from penstock.dramatiq.broker import PenstockBroker

__all__ = ["PenstockBroker"]
