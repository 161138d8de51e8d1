"""One client of beanstalkd: bytes in, bytes out, a worker in between (specs/beanstalkd.md). Sans-IO; the reactor carries it.

Commands are answered in their order. While a reserve waits, what follows is kept and not looked at; likewise while a body is
read from disk. A body that is too large is thrown away as it comes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from nsqd.core.broker import Broker, TooMany
from nsqd.core.jobs import Job, JobState
from nsqd.core.tube import Reading, Terms, Tube
from nsqd.core.tubes import Worker
from nsqd.protocols.beanstalk import stats
from nsqd.protocols.beanstalk.commands import HTTP, MAX_LINE, BadFormat, UnknownCommand, verb_of
from nsqd.protocols.nsq.outbox import NEVER, Outbox, Transport
from shared.values import SECOND

if TYPE_CHECKING:
    from nsqd.protocols.nsq.authorization import Authorization, AuthRefused

UNITS_OF_A_TURN = 1024  # commands and replies count one each, and what is large more: no client gets a long turn
BYTES_OF_A_UNIT = 1024  # of replies: a megabyte in a turn
TUBES_OF_A_UNIT = 8  # that are looked at
SLICE = 500  # jobs of a command in a turn: about 5 ms
MOST_LISTED = 1000  # ids in an answer
MOST_KEPT = 64 * 1024  # bytes of commands that are read ahead while one waits
NOT_FOUND = b"NOT_FOUND\r\n"
DEADLINE_SOON, TIMED_OUT = b"DEADLINE_SOON\r\n", b"TIMED_OUT\r\n"


@dataclass(slots=True)
class Hall:
    """What the connections to a node have in common."""

    max_job_size: int = 65_535  # bytes
    figures: Callable[[], stats.Figures] = lambda: stats.Figures(65_535, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0)


@dataclass(slots=True)
class _Put:
    """A put whose body is still coming."""

    terms: tuple[int, int, int]  # priority, delay, ttr
    size: int  # bytes
    key: str = ""  # of a put-unique


class Peer:
    """See above."""

    __slots__ = (
        "_broker",
        "_buffer",
        "_deadline",
        "_discard",
        "_eof",
        "_hall",
        "_is_gone",
        "_long",
        "_now",
        "_put",
        "_skips_line",
        "_spent",
        "_transport",
        "_wait",
        "has_more",
        "outbox",
        "port",
        "remote_ip",
        "waiting",
        "worker",
    )

    def __init__(self, broker: Broker, hall: Hall, transport: Transport, remote_ip: str, port: str, now: int) -> None:
        self._broker = broker
        self._hall = hall
        self._transport = transport
        self.remote_ip = remote_ip  # "" for a unix socket
        self.port = port
        self.outbox = Outbox(transport)
        self.waiting = False  # so much input is kept that no more is to be read
        self.has_more = False  # True: there is input to be looked at without any more coming
        self.worker = Worker(self)
        self._buffer = bytearray()
        self._put: _Put | None = None
        self._spent = 0  # of UNITS_OF_A_TURN
        self._discard = 0  # bytes of a body that are still to be thrown away
        self._skips_line = False  # True: the line was too long; its end is looked for
        self._wait = False  # True: no command is looked at until a reserve, or the disk, has answered
        self._deadline = NEVER  # when a reserve that waits is given up
        self._long: Callable[[], bytes | None] | None = None  # a command that is not done yet
        self._eof = self._is_gone = False
        self._now = now
        broker.tubes.join(self.worker)

    # input

    def receive(self, data: bytes, now: int) -> None:
        """Handle the complete commands there are, up to UNITS_OF_A_TURN; keep the rest."""
        self._now = now
        self.has_more = False
        if not (self._buffer or self._wait or self.outbox.closing):
            self._look(data)
            return
        self._buffer += data
        if self._wait or self.outbox.closing:
            self.waiting = len(self._buffer) > MOST_KEPT and not self.outbox.closing
        elif (
            self._put is None or self._long is not None or len(self._buffer) >= self._put.size + 2
        ):  # a large body is not copied for each piece
            self._look_again()

    def _look_again(self) -> None:
        """At what was kept."""
        data = bytes(self._buffer)
        self._buffer.clear()
        self._look(data)

    def _look(self, data: bytes) -> None:
        at = self._spent = 0
        while self._spent < UNITS_OF_A_TURN:
            self._spent += 1
            if self._wait or self.outbox.closing or (at == len(data) and self._long is None):
                break
            end = self._step(data, at)
            if end < 0:
                break
            at = end
        else:
            self.has_more = at < len(data)
        if self._long is not None:
            self.has_more = True
        if at < len(data) and not self.outbox.closing:
            self._buffer += data[at:] if at else data
        self.waiting = self._wait and len(self._buffer) > MOST_KEPT
        if self._eof and not self._wait and not self.has_more:
            self.outbox.end()

    def _step(self, data: bytes, at: int) -> int:
        """Take one line or body: where it ended; -1: it is not complete."""
        if self._long is not None:
            self._go_on_long()
            return at if self._long is None else -1
        if self._discard:
            size = min(self._discard, len(data) - at)
            self._discard -= size
            if self._discard:
                return len(data) if size else -1
            self._reply(b"JOB_TOO_BIG\r\n")
            return at + size
        if self._put is not None:
            return self._body(self._put, data, at)
        newline = data.find(b"\r\n", at)
        if self._skips_line:
            if newline < 0:
                keep = 1 if data.endswith(b"\r") else 0
                return len(data) - keep if len(data) - keep > at else -1
            self._skips_line = False
            self._reply(b"BAD_FORMAT\r\n")
            return newline + 2
        if newline < 0 or newline + 2 - at > MAX_LINE:
            if newline < 0 and len(data) - at < MAX_LINE:
                return -1
            self._skips_line = True
            return at
        self._line(data[at:newline])
        if self._wait and self._deadline < 0:  # the disk is to answer first: the line is looked at again
            self._deadline = NEVER
            return -1
        return newline + 2

    def _line(self, line: bytes) -> None:
        if line.startswith(HTTP):
            self.outbox.break_off()
            return
        try:
            if b"\0" in line:
                raise BadFormat
            verb, reader = verb_of(line)
            if verb == b"pause-tube":  # counted whatever follows
                self._broker.tubes.commands["pause-tube"] += 1
            arguments = reader(line, len(verb))
            _HANDLERS[verb](self, *arguments)
        except BadFormat:
            self._reply(b"BAD_FORMAT\r\n")
        except UnknownCommand:
            self._reply(b"UNKNOWN_COMMAND\r\n")
        except TooMany:
            self._reply(b"OUT_OF_MEMORY\r\n")
        except Reading as reading:
            self._broker.tubes.block(self.worker, reading.tube)
            self._wait, self._deadline = True, -1

    def _reply(self, data: bytes) -> None:
        self._spent += 1 + len(data) // BYTES_OF_A_UNIT
        self.outbox.reply(data)

    def receive_eof(self) -> None:
        """The client sends no more: what it has sent is answered, and it does not wait for a job."""
        self._eof = True
        if self._wait and self.worker.waiting:
            self._answer(TIMED_OUT)
        if not self._wait and not self.has_more:
            self.outbox.end()

    def disconnected(self) -> None:
        """The connection is gone. Said once more when it was drained first."""
        self.outbox.closing = True
        self._buffer.clear()
        self.has_more = False
        if not self._is_gone:
            self._is_gone = True
            self._broker.tubes.leave(self.worker)

    def break_off(self) -> None:
        """End the connection without a word."""
        self.outbox.break_off()

    # Sink of its worker

    def reserved(self, job: Job, body: bytes) -> None:
        """What it waited for."""
        self._answer(_job(b"RESERVED", job, body))

    def read_completed(self) -> None:
        """The disk has answered: the command is looked at again, at once, for what was read is not kept for long."""
        self._wait = self.waiting = False
        self._look_again()
        self._transport.output_ready()

    def _answer(self, reply: bytes) -> None:
        """To a reserve that waits."""
        self._broker.tubes.stop_waiting(self.worker)
        self._deadline = NEVER
        self._reply(reply)
        self._go_on()

    def _go_on(self) -> None:
        """What was kept is looked at in the next turn."""
        self._wait = self.waiting = False
        self.has_more = bool(self._buffer)
        self._transport.output_ready()
        if self._eof and not self.has_more:
            self.outbox.end()

    # time

    def next_timer(self) -> int:
        """When tick has something to do (ns)."""
        if not self.worker.waiting:
            return NEVER
        warned = self.worker.warned_at()
        return self._deadline if warned is None else min(self._deadline, warned)

    def tick(self, now: int) -> None:
        """A reserve has waited long enough, or a reservation ends soon."""
        self._now = now
        if not self.worker.waiting or now < self.next_timer():
            return
        warned = self.worker.warned_at()
        self._answer(DEADLINE_SOON if warned is not None and warned <= now else TIMED_OUT)

    # what the reactor asks of every peer

    @property
    def closing(self) -> bool:
        """The connection ends with its output."""
        return self.outbox.closing

    @property
    def promises(self) -> int:
        """What its replies wait for."""
        return self.outbox.promises

    def take_output(self) -> list[bytes]:
        """Everything that waits to be sent."""
        return self.outbox.take()

    def network_ready(self) -> None:
        """The network has taken what there was."""

    @property
    def patience(self) -> int:
        """ns that the network may take nothing; 0: as usual."""
        return 0

    def authorized(self, answer: Authorization | AuthRefused, now: int) -> None:
        """Nobody is asked."""

    def upgraded(self, tls: object = None) -> None:
        """There are no layers."""

    # producers

    def _begin_unique(self, key: str, priority: int, delay: int, ttr: int, size: int, trailing: bool) -> None:
        """As put; but DUPLICATE if the tube was given a job with that key lately (-dedup-window)."""
        self._begin_put(priority, delay, ttr, size, trailing)
        if self._put is not None:
            self._put.key = key

    def _begin_put(self, priority: int, delay: int, ttr: int, size: int, trailing: bool) -> None:
        self._count("put")
        if size > self._hall.max_job_size:
            self._discard = size + 2
            return
        if trailing:
            raise BadFormat
        self.worker.produces = True
        self._put = _Put((priority, delay, ttr), size)

    def _body(self, put: _Put, data: bytes, at: int) -> int:
        end = at + put.size + 2
        if len(data) < end:
            return -1
        self._put = None
        tubes = self._broker.tubes
        if data[end - 2 : end] != b"\r\n":
            tubes.burn_id()
            self._reply(b"EXPECTED_CRLF\r\n")
        elif tubes.draining:
            tubes.burn_id()
            self._reply(b"DRAINING\r\n")
        elif self._broker.refusal:
            tubes.burn_id()
            self._reply(b"OUT_OF_MEMORY\r\n")
        else:
            priority, delay, ttr = put.terms
            due = self._now + delay * SECOND if delay else 0
            try:
                terms = Terms(priority, ttr or 1, delay, due, True)
                number = tubes.put(self.worker, data[at : end - 2], terms, put.key)
            except TooMany:
                self._reply(b"OUT_OF_MEMORY\r\n")
            else:
                self._promise(self.worker.using)
                self._reply(b"INSERTED %d\r\n" % number if number else b"DUPLICATE\r\n")
        return end

    def _promise(self, name: str) -> None:
        """The reply waits for what the tube's records are promised to be."""
        topic = self._broker.topics.get(name)
        if topic is not None:
            topic.store.promise(topic.number)
            self.outbox.promises |= topic.promise

    def _use(self, name: str) -> None:
        self._count("use")
        self._broker.tubes.use(self.worker, name)
        self._reply(b"USING %s\r\n" % name.encode())

    # workers

    def _reserve(self) -> None:
        self._begin_reserve("reserve", None)

    def _reserve_with_timeout(self, seconds: int) -> None:
        self._begin_reserve("reserve-with-timeout", seconds)

    def _begin_reserve(self, command: str, seconds: int | None) -> None:
        tubes, worker, now = self._broker.tubes, self.worker, self._now
        self._spent += len(worker.watching) // TUBES_OF_A_UNIT
        worker.works = True
        warned = worker.warned_at()
        soon = warned is not None and warned <= now
        if not (soon and not tubes.has_ready(worker)):
            found = tubes.next_for(worker, now)
            if found is not None:
                self._count(command)
                tube, job, body = found
                tube.reserve(job, worker, now)
                self._reply(_job(b"RESERVED", job, body))
                return
        self._count(command)
        if soon:
            self._reply(DEADLINE_SOON)
        elif seconds == 0 or self._eof:
            self._reply(TIMED_OUT)
        else:
            tubes.wait(worker)
            self._wait = True
            self._deadline = NEVER if seconds is None else now + seconds * SECOND
            self._transport.timer_changed()

    def _reserve_batch(self, count: int, seconds: int) -> None:
        """As many ready jobs as there are, up to `count`: RESERVED_BATCH and their number, then each as RESERVED tells it."""
        tubes, worker = self._broker.tubes, self.worker
        worker.works = True
        replies: list[bytes] = []
        while len(replies) < count:
            try:
                found = tubes.next_for(worker, self._now)
            except Reading:
                if not replies:
                    raise
                break
            if found is None:
                break
            tube, job, body = found
            tube.reserve(job, worker, self._now)
            replies.append(_job(b"RESERVED", job, body))
        if replies:
            self._reply(b"RESERVED_BATCH %d\r\n" % len(replies) + b"".join(replies))
        else:  # the first one that comes, or what reserve-with-timeout says
            self._begin_reserve("reserve-with-timeout", seconds)

    def _reserve_job(self, job_id: int) -> None:
        found = self._broker.tubes.find(job_id)
        body = None
        if found is not None and found[1].state is not JobState.RESERVED:
            body = found[0].body(found[1])
        if found is None or body is None:
            self._reply(NOT_FOUND)
            return
        self.worker.works = True
        tube, job = found
        tube.reserve(job, self.worker, self._now)
        self._reply(_job(b"RESERVED", job, body))

    def _own(self, job_id: int) -> tuple[Tube, Job] | None:
        """The job, if this worker has it reserved; else it is told NOT_FOUND."""
        found = self._broker.tubes.find(job_id)
        if found is not None and found[0].reserved.get(found[1].ordinal) is self.worker:
            return found
        self._reply(NOT_FOUND)
        return None

    def _delete(self, job_id: int) -> None:
        self._count("delete")
        if not self._finish(job_id):
            self._reply(NOT_FOUND)
            return
        self._reply(b"DELETED\r\n")

    def _finish(self, job_id: int) -> bool:
        tubes = self._broker.tubes
        found = tubes.find(job_id)
        if found is None or found[0].reserved.get(found[1].ordinal, self.worker) is not self.worker:
            return False
        tube, job = found
        name = tube.topic.name
        tube.finish(job)
        tubes.of_tube[name]["delete"] += 1
        self._promise(name)
        tubes.leave_empty(name)
        return True

    def _delete_batch(self, job_ids: tuple[int, ...]) -> None:
        """DELETED_BATCH, and how many of them were there and not somebody else's."""
        self._reply(b"DELETED_BATCH %d\r\n" % sum(self._finish(job_id) for job_id in job_ids))

    def _release(self, job_id: int, priority: int, delay: int) -> None:
        self._count("release")
        found = self._own(job_id)
        if found is not None:
            found[0].hand_back(found[1], priority, delay, self._now)
            self._promise(found[0].topic.name)
            self._reply(b"BURIED\r\n" if found[1].state is JobState.BURIED else b"RELEASED\r\n")

    def _bury(self, job_id: int, priority: int) -> None:
        self._count("bury")
        found = self._own(job_id)
        if found is not None:
            found[0].bury(found[1], priority)
            self._promise(found[0].topic.name)
            self._reply(b"BURIED\r\n")

    def _touch(self, job_id: int) -> None:
        self._count("touch")
        found = self._own(job_id)
        if found is not None:
            found[0].touch(found[1], self.worker, self._now)
            self._reply(b"TOUCHED\r\n")

    def _watch(self, name: str) -> None:
        self._count("watch")
        self._broker.tubes.watch(self.worker, name)
        self._reply(b"WATCHING %d\r\n" % len(self.worker.watching))

    def _ignore(self, name: str) -> None:
        self._count("ignore")
        if name in self.worker.watching and len(self.worker.watching) == 1:
            self._reply(b"NOT_IGNORED\r\n")
            return
        self._broker.tubes.ignore(self.worker, name)
        self._reply(b"WATCHING %d\r\n" % len(self.worker.watching))

    # looking

    def _peek(self, job_id: int) -> None:
        self._tell("peek", self._broker.tubes.find(job_id))

    def _peek_ready(self) -> None:
        tube = self._broker.tubes.tube(self.worker.using)
        self._tell("peek-ready", _at(tube, tube.head() if tube is not None else None))

    def _peek_delayed(self) -> None:
        tube = self._broker.tubes.tube(self.worker.using)
        self._tell("peek-delayed", _at(tube, tube.head(JobState.DELAYED) if tube is not None else None))

    def _peek_buried(self) -> None:
        tube = self._broker.tubes.tube(self.worker.using)
        self._tell("peek-buried", _at(tube, next(iter(tube.first_buried()), None) if tube is not None else None))

    def _tell(self, command: str, found: tuple[Tube, Job] | None) -> None:
        body = found[0].body(found[1]) if found is not None else None
        self._count(command)
        self._reply(NOT_FOUND if found is None or body is None else _job(b"FOUND", found[1], body))

    # operators

    def _kick(self, bound: int) -> None:
        self._count("kick")
        name, kicked = self.worker.using, 0
        tube = self._broker.tubes.tube(name)
        state = JobState.BURIED if tube is not None and tube.buried else JobState.DELAYED

        def some() -> bytes | None:
            nonlocal kicked
            tube = self._broker.tubes.tube(name)
            for _ in range(SLICE):
                job = tube.next_to_kick(state) if tube is not None and kicked < bound else None
                if tube is None or job is None:
                    self._promise(name)
                    return b"KICKED %d\r\n" % kicked
                tube.kick(job)
                kicked += 1
            return None

        self._begin_long(some)

    def _begin_long(self, some: Callable[[], bytes | None]) -> None:
        """A command that may take several turns: `some` does a part of it, and answers when all is done."""
        self._long = some
        self._go_on_long()

    def _go_on_long(self) -> None:
        assert self._long is not None
        reply = self._long()
        if reply is not None:
            self._long = None
            self._reply(reply)

    def _kick_job(self, job_id: int) -> None:
        found = self._broker.tubes.find(job_id)
        if found is None or found[1].state not in (JobState.BURIED, JobState.DELAYED):
            self._reply(NOT_FOUND)
            return
        found[0].kick(found[1])
        self._promise(found[0].topic.name)
        self._reply(b"KICKED\r\n")

    def _clear_tube(self, name: str) -> None:
        """CLEARED, and how many jobs are gone: ready, delayed and buried ones; reserved ones are their workers'."""
        tubes = self._broker.tubes
        if name not in tubes.of_tube:
            self._reply(NOT_FOUND)
            return
        count = 0

        def some() -> bytes | None:
            nonlocal count
            tube = tubes.tube(name)
            for state in (JobState.READY, JobState.DELAYED, JobState.BURIED) if tube is not None else ():
                for job in list(islice(tube.jobs.in_state(state, -1), SLICE)) if tube is not None else ():
                    if tube is not None:
                        tube.finish(job)
                    count += 1
                if tube is not None and tube.counts[state]:
                    return None
            self._promise(name)
            tubes.leave_empty(name)
            return b"CLEARED %d\r\n" % count

        self._begin_long(some)

    def _move_job(self, job_id: int, name: str) -> None:
        """MOVED, and its new id: it is put to the other tube, on the terms it has, and deleted where it was."""
        tubes, found = self._broker.tubes, self._broker.tubes.find(job_id)
        if found is None or found[0].reserved.get(found[1].ordinal, self.worker) is not self.worker:
            self._reply(NOT_FOUND)
            return
        tube, job = found
        body = tube.body(job)
        if body is None:
            self._reply(NOT_FOUND)
            return
        due = job.due if job.state is JobState.DELAYED else 0
        number = tubes.put_to(name, body, Terms(job.priority, job.ttr, job.delay if due else 0, due, True))
        self._promise(name)
        self._finish(job_id)
        self._reply(b"MOVED %d\r\n" % number)

    def _list_jobs(self, name: str, state: str, limit: int, after: int) -> None:
        """Ids of jobs in that state, ascending, above `after`: up to `limit`."""
        tubes = self._broker.tubes
        wanted = next((number for number, word in stats.STATES.items() if word == state), None)
        if wanted is None or not 1 <= limit <= MOST_LISTED:
            raise BadFormat
        tube = tubes.tube(name)
        if name not in tubes.of_tube:
            self._reply(NOT_FOUND)
            return
        found = islice(tube.jobs.in_state(wanted, after), limit) if tube is not None else ()
        self._reply(stats.listing(str(job.id) for job in found))

    def _pause_tube(self, name: str, seconds: int) -> None:
        tubes = self._broker.tubes
        if name not in tubes.of_tube:
            self._reply(NOT_FOUND)
            return
        tubes.of_tube[name]["pause-tube"] += 1
        tubes.made(name).pause_for(seconds * SECOND, self._now)
        self._reply(b"PAUSED\r\n")

    def _stats(self) -> None:
        self._spent += len(self._broker.tubes.names) // TUBES_OF_A_UNIT
        self._count("stats")
        self._reply(stats.dictionary(stats.of_all(self._broker.tubes, self._hall.figures())))

    def _stats_job(self, job_id: int) -> None:
        self._count("stats-job")
        found = self._broker.tubes.find(job_id)
        if found is None:
            self._reply(NOT_FOUND)
        else:
            self._reply(stats.dictionary(stats.of_job(*found, self._now, self._broker.wall)))

    def _stats_tube(self, name: str) -> None:
        self._count("stats-tube")
        tubes = self._broker.tubes
        if name not in tubes.of_tube:
            self._reply(NOT_FOUND)
        else:
            self._reply(stats.dictionary(stats.of_tube(tubes, name, tubes.tube(name), self._now)))

    def _list_tubes(self) -> None:
        self._count("list-tubes")
        self._reply(stats.listing(self._broker.tubes.names))

    def _list_tube_used(self) -> None:
        self._count("list-tube-used")
        self._reply(b"USING %s\r\n" % self.worker.using.encode())

    def _list_tubes_watched(self) -> None:
        self._count("list-tubes-watched")
        self._reply(stats.listing(self.worker.watching))

    def _quit(self) -> None:
        self.outbox.end()

    def _count(self, command: str) -> None:
        self._broker.tubes.commands[command] += 1


def _job(word: bytes, job: Job, body: bytes) -> bytes:
    return b"%s %d %d\r\n%s\r\n" % (word, job.id, len(body), body)


def _at(tube: Tube | None, job: Job | None) -> tuple[Tube, Job] | None:
    return (tube, job) if tube is not None and job is not None else None


_HANDLERS: dict[bytes, Callable[..., None]] = {
    b"put ": Peer._begin_put,
    b"put-unique ": Peer._begin_unique,
    b"peek ": Peer._peek,
    b"peek-ready": Peer._peek_ready,
    b"peek-delayed": Peer._peek_delayed,
    b"peek-buried": Peer._peek_buried,
    b"reserve-batch ": Peer._reserve_batch,
    b"reserve-with-timeout ": Peer._reserve_with_timeout,
    b"reserve-job ": Peer._reserve_job,
    b"reserve": Peer._reserve,
    b"delete-batch ": Peer._delete_batch,
    b"delete ": Peer._delete,
    b"release ": Peer._release,
    b"bury ": Peer._bury,
    b"kick ": Peer._kick,
    b"kick-job ": Peer._kick_job,
    b"touch ": Peer._touch,
    b"stats-job ": Peer._stats_job,
    b"stats-tube ": Peer._stats_tube,
    b"stats": Peer._stats,
    b"use ": Peer._use,
    b"watch ": Peer._watch,
    b"ignore ": Peer._ignore,
    b"list-tubes-watched": Peer._list_tubes_watched,
    b"list-tube-used": Peer._list_tube_used,
    b"list-tubes": Peer._list_tubes,
    b"quit": Peer._quit,
    b"pause-tube": Peer._pause_tube,
    b"clear-tube ": Peer._clear_tube,
    b"move-job ": Peer._move_job,
    b"list-jobs ": Peer._list_jobs,
}
