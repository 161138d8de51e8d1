"""Random actions of clients of NSQ and beanstalkd, and of operators, on the same topics."""

from collections.abc import Callable
from random import Random

from nsqd.core.batches.batches import BatchRefused
from nsqd.core.channel import actions
from nsqd.core.channel.actions import ChosenMessage
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.listing import MessageState
from nsqd.core.limits import Limits, TopicFull
from nsqd.core.message.attributes import Attributes
from nsqd.core.message.frame import message_id
from nsqd.core.retention.cursors import Cursor
from nsqd.core.scheduling.recurrence import At, Every, read_cron
from nsqd.core.scheduling.table import Missed, Schedule
from nsqd.core.sequence.dedup import DedupLimits
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.timing.pause import Pause
from nsqd.core.topic import Topic
from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.tube import Tube
from nsqd.core.work_queue.waiters import Reading
from nsqd.core.work_queue.worker import Worker
from tests.nsqd.any_config import any_config, any_headers
from tests.nsqd.core.client import Client
from tests.nsqd.core.listed import listed
from tests.nsqd.core.node import MS, SECOND, Inbox
from tests.nsqd.storage.sim_node import SimNode

TOPICS = ("t", "t", "u", "e#ephemeral")
CHANNELS = ("work", "work", "b", "c", "x#ephemeral")
DELAYS = (0, 0, 50, 3000, 90_000)  # ms


def any_limits(random: Random) -> Limits:
    return Limits(
        mem_queue_size=random.choice((0, 2, 1000)), max_attempts={"u": random.choice((1, 3))},
        requeue_on_disconnect=random.random() < 0.3, dedup=DedupLimits(window=86_400 * SECOND),
    )  # fmt: skip


class Anybody:
    def __init__(self, node: SimNode, random: Random) -> None:
        self._node, self._broker, self._random = node, node.broker, random
        self._consumers: list[tuple[Client, Inbox]] = []
        self._workers = [Worker(self) for _ in range(2)]
        for worker in self._workers:
            node.broker.tubes.join(worker)
        self._usual: list[Callable[[], None]] = [self.publish] * 5 + [self.publish_apart, self.publish_to_one]
        self._usual += [self.publish_deferred] * 2 + [self.subscribe, self.work, self.work] + [self.finish] * 4
        self._usual += [self.requeue] * 2 + [self.put] * 3 + [self.reserve] * 2 + [self.act_on_job] * 4
        self._rare = [self.create_channel, self.begin_in_the_past, self.delete_channel, self.pause, self.configure]
        self._rare += [self.empty_channel, self.empty_topic, self.kick, self.touch, self.leave, self.set_cursor]
        self._rare += [self.act] * 3 + [self.kick] * 2 + [self.kick_jobs, self.pause_tube, self.drop_jobs]
        self._rare += [self.delete_topic]
        self._usual += [self.batch] * 2 + [self.schedule]

    def commands(self) -> list[Callable[[], None]]:
        random, count = self._random, self._random.choice((0, 1, 3, 6))
        return [random.choice(self._rare if random.random() < 0.3 else self._usual) for _ in range(count)]

    @property
    def _now(self) -> int:
        return self._node.clock.now

    def _topic(self) -> Topic:
        return self._broker.topic(self._random.choice(TOPICS))

    def _of(self, channel: Channel) -> Topic:
        return self._broker.topics[channel.topic_name]

    def _due(self) -> int:
        delay = self._random.choice(DELAYS) * MS
        return self._now + delay if delay else 0

    def publish(self) -> None:
        count = self._random.choice((1, 1, 3, 20))
        topic, bodies = self._topic(), [b"x" * self._random.choice((0, 7, 700))] * count
        if headers := any_headers(self._random):
            topic.publish_with(bodies, Attributes(headers))
        else:
            topic.publish(bodies, 700 * count)

    def publish_deferred(self) -> None:
        self._topic().intake.publish_with([b"later"], due=self._now + self._random.choice(DELAYS[2:]) * MS)

    def publish_apart(self) -> None:
        random = self._random
        if random.random() < 0.5:
            number, due = random.randrange(20), self._due()
            self._topic().publish_with([b"keyed"], Attributes(key=f"k{number}", while_pending=number % 4 == 0), due)
        else:
            self._topic().intake.publish_with(
                [b"numbered"] * 3, Attributes(producer="p", sequence=random.randrange(40))
            )

    def batch(self) -> None:
        """Publish a member or a follow-up, or close a batch; or publish what follows batches that are done."""
        random, batches, wall = self._random, self._broker.context.batches, self._node.clock.wall // SECOND
        batch, after, topic = random.choice("pqr"), random.choice(("", "", *"pqr")), random.choice(TOPICS[:3])
        if random.random() < 0.2:
            batches.close(batch, wall)
        elif random.random() < 0.3:
            batches.find_done(wall, 50)
            for table, done, numbers in batches.ready(2):
                for number in numbers:
                    found = self._broker.topic(done.follow_ups[number].topic)
                    found.intake.publish_with([done.follow_ups[number].body], batches.attributes(done, number))
                    found.seal(self._node.clock.wall)
                    table.note_followed(done, [number])
        else:
            headers = (("batch", batch), *((("after", after),) if after else ()))
            try:
                self._broker.topic(topic).publish_with([b"member"] * random.choice((1, 3)), Attributes(headers))
            except BatchRefused:
                pass

    def schedule(self) -> None:
        """Add, replace, pause or remove a schedule, or note ticks that are due."""
        random, schedules, now = self._random, self._broker.context.schedules, self._node.clock.wall // SECOND
        key = random.choice(TOPICS[:3]), random.choice("ab")
        if random.random() < 0.4:
            for tick in (ticks := schedules.fetch_due(now, 3)):
                schedules.finish(tick)
            schedules.note(ticks)
        elif key in schedules.known and random.random() < 0.4:
            schedules.remove(key)
        else:
            recurrence = random.choice(
                (Every(random.randrange(1, 90), now), At(now + 7), read_cron("*/5 * * * *", "UTC"))
            )
            paused = random.random() < 0.2
            schedules.put(Schedule(*key, recurrence, Missed.ALL, random.randbytes(3), (("a", "b"),), now, paused))

    def publish_to_one(self) -> None:
        channel = self._channel()
        if channel is not None and not self._of(channel).paused and not self._of(channel).ephemeral:
            self._broker.seal()
            self._of(channel).publish_to(channel, [b"for one"] * 2, Attributes())

    def _channel(self) -> Channel | None:
        channels = [channel for topic in self._broker.topics.values() for channel in topic.channels.values()]
        return self._random.choice(channels) if channels else None

    def create_channel(self) -> None:
        topic = self._topic()
        topic.channel(self._random.choice(CHANNELS[:4] if topic.name == "t" else CHANNELS))

    def begin_in_the_past(self) -> None:
        """A channel of `t`, which has none that is ephemeral: the log does not know if one waited for a delayed job."""
        topic = self._broker.topic("t")
        free = [name for name in CHANNELS[:4] if name not in topic.channels]
        if free and not self._node.log.writer.group:
            window = self._node.log.history().window(topic.number)
            if window.first < topic.offsets.distributed:
                start = self._random.randrange(window.first, topic.offsets.distributed)
                topic.channel_from(self._random.choice(free), start, self._now)

    def delete_channel(self) -> None:
        if (channel := self._channel()) is not None and self._random.random() < 0.5:
            self._broker.directory.delete_channel(self._of(channel), channel.name)

    def delete_topic(self) -> None:
        if self._broker.topics and self._random.random() < 0.2:
            self._broker.delete_topic(self._random.choice(list(self._broker.topics)))

    def pause(self) -> None:
        item = self._channel() if self._random.random() < 0.5 else self._topic()
        if item is not None:
            by, until = self._random.choice(("", "ann")), self._random.choice((0, 1 << 40))
            self._broker.pause(item, not item.paused, by, until)

    def configure(self) -> None:
        topic = self._topic()
        if not topic.ephemeral:
            topic.configure(any_config(self._random))

    def set_cursor(self) -> None:
        topic, name = self._topic(), self._random.choice("ab")
        if name in topic.cursors:
            topic.set_cursor(name, None)
        else:
            topic.set_cursor(name, Cursor(self._random.randrange(topic.offsets.end + 1), "me"))

    def empty_channel(self) -> None:
        if (channel := self._channel()) is not None and self._random.random() < 0.5:
            channel.empty()

    def empty_topic(self) -> None:
        self._topic().empty()

    def kick(self) -> None:
        if (channel := self._channel()) is not None:
            graves = channel.buried.oldest(3)
            actions.kick(channel, graves[:2])
            actions.finish_buried(channel, graves[2:])

    def act(self) -> None:
        channel, random = self._channel(), self._random
        if channel is None or self._of(channel).ephemeral:
            return
        topic = self._of(channel)
        page, _ = listed(channel, random.choice(list(MessageState)), "", 20)
        frames = [(one.ordinal, topic.journal.frame_in_memory(one.ordinal)) for one in page]
        known = [ChosenMessage(ordinal, message_id(frame)) for ordinal, frame in frames if frame]
        chosen = random.sample(known, min(len(known), random.choice((1, 1, 2, 5))))
        deed = random.randrange(4)
        if deed == 0:
            actions.finish(topic.distribution, channel, chosen)
        elif deed == 1 or not channel.buried:
            actions.bury(topic.distribution, channel, chosen, "by hand")
        else:
            actions.requeue(topic.distribution, channel, chosen, self._due(), self._now, afresh=deed == 2)

    def subscribe(self) -> None:
        channel = self._channel()
        if channel is None:
            self.create_channel()
        elif len(self._consumers) < 8:
            inbox = Inbox()
            consumer = Client(channel, inbox, self._random.choice((200 * MS, 60 * SECOND)), 0)
            consumer.set_ready(self._random.choice((1, 5, 50)))
            self._consumers.append((consumer, inbox))

    def _held(self) -> tuple[Client, list[bytes]] | None:
        self._consumers = [one for one in self._consumers if not one[1].gone]
        if not self._consumers:
            return None
        consumer, _ = self._random.choice(self._consumers)
        runs = consumer.channel.in_flight.runs(consumer.consumer)
        ids = [one for run in runs for one in run.members(20)]
        return (consumer, ids) if ids else None

    def finish(self) -> None:
        if held := self._held():
            consumer, ids = held
            chosen = ids[: self._random.randrange(1, 20)]
            if self._random.random() < 0.4:
                chosen = self._random.sample(ids, min(3, len(ids)))
            consumer.finish(b"".join(chosen))

    def requeue(self) -> None:
        if held := self._held():
            held[0].requeue(self._random.choice(held[1]), self._random.choice(DELAYS) * MS, self._now)

    def touch(self) -> None:
        if held := self._held():
            held[0].touch(self._random.choice(held[1]), SECOND, 10 * SECOND, self._now)

    def leave(self) -> None:
        if self._consumers:
            consumer, inbox = self._consumers.pop(self._random.randrange(len(self._consumers)))
            if not inbox.gone:
                consumer.leave(self._broker)

    def reserved(self, tube: str, job: Job, body: bytes) -> None: ...  # this sink never waits for a job or a read
    def read_completed(self) -> None: ...

    def work(self) -> None:
        """Give a topic a tube with a worker that watches it."""
        worker, name = self._random.choice(self._workers), self._random.choice(TOPICS[:3])
        self._broker.tubes.watch(worker, name)
        if self._random.random() < 0.2:
            self._broker.tubes.made(name)

    def put(self) -> None:
        random, tubes, worker = self._random, self._broker.tubes, self._random.choice(self._workers)
        tubes.use(worker, random.choice(TOPICS[:3]))
        delay = random.choice((0, 0, 0, 1, 90))
        due = self._now + delay * SECOND if delay else 0
        bodies = [b"job"] * random.choice((1, 1, 3))
        options = JobOptions(random.choice((0, 5, 2000)), random.choice((1, 30)), delay, due, True)
        try:
            tubes.put(worker, bodies, options)
        except TopicFull as full:
            if full.buries:
                tubes.put_buried(worker.using, bodies[0], options)

    def reserve(self) -> None:
        worker = self._random.choice(self._workers)
        try:
            found = self._broker.tubes.waiters.next_for(worker, self._now)
        except Reading:
            return
        if found is not None:
            found[0].reserve(found[1], worker, self._now)

    def _tubes(self) -> list[Tube]:
        tubes = [self._broker.tubes.tube(name) for name in self._broker.topics]
        return [tube for tube in tubes if tube is not None]

    def _tube(self) -> Tube | None:
        tubes = self._tubes()
        return self._random.choice(tubes) if tubes else None

    def act_on_job(self) -> None:
        random, worker = self._random, self._random.choice(self._workers)
        if not worker.holds:
            self.reserve()
            return
        number, ordinal = random.choice(list(worker.holds))
        tube = next(tube for tube in self._tubes() if tube.number == number)
        job = tube.jobs.get(ordinal)
        deed = random.randrange(5)
        if deed == 0:
            tube.hand_back(job, random.choice((1, 7)), random.choice((0, 2, 100)), self._now)
        elif deed == 1:
            tube.bury(job, 3)
        elif deed == 2:
            tube.touch(job, worker, self._now)
        else:
            tube.finish(job)

    def kick_jobs(self) -> None:
        if (tube := self._tube()) is not None:
            for job in (*tube.table.first_buried(2), tube.table.head(JobState.DELAYED)):
                if job is not None:
                    tube.kick(job)

    def pause_tube(self) -> None:
        """Clients of Disque pause a queue or resume it, and one of beanstalkd pauses its tube for a while."""
        tube, random = self._tube(), self._random
        if tube is None:
            return
        if random.random() < 0.3:
            tube.pause_for(random.choice((0, 2 * SECOND)), self._now)
            return
        out, into = random.choice(((True, False), (False, True), (True, True), (False, False)))
        tube.pause_queue(Pause(random.choice(("", "10.0.0.1")), 1_800_000_000, 0, out, into) if out or into else None)

    def drop_jobs(self) -> None:
        if (tube := self._tube()) is not None and self._random.random() < 0.3:
            self._broker.seal_puts()
            topic = next(topic for topic in self._broker.topics.values() if tube.number in topic.readers)
            topic.distribution.drop(tube)
