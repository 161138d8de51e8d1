"""The supervisor of `penstock up` in virtual time: no process, no clock, no chance."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

import pytest

from apps.supervisor import (
    LONGEST_DELAY,
    MOST_ENDS,
    NEVER,
    SLOW_START,
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
)  # fmt: skip
from shared.values import SECOND
from tests.cases import each

NAMES = ("nsqlookupd", "nsqd", "nsqd-2", "nsqadmin")
ONE_NODE = ("nsqlookupd", "nsqd", "nsqadmin")
VERBS = {SIGTERM: "terminate", SIGKILL: "kill", SIGSTOP: "freeze", SIGCONT: "thaw"}
TIMES = {"ns": 1, "second": SECOND, "minute": 60 * SECOND, "hour": 3600 * SECOND, "stop-timeout": STOP_TIMEOUT}


class Machine:
    """A supervisor, its processes, and its actions as text."""

    def __init__(self, restarts: bool = False, names: tuple[str, ...] = NAMES, jitter: float = 1.0) -> None:
        daemons = [Supervised(name, name.startswith("nsqd")) for name in names]
        self.names = names
        self.supervisor = Supervisor(daemons, restarts, lambda: jitter, "kill -USR1 7")
        self.now = 0
        self.said: list[str] = []
        self.processes: set[str] = set()

    def take(self, actions: list[Action]) -> list[str]:
        """Carry out the actions, and return them as text, without the lines for the user."""
        done = []
        for action in actions:
            if isinstance(action, Say):
                self.said.append(action.text)
            elif isinstance(action, Welcome):
                done.append("welcome")
            else:
                self.processes.add(action.name) if isinstance(action, Start) else None
                done.append(f"{'start' if isinstance(action, Start) else VERBS[action.signal]} {action.name}")
        return done

    def play(self, *steps: str) -> Machine:
        """Execute steps such as "end nsqd 1 > start nsqd", "kill nsqd minute" or "thaw nsqd ! it is running".

        After > are all actions that must follow, after ! is the reason of a refusal.
        """
        for step in steps:
            asked, arrow, wanted = step.partition(">")
            asked, _, refusal = asked.partition("!")
            verb, *given = asked.split()
            arguments = [
                TIMES[one] if one in TIMES else int(one) if one.lstrip("-").isdigit() else one for one in given
            ]
            if verb in ("kill", "freeze") and len(arguments) > 1:
                arguments[1] += self.now  # type: ignore[operator]
            if refusal:
                with pytest.raises(RefusedError, match=refusal.strip()):
                    getattr(self, verb)(*arguments)
            else:
                done = getattr(self, verb)(*arguments)
                assert not arrow or ", ".join(done) == wanted.strip(), step
        return self

    def begin(self) -> list[str]:
        return self.take(self.supervisor.begin(self.now))

    def answer(self, *names: str) -> list[str]:
        return [action for name in names for action in self.take(self.supervisor.answered(name, self.now))]

    def end(self, name: str, code: int = 0) -> list[str]:
        self.processes.remove(name)
        return self.take(self.supervisor.ended(name, code, self.now))

    def end_all(self, *names: str) -> None:
        for name in names:
            self.end(name)

    @property
    def result(self) -> int:
        """The exit code, when it is over."""
        assert self.supervisor.is_over
        return self.supervisor.exit_code

    def stop(self) -> list[str]:
        return self.take(self.supervisor.stop_all(self.now))

    def kill(self, name: str, until: int = NEVER) -> list[str]:
        return self.take(self.supervisor.kill(name, until, self.now))

    def start(self, name: str) -> list[str]:
        return self.take(self.supervisor.start(name, self.now))

    def freeze(self, name: str, until: int = NEVER) -> list[str]:
        return self.take(self.supervisor.freeze(name, until))

    def thaw(self, name: str) -> list[str]:
        return self.take(self.supervisor.thaw(name))

    def start_dead(self) -> list[str]:
        return self.take(self.supervisor.start_down(self.now))

    def roll(self) -> list[str]:
        return self.take(self.supervisor.restart_nodes(self.now))

    def wait(self, ns: int) -> list[str]:
        """Let time pass, from one thing that is due to the next."""
        until, done = self.now + ns, []
        while self.supervisor.due() <= until:
            self.now = max(self.now, self.supervisor.due())
            done += self.take(self.supervisor.tick(self.now))
        self.now = until
        return done

    def up(self) -> Machine:
        self.begin()
        assert self.answer(*self.names)[-1] == "welcome"
        return self


@pytest.fixture
def machine() -> Machine:
    """All daemons of a set run, and none is started again by itself."""
    return Machine().up()


@pytest.fixture
def restarting() -> Machine:
    """All daemons of a set run, and are started again."""
    return Machine(restarts=True).up()


def test_nsqlookupd_answers_before_the_others_start() -> None:
    machine = Machine().play("begin > start nsqlookupd")
    assert machine.supervisor.starting() == ["nsqlookupd"]
    machine.play("answer nsqlookupd > start nsqd, start nsqd-2, start nsqadmin", "answer nsqadmin nsqd-2 >")
    machine.play("answer nsqd > welcome")
    assert machine.supervisor.starting() == []
    assert machine.supervisor.due() == NEVER


def test_all_are_stopped_in_the_reverse_order_one_after_the_other(machine: Machine) -> None:
    machine.play(
        "stop > terminate nsqadmin", "stop >", "end nsqadmin > terminate nsqd-2", "end nsqd-2 > terminate nsqd"
    )
    machine.play("end nsqd > terminate nsqlookupd")
    assert not machine.supervisor.is_over
    machine.play("end nsqlookupd >")
    assert (machine.result, machine.said) == (0, [])


def test_one_that_does_not_stop_is_killed(machine: Machine) -> None:
    machine.play("stop", f"wait {STOP_TIMEOUT - 1} >", "wait ns > kill nsqadmin", "wait stop-timeout >")
    machine.play("end nsqadmin -9 > terminate nsqd-2")
    assert machine.said == ["nsqadmin did not stop within 10 s: killing it", "nsqadmin was killed by SIGKILL"]
    machine.end_all("nsqd-2", "nsqd", "nsqlookupd")
    assert machine.result == 1


def test_an_impatient_user_kills_all(machine: Machine) -> None:
    machine.stop()
    assert machine.take(machine.supervisor.kill_all()) == [f"kill {name}" for name in NAMES]
    machine.play("wait stop-timeout >", *(f"end {name} {-SIGKILL} >" for name in reversed(NAMES)))
    assert machine.result == 1


def test_a_dead_node_stays_dead_and_the_others_go_on(machine: Machine) -> None:
    machine.play("end nsqd -9 >", "wait hour >")
    assert machine.said == [
        "nsqd was killed by SIGKILL, and stays down; the others continue. To start it again: kill -USR1 7"
        " (or run penstock up with --restart)"
    ]
    machine.play("stop > terminate nsqadmin", "end nsqadmin > terminate nsqd-2", "end nsqd-2 > terminate nsqlookupd")
    machine.end("nsqlookupd")
    assert machine.supervisor.exit_code == 1


def test_nsqlookupd_and_nsqadmin_go_on_without_any_node_but_not_without_the_only_one(machine: Machine) -> None:
    machine.play("end nsqd -11", "end nsqd-2 1 >", "start_dead > start nsqd, start nsqd-2")
    alone = Machine(names=ONE_NODE).up().play("end nsqd 1 > terminate nsqadmin", "start_dead >")
    assert alone.said[:1] == [
        "nsqd exited with code 1, and --restart is not given: stopping all daemons, because it is the only nsqd"
    ]
    alone.end_all("nsqadmin", "nsqlookupd")
    assert alone.result == 1


def test_a_set_has_ended_when_nothing_is_left_that_is_not_held_down(machine: Machine) -> None:
    machine.end_all("nsqd", "nsqadmin", "nsqd-2")
    assert not machine.supervisor.is_over
    machine.play("end nsqlookupd >")
    assert machine.said[-1] == "nsqlookupd exited with code 0, and stays down; no daemon is left"
    assert machine.result == 1
    machine = Machine().up().play("kill nsqd-2")
    machine.end_all("nsqd-2", "nsqd", "nsqadmin", "nsqlookupd")
    assert not machine.supervisor.is_over
    machine.play("start nsqd-2 > start nsqd-2")


def test_only_what_died_is_started_and_not_what_is_held_down() -> None:
    machine = Machine().play("begin", "start_dead >", "answer nsqlookupd nsqd nsqd-2 nsqadmin", "start_dead >")
    assert machine.said == [
        "nothing is started now: the daemons are being started or stopped",
        "nothing to start: no daemon that died is down",
    ]
    machine.play("kill nsqd", "end nsqd -9", "end nsqd-2 -9", "start_dead > start nsqd-2", "start_dead >")


@each("restarts", [False, True])
def test_a_set_that_never_ran_is_given_up(restarts: bool) -> None:
    machine = Machine(restarts).play("begin", "answer nsqlookupd nsqadmin", "end nsqd 1 > terminate nsqadmin")
    assert machine.said == ["nsqd did not start: it exited with code 1; see its last log lines above"]
    machine.play("end nsqadmin > terminate nsqd-2", "end nsqd-2", "end nsqlookupd")
    assert machine.result == 1


def test_a_slow_start_is_reported_once_and_waited_for() -> None:
    machine = Machine().play("begin", f"wait {SLOW_START - 1} >")
    assert machine.said == []
    machine.play(f"wait {SLOW_START * 10} >")
    assert machine.said == ["nsqlookupd does not answer yet, after 15 s: still waiting"]
    machine.play("answer nsqlookupd > start nsqd, start nsqd-2, start nsqadmin")


# --restart


def test_delays_grow_to_a_limit_and_chance_halves_them_at_most() -> None:
    for jitter, longest in ((1.0, 30.0), (0.0, 15.0)):
        machine = Machine(restarts=True, jitter=jitter).up()
        delays = []
        for _ in range(9):
            machine.play("end nsqd 1 >")
            began = machine.now
            while "nsqd" not in machine.processes:
                machine.wait(10_000_000)
            delays.append((machine.now - began) / SECOND)
        assert delays == [longest * share for share in (1 / 60, 1 / 30, 1 / 15, 2 / 15, 4 / 15, 8 / 15, 1, 1, 1)]


DIES = ("end nsqd 1 >", f"wait {LONGEST_DELAY}")


def test_a_daemon_that_dies_again_and_again_is_given_up(restarting: Machine) -> None:
    for _ in range(MOST_ENDS):
        assert not restarting.supervisor.exit_code
        restarting.play(*DIES)
    assert [text for text in restarting.said if "crash loop" in text] == [
        "nsqd is in a crash loop: it ended 5 times within 120 s, and its log says why; penstock up tries 5 times more"
    ]
    assert restarting.said[-1] == (
        "nsqd exited with code 1: it ended 10 times within 270 s, and is given up; the others continue."
        " To start it again: kill -USR1 7"
    )
    restarting.play("wait hour >")
    assert restarting.supervisor.exit_code == 1
    restarting.play("start_dead > start nsqd", "end nsqd 1")
    assert restarting.said[-1] == "nsqd exited with code 1: starting it again in 0.5 s"
    alone = Machine(restarts=True, names=ONE_NODE).up()
    alone.play(*DIES * (MOST_ENDS - 1), "end nsqd 1 > terminate nsqadmin")
    assert "it ended 10 times within" in alone.said[-1]


# the rolling restart


@each("restarts", [False, True])
def test_nodes_are_restarted_one_by_one(restarts: bool) -> None:
    machine = Machine(restarts).up().play("roll > terminate nsqd", "roll >", "end nsqd > start nsqd")
    machine.play("wait hour >", "answer nsqd > terminate nsqd-2", "end nsqd-2 > start nsqd-2", "answer nsqd-2 >")
    assert machine.said[0] == "rolling restart: 2 nodes, one after the other"
    assert machine.said[1] == "rolling restart: not now, the daemons are being started, stopped or restarted"
    assert machine.said[-1] == "rolling restart: done"
    machine.play("roll > terminate nsqd")


def test_no_node_is_stopped_while_another_one_is_down(restarting: Machine) -> None:
    restarting.play("roll", "end nsqd-2 1", "end nsqd > start nsqd", "answer nsqd >", "wait second > start nsqd-2")
    restarting.play("answer nsqd-2 > terminate nsqd-2")


def test_it_waits_for_nsqlookupd_and_starts_what_was_left_down(restarting: Machine, machine: Machine) -> None:
    restarting.play(
        "end nsqlookupd 1", "roll >", "wait second > start nsqlookupd", "answer nsqlookupd > terminate nsqd"
    )
    machine.play("end nsqlookupd 1", "end nsqadmin 1", "roll > start nsqlookupd, start nsqadmin")
    machine.play("answer nsqlookupd > terminate nsqd")
    machine = Machine().up().play("end nsqd -9", "roll > start nsqd", "answer nsqd > terminate nsqd-2")
    machine.play("end nsqd-2", "answer nsqd-2")
    assert machine.supervisor.exit_code == 0


@each("name, ends", [("nsqlookupd", True), ("nsqadmin", False)])
def test_it_needs_nsqlookupd_and_not_nsqadmin(name: str, ends: bool) -> None:
    machine = Machine().up().play("roll", f"end {name} 1")
    assert any("rolling restart: given up" in text for text in machine.said) is ends
    machine.play("end nsqd", f"answer nsqd > {'' if ends else 'terminate nsqd-2'}")


def test_a_node_that_does_not_come_back_ends_it_unless_it_is_started_again(
    machine: Machine, restarting: Machine
) -> None:
    machine.play("roll", "end nsqd", "end nsqd 1 >")
    assert machine.said[-1] == "rolling restart: given up; the nodes that are left were not restarted"
    machine.play("wait hour >", "roll > start nsqd")
    restarting.play("roll", "end nsqd", "end nsqd 1 >", "wait second > start nsqd", "answer nsqd > terminate nsqd-2")


def test_a_node_that_does_not_stop_is_killed_and_started_and_a_stop_ends_it(machine: Machine) -> None:
    machine.play("roll", "wait stop-timeout > kill nsqd", "end nsqd -9 > start nsqd")
    Machine().up().play("roll", "stop > terminate nsqadmin", "end nsqd >", "end nsqadmin > terminate nsqd-2")


# penstock chaos


@each("restarts", [False, True])
def test_a_node_that_was_killed_on_purpose_is_held_down_until_it_is_started(restarts: bool) -> None:
    machine = Machine(restarts).up().play("kill nsqd-2 > kill nsqd-2", "end nsqd-2 -9 >")
    assert machine.said == ["nsqd-2 was killed by SIGKILL by penstock chaos: held down until it is started"]
    machine.play("wait hour >", "kill nsqd-2 ! already down", "start nsqd-2 > start nsqd-2", "answer nsqd-2 >")
    assert machine.said[-1] == "nsqd-2 runs again"
    machine.play("start nsqd-2 ! is running")


def test_a_node_is_held_down_for_a_time(restarting: Machine) -> None:
    restarting.play("kill nsqd minute", "end nsqd -9")
    assert restarting.said == ["nsqd was killed by SIGKILL by penstock chaos: held down for 60 s"]
    restarting.play(f"wait {60 * SECOND - 1} >", "wait ns > start nsqd", "answer nsqd", "end nsqd -11")
    assert restarting.said[-1] == "nsqd was killed by SIGSEGV: starting it again in 0.5 s"


def test_a_node_is_frozen_until_it_is_thawed_or_for_a_time_or_killed(machine: Machine) -> None:
    machine.play("freeze nsqd > freeze nsqd", "wait hour >", "freeze nsqd ! it is frozen", "start nsqd ! use thaw")
    machine.play("thaw nsqd > thaw nsqd", "thaw nsqd ! it is running", "freeze nsqd minute", "wait minute > thaw nsqd")
    machine.play("freeze nsqd minute", "kill nsqd > kill nsqd", "wait hour >", "end nsqd -9", "wait hour >")


def test_every_history_comes_to_an_end() -> None:
    """Random events, with a random policy; then a stop. Every process that was started ends, and nothing starts after it."""
    for seed in range(300):
        source = random.Random(seed)
        machine = Machine(restarts=source.random() < 0.7, jitter=source.random())
        machine.begin()
        for _ in range(60):
            _anything(machine, source)
        machine.stop()
        while not machine.supervisor.is_over:
            states = (State.STARTING, State.RUNNING, State.STOPPING, State.FROZEN)
            alive = [daemon.name for daemon in machine.supervisor._daemons if daemon.state in states]
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


def test_descriptions_of_ends() -> None:
    said = ["exited with code 0", "exited with code 3", "was killed by SIGKILL", "was killed by signal 35"]
    assert [describe_end(code) for code in (0, 3, -9, -35)] == said
