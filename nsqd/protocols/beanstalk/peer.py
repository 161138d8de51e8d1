"""Handle the commands of producers and workers: put, reserve, and what follows a reservation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nsqd.core.limits import TooFewCopies, TooMany, TopicFull
from nsqd.core.message.attributes import ASKING, NONE, Attributes
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.tube import Tube
from nsqd.core.work_queue.waiters import Reading
from nsqd.protocols.beanstalk.client import (
    AUTH,
    BAD_FORMAT,
    BATCH_DONE,
    DEADLINE_SOON,
    DRAINING,
    JOB_TOO_BIG,
    NOT_FOUND,
    OUT_OF_MEMORY,
    TIMED_OUT,
    TUBES_OF_A_UNIT,
    UNAUTHORIZED,
    Put,
    job_reply,
)
from nsqd.protocols.beanstalk.commands import BadFormat, OtherName, existing
from nsqd.protocols.beanstalk.operators import Operator
from nsqd.protocols.beanstalk.rights import allows, target
from nsqd.protocols.job_client import UNITS_OF_A_TURN
from nsqd.protocols.transport import NEVER
from penstock.protocol.headers import BATCH, GROUP, MOST_SIZE, Headers, check_headers, split_headers
from shared.audit.event import Outcome
from shared.auth.verbs import Verb
from shared.values import SECOND


class Peer(Operator):
    """One client of beanstalkd, with all of its commands."""

    __slots__ = ()

    def _do(self, verb: bytes, arguments: tuple[Any, ...]) -> None:
        if verb not in _UNMATCHED:
            self.broker.tubes.match()
        if self.credential is not None and not allows(self.credential, self.broker.tubes, self.worker, verb, arguments):
            self._refuse(verb, arguments)
            return
        _HANDLERS[verb](self, *arguments)

    def _refuse(self, verb: bytes, arguments: tuple[Any, ...]) -> None:
        """Answer UNAUTHORIZED; to a put once its body has come."""
        self.record(verb.decode().rstrip(), target(self.worker, verb, arguments), Outcome.REFUSED)
        if verb in _PUTS and not arguments[-1]:
            self._discard_body(arguments[-2] + 2, UNAUTHORIZED)
        else:
            self.fail(UNAUTHORIZED)

    def _show_token(self, secret: bytes) -> None:
        """Handle auth: identify the client by a token."""
        assert self.credential is not None
        if self.credential.show_token(secret):
            self.reply(b"AUTHORIZED\r\n")
        else:
            self.record("auth", "", Outcome.REFUSED)
            self.fail(UNAUTHORIZED)
            if self.credential.is_guess:
                self.outbox.end()

    # producers

    def _put_together(self, usual: tuple[int, JobOptions], data: bytes, at: int, body: int) -> int:
        size, options = usual
        tubes, worker = self.broker.tubes, self.worker
        end = body + size + 2
        if data[end - 2 : end] != b"\r\n" or self.broker.refusal or worker.takes_headers:
            return 0  # the put is not complete, or has another answer
        if self.credential is not None and (
            worker.using not in self.broker.topics
            or not self.credential.may(Verb.PUBLISH, worker.using)
            or self.is_in_debt()
        ):
            return 0
        bodies = [data[body : end - 2]]
        if end < len(data):
            line, step = data[at:body], end - at
            most = 1 if tubes.waiters.count else UNITS_OF_A_TURN - self._spent
            while data.startswith(line, end) and data[end + step - 2 : end + step] == b"\r\n" and len(bodies) < most:
                bodies.append(data[end + len(line) : end + step - 2])
                end += step
        if options.delay:
            options = options._replace(due=self.now + options.delay * SECOND)
        try:
            first = tubes.put(worker, bodies, options)
        except TooMany:
            return 0
        worker.produces = True
        tubes.commands["put"] += len(bodies)
        if self.credential is not None:
            self.count_published(len(bodies), len(bodies) * size)
        topic = self.broker.topics[worker.using]
        marks = topic.marks  # the record of the jobs makes the promise, at the turn's end
        if topic.starting:
            self.wait_for_start(topic.name)
        if len(bodies) == 1:
            self.outbox.reply(b"INSERTED %d\r\n" % first, marks)
        else:
            self._spent += len(bodies) - 1
            replies = [b"INSERTED %d\r\n" % number for number in range(first, first + len(bodies))]
            self.outbox.reply(b"".join(replies), marks)
        return end

    def _begin_put(
        self,
        priority: int,
        delay: int,
        ttr: int,
        size: int,
        trailing: bool,
        *,
        identity: Attributes | None = None,
        copies: int = 0,
    ) -> None:
        """Wait for the body of a put. `identity`: see Put; `copies`: as put-replicated, whose reply waits for these copies."""
        self._count("put")
        if size > self.context.max_job_size + (MOST_SIZE if self.worker.takes_headers else 0):
            self._discard_body(size + 2, JOB_TOO_BIG)
            return
        if trailing:
            raise BadFormat
        self.worker.produces = True
        self._put = Put((priority, delay, ttr), size, identity, copies)
        self._needed = size + 2

    def _body(self, put: Put, data: bytes, at: int) -> int:
        end = at + put.size + 2
        if len(data) < end:
            self._needed = put.size + 2
            return -1
        if self.is_held_back():
            return -1
        self._put = None
        self._needed = 0
        tubes = self.broker.tubes
        if data[end - 2 : end] != b"\r\n":
            tubes.burn_id()
            self.fail(b"EXPECTED_CRLF\r\n")
        elif self.broker.draining_since:
            tubes.burn_id()
            self.fail(DRAINING)
        elif self.broker.refusal:
            tubes.burn_id()
            self.fail(OUT_OF_MEMORY)
        elif self.credential is not None and not self.credential.may(Verb.PUBLISH, self.worker.using):
            tubes.burn_id()  # the right has ended while the body came
            self.fail(UNAUTHORIZED)
        else:
            self._put_job(put, data[at : end - 2])
        return end

    def _put_job(self, put: Put, body: bytes) -> None:
        """Put a job into the tube that the worker uses, and answer."""
        identity = put.identity
        if self.worker.takes_headers:
            try:
                headers, body = _split(body, self.context.max_job_size, (identity or NONE).headers)
            except _PutRefused as refused:
                self.broker.tubes.burn_id()
                self.fail(refused.reply)
                return
            if headers:
                identity = replace(identity or NONE, headers=headers)
        priority, delay, ttr = put.options
        due = self.now + delay * SECOND if delay else 0
        tubes, options = self.broker.tubes, JobOptions(priority, ttr or 1, delay, due, True)
        try:
            if self.credential is not None:
                self.make_tube(self.worker.using)
            if put.copies:
                self.outbox.wait_for(tubes.ask_for_copies(self.worker.using, put.copies))
            if identity is not None:
                number = tubes.put_unique(self.worker, body, options, identity)
            else:
                number = tubes.put(self.worker, [body], options)
        except TooFewCopies:
            tubes.burn_id()
            self.fail(DRAINING)
        except TooMany as refused:
            if isinstance(refused, TopicFull) and refused.buries:
                self._put_buried(put, body, options, identity)
            else:
                self._refuse_put(refused)
        else:  # 0: it was put before
            self._finish_put(number, body, b"INSERTED %d\r\n" % number if number else self._duplicate(put))

    def _put_buried(self, put: Put, body: bytes, options: JobOptions, identity: Attributes | None) -> None:
        """Bury a job that is put into a full tube, and answer."""
        tubes, name = self.broker.tubes, self.worker.using
        try:
            if put.copies:
                self.outbox.wait_for(self.broker.topics[name].ask_for_copies(put.copies))
            number = tubes.put_buried(name, body, options, identity)
        except TooFewCopies:
            tubes.burn_id()
            self.fail(DRAINING)
        except TooMany as refused:
            self._refuse_put(refused)
        else:
            self._finish_put(number, body, b"BURIED %d\r\n" % number if number else self._duplicate(put))

    def _refuse_put(self, refused: TooMany) -> None:
        self.fail(BATCH_DONE if str(refused) == "BATCH_DONE" else OUT_OF_MEMORY)

    def _finish_put(self, number: int, body: bytes, reply: bytes) -> None:
        """Answer a put whose job has that number, 0 if it was a duplicate."""
        self.count_published(min(number, 1), len(body))
        self.promise(self.worker.using)
        self.reply(reply)
        if self.broker.topics[self.worker.using].starting:
            self.wait_for_start(self.worker.using)

    def _duplicate(self, put: Put) -> bytes:
        """Return the reply to a put that was a duplicate: with the id of the job if that is pending."""
        assert put.identity is not None
        if not put.identity.while_pending:
            return b"DUPLICATE\r\n"
        return b"DUPLICATE %d\r\n" % self.broker.tubes.pending_id(self.worker.using, put.identity.key)

    def _use(self, name: str) -> None:
        self._count("use")
        self.broker.tubes.use(self.worker, name)
        self.reply(b"USING %s\r\n" % name.encode())

    def _take_headers(self) -> None:
        """Have each body of a put or a job begin with headers from now on (penstock/protocol/headers.py)."""
        self.worker.takes_headers = True
        self.reply(b"HEADERS\r\n")

    # workers

    def _begin_reserve(self, command: str, seconds: int | None) -> None:
        tubes, worker, now = self.broker.tubes, self.worker, self.now
        worker.works = True
        if self.credential is None and not self._loans and self._reserve_plain(command):
            return
        tubes.match()
        self._spent += len(worker.watching) // TUBES_OF_A_UNIT
        tubes.release_due(worker, now)
        if self._loans:
            self._end_borrowed()
        warned = worker.warned_at()
        soon = warned is not None and warned <= now
        has_room = self.credential is None or self.room_in_flight() > 0
        if has_room and not self.broker.agenda.is_held and not (soon and not tubes.has_ready(worker)):
            found = tubes.waiters.next_for(worker, now)
            if found is not None:
                self._count(command)
                tube, job, body = found
                tube.reserve(job, worker, now)
                self.reply(job_reply(b"RESERVED", self.broker.tubes.client_id(job), body))
                if self.credential is not None:
                    self.note_reserved()
                return
        self._count(command)
        if soon:
            self.reply(DEADLINE_SOON)
        elif seconds == 0 or self._eof:
            self.reply(TIMED_OUT)
        else:
            self.wait_for_job(NEVER if seconds is None else now + seconds * SECOND)

    def _reserve_plain(self, command: str) -> bool:
        """Execute a reserve of a client that watches one tube. Returns False if there is more to it: see `_begin_reserve`."""
        tubes, worker, name = self.broker.tubes, self.worker, self.worker.watching.only
        warned = worker.warned_at()
        if name is None or (warned is not None and warned <= self.now):
            return False
        taken = tubes.reserve_plain(name, worker, self.now)
        if taken is None:
            return False
        job_id, _, _, body = taken
        self._count(command)
        self.reply(job_reply(b"RESERVED", tubes.index.client_id(job_id), body))
        return True

    def _reserve_batch(self, count: int, seconds: int) -> None:
        """Reserve up to `count` ready jobs: answer RESERVED_BATCH with their number, then each job as RESERVED would."""
        tubes, worker = self.broker.tubes, self.worker
        worker.works = True
        tubes.release_due(worker, self.now)
        replies: list[bytes] = []
        count = min(count, self.room_in_flight()) if not self.broker.agenda.is_held else 0
        while len(replies) < count:
            try:
                found = tubes.waiters.next_for(worker, self.now)
            except Reading:
                if not replies:
                    raise
                break
            if found is None:
                break
            tube, job, body = found
            tube.reserve(job, worker, self.now)
            replies.append(job_reply(b"RESERVED", self.broker.tubes.client_id(job), body))
        if replies:
            self.note_reserved()
            self.reply(b"RESERVED_BATCH %d\r\n" % len(replies) + b"".join(replies))
        else:  # no job is ready: wait for the first one, with the answers of reserve-with-timeout
            self._begin_reserve("reserve-with-timeout", seconds)

    def _reserve_job(self, job_id: int) -> None:
        found = self.broker.tubes.find(job_id)
        body = None
        if found is not None and found[1].state is not JobState.RESERVED and found[0].is_deliverable(found[1]):
            body = found[0].body(found[1], self.worker.takes_headers)
        if found is None or body is None:
            self.fail(NOT_FOUND)
            return
        self.worker.works = True
        if self.room_in_flight() <= 0:  # this command never waits
            self.fail(OUT_OF_MEMORY)
            return
        tube, job = found
        tube.reserve(job, self.worker, self.now)
        self.note_reserved()
        self.reply(job_reply(b"RESERVED", self.broker.tubes.client_id(job), body))

    def _own(self, verb: bytes, job_id: int, *arguments: int) -> tuple[Tube, Job] | None:
        """Return the job if this worker has it reserved; else have its lender do the command, or answer NOT_FOUND."""
        found = self.broker.tubes.find(job_id)
        if found is not None and found[0].reserved.get(found[1].ordinal) is self.worker:
            return found
        if job_id in self._loans:
            self._ask_owner(verb, job_id, *arguments)
        else:
            self.fail(NOT_FOUND)
        return None

    def _delete(self, job_id: int) -> None:
        self.broker.tubes.serve_waiting()
        self._count("delete")
        marks = self._finish(job_id)
        if marks is not None:
            self.reply(b"DELETED\r\n", marks)
        elif self.broker.tubes.find(job_id) is None:
            self._ask_owner(b"delete ", job_id)
        else:
            self.fail(NOT_FOUND)

    def _delete_batch(self, job_ids: tuple[int, ...]) -> None:
        """Delete the jobs, and answer DELETED_BATCH with how many existed and were not reserved by another worker."""
        find, done = self.broker.tubes.find, 0
        for job_id in job_ids:
            marks = self._finish(job_id)
            if marks is not None:
                self.outbox.wait_for(marks)
                done += 1
        self._delete_elsewhere([job_id for job_id in dict.fromkeys(job_ids) if find(job_id) is None], done)

    def _release(self, job_id: int, priority: int, delay: int) -> None:
        self._count("release")
        found = self._own(b"release ", job_id, priority, delay)
        if found is not None:
            found[0].hand_back(found[1], priority, delay, self.now)
            self.promise(found[0].topic_name)
            self.reply(b"BURIED\r\n" if found[1].state is JobState.BURIED else b"RELEASED\r\n")

    def _bury(self, job_id: int, priority: int) -> None:
        self._count("bury")
        found = self._own(b"bury ", job_id, priority)
        if found is not None:
            found[0].bury(found[1], priority)
            self.promise(found[0].topic_name)
            self.reply(b"BURIED\r\n")

    def _touch(self, job_id: int) -> None:
        self._count("touch")
        found = self._own(b"touch ", job_id)
        if found is not None:
            found[0].touch(found[1], self.worker, self.now)
            self.reply(b"TOUCHED\r\n")

    def _watch(self, name: str) -> None:
        self._count("watch")
        self.broker.tubes.watch(self.worker, name)
        self.note_watched()
        self.reply(b"WATCHING %d\r\n" % len(self.worker.watching))

    def _ignore(self, name: str) -> None:
        self._count("ignore")
        if name in self.worker.watching and len(self.worker.watching) == 1:
            self.fail(b"NOT_IGNORED\r\n")
            return
        self.broker.tubes.ignore(self.worker, name)
        self.note_watched()
        self.reply(b"WATCHING %d\r\n" % len(self.worker.watching))


class _PutRefused(Exception):
    """The body of a put with headers cannot be taken. `reply`: the error."""

    def __init__(self, reply: bytes) -> None:
        super().__init__(reply)
        self.reply = reply


def _split(content: bytes, most: int, asked: Headers) -> tuple[Headers, bytes]:
    """Return headers and body of a put, which is at most `most` bytes long. Raises _PutRefused.

    `asked`: headers that the command itself asks for, which have precedence.
    """
    try:
        headers, body = split_headers(content)
        if not ASKING.isdisjoint(dict(headers)):  # commands and options of jobs ask for the same
            raise _PutRefused(BAD_FORMAT)
        headers = *asked, *(one for one in headers if one[0] not in dict(asked))
        check_headers(headers)
    except ValueError:
        raise _PutRefused(BAD_FORMAT) from None
    if len(body) > most:
        raise _PutRefused(JOB_TOO_BIG)
    return headers, body


def _on_tube(handler: Callable[..., None], at: int = 0) -> Callable[..., None]:
    """Return the handler of a command whose argument at that place is a tube's name, also one that is an OtherName."""

    def on_tube(peer: Peer, *arguments: Any) -> None:
        name = arguments[at]
        if type(name) is OtherName:
            arguments = *arguments[:at], existing(name, peer.broker.tubes.listed.counters), *arguments[at + 1 :]
        handler(peer, *arguments)

    return on_tube


# these look at no jobs
_PUTS = b"put ", b"put-unique ", b"put-unless-pending ", b"put-batch ", b"put-grouped ", b"put-replicated "
_UNMATCHED = frozenset(
    (*_PUTS, b"delete ", b"reserve", b"reserve-with-timeout ")
)  # these do without, or call `match` themselves
_HANDLERS: dict[bytes, Callable[..., None]] = {
    b"put ": Peer._begin_put,
    b"put-unique ": lambda peer, key, *put: peer._begin_put(*put, identity=Attributes(key=key)),
    b"put-unless-pending ": lambda peer, key, *put: peer._begin_put(
        *put, identity=Attributes(key=key, while_pending=True)
    ),
    b"put-batch ": lambda peer, name, *put: peer._begin_put(*put, identity=Attributes(((BATCH, name),))),
    b"put-grouped ": lambda peer, group, *put: peer._begin_put(*put, identity=Attributes(((GROUP, group),))),
    b"put-replicated ": lambda peer, copies, *put: peer._begin_put(*put, copies=copies),
    b"peek ": Peer._peek,
    b"peek-ready": lambda peer: peer._peek_first("peek-ready", JobState.READY),
    b"peek-delayed": lambda peer: peer._peek_first("peek-delayed", JobState.DELAYED),
    b"peek-buried": lambda peer: peer._peek_first("peek-buried", JobState.BURIED),
    b"reserve-batch ": Peer._reserve_batch,
    b"reserve-with-timeout ": lambda peer, seconds: peer._begin_reserve("reserve-with-timeout", seconds),
    b"reserve-job ": Peer._reserve_job,
    b"reserve": lambda peer: peer._begin_reserve("reserve", None),
    b"delete-batch ": Peer._delete_batch,
    b"delete ": Peer._delete,
    b"release ": Peer._release,
    b"bury ": Peer._bury,
    b"kick ": Peer._kick,
    b"kick-job ": Peer._kick_job,
    b"touch ": Peer._touch,
    b"stats-job ": Peer._stats_job,
    b"stats-tube ": _on_tube(Peer._stats_tube),
    b"stats-batch ": Peer._stats_batch,
    b"close-batch ": Peer._close_batch,
    b"stats": Peer._stats,
    b"use ": _on_tube(Peer._use),
    b"watch ": _on_tube(Peer._watch),
    b"ignore ": _on_tube(Peer._ignore),
    b"list-tubes-watched": Peer._list_tubes_watched,
    b"list-tube-used": Peer._list_tube_used,
    b"list-tubes": Peer._list_tubes,
    b"headers": Peer._take_headers,
    b"quit": lambda peer: peer.outbox.end(),
    b"pause-tube": _on_tube(Peer._pause_tube),
    b"clear-tube ": _on_tube(Peer._clear_tube),
    b"move-job ": _on_tube(Peer._move_job, at=1),
    b"list-jobs ": _on_tube(Peer._list_jobs),
    AUTH: Peer._show_token,
}
