"""Schedules and batches in a simulated cluster, in a share of the runs.

Clients add schedules and follow-ups of batches at any node. The messages go to a topic of their own. What must hold:

* A node publishes no tick that one of its logs has, and no follow-up that its own log has.
* A schedule or follow-up that was acknowledged is in a log until its message is safe, or a client has deleted it, unless two
  machines have lost a disk in one round, or a failover was not clean.
* When all is repaired, no tick is overdue, and promoted logs have no schedules.

No wall clock is set in these runs: a jump over a reboot ends the time for which keys are remembered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, TypeVar

from nsqd.cluster.ownership.cases import Quorum
from nsqd.core.batches.batches import Batches, BatchRefused
from nsqd.core.batches.table import NamedBatch
from nsqd.core.broker import Broker
from nsqd.core.message.attributes import Attributes
from nsqd.core.scheduling.recurrence import At, Every
from nsqd.core.scheduling.schedules import Tick
from nsqd.core.scheduling.table import Missed, Schedule
from nsqd.core.topic import Topic
from nsqd.tasks.batch_task import BatchTask
from nsqd.tasks.schedule_task import ScheduleTask
from shared.topic_config import Durability, TopicConfig
from tests.nsqd.core.node import MS, SECOND

if TYPE_CHECKING:
    from tests.simulation.cluster import ClusterRun
    from tests.simulation.cluster_node import ClusterNode, Reply
    from tests.simulation.machine import Machine

T = TypeVar("T")
PLANNED = "planned"  # the topic
EVERY = 250 * MS  # between steps of a node's tasks
REPAIRED_WITHIN = 60  # such steps until no tick is overdue
MOST_SCHEDULES, MOST_BATCHES, MOST_FOLLOW_UPS = (
    12,
    12,
    20,
)  # in a run; of schedules and follow-ups, those that are not over


@dataclass(eq=False)
class Plan:
    """A schedule that a client has added, or a follow-up."""

    name: str
    is_once: bool  # False: it publishes again and again
    is_acked: bool = False
    is_over: bool = False  # its only message is safe, or it was deleted


class _Schedules(ScheduleTask):
    """Publishes by schedules under watch."""

    def __init__(self, planned: Planned, node: ClusterNode) -> None:
        super().__init__(node.broker, node.when_sent, lambda: None)
        self._watch = partial(planned.watch, node)

    def _publish(self, tick: Tick, now: int) -> Tick | None:
        schedule, publish = tick.schedule, super()._publish
        key = schedule.attributes(tick.at).key
        return self._watch(schedule.name, tick.at, key, self._broker.logs, lambda: publish(tick, now))


class _Batches(BatchTask):
    """Publishes follow-ups under watch."""

    def __init__(self, planned: Planned, node: ClusterNode) -> None:
        super().__init__(node.broker, node.when_sent, lambda: None)
        self._watch = partial(planned.watch, node)

    def _publish(self, batches: Batches, batch: NamedBatch, number: int) -> Topic | None:
        name, publish = batch.follow_ups[number].body.decode(), super()._publish
        key = batches.attributes(batch, number).key
        return self._watch(name, 0, key, self._broker.logs[:1], lambda: publish(batches, batch, number))


class Planned:
    def __init__(self, run: ClusterRun, random: Random) -> None:
        self._run, self._random = run, random
        self.is_on = random.random() < run.plans
        self.topics = {PLANNED: TopicConfig(Durability.ALWAYS, replicate=2)} if self.is_on else {}
        self._plans: dict[str, Plan] = {}
        self._keys: defaultdict[tuple[str, int], set[str]] = defaultdict(
            set
        )  # with which a tick or follow-up was published
        self._batches = 0
        self.is_lossy = run.sizes.quorum is Quorum.ANY
        self._is_judging = False

    def prepare(self, node: ClusterNode) -> None:
        if self.is_on:
            node.tasks = _Schedules(self, node), _Batches(self, node)

    # a node's work

    def step(self, node: ClusterNode) -> None:
        """Run the tasks of a node between two turns."""
        self.is_lossy |= len({one.node for one in self._run.books.losses if not one.spares_synced}) > 1
        is_quiet = self._run.is_healing and not self._is_judging  # else nodes are never in sync
        if node.tasks is None or self._run.now < node.tasks_due or is_quiet:
            return
        node.tasks_due = self._run.now + EVERY
        schedules, batches = node.tasks
        while schedules.publish_batch(self._now):
            pass
        batches.step(self._now)

    @property
    def _now(self) -> int:
        return self._run.now // SECOND

    def watch(
        self, node: ClusterNode, name: str, tick: int, key: str, logs: Iterable[Broker], publish: Callable[[], T]
    ) -> T:
        """Publish a tick or follow-up, and judge it if it was no duplicate. `logs`: none of them may have it."""
        topic, plan = node.broker.topics[PLANNED], self._plans[name]
        held = _have(logs, self._keys[name, tick])
        before = topic.intake.pending_count
        found = publish()
        if topic.intake.pending_count > before:
            assert not held, f"{node.number} publishes {name} of {tick} again, which its log has"
            self._keys[name, tick].add(key)
            self._run.books.counts["ticks" if tick else "follow-ups"] += 1
            if plan.is_once:
                node.when_sent(topic.marks, partial(_end, plan))
        return found

    # clients

    def act(self, machine: Machine, node: ClusterNode) -> Reply | None:
        from tests.simulation.cluster_node import Reply

        random, topic = self._random, node.broker.topics[PLANNED]
        own = [name for _, name in node.broker.context.schedules.known]
        if own and random.random() < 0.05:
            name = random.choice(own)
            _end(self._plans[name])
            node.broker.context.schedules.remove((PLANNED, name))
            return None
        if random.random() < 0.5:
            return self._add_to_batch(machine, node)
        marks = node.may_publish(topic, 2)
        if marks is None or self._count("schedule") >= MOST_SCHEDULES:
            return None
        now, is_once = self._now, random.random() < 0.4
        plan = self._plan("schedule", is_once)
        when = At(now + random.randrange(1, 20)) if is_once else Every(random.choice((2, 7, 20)), now)
        missed = Missed.ONCE if is_once else random.choice(list(Missed))
        node.broker.context.schedules.put(Schedule(PLANNED, plan.name, when, missed, b"tick", (), now))
        topic.journal.promise()
        return Reply(marks, partial(_acknowledge, plan), lambda: None)

    def _count(self, kind: str) -> int:
        return sum(name.startswith(kind) and not one.is_over for name, one in self._plans.items())

    def _plan(self, kind: str, is_once: bool) -> Plan:
        plan = Plan(f"{kind} {len(self._plans)}", is_once)
        self._plans[plan.name] = plan
        return plan

    def _add_to_batch(self, machine: Machine, node: ClusterNode) -> Reply | None:
        from tests.simulation.cluster_node import Reply

        random, topic, batches = self._random, node.broker.topics[PLANNED], node.broker.context.batches
        name = random.choice(list(batches.known) or [""])
        if not name or (self._batches < MOST_BATCHES and random.random() < 0.3):
            name, self._batches = f"batch{self._batches}", self._batches + 1
        deed = random.choice(("member", "member", "close", "follow-up", "follow-up"))
        marks = node.may_publish(topic, 2)
        if deed == "member":
            if (one := batches.known.get(name)) is None or one.members:
                return self._run.publish(machine, node, "two", 2, Attributes((("batch", name),)))
        elif deed == "close":
            batches.close(name, self._now)
        elif marks is not None and name in batches.known and self._count("follow-up") < MOST_FOLLOW_UPS:
            plan = self._plan("follow-up", True)
            try:
                topic.publish_with([plan.name.encode()], Attributes((("after", name),)))
            except BatchRefused:
                return None
            return Reply(marks, partial(_acknowledge, plan), lambda: None)
        return None

    # what must hold

    def judge(self) -> None:
        """Assert that nothing is overdue soon after all was repaired, and that nothing is lost."""
        self._is_judging, overdue = True, ["at first"]

        def step() -> None:
            nonlocal overdue
            self._run.step(EVERY)
            overdue = overdue and [one for node in self._nodes() for one in self._overdue(node)]

        for _ in range(REPAIRED_WITHIN):
            step()
        # overdue ticks of many kinds are as long as a log, and leave a promoted log when they are copied
        behind = [one["behind"] for node in self._nodes() for one in node.leader_side.states()]
        deadline = self._run.now + max(behind, default=0) * self._run.copied_within
        while overdue and self._run.now < deadline:
            step()
        self._is_judging = False
        assert not overdue, f"overdue at {self._now}: {overdue}"
        known = {name for node in self._nodes() for name in _kept(node)}
        for name, plan in self._plans.items():
            if not plan.is_acked or plan.is_over or self.is_lossy or name in known:
                continue
            keys = {key for (one, _), keys in self._keys.items() if one == name for key in keys}
            assert plan.is_once, f"lost: {name}"
            assert any(_have(node.broker.logs, keys) for node in self._nodes()), f"lost: {name}"
            plan.is_over = True  # all nodes are in sync; its log may be closed later, and forget the key

    def _nodes(self) -> list[ClusterNode]:
        return [machine.node for machine in self._run.members if machine.node is not None]

    def _overdue(self, node: ClusterNode) -> list[str]:
        """Return the names of schedules that a node should have published by, or taken over, if its followers keep up."""
        if node.broker.topics[PLANNED].shut:
            return []
        own, *promoted = (one.context.schedules for one in node.broker.logs)
        late = [name for topic, name in own.known if 0 < own.next_tick((topic, name)) < self._now - 1]
        return late + [name for one in promoted for _, name in one.known]


def _end(plan: Plan) -> None:
    plan.is_over = True


def _acknowledge(plan: Plan) -> None:
    plan.is_acked = True


def _kept(node: ClusterNode) -> list[str]:
    """Return the names of the schedules and follow-ups that the logs of a node have."""
    logs = [one.context for one in node.broker.logs]
    bodies = [one.body for log in logs for batch in log.batches.known.values() for one in batch.follow_ups.values()]
    return [name for log in logs for _, name in log.schedules.known] + [body.decode() for body in bodies]


def _have(logs: Iterable[Broker], keys: Iterable[str]) -> bool:
    """Return True if a log has a message with one of these keys."""
    topics = [log.topics[PLANNED] for log in logs if PLANNED in log.topics]
    return any(topic.intake.recognizes(key) for topic in topics for key in keys)
