"""`beanstalkd`: serve nsqd's beanstalkd port alone, with beanstalkd's own flags.

With -b the jobs are in a commit log in that directory, which an nsqd may also use as its -data-path; without it nothing is
written to disk. Exit codes are beanstalkd's: 5 for flags, 10 for a directory in use, 111 for an address that is not available.

See docs/contributing/design/beanstalkd.md#command-line.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import trio

from nsqd.core.broker import Broker
from nsqd.core.message.ids import IdSource
from nsqd.core.registry import Change
from nsqd.net.promised import HttpReplies
from nsqd.net.reactor import Reactor
from nsqd.options import NsqdOptions
from nsqd.protocols.beanstalk.stats import VERSION
from nsqd.start.beanstalk import DEFAULT_MAX_JOB_SIZE, MOST_JOB_SIZE, FrontEnd
from nsqd.start.opening import clocks, open_directory, sync_by_time, tune_interpreter
from nsqd.storage.directory import DataDirectory, DirectoryError
from nsqd.storage.log.opening import SMALLEST_SEGMENT
from nsqd.storage.log.writer import SEGMENT_SIZE
from nsqd.storage.memory import MemoryStore
from nsqd.tasks.batch_task import BatchTask
from nsqd.tasks.pause_expiry import end_pauses
from shared.log import configure, log
from shared.process.daemon import TooFewFilesError, raise_file_limit
from shared.process.listen import Listener, ListenError, listen
from shared.values import MILLISECOND, Duration

PROGRAM = "beanstalkd"
# descriptors opened before the first client comes: the listener, the directory, the log's files, one connection
FILES = 17
BAD_FLAGS, IN_USE, NO_ADDRESS = 5, 10, 111
TOO_FEW_FILES = 1
NO_USER, NO_GROUP_SET, NO_USER_SET = 32, 33, 34
USAGE = f"""Use: {PROGRAM} [OPTIONS]

Options:
 -b DIR   keep jobs in a commit log in DIR (must exist); without it they are in memory only
 -f MS    sync at most MS milliseconds after a response (default 50); 0: before each response
 -F       no response waits for a sync, which starts about every 10 s
 -l ADDR  listen on address (default 0.0.0.0), or unix:PATH
 -p PORT  listen on port (default 11300)
 -s BYTES size of the log's segments (default {SEGMENT_SIZE}, or an eighth of a small disk; at least {SMALLEST_SEGMENT})
 -u USER  switch to user and the group of the user
 -z BYTES maximum job size (default {DEFAULT_MAX_JOB_SIZE}, at most {MOST_JOB_SIZE})
 -v       show version
 -V       verbose: log to standard error
 -h       show this help
"""
_WITH_VALUE = "bflpsuz"


class UsageError(Exception):
    """A flag is wrong; the text of one line says which."""


@dataclass(frozen=True, slots=True)
class Flags:
    """The values of the flags, as given or by default."""

    directory: str = ""
    sync_after: int | None = 50  # ms; None: never
    address: str = "0.0.0.0"
    port: int = 11300
    segment_size: int = 0  # bytes; 0: not given
    user: str = ""
    max_job_size: int = DEFAULT_MAX_JOB_SIZE
    verbose: bool = False
    shows: str = ""  # text to show instead of running

    @property
    def listens_on(self) -> str:
        """Return the address in the form that Penstock's listeners take."""
        if self.address.startswith("unix:"):
            return self.address.removeprefix("unix:")
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"

    def options(self) -> NsqdOptions:
        """Return the options of nsqd that correspond to the flags."""
        sync = Duration(min(1000, max(1, self.sync_after or 1)) * MILLISECOND)
        durability = "os" if self.sync_after is None else "interval" if self.sync_after else "always"
        return replace(
            NsqdOptions(), data_path=self.directory, durability=durability, sync_timeout=sync, sync_every=0, node_id=0
        )


def parse(words: list[str]) -> Flags:
    """Parse the words of a command line. Flags may be joined to each other and to their values. Raises Usage."""
    flags, left = Flags(), list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-") or word == "-":
            raise UsageError(f"unknown argument: {word}")
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            value = ""
            if letter in _WITH_VALUE:
                value, letters = letters or (left.pop(0) if left else ""), ""
                if not value:
                    raise UsageError(f"flag requires an argument: -{letter}")
            flags = _with(flags, letter, value)
    return flags


def _with(flags: Flags, letter: str, value: str) -> Flags:
    match letter:
        case "b":
            return replace(flags, directory=value)
        case "f":
            return replace(flags, sync_after=_number(value))
        case "F":
            return replace(flags, sync_after=None)
        case "l":
            return replace(flags, address=value)
        case "p":
            return replace(flags, port=_number(value))
        case "s":
            return replace(flags, segment_size=_number(value))
        case "u":
            return replace(flags, user=value)
        case "z":
            size = _number(value)
            if size > MOST_JOB_SIZE:
                print(f"{PROGRAM}: maximum job size was set to {MOST_JOB_SIZE}", file=sys.stderr)
            return replace(flags, max_job_size=min(size, MOST_JOB_SIZE))
        case "v":
            return replace(flags, shows=f"{PROGRAM} {VERSION}")
        case "V":
            return replace(flags, verbose=True)
        case "h":
            return replace(flags, shows=USAGE)
        case "c" | "n":
            print(f"{PROGRAM}: -{letter} has no effect", file=sys.stderr)
            return flags
    raise UsageError(f"unknown flag: -{letter}")


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise UsageError(f"not a number: {text}")
    return int(text)


def main() -> int:
    """Run beanstalkd until a signal. Return the process's exit code."""
    try:
        flags = parse(sys.argv[1:])
    except UsageError as wrong:
        print(f"{PROGRAM}: {wrong}\n{USAGE}", file=sys.stderr)
        return BAD_FLAGS
    if flags.shows:
        print(flags.shows, file=sys.stderr if flags.shows == USAGE else sys.stdout)
        return 0
    configure(f"{PROGRAM}: ", "info" if flags.verbose else "warn", "nsq")
    try:
        raise_file_limit(FILES)
        listener = listen(flags.listens_on)
    except TooFewFilesError as error:
        log.critical("%s", error)
        return TOO_FEW_FILES
    except ListenError as error:
        log.critical("%s", error)
        return NO_ADDRESS
    with contextlib.closing(listener), contextlib.ExitStack() as stack:
        if flags.user and (code := _become(flags.user)):
            return code
        try:
            directory = (
                stack.enter_context(contextlib.closing(DataDirectory(flags.directory))) if flags.directory else None
            )
            number = trio.run(_run, flags, listener, directory)
        except DirectoryError as error:
            log.critical("%s", error)
            return IN_USE
    # beanstalkd dies of the signal, so a parent that waits for this process sees the same
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 0


def _become(user: str) -> int:
    """Become another user and their group. Return an exit code, 0 if all went well."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        log.critical("getpwnam(%r): no such user", user)
        return NO_USER
    try:
        os.setgid(entry.pw_gid)
    except OSError as error:
        log.critical("setgid(%d): %s", entry.pw_gid, error)
        return NO_GROUP_SET
    try:
        os.setuid(entry.pw_uid)
    except OSError as error:
        log.critical("setuid(%d): %s", entry.pw_uid, error)
        return NO_USER_SET
    return 0


async def _run(flags: Flags, listener: Listener, directory: DataDirectory | None) -> int:
    """Serve until a signal that ends the process; return its number."""
    tune_interpreter()
    options = flags.options()
    opened = open_directory(options, directory, flags.segment_size) if directory is not None else None
    broker = opened.broker if opened is not None else _in_memory(options)

    reactor = Reactor(broker, clocks, _no_http_replies, _ignore_changes)
    files = opened.log.files if opened is not None else lambda: (0, 0, 0, 0, flags.segment_size or SEGMENT_SIZE)
    front_end = FrontEnd(broker, flags.max_job_size, lambda: [c.peer for c in reactor.connections.values()], files)
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    with trio.open_signal_receiver(*wanted) as signals:
        async with trio.open_nursery() as nursery:
            reactor.listen(listener.socket, front_end.make_peer)
            log.info("listening on %s", listener.address)
            nursery.start_soon(reactor.run)
            nursery.start_soon(BatchTask(broker, reactor.when_sent, reactor.wake).run)
            if opened is not None:
                opened.wake.reactor = reactor
                nursery.start_soon(sync_by_time, options, opened.log, reactor.wake)
                nursery.start_soon(end_pauses, broker, reactor.wake)
            number = await _until_signalled(signals, broker)
            nursery.cancel_scope.cancel()
    reactor.close_all()
    broker.commit()
    if opened is not None:
        opened.log.close()
    return number


def _in_memory(options: NsqdOptions) -> Broker:
    def leased(ceiling: int) -> bool:
        return True

    broker = Broker(options.limits(), MemoryStore(leased), IdSource(0, 1, leased), random.Random().randrange)
    broker.begin(*clocks())
    return broker


def _ignore_changes(changes: list[Change]) -> None:
    """Do nothing, because there is neither an nsqlookupd nor an nsqd.dat to update."""


def _no_http_replies() -> HttpReplies:
    """Return replies that do nothing, because there is no HTTP here."""
    return HttpReplies(lambda: None, lambda: None)


async def _until_signalled(signals: AsyncIterator[int], broker: Broker) -> int:
    """Return the number of the first signal that ends the process; SIGUSR1 begins drain mode, permanently."""
    async for number in signals:
        if number != signal.SIGUSR1:
            return number
        broker.drain(True)
        log.info("draining: new jobs are rejected")
    raise AssertionError("signals do not end")
