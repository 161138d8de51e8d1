"""`disque-server`: serve nsqd's port for clients of Disque alone, with the command line and the configuration of Disque 1.0.

With appendonly yes the jobs are in a commit log in dir, which an nsqd may also use as its -data-path; without it nothing is
written to disk. Exit codes are Disque's: 0 after SIGTERM, SIGINT and SHUTDOWN, else 1.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import trio

from nsqd.commands.disque_config import ConfigError, DisqueSettings, lines_of_flags, read_config, rewritten
from nsqd.core.broker import Broker
from nsqd.core.message.ids import IdSource
from nsqd.net.admission import Admission
from nsqd.net.promised import HttpReplies
from nsqd.net.reactor import Reactor
from nsqd.options import NsqdOptions
from nsqd.protocols.conversation import Conversation
from nsqd.protocols.disque.client import DisqueContext
from nsqd.protocols.disque.ids import JobIds
from nsqd.start.disque import FrontEnd, cluster_facts
from nsqd.start.opening import Opened, clocks, open_directory, sync_by_time, tune_interpreter
from nsqd.storage.directory import DataDirectory, DirectoryError
from nsqd.storage.disque_aof import FILE as AOF
from nsqd.storage.memory import MemoryStore
from nsqd.tasks.pause_expiry import end_pauses
from nsqd.tasks.queue_expiry import delete_idle_queues
from shared.connection_limiter import ConnectionLimits
from shared.files import replace_file
from shared.log import configure, log
from shared.process.daemon import TooFewFilesError, listening, raise_file_limit
from shared.process.listen import Listener, ListenError
from shared.values import SECOND, Duration
from shared.version import PENSTOCK_VERSION

PROGRAM = "disque-server"
# descriptors opened before the first client comes, in addition to the listeners: the directory, the log's files, one connection
FILES = 16
FAILED = 1
MOST_BYTES = 512 << 20  # of one argument, and so of a job, as in Disque
VERSION = f"Disque server v=1.0-rc1 sha=00000000:0 malloc=libc bits=64 build=penstock-{PENSTOCK_VERSION}"
USAGE = f"""Usage: {PROGRAM} [/path/to/disque.conf] [options]
       {PROGRAM} - (read config from stdin)
       {PROGRAM} -v or --version
       {PROGRAM} -h or --help

Each key of the configuration file is an option.

Examples:
       {PROGRAM} (run the server with default conf)
       {PROGRAM} /etc/disque/7711.conf
       {PROGRAM} --port 7777 --dir /var/lib/disque --appendonly yes
       {PROGRAM} /etc/mydisque.conf --loglevel verbose
"""
NO_MEMORY_TEST = f"{PROGRAM}: --test-memory is not supported: use a memory tester such as memtester"
_LEVELS = {"debug": "debug", "verbose": "info", "notice": "info", "warning": "warn"}
_DURABILITY = {"always": "always", "everysec": "interval", "no": "os"}
_SYNC_EVERY = Duration(SECOND)


class _CannotStart(Exception):
    """The settings cannot be used. The one-line text says why."""


def main() -> int:
    """Run disque-server until a signal or SHUTDOWN. Return the process's exit code."""
    words = sys.argv[1:]
    if words[:1] in (["-v"], ["--version"]):
        print(VERSION)
        return 0
    if words[:1] in (["-h"], ["--help"]):
        print(USAGE, file=sys.stderr)
        return FAILED
    if words[:1] == ["--test-memory"]:
        print(NO_MEMORY_TEST, file=sys.stderr)
        return FAILED
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    configure(f"{PROGRAM}: ", "info")
    try:
        path, settings = _read_settings(words)
        _prepare(settings)
        with contextlib.ExitStack() as stack:
            raise_file_limit(FILES + len(settings.addresses))
            listeners = [stack.enter_context(_listening(address, settings)) for address in settings.addresses]
            stack.enter_context(_pid_file(settings))
            directory = (
                stack.enter_context(contextlib.closing(DataDirectory(""))) if settings.is_on("appendonly") else None
            )
            trio.run(_run, settings, path, listeners, directory)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return FAILED
    except (_CannotStart, TooFewFilesError, ListenError, DirectoryError) as error:
        log.critical("%s", error)
        return FAILED
    return 0


def _read_settings(words: Sequence[str]) -> tuple[Path | None, DisqueSettings]:
    """Return the path of the configuration file, if there is one, and the settings. Raises ConfigError, _CannotStart."""
    words = list(words)
    name = words.pop(0) if words and not words[0].startswith("--") else ""
    text = b"" if not name else sys.stdin.buffer.read() if name == "-" else _content(name)
    if words:
        text += b"\n" + lines_of_flags(words)
    return Path(name).resolve() if name not in ("", "-") else None, read_config(text, _content)


def _content(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise _CannotStart(f"Fatal error, can't open config file '{name}': {error.strerror}") from None


def _prepare(settings: DisqueSettings) -> None:
    """Enter the directory of the settings, and open their log. Raises _CannotStart."""
    for line in settings.notes:
        print(f"{PROGRAM}: {line}", file=sys.stderr)
    if settings["dir"]:
        try:
            os.chdir(settings["dir"])
        except OSError as error:
            raise _CannotStart(f"Can't chdir to '{settings['dir']}': {error.strerror}") from None
    if settings["logfile"]:
        try:
            with open(settings["logfile"], "ab") as file:
                os.dup2(file.fileno(), sys.stderr.fileno())
        except OSError as error:
            raise _CannotStart(f"Can't open the log file: {error.strerror}") from None
    configure(f"{PROGRAM}: ", _LEVELS[settings["loglevel"]])
    name = settings["appendfilename"]
    if settings.is_on("appendonly") and name != AOF and Path(name).exists():
        raise _CannotStart(
            f"appendfilename is {name}, and only {AOF} is imported: give the file that name, or remove it"
        )


@contextlib.contextmanager
def _listening(address: str, settings: DisqueSettings) -> Iterator[Listener]:
    """Listen while in the context, as the settings say. Raises ListenError."""
    with listening(address, authorizes=bool(settings["requirepass"])) as listener:
        if listener.port < 0:
            if mode := int(settings["unixsocketperm"], 8):  # 0: the umask decides
                os.chmod(address, mode)
        elif seconds := settings.number("tcp-keepalive"):  # accepted connections inherit this
            listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_KEEPIDLE"):
                listener.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
                listener.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, seconds // 3))
                listener.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        yield listener


@contextlib.contextmanager
def _pid_file(settings: DisqueSettings) -> Iterator[None]:
    """Have the process id in the file of the settings while in the context, if they name one."""
    if "pidfile" not in settings.given or not settings["pidfile"]:
        yield
        return
    path = Path(settings["pidfile"]).absolute()
    try:
        path.write_text(f"{os.getpid()}\n")
    except OSError as error:
        log.warning("failed to write pidfile %s: %s", path, error.strerror)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


async def _run(
    settings: DisqueSettings, path: Path | None, listeners: list[Listener], directory: DataDirectory | None
) -> None:
    """Serve until a signal or SHUTDOWN."""
    tune_interpreter()
    options = _options(settings)
    opened = open_directory(options, directory) if directory is not None else None
    broker = opened.broker if opened is not None else _in_memory(options)
    admission = Admission(limits=ConnectionLimits(settings.number("maxclients")))
    reactor = Reactor(broker, clocks, _no_http_replies, lambda changes: None, admission)
    port = next((listener.port for listener in listeners if listener.port >= 0), 0)
    front_end = _front_end(options, opened, broker, reactor, port)
    stopped = trio.Event()
    _configure(front_end.context, settings, path, port)
    front_end.context.stop = stopped.set
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                reactor.listen(listener.socket, front_end.make_peer)
                log.info("listening on %s", listener.address)
            nursery.start_soon(reactor.run)
            nursery.start_soon(_stop_when_signalled, signals, stopped)
            if opened is not None:
                opened.wake.reactor = reactor
                nursery.start_soon(sync_by_time, options, opened.log, reactor.wake)
                nursery.start_soon(end_pauses, broker, reactor.wake)
            nursery.start_soon(delete_idle_queues, front_end.context.queues, reactor.wake)
            await stopped.wait()
            nursery.cancel_scope.cancel()
        reactor.close_all()
        broker.commit()
        if opened is not None:
            opened.log.close()


def _options(settings: DisqueSettings) -> NsqdOptions:
    """Return the options of nsqd that correspond to the settings."""
    durability = _DURABILITY[settings["appendfsync"]]
    return replace(NsqdOptions(), durability=durability, sync_timeout=_SYNC_EVERY, sync_every=0)


def _front_end(options: NsqdOptions, opened: Opened | None, broker: Broker, reactor: Reactor, port: int) -> FrontEnd:
    if opened is not None:
        number, name = opened.log.identity.node, opened.log.identity.log_id
    else:
        number, name = options.node_number(), random.SystemRandom().randbytes(16)

    def peers() -> list[Conversation]:
        return [connection.peer for connection in reactor.connections.values()]

    front_end = FrontEnd(broker, JobIds(name), cluster_facts(number, port, None, broker.drain), MOST_BYTES, peers)
    front_end.port, front_end.is_durable = port, opened is not None
    return front_end


def _configure(context: DisqueContext, settings: DisqueSettings, path: Path | None, port: int) -> None:
    """Set the password, and the settings that CONFIG and INFO show. `port`: the one on which the server listens."""
    context.password = os.fsencode(settings["requirepass"])
    context.has_debug = settings.is_on("enable-debug-command")
    context.config = {key: _as_bytes(value) for key, value in settings.shown.items()}
    context.config |= {"dir": _as_bytes(os.getcwd()), "port": str(port)}
    if path is not None:
        figures = context.figures
        context.figures = lambda: replace(figures(), config_file=str(path))
        context.rewrite = partial(_rewrite, context, settings, path)


def _as_bytes(value: str) -> str:
    """Return a text with one character for each byte of `value`: the form that CONFIG GET sends."""
    return os.fsencode(value).decode("latin-1")


def _rewrite(context: DisqueContext, settings: DisqueSettings, path: Path) -> str:
    """Write the present settings into the configuration file. Return why that failed, or ""."""
    values = settings.values | {key: os.fsdecode(value.encode("latin-1")) for key, value in context.config.items()}
    values["requirepass"] = os.fsdecode(context.password)
    if context.config["tcp-keepalive"] == "no":
        values["tcp-keepalive"] = "0"
    else:
        values["tcp-keepalive"] = str(settings.number("tcp-keepalive") or 1)
    if settings["port"] == "0":
        values["port"] = "0"
    try:
        mode = path.stat().st_mode & 0o777
        replace_file(path, rewritten(path.read_bytes(), values), mode)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _in_memory(options: NsqdOptions) -> Broker:
    def leased(ceiling: int) -> bool:
        return True

    ids = IdSource(options.node_number(), 1, leased)
    broker = Broker(options.limits(), MemoryStore(leased), ids, random.Random().randrange)
    broker.begin(*clocks())
    return broker


def _no_http_replies() -> HttpReplies:
    """Return replies that do nothing, because there is no HTTP here."""
    return HttpReplies(lambda: None, lambda: None)


async def _stop_when_signalled(signals: AsyncIterator[int], stopped: trio.Event) -> None:
    """Set `stopped` at the first signal."""
    async for number in signals:
        log.info("%s: stopping", signal.Signals(number).name)
        stopped.set()
        return
