"""nsq_tail: print the messages of one or more topics, one line each.

Invariant: a message is finished when its line has been written and flushed, and not before. A message that was received but
not printed is requeued at once, and never finished.

Deliberate differences from the original:
* with -n every printed message is finished; the original lets the n-th time out, so it is delivered again;
* an nsqd that cannot be reached at the start is retried, like one that goes away later.

See docs/reference/tools.md#nsq_tail.
"""

import os
import random
import select
import selectors
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate

from apps.interrupts import Interrupts
from apps.passthrough import ConsumerOptions
from apps.tool import check_tcp_source, run_program
from penstock.client import Consumer, Message
from shared.options import option
from shared.terminal.commands import discard_output

PROGRAM = "nsq_tail"
TICK_S = 0.5  # consumers do their timed work when polled: at least once a second


@dataclass(frozen=True, slots=True)
class Options(ConsumerOptions):
    """The options of nsq_tail, by their flags."""

    topic: tuple[str, ...] = option((), "NSQ topic (may be given multiple times)")
    channel: str = option("", "NSQ channel (default: tail<6 digits>#ephemeral)")
    n: int = option(0, "total messages to show (will wait if starved; 0: no limit)")
    print_topic: bool = option(False, "print topic name where message was received")


def main() -> int:
    """Run the console script and return its exit code."""
    return run_program(PROGRAM, Options, run_on_stdout)


def run_on_stdout(options: Options) -> int:
    """Run until the end, or until the reader of standard output closes it; return 0. Raises ValueError for wrong options."""
    try:
        return run(options, sys.stdout.fileno())
    except BrokenPipeError:
        discard_output()
        return 0


def run(options: Options, out: int) -> int:
    """Print messages to a descriptor until -n are printed or a signal arrives. Raises ValueError for wrong options."""
    consumers = make_consumers(options)
    with Interrupts() as interrupts, ExitStack() as stack, selectors.DefaultSelector() as selector:
        selector.register(interrupts, selectors.EVENT_READ)
        for consumer in consumers:
            stack.enter_context(consumer)
            selector.register(consumer, selectors.EVENT_READ)
        printer = Printer(lambda data: write_unless_interrupted(out, data, interrupts), options.n, options.print_topic)
        stack.callback(printer.requeue_unprinted)  # runs before the consumers close, also after a broken pipe
        while not interrupts.received and not printer.is_full:
            for consumer in consumers:
                printer.print(consumer.topic, consumer.poll(0))
                consumer.flush()
            selector.select(0 if printer.is_full else TICK_S)
        for consumer in consumers:
            consumer.pause()
    return 0


def make_consumers(options: Options) -> list[Consumer]:
    """Return one consumer for each topic, not connected yet. Raises ValueError for wrong options."""
    if not options.topic:
        raise ValueError("--topic required")
    check_tcp_source(PROGRAM, options.nsqd_tcp_address, options.lookupd_http_address)
    settings, max_in_flight = options.consumer_settings(PROGRAM)
    if options.n:  # messages that are not printed have to be requeued, so it is better not to receive them
        max_in_flight = min(max_in_flight, options.n)
    channel = options.channel or f"tail{random.randrange(1_000_000):06d}#ephemeral"
    return [options.consumer(topic, channel, settings, max_in_flight) for topic in dict.fromkeys(options.topic)]


def write_unless_interrupted(out: int, data: bytes, interrupts: Interrupts) -> int:
    """Write to a descriptor, and wait until it takes the bytes or a signal arrives. Return how many bytes were written.

    The reader of a pipe may be stuck, so no write is larger than what a pipe with room takes at once.
    """
    view, done = memoryview(data), 0
    while done < len(data):
        interrupted, _, _ = select.select([interrupts], [out], [])
        if interrupted:
            break
        done += os.write(out, view[done : done + select.PIPE_BUF])
    return done


def line_of(message: Message) -> bytes:
    """Return the body of a message, and a line feed."""
    return message.body + b"\n"


class Printer:
    """Writes batches of messages, up to a limit."""

    def __init__(
        self,
        write: Callable[[bytes], int],
        limit: int,
        with_topic: bool,
        form: Callable[[Message], bytes] = line_of,
        done: Callable[[Message], None] = Message.finish,
    ) -> None:
        """`write` returns how many bytes it has written: less than all ends the program.

        `form` returns a message as bytes. `done` is called with each message whose bytes are written.
        """
        self._write = write
        self._form = form
        self._done = done
        self._left = limit or float("inf")  # how many may still be printed
        self._with_topic = with_topic
        self._unprinted: list[Message] = []  # messages beyond the limit, or of a write that failed or was interrupted

    def print(self, topic: str, batch: Sequence[Message]) -> None:
        """Write and then finish a batch: a crash between these steps repeats a line rather than losing it."""
        if len(batch) > self._left:
            room = int(self._left)
            self._unprinted += batch[room:]
            batch = batch[:room]
        if not batch:
            return
        prefix = f"{topic} | ".encode() if self._with_topic else b""
        self._unprinted += batch
        lines = [prefix + self._form(message) for message in batch]
        written = self._write(b"".join(lines))
        count = sum(end <= written for end in accumulate(map(len, lines)))
        first = len(self._unprinted) - len(batch)
        del self._unprinted[first : first + count]
        for message in batch[:count]:
            self._done(message)
        self._left -= count

    def requeue_unprinted(self) -> None:
        """Requeue all messages that were not printed, without delay, so that other consumers get them at once."""
        for message in self._unprinted:
            message.requeue(0)
        self._unprinted.clear()

    @property
    def is_full(self) -> bool:
        """True when as many messages are printed as the limit allows."""
        return self._left == 0
