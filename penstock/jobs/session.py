"""The pure core of both clients: one client with all of its connections, as steps that a driver executes.

`perform` and `reserve` are generators. They yield steps; the driver executes each, sends the result in, or
throws the OSError that it got. Time is the function `clock` (s, monotonic), chance the function `jitter` (0 to 1).

Invariants:
* A command is sent a second time only if its Call is repeatable, or if it was certainly not sent the first time.
* No step follows a failed one without a growing pause, and no call lasts longer than its retry time and one timeout.
* A server that ends a reserve early, without a job, is asked again after a growing pause.
* After a reconnect the same tubes are used and watched before anything else is sent.
"""

import math
from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple, TypeVar

from penstock.jobs import calls
from penstock.jobs.calls import Call, FoundJob
from penstock.jobs.errors import AnswerLost, BadServer, ConnectionLost, Refused, ReservationLost, Unsupported
from penstock.jobs.settings import JobsSettings
from penstock.protocol import ProtocolError
from penstock.protocol.beanstalk import PROBE_UNIQUE, Reply, ReplyDecoder, check_name, with_headers
from penstock.protocol.headers import MOST_SIZE

T = TypeVar("T")

FIRST_DELAY_S = 0.1  # before the second connection; it doubles
MAX_DELAY_S = 5.0
IDLE_S = 1.0  # s: a connection that was idle for so long is checked before it is used, because the server may be gone
RESERVE_SLICE_S = 30  # s: a reserve without end is sent again so often, so that a silent server is noticed
BATCH_EVERY_S = 0.5  # s between two looks at a batch
DEFAULT_TUBE = "default"


class Dial(NamedTuple):
    """Connect to the address of the session, within `seconds`."""

    seconds: float


class Exchange(NamedTuple):
    """Send the data, if any, and return the next bytes, within `seconds` (b"": end of the stream)."""

    data: bytes
    seconds: float


class Pause(NamedTuple):
    """Do nothing for `seconds`, then continue the session."""

    seconds: float


class HangUp(NamedTuple):
    """Close the connection; this never fails."""


class Check(NamedTuple):
    """Return b"" if the idle connection is silent, and something else if it has data or its end to read."""


Step = Dial | Exchange | Pause | HangUp | Check
Steps = Generator[Step, bytes, T]
HANG_UP, CHECK = HangUp(), Check()


class JobsSession:
    """The state of one client: its connection, the tubes that it uses and watches, and what the server can do."""

    def __init__(
        self,
        settings: JobsSettings,
        clock: Callable[[], float],
        jitter: Callable[[], float],
        using: str = DEFAULT_TUBE,
        watching: Iterable[str] = (DEFAULT_TUBE,),
        wants_headers: bool = False,
    ) -> None:
        """`wants_headers`: jobs have headers, if the server can."""
        self.using = check_name(using)  # the tube of puts, kicks and peeks that name none
        self.watching = dict.fromkeys(map(check_name, watching))
        if not self.watching:
            raise ValueError("at least one tube must be watched")
        self.connected = False
        self.epoch = 0  # the number of connections so far; the first has number 1
        self._used = DEFAULT_TUBE  # the tube that the server's side of the connection uses
        self._has_unique: bool | None = None  # whether the server has put-unique; None: not known
        self._wants_headers = wants_headers
        self._takes_headers = False  # True: the server does, over this connection
        self._settings = settings
        self._clock = clock
        self._jitter = jitter
        self._decoder = self._new_decoder()
        self._last_used = 0.0  # time of the last answer
        self._is_known = False  # True: over this connection an answer came, so the peer is a server of jobs

    # calls

    def perform(self, call: Call[T], retry_s: float | None = None) -> Steps[T]:
        """Perform the call and return its result; try for `retry_s` seconds (the settings' by default). Raises JobsError."""
        retry_until = self._clock() + (self._settings.retry_s if retry_s is None else retry_s)
        delay = FIRST_DELAY_S
        while True:
            sent = False
            try:
                if not self._is_ready(call):
                    yield from self._prepare(call)
                sent = True
                command = calls.with_headers(call) if self._takes_headers and call.headers is not None else call.command
                return call.decode((yield from self._ask(command, 1, call.wait_s))[0])
            except ProtocolError as error:
                yield from self._hang_up()
                raise BadServer(f"not a server of jobs: {error}") from error
            except OSError as error:
                reason = self._reason(error)
                yield from self._hang_up()
                if sent and not call.repeatable:
                    raise AnswerLost(f"the command may have been executed: {reason}") from error
                pause = delay * (0.5 + self._jitter() / 2)
                if self._clock() + pause >= retry_until:
                    raise ConnectionLost(reason) from error
            yield Pause(pause)
            delay = min(2 * delay, MAX_DELAY_S)

    def reserve(self, timeout_s: float | None) -> Steps[FoundJob | None]:
        """Return the next job, or None after `timeout_s` (None: wait without end)."""
        if timeout_s is not None and not timeout_s >= 0:
            raise ValueError(f"a timeout must be at least 0 seconds: {timeout_s}")
        deadline = math.inf if timeout_s is None else self._clock() + timeout_s
        delay = FIRST_DELAY_S
        while True:
            began = self._clock()
            left = max(0.0, deadline - began)
            call = calls.reserve(min(RESERVE_SLICE_S, math.ceil(left)) if left < math.inf else RESERVE_SLICE_S)
            found = yield from self.perform(call, min(self._settings.retry_s, left))
            now = self._clock()
            if found is not None or now >= deadline:
                return found
            if now - began >= call.wait_s / 2:
                delay = FIRST_DELAY_S
            else:  # the server did not wait for a job
                yield Pause(min(delay, deadline - now))
                delay = min(2 * delay, MAX_DELAY_S)

    def wait_for_batch(self, batch: str, timeout_s: float | None) -> Steps[bool]:
        """Ask for a batch until it is done, or time is up. Returns True if it is done."""
        deadline = math.inf if timeout_s is None else self._clock() + timeout_s
        while (yield from self.perform(calls.stats_batch(batch)))["state"] != "done":
            left = deadline - self._clock()
            if left <= 0:
                return False
            yield Pause(min(BATCH_EVERY_S, left))
        return True

    def use(self, tube: str) -> Call[None]:
        """Use the tube from now on, also after a reconnect; return the command for the server."""
        call = calls.use(tube)
        self.using = tube
        return calls.noting(call, lambda: setattr(self, "_used", tube))

    def watch(self, tube: str) -> Call[int]:
        """Return the command after which the tube is watched, also after a reconnect."""
        return calls.noting(calls.watch(tube), lambda: self.watching.update({tube: None}))

    def ignore(self, tube: str) -> Call[int]:
        """Return the command after which the tube is watched no longer."""
        return calls.noting(calls.ignore(tube), lambda: self.watching.pop(tube, None))

    def reset(self) -> None:
        """Note that the connection is gone, for a driver that was interrupted."""
        self.connected = False

    # a connection

    def _new_decoder(self) -> ReplyDecoder:
        return ReplyDecoder(self._settings.max_body_bytes + (MOST_SIZE if self._wants_headers else 0))

    def _is_ready(self, call: Call[T]) -> bool:
        """Return True if `_prepare` has nothing to do, as for most calls."""
        return (
            self.connected
            and self._clock() - self._last_used <= IDLE_S
            and call.epoch in (0, self.epoch)
            and call.tube in ("", self._used)
            and not (call.unique or call.needs_headers)
        )

    def _prepare(self, call: Call[T]) -> Steps[None]:
        """Bring the connection into the state that the call needs."""
        if self.connected and self._clock() - self._last_used > IDLE_S and (yield CHECK):
            yield from self._hang_up()
        if call.epoch and not (self.connected and call.epoch == self.epoch):
            raise ReservationLost("the connection that reserved the job is gone")
        if not self.connected:
            yield from self._connect()
        if call.tube and call.tube != self._used:
            calls.use(call.tube).decode((yield from self._ask(calls.use(call.tube).command, 1))[0])
            self._used = call.tube
        if call.unique:
            yield from self._require_unique()
        if call.needs_headers and not self._takes_headers:
            raise Unsupported(Reply("UNKNOWN_COMMAND"))

    def _connect(self) -> Steps[None]:
        yield Dial(self._settings.connect_timeout_s)
        self.connected, self._is_known = True, False
        self.epoch += 1
        self._used, self._has_unique, self._takes_headers = DEFAULT_TUBE, None, False
        self._decoder = self._new_decoder()
        restore: list[Call[None] | Call[int] | Call[bool]] = [
            calls.watch(tube) for tube in self.watching if tube != DEFAULT_TUBE
        ]
        if DEFAULT_TUBE not in self.watching:
            restore.append(calls.ignore(DEFAULT_TUBE))
        if self.using != DEFAULT_TUBE:
            restore.append(calls.use(self.using))
        if self._wants_headers:
            restore.append(calls.HEADERS)
        if restore:
            replies = yield from self._ask(b"".join(call.command for call in restore), len(restore))
            self._takes_headers = replies[-1].word == "HEADERS"
            try:
                for call, reply in zip(restore, replies, strict=True):
                    call.decode(reply)
            except Refused:
                yield from self._hang_up()
                raise
        self._used = self.using

    def _require_unique(self) -> Steps[None]:
        if self._has_unique is None:
            (reply,) = yield from self._ask(PROBE_UNIQUE, 1)
            self._has_unique = reply.word == "BAD_FORMAT"
        if not self._has_unique:
            raise Unsupported(Reply("UNKNOWN_COMMAND"))

    def _ask(self, commands: bytes, count: int, wait_s: int = 0) -> Steps[list[Reply]]:
        """Send the commands and return their `count` replies. Raises OSError and ProtocolError."""
        seconds = wait_s + self._settings.timeout_s
        deadline = self._clock() + seconds
        replies: list[Reply] = []
        while True:
            data = yield Exchange(commands, seconds)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            replies += self._decoder.receive(data)
            now = self._clock()
            if len(replies) >= count:
                break
            commands, seconds = b"", deadline - now
            if seconds <= 0:
                raise TimeoutError("the server did not answer completely")
        if len(replies) > count:
            raise ProtocolError("more replies than commands")
        self._last_used, self._is_known = now, True
        return [*map(with_headers, replies)] if self._takes_headers else replies

    def _hang_up(self) -> Steps[None]:
        self.connected = False
        yield HANG_UP

    def _reason(self, error: OSError) -> str:
        if isinstance(error, TimeoutError):
            return "the server did not answer in time"
        reason = str(error) or type(error).__name__
        if self.connected and not self._is_known:
            reason += "; nothing came over this connection, so it may not be a server of jobs (beanstalkd's protocol)"
        return reason
