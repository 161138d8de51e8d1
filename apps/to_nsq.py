"""to_nsq: publish the records of standard input to every destination given.

Invariant: exit code 0 at the end of the input means that every destination has answered OK for every record. The program
sends what it has read before it waits for more input, so a slow input is published line by line and a fast one in MPUBs
of many records.

Deliberate differences from the original: the last record may lack its delimiter (the original drops the last byte of
the input); a destination that cannot be reached is an error at once.

See docs/reference/tools.md#to_nsq.
"""

import os
import selectors
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from time import monotonic

from apps import passthrough
from apps.interrupts import Interrupts
from apps.tool import check_given, check_no_scheme, run_program
from penstock.client import Producer
from penstock.protocol import is_valid_name
from shared.counted import counted
from shared.options import option

PROGRAM = "to_nsq"
READ_SIZE = 262_144  # bytes; a read returns at most 65,536 of a pipe, and this many of a file
BATCH_MESSAGES = 1000
BATCH_BYTES = 1 << 20  # well below nsqd's max-body-size of 5 MB; a larger record is sent alone
RECORD_BYTES = 64 << 20  # no nsqd accepts more, and an input without a delimiter must fail at some point
TICK_S = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """The options of to_nsq, by their flags."""

    topic: str = option("", "NSQ topic to publish to")
    delimiter: str = option("\n", "character to split input from stdin")
    rate: int = option(0, "Throttle messages to n/second. 0 to disable")
    nsqd_tcp_address: tuple[str, ...] = option((), "destination nsqd TCP address (may be given multiple times)")
    producer_opt: tuple[str, ...] = option(
        (),
        "name,value of go-nsq's Config (may be given multiple times)",
        check=passthrough.check,
        read=passthrough.split,
    )


def main() -> int:
    """Run the console script and return its exit code."""
    return run_program(PROGRAM, Options, lambda options: run(options, sys.stdin.fileno()))


def run(options: Options, stdin: int) -> int:
    """Publish all that the file descriptor `stdin` contains. Raises ValueError if options are missing or wrong."""
    delimiter = check(options)
    settings, _ = passthrough.settings(options.producer_opt, PROGRAM)
    with Interrupts() as interrupts, ExitStack() as stack:
        producers = [
            stack.enter_context(Producer(address, settings)) for address in dict.fromkeys(options.nsqd_tcp_address)
        ]
        for producer in producers:
            producer.connect()
        Pump(options.topic, producers, Splitter(delimiter), options.rate).run(stdin, interrupts)
    return 0


def check(options: Options) -> bytes:
    """Check all options and return the delimiter, one byte. Raises ValueError."""
    delimiter = os.fsencode(options.delimiter)
    if not options.topic:
        raise ValueError("--topic required")
    if not is_valid_name(options.topic):
        raise ValueError(f"--topic is not a legal name: {options.topic!r}")
    if len(delimiter) != 1:
        raise ValueError("--delimiter must be a single byte")
    check_given(PROGRAM, "nsqd-tcp-address", options.nsqd_tcp_address)
    check_no_scheme("nsqd-tcp-address", options.nsqd_tcp_address)
    return delimiter


class Splitter:
    """Splits chunks of bytes into records, in linear time however long a record is."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._parts: list[bytes] = []  # pieces of the record that has not ended yet
        self._size = 0  # bytes in `_parts`

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the non-empty records that end in `chunk`. Raises ValueError for a record beyond RECORD_BYTES."""
        head, found, tail = chunk.partition(self._delimiter)
        self._parts.append(head)
        self._size += len(head)
        if self._size > RECORD_BYTES:
            raise ValueError(f"the input has a record of more than {RECORD_BYTES} bytes")
        if not found:
            return []
        records = [b"".join(self._parts), *tail.split(self._delimiter)]
        rest = records.pop()
        self._parts, self._size = [rest], len(rest)
        return list(filter(None, records))

    def end(self) -> list[bytes]:
        """Return the last record, if the input did not end with a delimiter, as a list of one or none."""
        return list(filter(None, [b"".join(self._parts)]))


class Throttle:
    """Allows at most `rate` messages a second; 0 means no limit. Pure: `now` is monotonic seconds."""

    SAVED_S = 0.1  # how much idle time may be made up for, which limits a burst

    def __init__(self, rate: int) -> None:
        self._gap = 1 / rate if rate > 0 else 0.0
        self._next_at = float("-inf")  # when the next message may be sent

    def allowance(self, now: float) -> int:
        """Return the number of messages that may be sent now."""
        if not self._gap:
            return sys.maxsize
        if now < self._next_at:
            return 0
        self._next_at = max(self._next_at, now - self.SAVED_S)
        return 1 + int((now - self._next_at) / self._gap)

    def early(self, now: float) -> float:
        """Return the seconds until the next message may be sent, when `allowance` is 0."""
        return self._next_at - now

    def spend(self, count: int) -> None:
        """Record that `count` messages were sent."""
        self._next_at += count * self._gap


class Pump:
    """Reads input while no record waits, publishes what the rate allows, and keeps the connections alive meanwhile."""

    def __init__(
        self, topic: str, producers: list[Producer], splitter: Splitter, rate: int, program: str = PROGRAM
    ) -> None:
        self.published = 0  # records that were sent
        self.is_interrupted = False  # a signal came before all records were sent
        self._program = program
        self._topic = topic
        self._producers = producers
        self._splitter = splitter
        self._throttle = Throttle(rate)
        self._waiting: deque[bytes] = deque()  # records that are read and not yet published
        self._ended = False

    def add(self, records: Sequence[bytes]) -> None:
        """Publish these records, and then nothing of the input."""
        self._waiting.extend(records)
        self._ended = True

    def run(self, stdin: int, interrupts: Interrupts) -> None:
        """Publish until the input ends and all of it is answered, or until a signal arrives."""
        while not interrupts.received and not (self._ended and not self._waiting):
            if not self._waiting and self._is_readable(stdin, interrupts):
                self._read(stdin)
            pause = self._publish()
            if pause:
                self._wait(pause, [interrupts])
            for producer in self._producers:
                producer.poll()
        if self._waiting:
            self.is_interrupted = True
            print(
                f"{self._program}: interrupted, {counted(len(self._waiting), 'record')} not published", file=sys.stderr
            )
        for producer in self._producers:
            producer.flush()

    def _is_readable(self, stdin: int, interrupts: Interrupts) -> bool:
        connected = [producer for producer in self._producers if producer.fileno() >= 0]
        return stdin in self._wait(TICK_S, [stdin, interrupts, *connected])

    @staticmethod
    def _wait(seconds: float, files: "list[int | Interrupts | Producer]") -> list[object]:
        # poll(2), because epoll refuses regular files. It is created for each wait, because producers may have
        # reconnected.
        with selectors.PollSelector() as selector:
            for file in files:
                selector.register(file, selectors.EVENT_READ)
            return [key.fileobj for key, _ in selector.select(seconds)]

    def _read(self, stdin: int) -> None:
        chunk = os.read(stdin, READ_SIZE)
        self._ended = not chunk
        self._waiting.extend(self._splitter.feed(chunk) if chunk else self._splitter.end())

    def _publish(self) -> float:
        """Send what may be sent now, to every destination. Returns the seconds until more may be sent, or 0 if none waits."""
        while self._waiting:
            now = monotonic()
            allowed = self._throttle.allowance(now)
            if not allowed:
                return min(self._throttle.early(now), TICK_S)
            batch = self._next_batch(min(BATCH_MESSAGES, allowed))
            self._throttle.spend(len(batch))
            self.published += len(batch)
            for producer in self._producers:
                producer.submit(self._topic, batch)
        return 0.0

    def _next_batch(self, most: int) -> list[bytes]:
        """Remove and return the next records: at most `most`, and at most BATCH_BYTES unless the first one is larger."""
        batch: list[bytes] = []
        size = 0
        for record in islice(self._waiting, most):
            size += len(record)
            if batch and size > BATCH_BYTES:
                break
            batch.append(record)
        for _ in batch:
            self._waiting.popleft()
        return batch
