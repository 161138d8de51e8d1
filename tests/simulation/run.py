"""One run of a whole node through several lives, chosen by a seed; the checker is that of bench/crash.

Producers and consumers talk the protocol over the simulated network, operators change topics, the node is killed or loses its
power at any moment, in the middle of a turn too. What its replies promised must be there in the end.

See docs/contributing/testing.md#the-simulated-node.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench.crash.history import History
from bench.crash.ledger import Ledger
from bench.crash.link import Link
from bench.crash.messages import Findings, Message, Reply
from bench.crash.mix import MS, Mix
from bench.crash.nsq_links import Consumer, Producer
from nsqd.core.broker import Broker
from nsqd.core.limits import Limits
from nsqd.core.message import ids
from nsqd.core.message.attributes import Attributes
from nsqd.storage.log import checkpoint, tidying
from shared.topic_config import Durability, TopicConfig
from tests.nsqd.any_config import HARMLESS, any_config, any_headers
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.nsqd.storage.sim_node import Clock
from tests.nsqd.storage.traces import BodyTrace, traced_errors
from tests.simulation.node import SECOND, TIMER, WholeNode

LIVES = 4
STOPS = 0.002  # how likely it is in a step that the process is stopped for a while
TOPICS = {"busy": ("work", "idle"), "strict": ("work",), "loose": ("work",)}  # and their channels
CONFIGS = {"strict": TopicConfig(Durability.ALWAYS, retention=SECOND), "loose": TopicConfig(Durability.OS)}
EVERYTHING = 1 << 60  # ns
WINDOWS = {Durability.ALWAYS: 0, Durability.INTERVAL: 3 * TIMER, Durability.OS: EVERYTHING}
QUIET = 3 * SECOND  # without a delivery after which the drain is over if nothing is missing
HOPELESS = 8 * SECOND  # ... and if something is


class Notes(History):
    """A history in memory, which keeps the last lines for a failure."""

    def __init__(self) -> None:
        self.path = Path()
        self.lines: list[str] = []

    def add(self, text: str) -> None:
        self.lines.append(text)

    def sync(self) -> None: ...
    def close(self) -> None: ...


class Operator:
    """Publishes over HTTP, one at a time, and changes things."""

    def __init__(self, node: WholeNode, ledger: Ledger, mix: Mix, random: Random) -> None:
        self._node = node
        self._ledger = ledger
        self._mix = mix
        self._random = random
        self._waits = False

    def step(self, now: int) -> None:
        if self._waits or self._random.random() < 0.9:
            return
        if self._random.random() < 0.6:
            self._publish(now)
        else:
            self._call(self._random.choice((_pause, _empty_nothing, _configure))(self._random), lambda good: None)

    def _publish(self, now: int) -> None:
        order = self._mix.order(batches=False)
        only = self._random.choice(TOPICS[order.topic]) if self._random.random() < 0.4 and not order.delay_ms else ""
        messages = self._ledger.publish(order.topic, order.sizes, order.delay_ms * MS, now, only=only)
        attributes = Attributes(tuple(one for one in any_headers(self._random) if one[0] != "ttl"))

        def publish(broker: Broker) -> None:
            if broker.refusal or (only and broker.topics[order.topic].paused):
                self._answered(messages, Reply.REFUSED)
                return
            topic, body = broker.topics[order.topic], messages[0].body
            due = broker.now + order.delay_ms * MS if order.delay_ms else 0
            if only:
                topic.publish_to(topic.channels[only], [body], attributes)
            elif attributes:
                topic.publish_with([body], attributes, due)
            elif due:
                topic.intake.publish_with([body], due=due)
            else:
                topic.publish([body], len(body))

        self._call(publish, lambda good: self._answered(messages, Reply.OK if good else Reply.NONE))

    def _answered(self, messages: list[Message], reply: Reply) -> None:
        if messages[0].reply is Reply.NONE:
            self._ledger.answered(messages, reply, self._node.clock.true)

    def _call(self, act: Callable[[Broker], None], settled: Callable[[bool], None]) -> None:
        self._waits = True

        def answered(good: bool) -> None:
            self._waits = False
            settled(good)

        self._node.call(act, answered)


def _pause(random: Random) -> Callable[[Broker], None]:
    name, paused = random.choice(tuple(TOPICS)), random.random() < 0.3

    def act(broker: Broker) -> None:
        topic = broker.topics[name]
        broker.pause(random.choice((topic, *topic.channels.values())), paused)

    return act


def _empty_nothing(random: Random) -> Callable[[Broker], None]:
    """A topic that comes and goes."""

    def act(broker: Broker) -> None:
        if "passing" in broker.topics:
            broker.delete_topic("passing")
        else:
            broker.topic("passing").channel("c")
            broker.topics["passing"].publish([b"x"] * 5, 5)

    return act


def _configure(random: Random) -> Callable[[Broker], None]:
    retention = random.choice((0, SECOND, 3600 * SECOND))
    config = TopicConfig(CONFIGS["strict"].durability, retention)
    limits = any_config(random, HARMLESS)

    def act(broker: Broker) -> None:
        broker.topics["strict"].configure(config)
        broker.topics["busy"].configure(limits)

    return act


@contextmanager
def small_steps() -> Iterator[None]:
    """Ids are leased a few at a time, checkpoints and usage scans take a topic a turn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids, "LEASE", 256)
        patch.setattr(checkpoint, "SLICE", 0)
        patch.setattr(tidying, "SLICE", 0)
        yield


class WholeRun:
    def __init__(self, seed: int, durability: Durability) -> None:
        self.random = random = Random(seed)
        self.durability = durability
        self.trace = BodyTrace()
        self.clock = Clock(1000 * SECOND, 1_800_000_000 * SECOND)
        self.disk = SimDisk(random, random.choice((512, 4096)))
        self.disk.cached = random.choice((0, 0.5, 1))
        self.limits = Limits(mem_queue_size=random.choice((0, 10, 1000)))
        self.sizes = (
            random.choice((2000, 20_000)),
            random.choice((0, 20_000, 1 << 30)),
            random.choice((20, 100, 1 << 30)),
            random.choice((3000, 50_000, 1 << 40)),
        )
        own = {"strict": 0, "loose": EVERYTHING}
        self.ledger = Ledger(TOPICS, WINDOWS[durability], own)
        self.notes = Notes()
        self.mix = Mix(random.getrandbits(32), list(TOPICS))
        self.jumps = random.random() < 0.3  # the wall clock is set now and then, and the machine is never restarted
        self.node: WholeNode | None = None
        self.was_cut = True  # nothing is unsynced from a life before
        self.turns = 0
        self.went_on = 0  # when the process continued after it was stopped last: meanwhile nothing was synced

    def run(self) -> Findings:
        """All lives, and the drain. AssertionError if a vote was not kept."""
        with small_steps(), traced_errors(self.trace):
            for _ in range(LIVES):
                self._live()
            self.drain()
            return self.judge()

    def judge(self) -> Findings:
        findings = self.ledger.findings()
        bad = findings.lost, findings.early, findings.unexpected, findings.collisions
        assert bad == (0, 0, 0, 0), f"lost, early, unexpected, collisions: {bad}; {self.ledger.problems}"
        return findings

    def _live(self) -> None:
        random, links = self.random, list[Link]()
        self.node = None
        try:
            if random.random() < 0.2 and (self.was_cut or self.durability is not Durability.INTERVAL):
                # in the middle of the restart, which syncs what a kill left unsynced
                self.disk.cut_in = random.randrange(8)
            node = self.start()
            self.disk.cut_in = random.randrange(1, 400) if random.random() < 0.7 else None
            self.disk.cut_write_in = random.randrange(1, 200) if random.random() < 0.3 else None
            self.work(node, links, random.choice((1, 20, 300, 1500)) * MS)
        except PowerCut:
            pass
        synced = self.durability is not Durability.INTERVAL or self.clock.true > self.went_on + SECOND
        self.crash(links, synced and not self.jumps and random.random() < 0.7)

    def work(self, node: WholeNode, links: list[Link], ns: int) -> None:
        """Producers, consumers and an operator do what they do, for so long; `links` gets their connections."""
        links += [Producer(self._dial(node), self.ledger, self.notes, self.mix, 3) for _ in range(2)]
        places = [("busy", "work"), ("busy", "work"), ("strict", "work"), ("loose", "work")]
        links += [Consumer(self._dial(node), self.ledger, self.notes, self.mix, place, False) for place in places]
        operator = Operator(node, self.ledger, self.mix, self.random)
        self._go(node, links, operator, self.clock.true + ns)

    def start(self) -> WholeNode:
        """A node over the disk, with its topics."""
        self.node = node = WholeNode(
            self.disk, self.durability, self.clock, self.random, self.limits, *self.sizes, self.trace
        )
        spots = node.log.start_results.damage.spots
        assert not spots, f"a crash looks like damage: {spots}"
        node.broker.check()

        def make(broker: Broker) -> None:
            for name, channels in TOPICS.items():
                topic = broker.topic(name)
                if name in CONFIGS and topic.config == TopicConfig():
                    topic.configure(CONFIGS[name])
                for channel in channels:
                    topic.channel(channel)

        made: list[bool] = []
        node.call(make, made.append)
        while not made:
            self._turn(node, self.clock.true + SECOND)
        return node

    def _dial(self, node: WholeNode) -> Any:
        return node.network.dial()

    def _go(self, node: WholeNode, links: list[Link], operator: Operator | None, until: int) -> None:
        random, step = self.random, MS if operator is not None else 20 * MS
        while self.clock.true < until:
            now = self.clock.true
            for link in links:
                if not link.closed and random.random() < 0.5:
                    link.read(now)
                    link.step(now)
                    link.flush()
            if operator is not None:
                operator.step(now)
            if self.jumps and random.random() < 0.01:
                self.clock.wall = self.clock.true + random.choice((0, -1, 1, 24)) * 3600 * SECOND
            if operator is not None and random.random() < STOPS:
                self.stop(random.choice((1, 500, 3000, 20_000)) * MS)
            if operator is not None and random.random() < 0.0005:
                random.choice(links).socket.reset()
            self._turn(node, min(until, now + step))
            assert not node.store.durable.broken

    def stop(self, ns: int) -> None:
        """Stop the process (SIGSTOP) for a time: clocks continue, and then all timeouts and delays are over at once."""
        self.notes.add(f"stopped at {self.clock.true} for {ns}")
        self.clock.advance(ns)
        self.went_on = self.clock.true
        self.ledger.stalled(self.clock.true + SECOND)

    def _turn(self, node: WholeNode, until: int) -> None:
        self.turns += 1
        node.run_once(until)
        node.step_threads()

    def crash(self, links: list[Link], cut: bool) -> None:
        """End the node; its sent bytes arrive anyway. `cut`: by a power cut."""
        at, random = self.clock.true, self.random
        for link in links:
            end = link.socket
            end.incoming.land()
            end.incoming.end()
            while not link.closed:
                link.read(at)
        self.was_cut = cut
        self.ledger.crash(at + 1, cut)
        self.notes.add(f"{'cut' if cut else 'kill'} at {at}")
        self.disk = self.disk.crash(random) if cut else self.disk.kill()
        away = random.choice((0, 1, 300, 5000)) * MS
        self.clock = self.clock.after(away, random.choice((5, 1000, 10**6)) * SECOND, rebooted=cut)

    def drain(self) -> None:
        node = self.start()
        for topic in node.broker.topics.values():
            for item in (topic, *topic.channels.values()):
                node.call(lambda broker, item=item: broker.pause(item, False), lambda good: None)
        places = [(topic, channel) for topic, channels in TOPICS.items() for channel in channels]
        links: list[Link] = [Consumer(self._dial(node), self.ledger, self.notes, self.mix, p, True) for p in places]
        began, ledger = self.clock.true, self.ledger
        while (quiet := self.clock.true - max(began, ledger.last_due, ledger.last_delivery)) < HOPELESS:
            if quiet > QUIET and not ledger.missing():
                break
            self._go(node, links, None, self.clock.true + 100 * MS)
        node.broker.check()
