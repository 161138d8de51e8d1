"""The supervisor of `penstock up` in virtual time: no process, no clock, no chance."""

import random
from collections.abc import Callable
from contextlib import suppress
from signal import SIGKILL, SIGSEGV

import pytest

from apps.supervisor import (
    LONGEST_DELAY,
    MOST_ENDS,
    NEVER,
    SLOW_START,
    STABLE,
    STOP_TIMEOUT,
    Action,
    RefusedError,
    Say,
    Start,
    State,
    Supervised,
    Supervisor,
    Welcome,
    describe_end,
)
from shared.values import SECOND
from tests.cases import each

NAMES = ("nsqlookupd", "nsqd", "nsqd-2", "nsqadmin")
ONE_NODE = ("nsqlookupd", "nsqd", "nsqadmin")


class Machine:
    """A supervisor, the processes that it asked for, and what it did, in words."""

    def __init__(self, restarts: bool = False, names: tuple[str, ...] = NAMES, jitter: float = 1.0) -> None:
        daemons = [Supervised(name, name.startswith("nsqd")) for name in names]
        self.names = names
        self.supervisor = Supervisor(daemons, restarts, lambda: jitter, "kill -USR1 7")
        self.now = 0
        self.said: list[str] = []
        self.processes: set[str] = set()

    def take(self, actions: list[Action]) -> list[str]:
        """Carry out the actions and return them as words, without what was said."""
        done = []
        for action in actions:
            if isinstance(action, Say):
                self.said.append(action.text)
            elif isinstance(action, Welcome):
                done.append("welcome")
            else:
                self.processes.add(action.name) if isinstance(action, Start) else None
                done.append(f"{type(action).__name__.lower()} {action.name}")
        return done

    def begin(self) -> list[str]:
        return self.take(self.supervisor.begin(self.now))

    def answer(self, *names: str) -> list[str]:
        return [word for name in names for word in self.take(self.supervisor.answered(name, self.now))]

    def end(self, name: str, code: int = 0) -> list[str]:
        self.processes.remove(name)
        return self.take(self.supervisor.ended(name, code, self.now))

    def end_all(self, *names: str, code: int = 0) -> None:
        for name in names:
            self.end(name, code)

    @property
    def result(self) -> int:
        """The exit code, when it is over."""
        assert self.supervisor.is_over
        return self.supervisor.exit_code

    def stop(self) -> list[str]:
        return self.take(self.supervisor.told_to_stop(self.now))

    def kill(self, name: str, until: int = NEVER) -> list[str]:
        return self.take(self.supervisor.kill(name, until, self.now))

    def start(self, name: str) -> list[str]:
        return self.take(self.supervisor.start(name, self.now))

    def freeze(self, name: str, until: int = NEVER) -> list[str]:
        return self.take(self.supervisor.freeze(name, until))

    def thaw(self, name: str) -> list[str]:
        return self.take(self.supervisor.thaw(name))

    def start_dead(self) -> list[str]:
        return self.take(self.supervisor.told_to_start(self.now))

    def roll(self) -> list[str]:
        return self.take(self.supervisor.told_to_roll(self.now))

    def wait(self, ns: int) -> list[str]:
        """Let time pass, from one thing that is due to the next."""
        until, done = self.now + ns, []
        while self.supervisor.due() <= until:
            self.now = max(self.now, self.supervisor.due())
            done += self.take(self.supervisor.tick(self.now))
        self.now = until
        return done

    def up(self) -> "Machine":
        self.begin()
        assert self.answer(*self.names)[-1] == "welcome"
        return self


@pytest.fixture
def machine() -> Machine:
    """All daemons of a set run, and none is started again by itself."""
    return Machine().up()


def test_nsqlookupd_answers_before_the_others_start() -> None:
    machine = Machine()
    assert machine.begin() == ["start nsqlookupd"]
    assert machine.supervisor.starting() == ["nsqlookupd"]
    assert machine.answer("nsqlookupd") == ["start nsqd", "start nsqd-2", "start nsqadmin"]
    assert machine.answer("nsqadmin", "nsqd-2") == []
    assert machine.answer("nsqd") == ["welcome"]
    assert machine.supervisor.starting() == []
    assert machine.supervisor.due() == NEVER


def test_all_are_stopped_in_the_reverse_order_one_after_the_other(machine: Machine) -> None:
    assert machine.stop() == ["terminate nsqadmin"]
    assert machine.stop() == []
    assert machine.end("nsqadmin") == ["terminate nsqd-2"]
    assert machine.end("nsqd-2") == ["terminate nsqd"]
    assert machine.end("nsqd") == ["terminate nsqlookupd"]
    assert not machine.supervisor.is_over
    assert machine.end("nsqlookupd") == []
    assert machine.result == 0
    assert machine.said == []


def test_one_that_does_not_stop_is_killed(machine: Machine) -> None:
    machine.stop()
    assert machine.wait(STOP_TIMEOUT - 1) == []
    assert machine.wait(1) == ["kill nsqadmin"]
    assert machine.wait(STOP_TIMEOUT) == []
    assert machine.end("nsqadmin", -SIGKILL) == ["terminate nsqd-2"]
    assert machine.said == ["nsqadmin did not stop within 10 s: killing it", "nsqadmin was killed by SIGKILL"]
    machine.end_all("nsqd-2", "nsqd", "nsqlookupd")
    assert machine.result == 1


def test_an_impatient_user_kills_all(machine: Machine) -> None:
    machine.stop()
    assert machine.take(machine.supervisor.told_to_kill()) == [f"kill {name}" for name in NAMES]
    assert machine.wait(STOP_TIMEOUT) == []
    machine.end_all(*reversed(NAMES), code=-SIGKILL)
    assert machine.result == 1


def test_a_dead_node_stays_dead_and_the_others_go_on(machine: Machine) -> None:
    assert machine.end("nsqd", -SIGKILL) == []
    assert machine.said == [
        "nsqd was killed by SIGKILL, and stays down; the others continue. To start it again: kill -USR1 7"
        " (or run penstock up with --restart)"
    ]
    assert machine.wait(3600 * SECOND) == []
    assert machine.stop() == ["terminate nsqadmin"]
    assert machine.end("nsqadmin") == ["terminate nsqd-2"]
    assert machine.end("nsqd-2") == ["terminate nsqlookupd"]
    machine.end("nsqlookupd")
    assert machine.supervisor.exit_code == 1


@each("names", [NAMES, ONE_NODE])
@each("name", ["nsqlookupd", "nsqadmin"])
def test_the_set_goes_on_without_nsqlookupd_or_nsqadmin(name: str, names: tuple[str, ...]) -> None:
    machine = Machine(names=names).up()
    assert machine.end(name, 1) == []
    assert machine.said[0].startswith(f"{name} exited with code 1, and stays down; the others continue. To start it")
    assert machine.start_dead() == [f"start {name}"]
    machine.answer(name)
    assert machine.said[1:] == [f"starting {name}", f"{name} runs again"]
    assert machine.supervisor.exit_code == 0


def test_nsqlookupd_and_nsqadmin_go_on_without_any_node(machine: Machine) -> None:
    machine.end("nsqd", -SIGSEGV)
    assert machine.end("nsqd-2", 1) == []
    assert machine.start_dead() == ["start nsqd", "start nsqd-2"]


def test_without_its_only_node_a_set_is_stopped() -> None:
    machine = Machine(names=ONE_NODE).up()
    assert machine.end("nsqd", 1) == ["terminate nsqadmin"]
    assert machine.said == [
        "nsqd exited with code 1, and --restart is not given: stopping all daemons, because it is the only nsqd"
    ]
    assert machine.start_dead() == []
    machine.end_all("nsqadmin", "nsqlookupd")
    assert machine.result == 1


def test_a_set_has_ended_when_nothing_is_left_that_is_not_held_down(machine: Machine) -> None:
    machine.end_all("nsqd", "nsqadmin", "nsqd-2")
    assert not machine.supervisor.is_over
    assert machine.end("nsqlookupd") == []
    assert machine.said[-1] == "nsqlookupd exited with code 0, and stays down; no daemon is left"
    assert machine.result == 1

    machine = Machine().up()
    machine.kill("nsqd-2")
    machine.end_all("nsqd-2", "nsqd", "nsqadmin", "nsqlookupd", code=-SIGKILL)
    assert not machine.supervisor.is_over
    assert machine.start("nsqd-2") == ["start nsqd-2"]


def test_only_what_died_is_started_and_not_what_is_held_down() -> None:
    machine = Machine()
    machine.begin()
    assert machine.start_dead() == []
    machine.answer(*NAMES)
    assert machine.start_dead() == []
    assert machine.said == [
        "nothing is started now: the daemons are being started or stopped",
        "nothing to start: no daemon that died is down",
    ]
    machine.kill("nsqd")
    machine.end("nsqd", -SIGKILL)
    machine.end("nsqd-2", -SIGKILL)
    assert machine.start_dead() == ["start nsqd-2"]
    assert machine.start_dead() == []


@each("restarts", [False, True])
def test_a_set_that_never_ran_is_given_up(restarts: bool) -> None:
    machine = Machine(restarts)
    machine.begin()
    machine.answer("nsqlookupd", "nsqadmin")
    assert machine.end("nsqd", 1) == ["terminate nsqadmin"]
    assert machine.said == ["nsqd did not start: it exited with code 1; see its last log lines above"]
    assert machine.end("nsqadmin") == ["terminate nsqd-2"]
    machine.end_all("nsqd-2", "nsqlookupd")
    assert machine.result == 1


def test_a_slow_start_is_told_once_and_waited_for() -> None:
    machine = Machine()
    machine.begin()
    assert machine.wait(SLOW_START - 1) == []
    assert machine.said == []
    assert machine.wait(SLOW_START * 10) == []
    assert machine.said == ["nsqlookupd does not answer yet, after 15 s: still waiting"]
    assert machine.answer("nsqlookupd") == ["start nsqd", "start nsqd-2", "start nsqadmin"]


# --restart


def test_delays_grow_to_a_limit_and_chance_halves_them_at_most() -> None:
    for jitter, longest in ((1.0, 30.0), (0.0, 15.0)):
        machine = Machine(restarts=True, jitter=jitter).up()
        delays = []
        for _ in range(9):
            assert machine.end("nsqd", 1) == []
            began = machine.now
            while "nsqd" not in machine.processes:
                machine.wait(10_000_000)
            delays.append((machine.now - began) / SECOND)
        assert delays == [longest * share for share in (1 / 60, 1 / 30, 1 / 15, 2 / 15, 4 / 15, 8 / 15, 1, 1, 1)]


def test_a_daemon_that_was_stable_begins_with_a_short_delay_again() -> None:
    machine = Machine(restarts=True).up()
    for _ in range(4):
        machine.end("nsqd", 1)
        machine.wait(LONGEST_DELAY)
    machine.answer("nsqd")
    machine.wait(STABLE)
    machine.end("nsqd", 1)
    assert machine.said[-1] == "nsqd exited with code 1: starting it again in 0.5 s"


def test_a_daemon_that_dies_again_and_again_is_given_up() -> None:
    machine = Machine(restarts=True).up()
    for _ in range(MOST_ENDS):
        assert not machine.supervisor.exit_code
        machine.end("nsqd", 1)
        machine.wait(LONGEST_DELAY)
    assert [text for text in machine.said if "crash loop" in text] == [
        "nsqd is in a crash loop: it ended 5 times within 120 s, and its log lines above say why;"
        " penstock up tries 5 times more"
    ]
    assert machine.said[-1] == (
        "nsqd exited with code 1: it ended 10 times within 270 s, and is given up; the others continue."
        " To start it again: kill -USR1 7"
    )
    assert machine.wait(3600 * SECOND) == []
    assert machine.supervisor.exit_code == 1
    assert machine.start_dead() == ["start nsqd"]
    machine.end("nsqd", 1)
    assert machine.said[-1] == "nsqd exited with code 1: starting it again in 0.5 s"
    machine = Machine(restarts=True, names=ONE_NODE).up()
    for _ in range(MOST_ENDS - 1):
        assert machine.end("nsqd", 1) == []
        machine.wait(LONGEST_DELAY)
    assert machine.end("nsqd", 1) == ["terminate nsqadmin"], "it was the only node"
    assert "it ended 10 times within" in machine.said[-1]


def test_restarted_daemons_are_no_failure_in_the_end() -> None:
    machine = Machine(restarts=True).up()
    machine.end("nsqd", -SIGKILL)
    assert machine.wait(SECOND) == ["start nsqd"]
    assert machine.answer("nsqd") == []
    assert machine.said[-1] == "nsqd runs again"
    machine.stop()
    machine.end_all(*reversed(NAMES))
    assert machine.supervisor.exit_code == 0


def test_nothing_starts_again_while_all_are_stopped() -> None:
    machine = Machine(restarts=True).up()
    machine.end("nsqd", 1)
    machine.stop()
    assert machine.end("nsqadmin") == ["terminate nsqd-2"]
    assert machine.end("nsqlookupd", 1) == []
    machine.end("nsqd-2")
    assert machine.supervisor.is_over
    assert machine.wait(3600 * SECOND) == []


# the rolling restart


@each("restarts", [False, True])
def test_nodes_are_restarted_one_by_one(restarts: bool) -> None:
    machine = Machine(restarts).up()
    assert machine.roll() == ["terminate nsqd"]
    assert machine.roll() == []
    assert machine.end("nsqd") == ["start nsqd"]
    assert machine.wait(3600 * SECOND) == []  # it does not answer yet
    assert machine.answer("nsqd") == ["terminate nsqd-2"]
    assert machine.end("nsqd-2") == ["start nsqd-2"]
    assert machine.answer("nsqd-2") == []
    assert machine.said[0] == "rolling restart: 2 nodes, one after the other"
    assert machine.said[1] == "rolling restart: not now, the daemons are being started, stopped or restarted"
    assert machine.said[-1] == "rolling restart: done"
    assert machine.roll() == ["terminate nsqd"]


def test_no_node_is_stopped_while_another_one_is_down() -> None:
    machine = Machine(restarts=True).up()
    machine.roll()
    machine.end("nsqd-2", 1)
    assert machine.end("nsqd") == ["start nsqd"]
    assert machine.answer("nsqd") == []
    assert machine.wait(SECOND) == ["start nsqd-2"]
    assert machine.answer("nsqd-2") == ["terminate nsqd-2"]


def test_it_waits_for_nsqlookupd_and_starts_what_was_left_down() -> None:
    machine = Machine(restarts=True).up()
    machine.end("nsqlookupd", 1)
    assert machine.roll() == []
    assert machine.wait(SECOND) == ["start nsqlookupd"]
    assert machine.answer("nsqlookupd") == ["terminate nsqd"]
    machine = Machine().up()
    machine.end_all("nsqlookupd", "nsqadmin", code=1)
    assert machine.roll() == ["start nsqlookupd", "start nsqadmin"]
    assert machine.answer("nsqlookupd") == ["terminate nsqd"]
    machine = Machine().up()
    machine.end("nsqd", -SIGKILL)
    assert machine.roll() == ["start nsqd"]
    assert machine.answer("nsqd") == ["terminate nsqd-2"]
    machine.end("nsqd-2")
    machine.answer("nsqd-2")
    assert machine.supervisor.exit_code == 0


@each("name, ends", [("nsqlookupd", True), ("nsqadmin", False)])
def test_it_needs_nsqlookupd_and_not_nsqadmin(name: str, ends: bool) -> None:
    machine = Machine().up()
    machine.roll()
    machine.end(name, 1)
    assert any("rolling restart: given up" in text for text in machine.said) is ends
    machine.end("nsqd")
    assert machine.answer("nsqd") == ([] if ends else ["terminate nsqd-2"])


def test_a_node_that_does_not_come_back_ends_it_unless_it_is_started_again(machine: Machine) -> None:
    machine.roll()
    machine.end("nsqd")
    assert machine.end("nsqd", 1) == []
    assert machine.said[-1] == "rolling restart: given up; the nodes that are left were not restarted"
    assert machine.wait(3600 * SECOND) == []
    assert machine.roll() == ["start nsqd"]
    machine = Machine(restarts=True).up()
    machine.roll()
    machine.end("nsqd")
    assert machine.end("nsqd", 1) == []
    assert machine.wait(SECOND) == ["start nsqd"]
    assert machine.answer("nsqd") == ["terminate nsqd-2"]


def test_a_node_that_does_not_stop_is_killed_and_started(machine: Machine) -> None:
    machine.roll()
    assert machine.wait(STOP_TIMEOUT) == ["kill nsqd"]
    assert machine.end("nsqd", -SIGKILL) == ["start nsqd"]


def test_nothing_is_rolled_or_broken_before_all_run_and_after_a_stop() -> None:
    early, late = Machine(), Machine().up()
    early.begin()
    late.stop()
    for machine in (early, late):
        assert machine.roll() == []
        for ask in (machine.kill, machine.start, machine.freeze, machine.thaw):
            with pytest.raises(RefusedError, match="not now"):
                ask("nsqd")


def test_a_stop_in_the_middle_ends_it(machine: Machine) -> None:
    machine.roll()
    assert machine.stop() == ["terminate nsqadmin"]
    assert machine.end("nsqd") == []
    assert machine.end("nsqadmin") == ["terminate nsqd-2"]


# penstock chaos


@each("restarts", [False, True])
def test_a_node_that_was_killed_on_purpose_is_held_down_until_it_is_started(restarts: bool) -> None:
    machine = Machine(restarts).up()
    assert machine.kill("nsqd-2") == ["kill nsqd-2"]
    assert machine.end("nsqd-2", -SIGKILL) == []
    assert machine.said == ["nsqd-2 was killed by SIGKILL by penstock chaos: held down until it is started"]
    assert machine.wait(3600 * SECOND) == []
    with pytest.raises(RefusedError, match="already down"):
        machine.kill("nsqd-2")
    assert machine.start("nsqd-2") == ["start nsqd-2"]
    assert machine.answer("nsqd-2") == []
    assert machine.said[-1] == "nsqd-2 runs again"
    with pytest.raises(RefusedError, match="is running"):
        machine.start("nsqd-2")


def test_a_node_is_held_down_for_a_time() -> None:
    machine = Machine(restarts=True).up()
    machine.kill("nsqd", machine.now + 60 * SECOND)
    machine.end("nsqd", -SIGKILL)
    assert machine.said == ["nsqd was killed by SIGKILL by penstock chaos: held down for 60 s"]
    assert machine.wait(60 * SECOND - 1) == []
    assert machine.wait(1) == ["start nsqd"]
    machine.answer("nsqd")
    machine.end("nsqd", -SIGSEGV)
    assert machine.said[-1] == "nsqd was killed by SIGSEGV: starting it again in 0.5 s"


def test_all_nodes_may_be_held_down_and_this_is_no_failure(machine: Machine) -> None:
    for name in ("nsqd", "nsqd-2"):
        machine.kill(name)
        assert machine.end(name, -SIGKILL) == []
    assert machine.start("nsqd") == ["start nsqd"]
    assert machine.end("nsqd", 1) == []
    assert machine.start("nsqd") == ["start nsqd"]
    machine.answer("nsqd")
    assert machine.stop() == ["terminate nsqadmin"]
    machine.end_all("nsqadmin", "nsqd", "nsqlookupd")
    assert machine.result == 0


def test_a_node_that_is_killed_may_be_started_or_the_set_stopped_before_its_process_has_ended(machine: Machine) -> None:
    machine.kill("nsqd")
    assert machine.start("nsqd") == []
    assert machine.end("nsqd", -SIGKILL) == ["start nsqd"]
    machine = Machine().up()
    machine.kill("nsqd")
    machine.stop()
    machine.end("nsqd", -SIGKILL)
    machine.end_all("nsqadmin", "nsqd-2", "nsqlookupd")
    assert machine.result == 0


def test_a_node_that_waits_for_its_restart_is_held_down_too() -> None:
    machine = Machine(restarts=True).up()
    machine.end("nsqd", 1)
    assert machine.kill("nsqd") == []
    assert machine.said[-1] == "nsqd is held down by penstock chaos until it is started"
    assert machine.wait(3600 * SECOND) == []
    assert machine.start("nsqd") == ["start nsqd"]


def test_a_node_is_frozen_until_it_is_thawed(machine: Machine) -> None:
    assert machine.freeze("nsqd") == ["freeze nsqd"]
    assert machine.wait(3600 * SECOND) == []
    with pytest.raises(RefusedError, match="it is frozen"):
        machine.freeze("nsqd")
    with pytest.raises(RefusedError, match="use thaw"):
        machine.start("nsqd")
    assert machine.thaw("nsqd") == ["thaw nsqd"]
    with pytest.raises(RefusedError, match="it is running"):
        machine.thaw("nsqd")


def test_a_node_is_frozen_for_a_time_and_may_be_killed_meanwhile(machine: Machine) -> None:
    machine.freeze("nsqd", machine.now + 10 * SECOND)
    assert machine.wait(10 * SECOND) == ["thaw nsqd"]
    machine.freeze("nsqd", machine.now + 10 * SECOND)
    assert machine.kill("nsqd") == ["kill nsqd"]
    assert machine.wait(3600 * SECOND) == []
    machine.end("nsqd", -SIGKILL)
    assert machine.wait(3600 * SECOND) == []


def test_a_frozen_node_is_stopped_and_restarted_as_any_other(machine: Machine) -> None:
    machine.freeze("nsqd")
    assert machine.roll() == ["terminate nsqd"]
    machine.end("nsqd")
    machine.answer("nsqd")
    machine.end("nsqd-2")
    machine.answer("nsqd-2")
    machine.freeze("nsqd", machine.now + SECOND)
    machine.stop()
    machine.end("nsqadmin")
    assert machine.end("nsqd-2") == ["terminate nsqd"]
    assert machine.wait(STOP_TIMEOUT) == ["kill nsqd"]


def test_a_rolling_restart_starts_what_is_held_down(machine: Machine) -> None:
    machine.kill("nsqd")
    machine.end("nsqd", -SIGKILL)
    assert machine.roll() == ["start nsqd"]
    with pytest.raises(RefusedError, match="not now"):
        machine.kill("nsqd-2")


def test_whatever_happens_it_comes_to_an_end() -> None:
    """Random events, with a random policy; then a stop. Every process that was started ends, and nothing starts after it."""
    for seed in range(300):
        source = random.Random(seed)
        machine = Machine(restarts=source.random() < 0.7, jitter=source.random())
        machine.begin()
        for _ in range(60):
            _anything(machine, source)
        machine.stop()
        while not machine.supervisor.is_over:
            alive = [
                d.name
                for d in machine.supervisor._daemons
                if d.state in (State.STARTING, State.RUNNING, State.STOPPING, State.FROZEN)
            ]
            assert set(alive) == machine.processes, seed
            machine.end(source.choice(alive), source.choice([0, 1, -9]))
        assert machine.processes == set(), seed
        assert machine.wait(3600 * SECOND) == [], seed


def _anything(machine: Machine, source: random.Random) -> None:
    events: list[Callable[[], object]] = [machine.roll, lambda: machine.wait(source.randrange(70 * SECOND))]
    if machine.processes:
        events.append(lambda: machine.end(source.choice(sorted(machine.processes)), source.choice([0, 1, -9])))
    if machine.supervisor.starting():
        events += [lambda: machine.answer(source.choice(machine.supervisor.starting()))] * 4
    events += [lambda: _any_chaos(machine, source)] * 2
    source.choice(events)()


def _any_chaos(machine: Machine, source: random.Random) -> None:
    name, until = source.choice(["nsqd", "nsqd-2"]), source.choice([NEVER, machine.now + 5 * SECOND])
    asks = [machine.kill, machine.freeze, lambda name, _: machine.start(name), lambda name, _: machine.thaw(name)]
    with suppress(RefusedError):
        source.choice(asks)(name, until)


def test_ends_in_words() -> None:
    said = ["exited with code 0", "exited with code 3", "was killed by SIGKILL", "was killed by signal 35"]
    assert [describe_end(code) for code in (0, 3, -9, -35)] == said
