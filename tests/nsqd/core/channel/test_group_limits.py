"""Limits of groups and fairness: deterministic cases, and random lives of a node against a model of what is in flight."""

from collections import Counter
from dataclasses import replace

from nsqd.core.channel import actions
from nsqd.core.channel.group_limits import LEAST_CLEANED, NOISY, SHARE, LimitedBacklog
from nsqd.core.timing.throttle import BURST
from shared.retry import Retry
from shared.topic_config import OnBury, Ordering, Switch, TopicConfig
from tests.cases import each
from tests.effort import seeds
from tests.nsqd.core.channel.life import TIMEOUT, Life
from tests.nsqd.core.channel.test_groups import filled, of_group
from tests.nsqd.core.node import MS, SECOND, bodies, ids
from tests.nsqd.storage.sim_node import run_seeds

TWO = TopicConfig(group_concurrency=2)
FAIR = TopicConfig(fair=Switch.ON)


def group_of(body: bytes) -> str:
    return body.decode().rstrip("0123456789")


def most_of(config: TopicConfig) -> int:
    """Return the number of messages of a group that may be in flight; 0: any."""
    return 1 if config.ordering else config.group_concurrency or 0


def messages(group: str, count: int) -> list[str]:
    return [f"{group}{number}" for number in range(count)]


@each("way", ["finish", "requeue", "later", "time out", "bury", "leave"])
@each("on_bury", [*OnBury])
def test_no_more_messages_of_a_group_are_in_flight(way: str, on_bury: OnBury) -> None:
    config = TopicConfig(group_concurrency=2, max_attempts=1 if way == "bury" else None, on_bury=on_bury)
    node = filled("a1", "a2", "a3", "b1", "a4", "1", "2", "3", config=config)
    client, inbox = node.subscribe("t", "c", 20, TIMEOUT)
    first, *others = inbox.take()
    assert bodies([first, *others]) == [b"a1", b"a2", b"b1", b"1", b"2", b"3"]
    assert (client.channel.depth, client.channel.backlog.held_count) == (2, 2)
    if way == "finish":
        client.finish(first.id)
    elif way == "time out":
        client.finish(ids(others))
        node.advance(TIMEOUT + 50 * MS)
    elif way == "leave":
        client.leave(node.broker)
        node.advance(TIMEOUT + 50 * MS)
        client, inbox = node.subscribe("t", "c", 20, TIMEOUT)
    else:
        client.requeue(first.id, SECOND if way == "later" else 0, node.now)
    node.turn()
    came = Counter(group_of(body) for body in bodies(inbox.take()))
    assert came["a"] == (2 if way in ("time out", "leave") else 1)  # with a2, which is finished or timed out
    node.broker.check()


@each("ordering", [None, Ordering.GROUP])
@each("rate", [1, 10, 100])
def test_the_rate_of_a_group_is_exact_to_two_percent_over_ten_seconds(ordering: Ordering | None, rate: int) -> None:
    node = filled(config=TopicConfig(group_rate=rate, ordering=ordering))
    for group in "abc":
        node.broker.topics["t"].intake.publish_with([b"%s1" % group.encode()] * 25 * rate, of_group(group))
    client, inbox = node.subscribe("t", "c", 2000)
    client.finish(ids(inbox.take()))  # a burst
    came: Counter[str] = Counter()
    for _ in range(1000):
        node.advance(10 * MS)
        taken = inbox.take()
        came.update(map(group_of, bodies(taken)))
        client.finish(ids(taken))
    node.turn()
    assert all(abs(came[group] - 10 * rate) <= max(1, rate // 5) for group in "abc"), came
    node.broker.check()


def test_the_head_of_an_ordered_group_waits_for_its_rate_when_it_is_requeued() -> None:
    node = filled("a1", "a2", "b1", config=TopicConfig(group_rate=1, ordering=Ordering.GROUP))
    client, inbox = node.subscribe("t", "c", 5)
    for _ in range(3):
        first, *others = inbox.take()
        assert first.body == b"a1"
        client.finish(ids(others))
        client.requeue(first.id, 0, node.now)
        node.advance(800 * MS)
        assert (inbox.take(), client.channel.backlog.held_count) == ([], 2)
        node.advance(200 * MS)
    client.finish(inbox.take()[0].id)
    node.advance(SECOND)
    assert bodies(inbox.take()) == [b"a2"]
    node.broker.check()


def test_what_many_groups_have_spent_is_looked_at_seldom() -> None:
    groups = 3 * LEAST_CLEANED + 1
    node = filled(*(f"{chr(0x4E00 + number)}1" for number in range(groups)), config=TopicConfig(group_rate=1))
    client, inbox = node.subscribe("t", "c", 1)
    backlog, looks, spent = client.channel.backlog, 0, {}
    assert isinstance(backlog, LimitedBacklog)
    for _ in range(groups):
        client.finish(ids(inbox.take()))
        node.turn()
        looks += backlog._spent is not spent
        spent = backlog._spent
    assert (len(spent), looks) == (groups, 2)
    node.advance(2 * SECOND)
    for number in range(3 * groups):
        backlog._spend(b"%d" % number)
    assert len(backlog._spent) <= 3 * groups
    node.broker.check()


def test_a_noisy_group_waits_behind_others_until_it_is_noisy_no_longer() -> None:
    node = filled(*messages("a", 200), *messages("b", 5), *messages("c", 5), config=FAIR)
    client, inbox = node.subscribe("t", "c", 50)
    first = inbox.take()
    assert Counter(map(group_of, bodies(first))) == {"a": 40, "b": 5, "c": 5}
    assert [group_of(body) for body in bodies(first)[:35]] == ["a"] * NOISY + ["b"] * 5  # a10 is later than c4
    for message in messages("d", 30):
        node.broker.topics["t"].intake.publish_with([message.encode()], of_group("d"))
    client.finish(ids(first[:8]))
    node.turn()
    assert Counter(map(group_of, bodies(inbox.take()))) == {"d": 8}  # 32 of a are still in flight
    client.finish(ids(first[8:20]))
    node.turn()
    assert Counter(map(group_of, bodies(inbox.take()))) == {"a": 10, "d": 2}  # 30 of a may be in flight
    node.broker.check()


@each("settings", [{"group_concurrency": 2}, {"group_rate": 1}, {"fair": Switch.ON}])
def test_a_limit_counts_what_is_in_flight_and_when_it_ends_all_is_delivered(settings: dict[str, object]) -> None:
    node = filled(*messages("a", 150), config=TopicConfig())
    client, inbox = node.subscribe("t", "c", 100)
    before = inbox.take()
    topic = node.broker.topics["t"]
    topic.configure(TopicConfig(**settings))  # type: ignore[arg-type]
    client.set_ready(150)
    node.turn()
    assert len(inbox.take()) == (50 if "fair" in settings else 1 if "group_rate" in settings else 0)
    client.finish(ids(before[:99]))
    node.turn()
    assert len(inbox.take()) <= 1
    topic.configure(TopicConfig())
    node.turn()
    inbox.take()
    assert client.channel.in_flight_count == 51
    assert client.channel.depth == 0
    node.broker.check()


def test_what_is_held_back_can_be_listed_finished_and_emptied() -> None:
    node = filled(*messages("a", 40), *messages("b", 5), config=TopicConfig(group_concurrency=32, fair=Switch.ON))
    client, _ = node.subscribe("t", "c", 35)
    channel, topic = client.channel, node.broker.topics["t"]
    held = [message.ordinal for message in channel.backlog.returned()]
    assert held == list(range(30, 40))
    chosen = [actions.ChosenMessage(ordinal, topic.frame(ordinal)[18:34]) for ordinal in (31, 39)]
    assert actions.finish(topic.distribution, channel, chosen) == 2
    node.broker.check()
    channel.empty()
    node.turn()
    assert (channel.counts(), node.held()) == ((0, 0, 0, 0), 0)
    node.broker.check()


class LimitedLife(Life):
    """Random clients, and a model: the messages of each group that are in flight."""

    kill_rate = 0.2

    def __init__(self, seed: int) -> None:
        self.published: list[bytes] = []
        self.delivered: set[bytes] = set()
        super().__init__(seed)

    def choose_config(self) -> TopicConfig:
        choice = self.random.choice
        return TopicConfig(
            group_concurrency=choice((0, 0, 1, 2, 40)), group_rate=choice((0, 0, 2, 50)), fair=choice([*Switch]),
            retry=choice((None, Retry(SECOND, SECOND))), concurrency=choice((None, 3, 60)),
            ordering=choice((None, None, Ordering.GROUP)),
        )  # fmt: skip

    def start(self) -> None:
        super().start()
        self.begins: dict[str, list[int]] = {}  # of deliveries since the start, by group
        self.total = 0  # in flight when it was looked last

    def run(self) -> None:
        self.live(100, *[self.publish] * 2, self.subscribe, *[self.answer] * 3, self.wait, self.kill)
        self.config = replace(self.config, group_rate=0)  # so that it ends soon
        self.node.broker.topics["t"].configure(self.config)
        self.end()

    def all(self) -> list[bytes]:
        return self.published

    def publish(self) -> None:
        group, count = self.random.choice(("", "a", "a", "a", "b", "c")), self.random.choice((1, 1, 3, 60))
        new = [b"%s%d" % (group.encode(), len(self.published) + number) for number in range(count)]
        self.published += new
        self.node.broker.topics["t"].intake.publish_with(new, of_group(group))
        self.node.turn()

    def wait(self) -> None:
        """Let time pass, and look after each turn: of what is delivered in one, some may time out in the next ones."""
        end = self.clock.now + self.random.choice((MS, SECOND, 3 * SECOND))
        while self.clock.now < end:
            due = self.node.broker.scan.next_turn()
            self.node.advance(end - self.clock.now if due is None else max(0, min(end, due) - self.clock.now))
            self.look()

    def look(self) -> None:
        self.node.advance(0)
        runs = self.node.broker.topics["t"].channels["c"].in_flight.runs()
        held = {self.published[ordinal]: run.delivered for run in runs for ordinal in run.ordinals()}
        out = Counter(map(group_of, held))
        came = [(client, one) for client, inbox in self.clients for one in inbox.take()]
        came.sort(key=lambda one: one[1].number)
        self.taken += came
        most = most_of(self.config)
        assert not most or max((count for group, count in out.items() if group), default=0) <= most, out
        total, self.total = max(self.total, len(held)), len(held)
        out.subtract(group_of(one.body) for _, one in came)
        for _, one in came:
            self.deliver(one.body, group_of(one.body), out, total)
        for body in {one.body for _, one in came} & held.keys():
            self.begins.setdefault(group_of(body), []).append(held[body])
        for group, begins in self.begins.items() if self.config.group_rate else ():
            begins.sort()
            for first, last in zip(begins, begins[10:], strict=False) if group else ():
                assert (last - first + BURST) * self.config.group_rate / SECOND >= 9, (group, begins)

    def deliver(self, body: bytes, group: str, out: Counter[str], total: int) -> None:
        """Look at one delivery. `out`: messages in flight before, `total`: the most in flight since the previous call."""
        noisy = {one for one, count in out.items() if one and count >= NOISY and count * SHARE > total}
        if group in noisy and self.config.fair is Switch.ON and not (most_of(self.config) or self.config.group_rate):
            fresh = {group_of(one) for one in self.published if one not in self.delivered}
            assert fresh <= noisy, f"{body!r} is delivered before messages of {fresh - noisy}: {out}"
        self.delivered.add(body)
        out[group] += 1


def test_limits_hold_and_nothing_is_lost_over_kills_and_timeouts() -> None:
    # 332: two noisy groups whose messages time out a few at a time
    for _ in run_seeds(LimitedLife, [*seeds(300, in_short=25), 332]):
        pass
