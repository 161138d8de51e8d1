"""The checker as a client of nsqd: publishers over TCP and HTTP, and consumers.

FIN and REQ have no replies. After some of them a consumer publishes a message on the same connection: once that is answered,
the server has handled the earlier commands, and written them to the log before the message.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from socket import socket

from bench.crash.history import History
from bench.crash.ledger import Ledger
from bench.crash.link import Link
from bench.crash.messages import Copy, Message, Reply
from bench.crash.mix import LEFT_IN_FLIGHT, MS, Answer, Mix
from penstock.protocol import nsq

_MAX_FRAME = 1 << 20  # bytes
_HELD = 50 * MS  # ns between a TOUCH and its FIN
_READY = 30  # messages in flight to a consumer: more than it leaves unanswered
_READY_AT_DRAIN = 500
_BARRIERS = 0.3  # share of the passes with FINs or REQs that end with a publish
_HEAD = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r]*\r\n(?:[^\r]+\r\n)*\r\n")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class _Publishing(Link):
    """The common part of all links that publish: publishes wait for their replies, in order."""

    def __init__(self, sock: socket, ledger: Ledger, history: History, mix: Mix) -> None:
        super().__init__(sock, ledger, history, mix)
        # (messages, the end of the request in the queued bytes, the commands that its reply settles)
        self._pending: deque[tuple[Sequence[Message], int, list[tuple[Copy, int]]]] = deque()

    def outstanding(self) -> int:
        return sum(end <= self.sent for _, end, _ in self._pending)

    def _invoke(self, topic: str, sizes: Sequence[int], delay_ms: int, now: int) -> list[Message]:
        messages = self._ledger.publish(topic, sizes, delay_ms * MS, now)
        self._history.add(f"publish {topic} {_range(messages)} delay={delay_ms}")
        return messages

    def _await(self, messages: Sequence[Message], settles: list[tuple[Copy, int]]) -> None:
        self._pending.append((messages, self.queued, settles))

    def _answered(self, good: bool, what: bytes, now: int) -> None:
        if not self._pending:
            self._history.add(f"unasked {what!r}")
            return
        messages, _, settles = self._pending.popleft()
        self._ledger.answered(messages, Reply.OK if good else Reply.REFUSED, now)
        self._history.add(f"ok {_range(messages)}" if good else f"refused {_range(messages)} {what!r}")
        if good and settles:
            self._ledger.settle(settles, now)
            self._history.add(f"settled {len(settles)}")


class Producer(_Publishing):
    """A link with PUB, MPUB and DPUB over TCP, `window` of them unanswered at all times."""

    def __init__(self, sock: socket, ledger: Ledger, history: History, mix: Mix, window: int) -> None:
        super().__init__(sock, ledger, history, mix)
        self._window = window
        self._decoder = nsq.FrameDecoder(_MAX_FRAME)
        self.say(nsq.MAGIC_V2)

    def step(self, now: int) -> None:
        while len(self._pending) < self._window:
            order = self._mix.order()
            messages = self._invoke(order.topic, order.sizes, order.delay_ms, now)
            self.say(_command(order.topic, messages, order.delay_ms))
            self._await(messages, [])

    def received(self, data: bytes, now: int) -> None:
        for frame in self._decoder.receive(data):
            if isinstance(frame, nsq.Response) and frame.data == nsq.HEARTBEAT:
                self.say(nsq.nop())
            elif isinstance(frame, nsq.Response):
                self._answered(frame.data == nsq.OK, frame.data, now)
            elif isinstance(frame, nsq.ErrorFrame):
                self._answered(False, str(frame).encode(), now)


class HttpProducer(_Publishing):
    """A link with POST /pub, one request at a time on a kept connection."""

    def step(self, now: int) -> None:
        if self._pending:
            return
        order = self._mix.order(batches=False)
        messages = self._invoke(order.topic, order.sizes, order.delay_ms, now)
        defer = f"&defer={order.delay_ms}" if order.delay_ms else ""
        body = messages[0].body
        head = f"POST /pub?topic={order.topic}{defer} HTTP/1.1\r\nHost: nsqd\r\nContent-Length: {len(body)}\r\n\r\n"
        self.say(head.encode() + body)
        self._await(messages, [])

    def received(self, data: bytes, now: int) -> None:
        self._in += data
        while head := _HEAD.match(self._in):
            length = _LENGTH.search(head[0])
            end = head.end() + (int(length[1]) if length else 0)
            if len(self._in) < end:
                return
            answer, self._in = self._in[head.end() : end], self._in[end:]
            self._answered(head[1] == b"200", head[1] + b" " + answer, now)


class Consumer(_Publishing):
    """A link that subscribes to one channel. In the drain it finishes every message."""

    def __init__(
        self, sock: socket, ledger: Ledger, history: History, mix: Mix, place: tuple[str, str], drain: bool
    ) -> None:
        """Subscribe to `place`, which is (topic, channel)."""
        super().__init__(sock, ledger, history, mix)
        self._topic, self._channel = place
        self._drain = drain
        self._decoder = nsq.FrameDecoder(_MAX_FRAME)
        self._subscribed = False
        self._left = 0  # messages left in flight
        self._touched: deque[tuple[int, Copy, bytes]] = deque()  # (when to finish it, copy, id)
        self._unsettled: list[tuple[Copy, int]] = []  # FINs and REQs that no publish of ours has settled
        ready = _READY_AT_DRAIN if drain else _READY
        self.say(nsq.MAGIC_V2 + nsq.sub(*place) + nsq.rdy(ready))

    def step(self, now: int) -> None:
        while self._touched and self._touched[0][0] <= now:
            _, copy, message_id = self._touched.popleft()
            self._finish(copy, message_id)
        if self._unsettled and not self._drain and self._mix.chance(_BARRIERS):
            messages = self._invoke(self._topic, [40], 0, now)
            self.say(_command(self._topic, messages, 0))
            self._await(messages, self._unsettled)
            self._unsettled = []

    def received(self, data: bytes, now: int) -> None:
        for frame in self._decoder.receive(data):
            if isinstance(frame, nsq.Message):
                self._message(frame, now)
            elif isinstance(frame, nsq.ErrorFrame):
                self._history.add(f"error {self._topic}/{self._channel} {frame}")
            elif frame.data == nsq.HEARTBEAT:
                self.say(nsq.nop())
            elif not self._subscribed:
                self._subscribed = True
            else:
                self._answered(frame.data == nsq.OK, frame.data, now)

    def _message(self, message: nsq.Message, now: int) -> None:
        copy = self._ledger.delivered(self._topic, self._channel, message.body, message.id, now)
        number = copy.message.number if copy else -1
        place = f"{self._topic}/{self._channel} {number}"
        self._history.add(f"deliver {place} id={message.id.decode('latin-1')} attempts={message.attempts}")
        if copy is None:
            self.say(nsq.fin(message.id))
            return
        answer = Answer.FINISH if self._drain else self._mix.answer(message.attempts)
        if answer is Answer.LEAVE and self._left < LEFT_IN_FLIGHT:
            self._left += 1
        elif answer is Answer.TOUCH_AND_FINISH:
            self.say(nsq.touch(message.id))
            self._touched.append((now + _HELD, copy, message.id))
        elif answer in (Answer.REQUEUE, Answer.REQUEUE_LATER):
            delay_ms = self._mix.delay_ms() if answer is Answer.REQUEUE_LATER else 0
            self._unsettled.append((copy, self._ledger.requeue(copy, delay_ms * MS, now)))
            self._history.add(f"req {place} delay={delay_ms}")
            self.say(nsq.req(message.id, delay_ms))
        else:
            self._finish(copy, message.id)

    def _finish(self, copy: Copy, message_id: bytes) -> None:
        self._unsettled.append((copy, self._ledger.finish(copy)))
        self._history.add(f"fin {self._topic}/{self._channel} {copy.message.number}")
        self.say(nsq.fin(message_id))


def _command(topic: str, messages: Sequence[Message], delay_ms: int) -> bytes:
    if delay_ms:
        return nsq.dpub(topic, delay_ms, messages[0].body)
    if len(messages) > 1:
        return nsq.mpub(topic, [message.body for message in messages])
    return nsq.pub(topic, messages[0].body)


def _range(messages: Sequence[Message]) -> str:
    return f"{messages[0].number}-{messages[-1].number}"
