"""The record of a simulated cluster: responses to clients, events of machines, and the judgment."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from nsqd.storage.log.records import MAGIC, decode_header
from shared.topic_config import Durability
from tests.nsqd.core.node import Delivery


def number_of(body: bytes) -> int:
    return int(body.removeprefix(b"message "))


@dataclass(slots=True)
class Publish:
    number: int
    node: int  # to which it was sent
    log_id: bytes
    topic: str
    mode: Durability
    n: int  # copies that were asked for
    at: int  # when, true ns
    position: int = 0  # the log's end after it
    former: list[bytes] = field(default_factory=list)  # ids of the logs that it was in before
    others: list[bytes] = field(default_factory=list)  # ids of logs that were made of other copies of these
    acked: bool = False
    holders: frozenset[int] = frozenset()  # nodes that had it when it was acknowledged
    lost: frozenset[int] = frozenset()  # nodes that had it and lost it before a log was made of what one of them had
    finished: bool = False  # a consumer has sent FIN
    done: tuple[int, int] | None = None  # (when, where): a FIN was accepted, true ns and the name of the machine
    deliveries: int = 0

    @property
    def body(self) -> bytes:
        return b"message %07d" % self.number

    def __str__(self) -> str:
        what = f"{self.number} to {self.node}, n={self.n}, {self.topic} ({self.mode.value})"
        at = self.at // 1_000_000 % 1_800_000_000_000
        return f"publish {what}, at {at} ms, before {self.position}, held by {set(self.holders)}"


@dataclass(frozen=True, slots=True)
class Loss:
    """A machine has lost what it had of logs behind some positions."""

    at: int  # true ns
    node: int
    kept: Mapping[bytes, int]  # by log id: the position before which all is there; 0 for the others
    spares_synced: bool  # messages acknowledged in the mode `always` are not touched

    def takes(self, since: int, log_id: bytes, position: int, mode: Durability) -> bool:
        """Return True if the machine has lost what it has had since then, of a log before a position."""
        is_behind = self.at >= since and self.kept.get(log_id, 0) < position
        return is_behind and not (self.spares_synced and mode is Durability.ALWAYS)


@dataclass
class Books:
    publishes: list[Publish] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    ids: dict[bytes, int] = field(default_factory=dict)  # of messages that were seen -> number of the publish
    id_of: dict[int, bytes] = field(default_factory=dict)
    # nodes that continued with an old backup which no node could complete
    may_reuse_ids: set[int] = field(default_factory=set)
    # when a leader of a log last died or changed, by log id, true ns
    upsets: dict[bytes, int] = field(default_factory=dict)

    successions: dict[bytes, bytes] = field(default_factory=dict)  # by id of a log, the one that it succeeds
    # messages whose bytes were damaged at some machine, and which machines have them whole now
    hit: set[int] = field(default_factory=set)
    holds: Callable[[int, Publish], bool] = lambda machine, publish: True
    logs_of: Callable[[int], Iterable[bytes]] = lambda machine: ()  # ids of the logs that a machine leads now

    def publish(self, node: int, log_id: bytes, topic: str, mode: Durability, n: int, at: int) -> Publish:
        one = Publish(len(self.publishes), node, log_id, topic, mode, n, at)
        self.publishes.append(one)
        return one

    def acknowledge(self, publish: Publish, holders: frozenset[int]) -> None:
        """Note that a client got OK. `holders`: the nodes that have the message, as the responding node believes."""
        assert len(holders) >= publish.n, f"only {set(holders)} have what is acknowledged: {publish}"
        publish.acked, publish.holders = True, holders
        self.counts[f"acked with {publish.n}"] += 1

    def upset(self, log_ids: Iterable[bytes], now: int) -> None:
        self.upsets.update(dict.fromkeys(log_ids, now))

    def moved(self, old: bytes, new: bytes, common: int, node: int, files: list[bytes]) -> None:
        """Note that the tail of a log after the position `common` continues in a new log with these files, at its node alone.

        If the common point is in a rewritten segment, all messages of that segment are in the new log. The old one still
        has those before the common point, unfinished.
        """
        headers = [decode_header(content) for content in files if content.startswith(MAGIC)]
        first = min(headers, key=lambda header: header.base)
        has_more = first.generation > 0 and first.base < common
        for one in self.publishes:
            if (one.position <= common and not has_more) or not any(one.body in content for content in files):
                continue
            if one.position <= common:
                if old in (one.log_id, *one.former):
                    one.others.append(new)
            elif one.log_id == old:
                one.lost |= self.lost_by(one)
                one.former.append(one.log_id)
                one.log_id, one.holders = new, frozenset({node})
            elif old in one.former:
                one.others.append(new)
        self.successions[new] = old
        self.upsets[new] = 1 << 63  # deliveries of the tail's messages may be repeated

    def _note_again(self, publish: Publish, node: int, handed: int) -> None:
        """Note that a message is delivered by a node though a FIN for it was accepted, by its reason."""
        (at, where), logs = publish.done, {publish.log_id, *publish.former, *publish.others}
        if handed <= at:
            reason = "it was on its way"
        elif where != node:
            reason = "another leader"
        elif len(logs.intersection(self.logs_of(node))) > 1:  # the leader of a former one may have had the message, too
            reason = "it is in two logs of one node"
        else:
            assert max(self.upsets.get(log_id, 0) for log_id in logs) >= at, f"delivered again for no reason: {publish}"
            reason = "its leader died"
        self.counts[f"delivered again: {reason}"] += 1

    def delivered(self, frame: bytes, node: int, handed: int) -> Publish:
        """Note a message that a client of the machine `node` has read, which was handed over at `handed` (true ns)."""
        message = Delivery(frame, 0)
        return self.given(message.id, message.body, node, handed)

    def given(self, message_id: bytes, body: bytes, node: int, handed: int) -> Publish:
        """Note a message or a job that a client of the machine `node` has, which was handed over at `handed` (true ns)."""
        publish = self.publishes[number_of(body)]
        if self.ids.setdefault(message_id, publish.number) != publish.number or (
            self.id_of.setdefault(publish.number, message_id) != message_id
        ):
            assert publish.node in self.may_reuse_ids, f"two messages have the id {message_id.decode()}: {publish}"
            self.counts["ids used again after a backup"] += 1
        publish.deliveries += 1
        if publish.done is not None:
            self._note_again(publish, node, handed)
        self.counts["deliveries"] += 1
        return publish

    def lost_by(self, publish: Publish) -> frozenset[int]:
        """Return the nodes that held a message and have lost it."""
        damaged = {one for one in publish.holders if publish.number in self.hit and not self.holds(one, publish)}
        place = publish.at, publish.log_id, publish.position, publish.mode
        lost = {one.node for one in self.losses if one.node in publish.holders and one.takes(*place)}
        return publish.lost | damaged | lost

    def owed(self) -> list[Publish]:
        unfinished = [one for one in self.publishes if one.acked and not one.finished]
        return [one for one in unfinished if len(self.lost_by(one)) < max(1, one.n)]

    def settle(self, present: set[int], copies: int, holders: Mapping[bytes, frozenset[int]]) -> None:
        """All is well again, so unfinished messages have as many copies as there are followers, if copies were requested.

        `present`: the numbers of the publishes that are there; `holders`: by log id the nodes that have it to its end.
        """
        for one in self.publishes:
            if one.number in present and one.log_id in holders:
                one.acked, one.lost = True, frozenset()
                one.holders, one.n = holders[one.log_id], copies
            else:
                one.acked = False
        self.losses.clear()
