"""A thread that receives the broadcasts of one exchange for one queue.

Messages that were published before the subscription began, such as an old `shutdown`, are not delivered: the topic of an
exchange keeps messages while it has no channel. The thread publishes a marker, and drops the messages before it.
"""

import logging
import threading
import uuid
from collections.abc import Callable
from time import monotonic

from penstock.celery.envelope import Broadcast, pack_marker, read_broadcast
from penstock.client import ClientError, Consumer

logger = logging.getLogger("penstock.celery")
MARKER_S = 0.3  # s until the marker is published again, because the subscription was not there yet; it doubles
MAX_MARKER_S = 5.0


class BroadcastSubscription:
    """One channel of one exchange's topic. `deliver` is called in the thread with each broadcast."""

    def __init__(
        self,
        nsqd: str,
        topic: str,
        channel: str,
        publish: Callable[[bytes], None],
        deliver: Callable[[Broadcast, str], None],
    ) -> None:
        self._publish = publish
        self._deliver = deliver
        self._marker = uuid.uuid4().hex
        self._is_active = threading.Event()  # set: the marker came
        self._stopping = threading.Event()
        self._consumer = Consumer(topic, channel, [nsqd])
        self._thread = threading.Thread(target=self._run, name=f"penstock {topic}", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait until the subscription is active; return False if it is not active in time."""
        return self._is_active.wait(seconds)

    def stop(self) -> None:
        """End the thread; it does not wait for it."""
        self._stopping.set()
        self._consumer.stop()

    def join(self, seconds: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            with self._consumer as consumer:
                pause, next_marker = MARKER_S, monotonic()
                while not self._stopping.is_set():
                    if not self._is_active.is_set() and monotonic() >= next_marker:
                        self._send_marker()
                        next_marker, pause = monotonic() + pause, min(2 * pause, MAX_MARKER_S)
                    for message in consumer.poll(1.0 if self._is_active.is_set() else 0.1):
                        self._handle(message.body, message.id.decode("latin-1"))
                        message.finish()
        except ClientError as error:
            logger.error("no more broadcasts: %s", error)

    def _send_marker(self) -> None:
        try:
            self._publish(pack_marker(self._marker))
        except ClientError as error:
            logger.warning("no broadcasts yet, trying again: %s", error)

    def _handle(self, body: bytes, tag: str) -> None:
        try:
            broadcast = read_broadcast(body)
        except ValueError as error:
            logger.warning("a message on the topic of an exchange was dropped: %s", error)
            return
        if broadcast.marker == self._marker:
            self._is_active.set()
        elif self._is_active.is_set() and not broadcast.marker:
            self._deliver(broadcast, tag)
