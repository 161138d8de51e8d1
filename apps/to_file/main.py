"""The program nsq_to_file: options, signals, and the loop.

SIGTERM and SIGINT: the messages that have arrived are written, synced and finished, and the exit code is 0. SIGHUP: the files
are closed, and the next messages open others.
"""

import signal
import sys
from types import FrameType

from apps.interrupts import Interrupts
from apps.to_file.discovery import TopicPoller
from apps.to_file.disk import Disk
from apps.to_file.feeds import FILES_OF_A_TOPIC, Feeds
from apps.to_file.options import PROGRAM, Options, check, prepare_directories
from apps.tool import run_program
from shared import log as logs
from shared.flags import read_flags
from shared.process.daemon import raise_file_limit
from shared.values import SECOND


def main() -> int:
    """Run the console script and return its exit code."""
    return run_program(PROGRAM, Options, run)


def run(options: Options) -> None:
    """Write the topics to files until a signal arrives. Raises ValueError for wrong options and settings."""
    for warning in read_flags(Options, PROGRAM, sys.argv[1:]).warnings:  # there are arguments after the flags
        raise ValueError(f"unknown {warning.removesuffix(' are ignored')}")
    check(options)
    prepare_directories(options)
    logs.configure(options.log_prefix, options.log_level)
    raise_file_limit(FILES_OF_A_TOPIC)
    hangups = Hangups()
    poller: TopicPoller | None = None
    with Interrupts() as interrupts:
        feeds = Feeds(options, Disk())
        try:
            feeds.watch(interrupts)
            feeds.add(options.topic)
            if not options.topic:
                poller = _poll_topics(options)
            while not interrupts.received:
                topics = poller.latest_topics() if poller else None
                feeds.add(topics or ())
                if hangups.take():
                    feeds.hang_up()
                feeds.run_once()
        finally:
            if poller is not None:
                poller.stop()
            feeds.close()


def _poll_topics(options: Options) -> TopicPoller:
    from apps.cluster import Timeouts

    timeouts = Timeouts(options.http_client_connect_timeout, options.http_client_request_timeout)
    settings, _ = options.consumer_settings(PROGRAM)
    return TopicPoller(options.lookupd_http_address, timeouts, options.topic_refresh / SECOND, settings)


class Hangups:
    """Remembers that SIGHUP came until the main loop takes it."""

    def __init__(self) -> None:
        self._received = False
        signal.signal(signal.SIGHUP, self._note)

    def take(self) -> bool:
        """Return whether the signal has come since the last call."""
        received, self._received = self._received, False
        return received

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._received = True
