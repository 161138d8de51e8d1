"""Decide which daemons of `penstock up` to start, stop, restart or leave down. Pure: the time is the argument `now` (ns).

A daemon is NEW, then STARTING until it answers, RUNNING, and STOPPING after SIGTERM. When its process ends it is DOWN until the
user starts it, or BACKING_OFF until its next start. If one ends, the others continue, unless it is the only node of the set.
Events are methods; each returns the actions to carry out, in their order. `penstock chaos` kills a node, which then is HELD
down, or freezes it: FROZEN.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals

from shared.counted import counted
from shared.values import MILLISECOND, SECOND

NEVER = 1 << 62
SLOW_START = 15 * SECOND  # then a line is printed once; a node may need minutes to read a long log
STOP_TIMEOUT = 10 * SECOND  # for a daemon to stop before it is killed
FIRST_DELAY = 500 * MILLISECOND  # before the first restart; each further one waits twice as long
LONGEST_DELAY = 30 * SECOND
STABLE = 60 * SECOND  # a daemon that ran for this long was healthy: its earlier ends no longer count
CRASH_LOOP = 5  # ends in a row that are called a crash loop
MOST_ENDS = 10  # ends in a row after which a daemon is not started again: by then it was tried for at least a minute


class State(Enum):
    """The state of a daemon, as the module describes."""

    NEW = auto()
    STARTING = auto()
    RUNNING = auto()
    STOPPING = auto()
    FROZEN = auto()
    BACKING_OFF = auto()
    HELD = auto()
    DOWN = auto()


ALIVE = (State.STARTING, State.RUNNING, State.STOPPING, State.FROZEN)  # there is a process
UNSETTLED = (State.STARTING, State.STOPPING, State.BACKING_OFF)


@dataclass(frozen=True, slots=True)
class Start:
    """Start the process of the named daemon."""

    name: str


@dataclass(frozen=True, slots=True)
class Send:
    """Send a signal to the daemon's process."""

    name: str
    signal: Signals


@dataclass(frozen=True, slots=True)
class Say:
    """Print one line for the user of `penstock up`."""

    text: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """Print where the daemons listen: all of them run."""


Action = Start | Send | Say | Welcome


class RefusedError(Exception):
    """A request of `penstock chaos` is not possible now. The text says why, and what to do."""


@dataclass(slots=True)
class Supervised:
    """A daemon, its state, and when the supervisor acts on it next."""

    name: str
    is_node: bool
    state: State = State.NEW
    started: int = 0  # ns: when its process was started last
    due: int = NEVER  # ns: time of its next `tick`
    ends: int = 0  # how often it ended in a row, without having been stable in between
    first_end: int = 0  # ns: the first of these ends
    is_left_down: bool = False  # it ended by itself, and is not started again unless the user asks for that
    held_until: int = 0  # ns: it was killed on purpose, and is started again then; 0: it was not


class Supervisor:
    """The state of a set of daemons. The first one must answer before the others start."""

    def __init__(
        self, daemons: Sequence[Supervised], restarts: bool, jitter: Callable[[], float], start_command: str
    ) -> None:
        """Take the daemons in the order of their start. `jitter` returns a number from 0 to 1, for the delays of restarts.

        `start_command`: the shell command that starts the daemons that are left down.
        """
        self._daemons = list(daemons)
        self._by_name = {daemon.name: daemon for daemon in daemons}
        self._restarts = restarts
        self._jitter = jitter
        self._start_command = start_command
        self._is_up = False  # all daemons have answered once
        self._is_stopping = False
        self._has_failed = False
        # nodes that a rolling restart has still to restart; None: there is none
        self._roll: list[Supervised] | None = None

    # queries

    @property
    def is_over(self) -> bool:
        """Return True if nothing runs, and nothing will be started."""
        return self._is_stopping and not any(daemon.state in ALIVE for daemon in self._daemons)

    @property
    def exit_code(self) -> int:
        """Return 1 if a daemon failed and was not started again, otherwise 0."""
        return 1 if self._has_failed or any(daemon.is_left_down for daemon in self._daemons) else 0

    def state(self, name: str) -> State:
        """Return the state of the named daemon."""
        return self._by_name[name].state

    def starting(self) -> list[str]:
        """Return the names of the daemons that have not answered yet."""
        return [daemon.name for daemon in self._daemons if daemon.state is State.STARTING]

    def due(self) -> int:
        """Return the time of the next `tick` (ns)."""
        return min(daemon.due for daemon in self._daemons)

    # events

    def begin(self, now: int) -> list[Action]:
        """Start the first daemon; the others follow once it answers."""
        return self._start(self._daemons[0], now)

    def answered(self, name: str, now: int) -> list[Action]:
        """Note that a starting daemon serves; a node is also registered at nsqlookupd."""
        daemon = self._by_name[name]
        daemon.state, daemon.due = State.RUNNING, NEVER
        if self._is_stopping:
            return []
        if self._is_up:
            return [Say(f"{name} runs again"), *self._roll_on(now)]
        if daemon is self._daemons[0]:
            return [action for other in self._daemons[1:] for action in self._start(other, now)]
        self._is_up = all(other.state is State.RUNNING for other in self._daemons)
        return [Welcome()] if self._is_up else []

    def ended(self, name: str, code: int, now: int) -> list[Action]:
        """Decide what follows the end of a daemon's process. `code` is negative for a signal, as in subprocess."""
        daemon = self._by_name[name]
        was, daemon.state, daemon.due = daemon.state, State.DOWN, NEVER
        how = describe_end(code)
        held_until, daemon.held_until = daemon.held_until, 0
        if self._is_stopping:
            self._has_failed |= code != 0 and not held_until
            return [*([Say(f"{name} {how}")] if code else []), *self._stop_next(now)]
        if held_until:
            daemon.state, daemon.due = State.HELD, held_until
            return [Say(f"{name} {how} by penstock chaos: held down{_until(held_until, now)}")]
        if was is State.STOPPING:
            return [*([Say(f"{name} {how}")] if code else []), *self._start(daemon, now)]
        if not self._is_up:
            return self._give_up(f"{name} did not start: it {how}; see its last log lines above", now)
        if not self._restarts:
            return self._leave_down(daemon, how, f"{how}, and stays down", now)
        self._count_end(daemon, now)
        if daemon.ends < MOST_ENDS:
            return self._back_off(daemon, how, now)
        seconds = (now - daemon.first_end) // SECOND
        return self._leave_down(
            daemon, how, f"{how}: it ended {MOST_ENDS} times within {seconds} s, and is given up", now
        )

    def stop_all(self, now: int) -> list[Action]:
        """Stop all daemons, one after the other, in the reverse order of their start."""
        if self._is_stopping:
            return []
        self._is_stopping, self._roll = True, None
        for daemon in self._daemons:
            if daemon.state in (State.NEW, State.BACKING_OFF, State.HELD):
                daemon.state, daemon.due = State.DOWN, NEVER
        return self._stop_next(now)

    def kill_all(self) -> list[Action]:
        """Kill all daemons that still run: the user does not want to wait until they stop."""
        alive = [daemon for daemon in self._daemons if daemon.state in ALIVE]
        for daemon in alive:
            daemon.state, daemon.due = State.STOPPING, NEVER
        return [Say("interrupted again: killing the daemons"), *(Send(daemon.name, SIGKILL) for daemon in alive)]

    def start_down(self, now: int) -> list[Action]:
        """Start the daemons that are left down."""
        if self._is_stopping or not self._is_up:
            return [Say("nothing is started now: the daemons are being started or stopped")]
        return self._start_left_down(now) or [Say("nothing to start: no daemon that died is down")]

    def restart_nodes(self, now: int) -> list[Action]:
        """Begin to restart the nodes one by one, also those that are down; nsqlookupd and nsqadmin start if they are down."""
        if self._is_stopping or not self._is_up or self._roll is not None:
            return [Say("rolling restart: not now, the daemons are being started, stopped or restarted")]
        others = [daemon for daemon in self._daemons if daemon.is_left_down and not daemon.is_node]
        actions = [action for daemon in others for action in self._start(daemon, now)]
        self._roll = self._nodes()
        say = Say(f"rolling restart: {counted(len(self._roll), 'node')}, one after the other")
        return [say, *actions, *self._roll_on(now)]

    def kill(self, name: str, until: int, now: int) -> list[Action]:
        """Kill a node and hold it down until a time in ns; NEVER: until `start`. Raises RefusedError."""
        daemon = self._node(name)
        if daemon.state is State.BACKING_OFF:
            daemon.state, daemon.due = State.HELD, until
            return [Say(f"{name} is held down by penstock chaos{_until(until, now)}")]
        if daemon.state not in (State.STARTING, State.RUNNING, State.FROZEN):
            raise RefusedError(f"{name} is already down")
        daemon.state, daemon.due, daemon.held_until = State.STOPPING, NEVER, until
        return [Send(name, SIGKILL)]

    def start(self, name: str, now: int) -> list[Action]:
        """Start a node that is down, or held down. Raises RefusedError."""
        daemon = self._node(name)
        if daemon.held_until:  # it starts when its process has ended
            daemon.held_until = 0
            return []
        if daemon.state in ALIVE:
            raise RefusedError(f"{name} is running" + (": use thaw" if daemon.state is State.FROZEN else ""))
        return self._start(daemon, now)

    def freeze(self, name: str, until: int) -> list[Action]:
        """Stop a node's process without ending it, until a time in ns; NEVER: until `thaw`. Raises RefusedError."""
        daemon = self._node(name)
        if daemon.state is not State.RUNNING:
            raise RefusedError(f"{name} is not running: it is {daemon.state.name.lower()}")
        daemon.state, daemon.due = State.FROZEN, until
        return [Send(name, SIGSTOP), Say(f"{name} was frozen by penstock chaos")]

    def thaw(self, name: str) -> list[Action]:
        """Let a frozen process continue. Raises RefusedError."""
        daemon = self._node(name)
        if daemon.state is not State.FROZEN:
            raise RefusedError(f"{name} is not frozen: it is {daemon.state.name.lower()}")
        return self._thaw(daemon)

    def _node(self, name: str) -> Supervised:
        """Return the node of that name. Raises RefusedError while the set starts, stops or restarts its nodes."""
        if self._is_stopping or not self._is_up or self._roll is not None:
            raise RefusedError("not now: the daemons are being started, stopped or restarted")
        return self._by_name[name]

    def tick(self, now: int) -> list[Action]:
        """Return the actions that are due at `now`: a start, a kill, or a line for the user."""
        actions: list[Action] = []
        for daemon in self._daemons:
            if now >= daemon.due:
                actions += self._overdue(daemon, now)
        return actions

    # consequences

    def _nodes(self) -> list[Supervised]:
        return [daemon for daemon in self._daemons if daemon.is_node]

    def _start(self, daemon: Supervised, now: int) -> list[Action]:
        daemon.state, daemon.started, daemon.due = State.STARTING, now, now + SLOW_START
        daemon.is_left_down = False
        return [Start(daemon.name)]

    def _start_left_down(self, now: int) -> list[Action]:
        actions: list[Action] = []
        for daemon in self._daemons:
            if daemon.is_left_down:
                actions += [Say(f"starting {daemon.name}"), *self._start(daemon, now)]
        return actions

    def _leave_down(self, daemon: Supervised, how: str, what: str, now: int) -> list[Action]:
        """Leave a daemon down that has ended, and stop the set if it has no use without it. `how`, `what`: for the user."""
        daemon.is_left_down, daemon.ends = True, 0
        hint = "" if self._restarts else " (or run penstock up with --restart)"
        if daemon.is_node and len(self._nodes()) == 1:
            why = what if self._restarts else f"{how}, and --restart is not given"
            return self._give_up(f"{daemon.name} {why}: stopping all daemons, because it is the only nsqd", now)
        if not any(other.state in (*ALIVE, State.BACKING_OFF, State.HELD) for other in self._daemons):
            return self._give_up(f"{daemon.name} {what}; no daemon is left", now)
        said = f"{daemon.name} {what}; the others continue. To start it again: {self._start_command}{hint}"
        actions: list[Action] = [Say(said)]
        if self._roll is not None and daemon is not self._daemons[-1]:  # nsqadmin may be down in a rolling restart
            self._roll = None
            actions.append(Say("rolling restart: given up; the nodes that are left were not restarted"))
        return actions

    def _overdue(self, daemon: Supervised, now: int) -> list[Action]:
        daemon.due = NEVER
        if daemon.state in (State.BACKING_OFF, State.HELD):
            return self._start(daemon, now)
        if daemon.state is State.FROZEN:
            return self._thaw(daemon)
        if daemon.state is State.STOPPING:
            seconds = STOP_TIMEOUT // SECOND
            return [Say(f"{daemon.name} did not stop within {seconds} s: killing it"), Send(daemon.name, SIGKILL)]
        return [Say(f"{daemon.name} does not answer yet, after {SLOW_START // SECOND} s: still waiting")]

    def _give_up(self, why: str, now: int) -> list[Action]:
        self._has_failed = True
        return [Say(why), *self.stop_all(now)]

    def _stop_next(self, now: int) -> list[Action]:
        """Stop the last daemon that is alive, unless it is stopping."""
        for daemon in reversed(self._daemons):
            if daemon.state in ALIVE:
                return [] if daemon.state is State.STOPPING else self._terminate(daemon, now)
        return []

    def _thaw(self, daemon: Supervised) -> list[Action]:
        daemon.state, daemon.due = State.RUNNING, NEVER
        return [Send(daemon.name, SIGCONT), Say(f"{daemon.name} continues")]

    def _terminate(self, daemon: Supervised, now: int) -> list[Action]:
        daemon.state, daemon.due = State.STOPPING, now + STOP_TIMEOUT
        return [Send(daemon.name, SIGTERM)]

    def _count_end(self, daemon: Supervised, now: int) -> None:
        if daemon.ends == 0 or now - daemon.started >= STABLE:
            daemon.ends, daemon.first_end = 0, now
        daemon.ends += 1

    def _back_off(self, daemon: Supervised, how: str, now: int) -> list[Action]:
        """Start the daemon again after a delay, half of which is by chance, so that daemons do not start in step."""
        longest = min(LONGEST_DELAY, FIRST_DELAY << min(daemon.ends - 1, 16))
        delay = longest // 2 + int(longest // 2 * self._jitter())
        daemon.state, daemon.due = State.BACKING_OFF, now + delay
        actions: list[Action] = [Say(f"{daemon.name} {how}: starting it again in {delay / SECOND:.1f} s")]
        if daemon.ends == CRASH_LOOP:
            seconds = (now - daemon.first_end) // SECOND
            actions.append(
                Say(
                    f"{daemon.name} is in a crash loop: it ended {CRASH_LOOP} times within {seconds} s, and its log"
                    f" says why; penstock up tries {MOST_ENDS - CRASH_LOOP} times more"
                )
            )
        return actions

    def _roll_on(self, now: int) -> list[Action]:
        """Restart the next node if nsqlookupd and all nodes are settled: no two nodes are down because of us."""
        if self._roll is None or any(daemon.state in UNSETTLED for daemon in (self._daemons[0], *self._nodes())):
            return []
        if not self._roll:
            self._roll = None
            return [Say("rolling restart: done")]
        daemon = self._roll.pop(0)
        return self._start(daemon, now) if daemon.state not in ALIVE else self._terminate(daemon, now)


def _until(due: int, now: int) -> str:
    """Return the end of a sentence about a state that holds until `due`."""
    return " until it is started" if due == NEVER else f" for {(due - now) / SECOND:.0f} s"


def describe_end(code: int) -> str:
    """Return the text about the end of a process. `code` is that of subprocess: negative for a signal."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {Signals(-code).name}"
    except ValueError:  # a real-time signal
        return f"was killed by signal {-code}"
