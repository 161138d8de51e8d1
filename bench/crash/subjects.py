"""The servers under test: Penstock's nsqd and beanstalkd in each mode, a Go nsqd, a beanstalkd, and their connections."""

from __future__ import annotations

import http.client
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench.crash import beanstalk_links, nsq_links
from bench.crash.link import Books, Link, dial
from bench.crash.process import CrashError, Process
from bench.ports import lease_port

HOST = "127.0.0.1"
INTERVAL_MS = 200  # -sync-timeout in the mode interval
SYNC_MS = 1000  # for a sync in addition, on a busy machine
NO_PROMISE_MS = 10**9  # in the mode os a power cut may lose everything
_WINDOWS_MS = {"always": 0, "interval": INTERVAL_MS + SYNC_MS, "os": NO_PROMISE_MS}
_REQUEST_TIMEOUT = 10.0  # s
_PRODUCERS, _WINDOW = 3, 6  # number of producers over TCP, and unanswered publishes of each

# Topic -> the channels that must get its messages. `idle` has no consumer before the drain, and `late` is made only then.
_TOPICS: dict[str, Sequence[str]] = {"busy": ("work", "copy", "idle"), "alone": ("late",)}
_LATE = "late"
# Only for Penstock's nsqd: a topic that is synced before each OK in every mode of the node, and its channel.
_STRICT = ("strict",)
_STRICT_CHANNELS = ("work",)
_READERS = (("busy", "work"), ("busy", "work"), ("busy", "copy"))


@dataclass(frozen=True, slots=True)
class Nsqd:
    """An nsqd, Penstock's or the original. `window_ms`: before a power cut, in which acknowledged messages may be lost."""

    name: str
    command: tuple[str, ...]
    is_penstock: bool
    window_ms: int = 0

    @property
    def topics(self) -> Mapping[str, Sequence[str]]:
        """Return the topics to publish to, and the channels that must get their messages."""
        return _TOPICS | dict.fromkeys(self.strict, _STRICT_CHANNELS)

    @property
    def strict(self) -> Sequence[str]:
        """Return the topics of which no acknowledged message may be lost in any case."""
        return _STRICT if self.is_penstock else ()

    def launch(self, directory: Path) -> Process:
        """Start a process over the directory; it may not be ready yet."""
        addresses = ("-tcp-address", f"{HOST}:0", "-http-address", f"{HOST}:0", "-data-path", str(directory))
        return Process(self.name, (*self.command, *addresses))

    def wait(self, process: Process) -> None:
        """Wait until the process answers. Raises CrashError."""
        process.wait_until(lambda: len(process.ports) == 2)
        connection = http.client.HTTPConnection(HOST, process.ports["HTTP"], timeout=_REQUEST_TIMEOUT)
        try:
            self._ask(connection, "GET", "/ping")
            for topic, channels in self.topics.items():
                own = "&durability=always" if topic in self.strict else ""
                self._ask(connection, "POST", f"/topic/create?topic={topic}{own}")
                for channel in channels:
                    if channel != _LATE:
                        self._ask(connection, "POST", f"/channel/create?topic={topic}&channel={channel}")
        except (OSError, http.client.HTTPException) as error:
            raise CrashError(f"{self.name} does not answer: {error!r}\n{process.text()}") from error
        finally:
            connection.close()

    def load(self, process: Process, books: Books) -> list[Link]:
        """Open the connections of the mixed load."""
        tcp = HOST, process.ports["TCP"]
        producers = [nsq_links.Producer(dial(tcp), *books, _WINDOW) for _ in range(_PRODUCERS)]
        consumers = [nsq_links.Consumer(dial(tcp), *books, place, False) for place in _READERS]
        return [*producers, nsq_links.HttpProducer(dial((HOST, process.ports["HTTP"])), *books), *consumers]

    def drain(self, process: Process, books: Books) -> list[Link]:
        """Open the connections that take all remaining messages."""
        tcp = HOST, process.ports["TCP"]
        places = [(topic, channel) for topic, channels in self.topics.items() for channel in channels]
        return [nsq_links.Consumer(dial(tcp), *books, place, True) for place in places]

    @staticmethod
    def _ask(connection: http.client.HTTPConnection, method: str, path: str) -> None:
        connection.request(method, path)
        reply = connection.getresponse()
        text = reply.read()
        if reply.status != 200:
            raise CrashError(f"{method} {path} was answered {reply.status} {text!r}")


@dataclass(frozen=True, slots=True)
class Beanstalkd:
    """A beanstalkd, Penstock's or the original. Its port is chosen beforehand, since it does not report one."""

    name: str
    program: tuple[str, ...]
    flags: tuple[str, ...]
    window_ms: int = 0
    is_penstock: bool = False

    @property
    def topics(self) -> Mapping[str, Sequence[str]]:
        return {beanstalk_links.TUBE: (beanstalk_links.TUBE,)}

    strict: ClassVar[Sequence[str]] = ()

    def launch(self, directory: Path) -> Process:
        port = lease_port(HOST)
        command = (*self.program, "-l", HOST, "-p", str(port), "-b", str(directory), *self.flags)
        process = Process(self.name, command)
        process.ports["TCP"] = port
        return process

    def wait(self, process: Process) -> None:
        def answers() -> bool:
            try:
                socket.create_connection((HOST, process.ports["TCP"]), timeout=_REQUEST_TIMEOUT).close()
            except OSError:
                return False
            return True

        process.wait_until(answers)

    def load(self, process: Process, books: Books) -> list[Link]:
        address = HOST, process.ports["TCP"]
        putters = [beanstalk_links.Putter(dial(address), *books, _WINDOW) for _ in range(_PRODUCERS)]
        return [*putters, *(beanstalk_links.Worker(dial(address), *books) for _ in range(2))]

    def drain(self, process: Process, books: Books) -> list[Link]:
        return [beanstalk_links.Drainer(dial((HOST, process.ports["TCP"])), *books)]


Subject = Nsqd | Beanstalkd


def penstock(mode: str, flags: Sequence[str] = ()) -> Nsqd:
    """Return this project's nsqd in one of its durability modes."""
    own = ("-durability", mode, "-sync-timeout", f"{INTERVAL_MS}ms")
    command = (sys.executable, "-m", "penstock.launch", "nsqd", *own, *flags)
    return Nsqd(f"penstock {mode}", command, is_penstock=True, window_ms=_WINDOWS_MS[mode])


def penstock_jobs(mode: str) -> Beanstalkd:
    """Return this project's beanstalkd in one of its durability modes."""
    flags = {"always": ("-f0",), "interval": (f"-f{INTERVAL_MS}",), "os": ("-F",)}
    program = (sys.executable, "-m", "penstock.launch", "beanstalkd")
    return Beanstalkd(f"penstock jobs {mode}", program, flags[mode], window_ms=_WINDOWS_MS[mode], is_penstock=True)


def go_nsqds(path: str) -> list[Nsqd]:
    """Return the original with its defaults, and with its strictest settings."""
    program = str(Path(path).resolve())
    strict = ("-mem-queue-size=0", "-sync-every=1")
    return [
        Nsqd("Go nsqd", (program,), is_penstock=False),
        Nsqd("Go nsqd strictest", (program, *strict), is_penstock=False),
    ]


def beanstalkds(path: str) -> list[Beanstalkd]:
    """Return beanstalkd with a sync for each write, and with its default: one every 50 ms, at the next write."""
    return [Beanstalkd("beanstalkd -f0", (path,), ("-f0",)), Beanstalkd("beanstalkd", (path,), ())]
