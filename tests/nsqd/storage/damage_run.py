"""One run of a node through several lives, chosen by a seed: between them bits flip, blocks are zeroed and files are cut.

Afterwards, below the highest mark that is still stated, all messages are served except those that were hit; missing ones are
reported, as corrupt or as torn; and nothing is delivered that was never published. One case cannot be detected: the last
segment ends earlier, with a whole record, as if nothing had ever been written after it.
"""

from dataclasses import dataclass
from random import Random

from nsqd.core.records import GROUP, RecordKind
from nsqd.storage.log.identity import NAME as IDENTITY
from nsqd.storage.log.reader import LogRecords, Record
from nsqd.storage.log.records import HEADER_SIZE
from nsqd.storage.log.segments import LogError
from nsqd.storage.log.verify import verify
from shared.topic_config import Durability
from tests.nsqd.core.node import SECOND
from tests.nsqd.storage.sim_disk import PowerCut, SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode
from tests.nsqd.storage.survey import survey

LIVES = 4
CHECKPOINT = (RecordKind.STATE, RecordKind.CHUNK, RecordKind.STATE_TOPIC, RecordKind.STATE_END)
# without them, the messages of their topic or channel are lost
TOPOLOGY = (RecordKind.TOPIC, RecordKind.READER)


@dataclass(frozen=True, slots=True)
class Hit:
    """Bytes of a file that were changed or cut off."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Whole:
    """A log before it is spoiled: its records with the names of their files, and the bodies that it serves."""

    records: list[tuple[str, Record]]
    served: set[bytes]
    last: str  # segment

    def hit(self, hits: list[Hit]) -> set[int]:
        """Return the indexes in `records` of those that were hit."""
        return {
            place
            for place, (name, record) in enumerate(self.records)
            for one in hits
            if one.name == name and one.start < record.end and one.end > record.start
        }


class DamageRun:
    """One run of a node whose log is spoiled between its lives, chosen by a seed."""

    def __init__(self, seed: int, durability: Durability) -> None:
        self.random, self.durability = Random(seed), durability
        self.clock = Clock()
        self.segment_size = self.random.choice((500, 2000, 20_000))
        self.tail_records = self.random.choice((10, 50, 1 << 30))
        self.disk = SimDisk(self.random, self.random.choice((512, 4096)))
        self.published = 0  # messages
        self.missing = 0  # of these, what damage has taken
        self.reported = 0  # bytes that starts have reported as corrupt or torn

    def run(self) -> None:
        for _ in range(LIVES):
            settled = self._live()
            self.clock = self.clock.after(SECOND, self.clock.now, rebooted=False)
            whole = self._look(settled)
            self._damage(whole)

    def _open(self, disk: SimDisk) -> SimNode:
        node = SimNode(
            disk, self.durability, self.clock, self.random, None, self.segment_size, tail_records=self.tail_records
        )
        node.broker.check()
        return node

    def _live(self) -> bool:
        """Publish, finish, checkpoint, clean, and end. True if the log must state that all of it is durable."""
        random, node = self.random, self._open(self.disk)
        consumer, inbox = node.subscribe(channel="c", ready=random.choice((0, 3, 1000)))
        end = random.choice(("cut", "kill", "idle", "stop"))
        self.disk.cut_in = random.randrange(1, 100) if end == "cut" else None
        try:
            for _ in range(random.choice((3, 20, 80))):
                node.turn(lambda: self._publish(node))
                for message in inbox.take():
                    if random.random() < 0.7:
                        consumer.finish(message.id)
                self._work(node)
        except PowerCut:
            pass
        if end == "cut":
            self.disk = self.disk.crash(random)
            return False
        if end == "kill":
            self.disk = self.disk.kill()
            return False
        if end == "stop":
            node.turn()
            node.log.close()
        else:
            self._idle(node)
        self.disk = self.disk.crash(random)
        return True

    def _publish(self, node: SimNode) -> None:
        bodies = []
        for _ in range(self.random.choice((0, 1, 1, 4))):
            self.published += 1
            bodies.append(b"<%d>" % self.published + b"." * self.random.choice((0, 10, 300)))
        if bodies:
            node.broker.topic("t").publish(bodies, sum(map(len, bodies)))

    def _work(self, node: SimNode) -> None:
        for _ in range(self.random.randrange(3)):
            node.syncer.step()
        if self.random.random() < 0.1:
            node.syncer.timer()
        if self.random.random() < 0.3:
            node.cleaner.step()

    def _idle(self, node: SimNode) -> None:
        """Nothing happens for some seconds; a checkpoint or a cleaning that was due comes to its end."""
        for _ in range(20):
            node.turn()
            node.cleaner.step()
            node.syncer.timer()
            while node.syncer.job is not None:
                node.syncer.step()

    def _look(self, settled: bool) -> Whole:
        """Check a copy of the disk. A crash corrupts nothing, and a clean end tears nothing."""
        disk = self.disk.kill()
        reader = LogRecords(disk)
        names = {segment.base: segment.name for segment in reader.segments}
        found = [(names[record.segment], record) for record in reader.records()] if reader.segments else []
        if settled:
            assert reader.stated >= reader.content_end, "an idle log or a clean stop does not state its mark"
        node = self._open(self.disk)
        assert not settled or node.log.start_results.torn == 0, "an end in order looks torn"
        seen = survey(self._open(self.disk.kill()), {})
        served = set(seen["t"].channels["c"].arrivals) if "t" in seen and "c" in seen["t"].channels else set()
        return Whole(found, served, reader.segments[-1].name if reader.segments else "")

    def _damage(self, whole: Whole) -> None:
        before = self.disk.kill()
        hits = [hit for _ in range(self.random.choice((0, 1, 1, 2))) for hit in self._spoil()]
        spoiled = self.disk.kill()
        try:
            node = self._open(self.disk)
        except LogError:
            touched = {hit.name for hit in hits}
            assert IDENTITY in touched and len(touched) > 1, f"it does not start: {hits}"  # noqa: PT018
            self.disk = before
            return
        self._judge(whole, hits, spoiled, node)

    def _spoil(self) -> list[Hit]:
        """Change a file. Returns what is different then."""
        random, disk = self.random, self.disk
        names = [name for name in disk.names() if name.endswith(".log") or name == IDENTITY]
        name = random.choice(names)
        old = disk.content(name)
        filled = len(old.rstrip(b"\0"))
        if not filled:
            return []
        at = random.randrange(filled)
        what = random.choice(("flip", "zero", "cut"))
        if what == "flip":
            new = old[:at] + bytes((old[at] ^ 1 << random.randrange(8),)) + old[at + 1 :]
        elif what == "zero":
            size = random.choice((64, 512, 4096))
            at -= at % size
            new = (old[:at] + bytes(size) + old[at + size :])[: len(old)]
        else:
            new = old[:at]
        disk.put(name, new)
        different = [i for i in range(len(old)) if i >= len(new) or old[i] != new[i]]
        return [Hit(name, different[0], different[-1] + 1)] if different else []

    def _judge(self, whole: Whole, hits: list[Hit], spoiled: SimDisk, node: SimNode) -> None:
        copy = self._open(self.disk.kill())
        seen = survey(copy, {})
        served = set(seen["t"].channels["c"].arrivals) if "t" in seen and "c" in seen["t"].channels else set()
        assert all(self._was_published(body) for body in served), "it delivers what was never published"
        missing = whole.served - served
        reported = node.log.start_results.damage.size + node.log.start_results.torn + copy.cache.failures
        findings = verify(spoiled, lambda done, total: None)
        if not hits:
            assert not missing, f"without damage {missing} are missing"
        if missing and not self._is_shorter(whole, hits, spoiled):
            assert reported, f"silently lost: {sorted(missing)}, {hits}"
            assert not findings.whole, f"verify says whole: {sorted(missing)}, {hits}"
        if not missing.isdisjoint(self._sure(whole, hits)):
            raise AssertionError(f"not served: {sorted(missing & self._sure(whole, hits))}, {hits}")
        self.missing += len(missing)
        self.reported += reported

    def _was_published(self, body: bytes) -> bool:
        number, _, padding = body.removeprefix(b"<").partition(b">")
        return 0 < int(number) <= self.published and padding in (b"", b"." * 10, b"." * 300)

    def _sure(self, whole: Whole, hits: list[Hit]) -> set[bytes]:
        """Return the bodies that must be served: not hit, and the log still states that they were durable."""
        hit = whole.hit(hits)
        kinds = [whole.records[place][1].kind for place in hit]
        if any(kind in TOPOLOGY for kind in kinds) or sum(kind in CHECKPOINT for kind in kinds) > 1:
            return set()
        left = [record for place, (_, record) in enumerate(whole.records) if place not in hit]
        mark = max((GROUP.unpack(record.content)[0] for record in left if record.kind == RecordKind.GROUP), default=0)
        sure = [record.content for record in left if record.kind == RecordKind.PUBLISH and record.position < mark]
        return {body for body in whole.served for content in sure if body[: body.index(b">") + 1] in content}

    def _is_shorter(self, whole: Whole, hits: list[Hit], spoiled: SimDisk) -> bool:
        """Return True if the last segment ends earlier, with a whole record."""
        if {hit.name for hit in hits} != {whole.last}:
            return False
        first = min(hit.start for hit in hits)
        end = max(
            [record.end for name, record in whole.records if name == whole.last and record.end <= first], default=0
        )
        return not any(spoiled.content(whole.last)[max(HEADER_SIZE, end) :])
