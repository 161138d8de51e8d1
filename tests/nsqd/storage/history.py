"""What a node was asked to do and what was seen of it, and so what a restart must show. Knows nothing of how it is kept.

The world is topics, channels and messages by their bodies. Beside each position at which a group of the log ended stands the
world as it was then. A restart must show one of these, or one between two if the log ends within a group.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from itertools import count

from nsqd.core.retention.policy import TopicConfig
from penstock.protocol.names import is_ephemeral

UNKNOWN = 1 << 62  # where a group ends that is being written

_incarnations = count()


@dataclass(frozen=True, slots=True)
class Item:
    due: int = 0  # ns since the epoch; 0: at once
    attempts: int = 0  # deliveries
    noted: int = 0  # of those, how many the log knows of
    buried: str = ""  # why, or ""
    vague: bool = False  # it may come before it is due: nobody waited for it any more when the channel was made
    in_sequence: bool = True  # False: it was published with a delay, or kicked; the cursor does not come by it


@dataclass(slots=True)
class ChannelState:
    """What a restart must show of a channel."""

    paused: bool = False
    items: dict[bytes, Item] = field(default_factory=dict)
    incarnation: int = field(default_factory=lambda: next(_incarnations))

    def copy(self) -> "ChannelState":
        return ChannelState(self.paused, dict(self.items), self.incarnation)


@dataclass(slots=True)
class TopicState:
    """What a restart must show of a topic."""

    paused: bool = False
    pending: dict[bytes, int] = field(default_factory=dict)  # published in this turn: body -> 0
    pending_apart: dict[bytes, int] = field(default_factory=dict)  # likewise, behind those: body -> due or 0
    backlog: dict[bytes, int] = field(default_factory=dict)  # no channel was given these
    channels: dict[str, ChannelState] = field(default_factory=dict)
    config: TopicConfig = field(default_factory=TopicConfig)
    retained: list[bytes] = field(default_factory=list)  # what was published since it retains anything
    dues: dict[bytes, int] = field(default_factory=dict)  # of what was published with a delay
    sure: set[bytes] = field(default_factory=set)  # what was published since its config changed
    keys: set[str] = field(default_factory=set)  # what was published under
    last: int = -1  # number of the producer's last message
    incarnation: int = field(default_factory=lambda: next(_incarnations))

    def distribute(self) -> None:
        """What waits belongs to the channels, if there are any."""
        if not self.channels or self.paused:
            return
        for channel in self.channels.values():
            channel.items.update((body, Item(due, in_sequence=not due)) for body, due in self.backlog.items())
        self.backlog.clear()

    def seal(self) -> None:
        """Give the pending messages of the turn to the channels, because the turn ends."""
        self.retained += [*self.pending, *self.pending_apart]
        self.dues.update((body, due) for body, due in self.pending_apart.items() if due)
        self.sure.update(self.pending, self.pending_apart)
        self.backlog.update(self.pending)
        self.backlog.update(self.pending_apart)
        self.pending.clear()
        self.pending_apart.clear()
        self.distribute()

    def lasting(self) -> "TopicState":
        channels = {name: channel.copy() for name, channel in self.channels.items() if not is_ephemeral(name)}
        state = TopicState(self.paused, {}, {}, dict(self.backlog), channels, self.config)
        state.retained, state.sure, state.incarnation = list(self.retained), set(self.sure), self.incarnation
        state.dues, state.keys, state.last = dict(self.dues), set(self.keys), self.last
        return state


World = dict[str, TopicState]  # by name
# What a channel that went in a turn had then, by the names of topic and channel. A log that ends within the turn's group may
# have it still, and what the turn gave it.
Gone = dict[tuple[str, str], dict[bytes, Item]]


def lasting(world: World) -> World:
    return {name: topic.lasting() for name, topic in world.items() if not is_ephemeral(name)}


class History:
    """Of all lives of a node."""

    def __init__(self) -> None:
        self.world: World = {}  # now
        self.ids: dict[bytes, bytes] = {}  # body -> id, of what was delivered
        self._number = 0
        self.gone: Gone = {}  # in this turn
        self._positions = [0]
        self._worlds: list[World] = [{}]
        self._gone: list[Gone] = [{}]

    def new_number(self) -> int:
        self._number += 1
        return self._number

    def seal(self) -> None:
        """The turn's messages get their places. A lease of ids may write a group now."""
        for topic in self.world.values():
            topic.seal()
        self._begin_group()

    def deliver(self) -> None:
        """The turn's group is about to be written, with what was delivered since `seal`."""
        self._worlds[-1] = lasting(self.world)

    def sealed(self, position: int) -> None:
        """Note that the group was written and ends at `position`."""
        self._positions[-1] = position

    def cut(self) -> None:
        """The disk stopped. If that was before `seal`, a lease of ids may have written what was done until then."""
        if self._positions[-1] < UNKNOWN:
            self._begin_group()

    def _begin_group(self) -> None:
        self._worlds.append(lasting(self.world))
        self._gone.append(self.gone)
        self._positions.append(UNKNOWN)
        self.gone = {}

    def bounds(self, end: int) -> tuple[World, World, Gone]:
        """The worlds between which a log that ends there is, the same twice if a group does, too; and what went in between."""
        place = bisect_right(self._positions, end) - 1
        if self._positions[place] < end and place + 1 < len(self._worlds):
            return self._worlds[place], self._worlds[place + 1], self._gone[place + 1]
        return self._worlds[place], self._worlds[place], {}

    def restart(self, end: int, seen: World) -> None:
        """A new life begins with what was seen there."""
        keep = bisect_left(self._positions, end)
        self._positions = [*self._positions[:keep], end]
        self._worlds = [*self._worlds[:keep], lasting(seen)]
        self._gone = [*self._gone[:keep], {}]
        self.gone = {}
        self.world = seen


@dataclass(slots=True)
class Arrival:
    attempts: int  # before it was delivered
    at: int  # ns since the epoch
    buried: str = ""


@dataclass(slots=True)
class SeenChannel:
    paused: bool
    arrivals: dict[bytes, Arrival] = field(default_factory=dict)


@dataclass(slots=True)
class SeenTopic:
    paused: bool
    config: TopicConfig
    keys: set[str] = field(default_factory=set)  # what it knows to have been published under
    last: int = -1  # likewise the producer's last number
    retained: list[bytes] | None = None  # what can be read again, in order; None: finished messages go
    backlog: dict[bytes, Arrival] = field(default_factory=dict)
    channels: dict[str, SeenChannel] = field(default_factory=dict)


HOUR = 3600 * 1_000_000_000  # ns
LATE = 200_000_000  # ns by which a message may come after its time


def judge(history: History, end: int, started: int, seen: dict[str, SeenTopic]) -> World:
    """AssertionError if a restart at `started` (ns since the epoch), with a log of that end, must not show this.

    Returns what is seen as a world.
    """
    lower, upper, gone = history.bounds(end)
    _same_names("topics", set(seen), set(lower) & set(upper), set(lower) | set(upper))
    return {
        name: _judge_topic(name, topic, lower.get(name), upper.get(name), gone, started) for name, topic in seen.items()
    }


def _same_names(what: str, seen: set[str], must: set[str], may: set[str]) -> None:
    assert seen >= must, f"{what} are gone: {sorted(must - seen)}"
    assert seen <= may, f"{what} came from nowhere: {sorted(seen - may)}"


def _judge_topic(
    name: str, seen: SeenTopic, lower: TopicState | None, upper: TopicState | None, gone: Gone, started: int
) -> TopicState:
    states = [state for state in (lower, upper) if state is not None]
    same = lower is not None and upper is not None and lower.incarnation == upper.incarnation
    assert seen.paused in [state.paused for state in states], f"topic {name} is paused: {seen.paused}"
    assert seen.config in [state.config for state in states], f"topic {name} has {seen.config}"
    result = TopicState(seen.paused, config=seen.config, incarnation=states[-1].incarnation)
    result.retained = _judge_retained(name, seen, states)
    result.keys, result.last = seen.keys, seen.last
    some, most = (states[0].keys, states[-1].keys) if same else (set[str](), states[0].keys | states[-1].keys)
    assert some <= seen.keys <= most, f"{name} knows the keys {seen.keys}, not from {some} to {most}"
    least = states[0].last if same else -1
    assert least <= seen.last <= max(state.last for state in states), f"{name} has seen the number {seen.last}"
    sure = states[0].sure if same and states[0].config == seen.config else set[bytes]()
    assert seen.config.retention != HOUR or sure <= set(result.retained), f"{name} has lost what it retains"
    result.sure = sure
    result.dues = {body: due for state in states for body, due in state.dues.items()}
    known = [{body: Item(due, in_sequence=not due) for body, due in state.backlog.items()} for state in states]
    result.backlog = {body: item.due for body, item in _judge_items(name, seen.backlog, known, same, started).items()}
    channels = [set(state.channels) for state in states]
    must = channels[0] & channels[-1] if same else set()
    _same_names(f"channels of {name}", set(seen.channels), must, channels[0] | channels[-1])
    for channel_name, channel in seen.channels.items():
        known_channels = [state.channels[channel_name] for state in states if channel_name in state.channels]
        lasted = same and len({c.incarnation for c in known_channels}) == 1 and len(known_channels) == 2
        assert channel.paused in [c.paused for c in known_channels], f"{channel_name} is paused: {channel.paused}"
        items = [c.items for c in known_channels]
        if lower is not upper:  # it may have been given what waited, and done with it
            items.insert(0, known[0])
            if upper is None or channel_name not in upper.channels:  # it may have delivered more before it went
                items.append(gone.get((name, channel_name), {}))
        judged = _judge_items(f"{name}/{channel_name}", channel.arrivals, items, lasted, started)
        result.channels[channel_name] = ChannelState(channel.paused, judged, known_channels[-1].incarnation)
    return result


def _judge_retained(name: str, seen: SeenTopic, states: list[TopicState]) -> list[bytes]:
    """What is retained is of what was published, without a gap."""
    if seen.retained is None:
        return []
    if seen.retained:
        # what may go goes in a group of its own
        both = list(dict.fromkeys([*states[0].retained, *states[-1].retained]))
        known = [one for one in (*(state.retained for state in states), both) if seen.retained[0] in one]
        starts = [one[one.index(seen.retained[0]) :][: len(seen.retained)] for one in known]
        assert seen.retained in starts, f"{name} retains {seen.retained} of {known}"
    return seen.retained


def _judge_items(
    where: str, seen: dict[bytes, Arrival], known: list[dict[bytes, Item]], lasted: bool, started: int
) -> dict[bytes, Item]:
    """`known`: what there was before and after the group in which the log ends; `lasted`: in both it is the same thing."""
    if lasted:
        lost = set.intersection(*map(set, known[-2:])) - seen.keys()
        assert not lost, f"{where} lost {sorted(lost)}"
    result = {}
    for body, arrival in seen.items():
        candidates = [items[body] for items in known if body in items]
        assert candidates, f"{where} has {body!r}, which it should not have"
        if body not in known[-1]:  # it may have been delivered once more before it was done with
            candidates.append(replace(candidates[0], attempts=candidates[0].attempts + 1))
        most = max(item.attempts for item in candidates)
        fitting = [item for item in candidates if _fits(item, arrival, started)]
        told = f"{where} has {body!r} as {arrival}, not as one of {candidates}; it started at {started}"
        assert fitting, told
        is_new = not any(body in items for items in known[:-1])  # its group may be cut between publish and delivery
        is_kicked = any(item.buried for item in candidates) and not arrival.buried  # likewise between kick and delivery
        least = 0 if is_new or is_kicked else min(item.noted for item in candidates)
        assert least <= arrival.attempts <= most, told
        result[body] = replace(fitting[-1], attempts=arrival.attempts, noted=arrival.attempts)
    return result


def _fits(item: Item, arrival: Arrival, started: int) -> bool:
    """True if the message came when this should, or is buried like it."""
    if item.buried or arrival.buried:
        return item.buried == arrival.buried
    due = max(item.due, started)
    return (started if item.vague else due) - 1 <= arrival.at <= due + LATE
