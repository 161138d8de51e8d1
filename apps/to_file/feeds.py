"""The consumers of all topics, each with the log that its messages go to. One thread serves them all."""

import logging
import resource
import selectors
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from functools import partial
from time import monotonic

from apps.interrupts import Interrupts
from apps.to_file.disk import Disk
from apps.to_file.names import at_time
from apps.to_file.options import PROGRAM, Options, matcher, place, topic_format
from apps.to_file.output import Output
from apps.to_file.schedule import Retry, SyncWindow, Touches
from apps.to_file.topic_log import Now, TopicLog
from penstock.client import Consumer, ConsumerError
from shared.values import SECOND

log = logging.getLogger("penstock")

TICK = 0.5  # s; a consumer does its timed work when polled, at least once a second
BUSY_TICK = 0.1  # s, while messages wait for a sync
MOST_TOPICS = 10_000  # topics that nsqlookupds may name
FILES_OF_A_TOPIC = 10  # that a topic may have open: its file, its consumer's, and connections to some nsqds
MOST_SKIPPED = 100_000  # topics that are remembered because they do not match


def topic_limit() -> int:
    """Return for how many topics the open files of this process suffice.

    Without a limit, an nsqlookupd that invents topics would take the files that other topics are written to.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_TOPICS if limit == resource.RLIM_INFINITY else max(1, min(MOST_TOPICS, limit // FILES_OF_A_TOPIC))


def current_time() -> Now:
    """Return the time by both clocks."""
    return Now(monotonic(), datetime.now().astimezone())


class Feed:
    """One topic: the consumer, which is recreated after an nsqd has refused it permanently, and the log."""

    def __init__(self, make: Callable[[], Consumer], topic_log: TopicLog, selector: selectors.BaseSelector) -> None:
        """Make the consumer. Raises OSError and ValueError."""
        self.log = topic_log
        self._make = make
        self._selector = selector
        self._retry = Retry()
        self._consumer: Consumer | None = None
        self._connect()

    def poll(self, now: Now) -> None:
        """Pass what has arrived to the log, and send the answers."""
        if self._consumer is None:
            self._connect_again(now)
            return
        try:
            batch = self._consumer.poll(0)
        except ConsumerError as error:
            delay = self._retry.failed(now.monotonic)
            log.error("%s; subscribing again in %g s", error, delay)
            self.log.hang_up(now)
            self.close()
            return
        if batch:
            self._retry.worked()
            self.log.take(batch, now)
            self._consumer.flush()

    def tick(self) -> None:
        """Do what is due by time, and send the answers at once: an nsqd may wait for them."""
        self.poll(current_time())
        self.log.tick(current_time())
        if self._consumer is not None:
            self._consumer.flush()

    def close(self) -> None:
        """Send the answers and close the connections."""
        if self._consumer is not None:
            self._selector.unregister(self._consumer)
            self._consumer.close()
            self._consumer = None

    def _connect(self) -> None:
        self._consumer = self._make()
        self._selector.register(self._consumer, selectors.EVENT_READ, self)

    def _connect_again(self, now: Now) -> None:
        if now.monotonic < self._retry.at:
            return
        try:
            self._connect()
        except OSError as error:  # no more files can be opened
            self._retry.failed(now.monotonic)
            log.error("cannot subscribe: %s", error)


class Feeds:
    """All topics. Closing ends every consumer."""

    def __init__(self, options: Options, disk: Disk) -> None:
        """Take the options. Raises ValueError for settings that no consumer can use."""
        settings, _ = options.consumer_settings(PROGRAM)
        self._options = options
        self._disk = disk
        self._settings = replace(settings, max_attempts=0)  # the client finishes what is beyond, and it would be lost
        self._matches = matcher(options.topic_pattern)
        self._feeds: dict[str, Feed] = {}
        self._most = topic_limit()
        self._skipped: set[str] = set()  # topics that the log has named already
        self._selector = selectors.DefaultSelector()
        self._tick_at = 0.0

    def watch(self, file: Interrupts) -> None:
        """Let `run_once` also return early when this file is readable."""
        self._selector.register(file, selectors.EVENT_READ)

    def add(self, topics: Iterable[str]) -> None:
        """Begin with the topics that are new and match the pattern. Raises ValueError for names and settings."""
        for topic in topics:
            if topic in self._feeds or topic in self._skipped:
                continue
            if not self._matches.search(topic):
                self._skip(topic)
                log.warning("skipping topic %s (doesn't match pattern %s)", topic, self._options.topic_pattern)
            elif len(self._feeds) >= self._most:
                self._skip(topic)
                log.warning("skipping topic %s (%d topics are written already)", topic, self._most)
            else:
                self._begin(topic)

    def run_once(self) -> None:
        """Wait for messages, at most until the next tick, and handle what is there and what is due."""
        ready = self._selector.select(max(0.0, self._tick_at - monotonic()))
        now = current_time()
        for key, _ in ready:
            if key.data is not None:
                key.data.poll(now)
        if now.monotonic >= self._tick_at:
            self._tick()

    def hang_up(self) -> None:
        """Close all files; the next messages open others."""
        for feed in self._feeds.values():
            feed.log.hang_up(current_time())

    def close(self) -> None:
        """Write and finish what has arrived, requeue what cannot be written, and disconnect."""
        for feed in self._feeds.values():
            feed.log.stop(current_time())
        for feed in self._feeds.values():
            feed.close()
        self._selector.close()

    def _tick(self) -> None:
        is_busy = False
        for feed in self._feeds.values():
            feed.tick()
            is_busy = is_busy or feed.log.waiting > 0
        self._tick_at = monotonic() + (BUSY_TICK if is_busy else TICK)

    def _skip(self, topic: str) -> None:
        if len(self._skipped) < MOST_SKIPPED:
            self._skipped.add(topic)

    def _begin(self, topic: str) -> None:
        try:
            options = self._options
            make = partial(options.consumer, topic, options.channel, self._settings, options.max_in_flight)
            self._feeds[topic] = Feed(make, self._make_log(topic), self._selector)
        except OSError as error:  # no more files can be opened; the next list of topics tries again
            log.error("couldn't create logger for new topic %s: %s", topic, error)

    def _make_log(self, topic: str) -> TopicLog:
        options, now = self._options, monotonic()
        where = place(options, topic)
        return TopicLog(
            title=where.title,
            output=Output(where, self._disk),
            name_at=partial(at_time, topic_format(options, topic), options.datetime_format),
            window=SyncWindow(options.max_in_flight, options.sync_interval / SECOND, now),
            touches=Touches(self._settings.msg_timeout_ms / 1000, now),
            most_held=2 * options.max_in_flight,
            skips_empty=options.skip_empty_files,
        )
