"""One data directory: crash after crash under load, then everything is drained, and the ledger gives its findings."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.crash.history import History
from bench.crash.ledger import Ledger
from bench.crash.link import LinkLoop
from bench.crash.messages import Findings
from bench.crash.mix import MS, Mix
from bench.crash.process import CrashError, Process
from bench.crash.subjects import Subject
from bench.crash.volume import Strike, Volume
from penstock.protocol.framing import ProtocolError

LONGEST_LOAD = 0.4  # s from the beginning of the load to the crash
_WHILE_STARTING = 0.125  # share of crashes under load that follow a crash at a random moment of the start
# The share of crashes that come just after the checker has sent something. The checker sleeps in its own syncs much of
# the time, so a random moment would rarely be such a one.
_BUSY = 0.75
_PATIENCE = 1.0  # s that a due crash waits for such a moment
_FIRST_ANSWER = (
    20.0  # s that a due crash waits for the first acknowledgement of the trial: without one it shows nothing
)
_LONGEST_START = 0.6  # s after which a start is crashed at the latest
_RESTING = 0.4  # share of the power cuts that come after a rest, if the mode syncs by time
_LONGEST_REST = 10_000 * MS  # ns; with a longer window there is no rest
_QUIET = 500 * MS  # ns without a delivery after which the drain is over if nothing is missing
_HOPELESS = 3000 * MS  # ... and if something is missing


@dataclass(slots=True)
class Result:
    """The result of one trial, or of several together."""

    crashes: int = 0  # under load, of the requested kind
    outstanding: int = 0  # crashes among these with publishes sent and not answered
    kills: int = 0  # kills under load, between power cuts
    starting: int = 0  # crashes while the server started
    seconds: float = 0.0  # of all cycles, without the drains
    findings: Findings = field(default_factory=Findings)
    alarms: list[str] = field(default_factory=list)  # faults that no count covers

    def add(self, other: Result) -> None:
        """Add the result of another trial."""
        for name in ("crashes", "outstanding", "kills", "starting", "seconds", "alarms"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.findings.add(other.findings)

    @property
    def bad(self) -> bool:
        """Return True if something happened that a server which keeps its promises never does."""
        counts = self.findings
        wrong = counts.lost or counts.early or counts.inverted or counts.unexpected or counts.collisions
        return bool(wrong or self.alarms)


class Trial:
    """Crashes under load on one volume, and their ledger. `window`: ns before a power cut whose results it may take back."""

    def __init__(self, subject: Subject, volume: Volume, window: int, history: History, mix: Mix) -> None:
        self._subject = subject
        self._volume = volume
        self._window = window
        self._history = history
        self._mix = mix
        self._result = Result()
        self.ledger = Ledger(subject.topics, window, dict.fromkeys(subject.strict, 0))
        self._books = self.ledger, history, mix

    def run(self, crashes: int, progress: Callable[[int, str], None]) -> Result:
        """Crash the server `crashes` times, and drain it; `progress` is called with the number of crashes so far.

        An error that stops the trial becomes an alarm of the result.
        """
        try:
            while self._result.crashes < crashes:
                began = time.monotonic()
                self._cycle()
                self._result.seconds += time.monotonic() - began
                progress(self._result.crashes, f"{self.ledger.attempted} messages")
            progress(crashes, "drain")
            self._drain()
            self._result.findings = self.ledger.findings()
        except (CrashError, OSError, ProtocolError) as error:
            self._result.alarms.append(f"{type(error).__name__}: {error}")
        return self._result

    def _cycle(self) -> None:
        process = self._start()
        try:
            loop = LinkLoop(self._subject.load(process, self._books), self._history)
            try:
                self._load(loop, process)
            finally:
                loop.close()
        finally:
            self._end(process)
        self._volume.recover()

    def _load(self, loop: LinkLoop, process: Process) -> None:
        load, rest = self._mix.uniform(0, LONGEST_LOAD), self._rest()
        rest_from = time.monotonic_ns() + load * 1e9 if rest else math.inf
        busy = not rest and self._mix.chance(_BUSY)
        crash = _Crash(
            self._volume, process, load + rest, _PATIENCE if busy else 0.0, lambda: self.ledger.has_acknowledged
        )
        if busy:
            loop.asked = crash.strike_if_due
        loop.run(crash.happened.is_set, rest_from)
        crash.join()
        process.check()
        loop.listen_to_the_end()
        if crash.blow is None:
            raise CrashError(crash.failure or f"{process.name} hung up:\n{process.text()}")
        outstanding = loop.outstanding()
        self._crashed(crash.blow, f"with {outstanding} publishes outstanding")
        if self._volume.cuts_power and not crash.blow.power:
            self._result.kills += 1
            return
        self._result.crashes += 1
        self._result.outstanding += outstanding > 0

    def _rest(self) -> float:
        """Return the s between load and crash.

        Sometimes it is so long that a server which syncs by time must have synced everything, though it is idle.
        """
        by_time = self._volume.cuts_power and 0 < self._window < _LONGEST_REST
        if not by_time or not self._mix.chance(_RESTING):
            return 0.0
        return (self._window + _QUIET) / 1e9

    def _start(self) -> Process:
        """Start a server and wait until it is ready; sometimes another one is started before and crashed meanwhile."""
        if self._mix.chance(_WHILE_STARTING):
            process = self._subject.launch(self._volume.directory)
            time.sleep(self._mix.uniform(0, _LONGEST_START))
            blow = self._volume.crash(process)
            self._end(process)
            self._volume.recover()
            self._crashed(blow, "while starting")
            self._result.starting += 1
        process = self._subject.launch(self._volume.directory)
        try:
            self._subject.wait(process)
        except BaseException:
            self._end(process)
            raise
        self._history.add("start")
        return process

    def _drain(self) -> None:
        process = self._start()
        self._history.add("drain")
        loop = LinkLoop(self._subject.drain(process, self._books), self._history)
        began = time.monotonic_ns()

        def done() -> bool:
            quiet = time.monotonic_ns() - max(began, self.ledger.last_delivery, self.ledger.last_due)
            return quiet > _HOPELESS or (quiet > _QUIET and not self.ledger.missing())

        try:
            loop.run(done)
            process.check()
        finally:
            loop.close()
            self._end(process)

    def _crashed(self, blow: Strike, how: str) -> None:
        self.ledger.crash(blow.at, blow.power, blow.gone)
        ago = (time.monotonic_ns() - blow.at) / 1e9
        self._history.add(f"crash {'by power cut ' if blow.power else ''}{ago:.6f} s ago, {how}")
        self._history.sync()

    def _end(self, process: Process) -> None:
        process.close()
        self._result.alarms += process.alarms


class _Crash(threading.Thread):
    """A thread that crashes the server after some time, at any moment, unless the checker does so before it."""

    def __init__(
        self, volume: Volume, process: Process, after: float, patience: float, worth_it: Callable[[], bool]
    ) -> None:
        """Start the thread; the checker has `patience` s after the due time to crash the server itself.

        No crash comes before `worth_it` is true, for _FIRST_ANSWER s at most.
        """
        super().__init__(daemon=True)
        self.happened = threading.Event()
        self.blow: Strike | None = None
        self.failure = ""  # why there was no crash
        self._striking = threading.Lock()
        self._volume = volume
        self._process = process
        self._due = time.monotonic() + after
        self._patience = patience
        self._worth_it = worth_it
        self.start()

    def run(self) -> None:
        if self.happened.wait(max(0.0, self._due + self._patience - time.monotonic())):
            return
        latest = time.monotonic() + _FIRST_ANSWER
        while not self._worth_it() and time.monotonic() < latest:
            if self.happened.wait(0.005):
                return
        self._strike()

    def strike_if_due(self) -> None:
        """Crash the server from the caller's thread if the time has come."""
        if time.monotonic() >= self._due and self._worth_it():
            self._strike()

    def _strike(self) -> None:
        with self._striking:
            if self.happened.is_set():
                return
            try:
                self._process.check()
                self.blow = self._volume.crash(self._process)
            except (CrashError, OSError) as error:
                self.failure = str(error)
            self.happened.set()
