"""The commands by which producers and consumers add, fetch and finish jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from nsqd.core.limits import TooFewCopies
from nsqd.core.queues import QueuedJob, TooLateError
from nsqd.core.sequence.mark import Mark
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.loan import Loan
from nsqd.protocols.disque import resp
from nsqd.protocols.disque.arguments import AddJob, GetJob, Refused, addjob, getjob, job_ids
from nsqd.protocols.disque.audited import note_answer
from nsqd.protocols.disque.client import (
    COPIES_TOO_LATE,
    GONE_BEFORE_COPIED,
    NO_PERMISSION,
    TOO_FEW_NODES,
    DisqueContext,
)
from nsqd.protocols.disque.context import Priority
from nsqd.protocols.disque.rights import need_of
from nsqd.protocols.transport import NEVER
from penstock.protocol.headers import Headers, split_headers
from shared.values import MILLISECOND, SECOND

if TYPE_CHECKING:
    from nsqd.protocols.disque.client import Client

PRIORITY = JobOptions().priority  # of all jobs that Disque's clients add: their queues have none
USUAL_COPIES = 3  # that a job gets whose ADDJOB names no number, if the cluster has as many nodes
MOST_RETRY = 300  # s, of the retry time that ADDJOB does not name: a tenth of the ttl, from 1 s on
LEAVING = b"LEAVING This node is leaving the cluster, please connect to a different one"
NO_JOB = b"NOJOB Job not known in the context of this node."
TOO_LATE = b"TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the next delivery."
CANNOT_HOLD = b", since I'm unable to hold a copy of the message for the following reason: I'm leaving the cluster"
TOO_LONG = b"MAXLEN Queue is already longer than the specified MAXLEN count"
PAUSED = b"PAUSED Queue paused in input, try later"
NO_PERMISSION_REPLY = resp.error(NO_PERMISSION)


def usual_copies(client: Client) -> int:
    """Return the number of copies of a job whose ADDJOB names none."""
    return min(USUAL_COPIES, client.context.cluster.size())


def add(client: Client, arguments: list[bytes]) -> None:
    """Execute an ADDJOB: answer with the job's id."""
    wanted = addjob(arguments, usual_copies(client))
    client.context.queue(wanted.queue)  # raises Refused if no queue can have the name
    if client.is_held_back():
        client.execute_again()
        return
    if not (client.broker.draining_since and _pass_on(client, wanted, arguments)):
        _add(client, wanted)


def _pass_on(client: Client, wanted: AddJob, arguments: list[bytes]) -> bool:
    """Have another node add the job, because this one leaves or drains. Returns False if no other node can be asked."""
    wait = 0 if wanted.is_async else _limit(client.now, wanted.timeout, wanted.ttl)[0] - client.now

    def then(reply: bytes | None) -> None:
        if reply is not None and reply.startswith(b"+") and client.credential is not None:
            client.count_published(1, len(wanted.body))
        client.others_answered(resp.error(COPIES_TOO_LATE) if reply is None else reply)

    others = client.context.others
    if others is None or not others.add(arguments, wait, then):
        return False
    client.wait_for_others()
    return True


def _add(client: Client, wanted: AddJob) -> None:
    """Add a job, and answer with its id; or wait until enough nodes can have a copy. Raises Refused, TooMany."""
    queue = client.context.queue(wanted.queue)
    copies = wanted.replicate or usual_copies(client)
    asks_for_copies = not wanted.is_async and copies > 1
    try:
        _check(client, queue, wanted, copies)
        if client.credential is not None:
            client.make_tube(queue)
        _put(client, queue, options_of(wanted, copies), [wanted.body], asks_for_copies, wanted.timeout, wanted.headers)
    except TooFewCopies:
        _wait_for_nodes(client, queue, wanted, copies)


def _wait_for_nodes(client: Client, queue: str, wanted: AddJob, copies: int) -> None:
    """Try again when more nodes can have a copy. Raises Refused if the timeout is over, or the cluster is too small."""
    topic = client.broker.topics.get(queue)
    usual = topic.usual_copies if topic is not None else client.broker.limits.policy.replicate
    due = client.put_due if client.put_since >= 0 else _limit(client.now, wanted.timeout, wanted.ttl)[0]
    is_over = client.now >= due or wanted.is_async
    if is_over or max(usual, copies) > client.context.cluster.size():
        raise Refused(TOO_FEW_NODES)
    client.wait_for_nodes(due)


def options_of(wanted: AddJob, copies: int) -> JobOptions:
    """Return the options of jobs that an ADDJOB asks for, without the time when their delay ends."""
    retry = max(1, min(wanted.ttl // 10, MOST_RETRY)) if wanted.retry is None else wanted.retry
    return JobOptions(PRIORITY, retry, wanted.delay, 0, True, wanted.ttl, copies)


def add_usual(
    client: Client, queue: str, options: JobOptions, bodies: list[bytes], asks_for_copies: bool, timeout: int
) -> bool:
    """Add jobs that differ in their bodies only as `add` does, if that refuses nothing and the queue has no limit.

    `timeout`: ms that the replies wait for copies; 0: no limit. Returns False, and adds nothing, if it may refuse. Raises
    TooMany, TooFewCopies.
    """
    tube = client.context.queues.tubes.tube(queue)
    if tube is None or tube.refuses_jobs or client.broker.draining_since:
        return False
    if asks_for_copies and options.copies > client.broker.context.copies:
        return False
    _put(client, queue, options, bodies, asks_for_copies, timeout)
    return True


def _put(
    client: Client,
    queue: str,
    options: JobOptions,
    bodies: list[bytes],
    asks_for_copies: bool,
    timeout: int,
    headers: Headers = (),
) -> None:
    broker, context = client.broker, client.context
    _, retry, delay, _, _, ttl, copies = options
    if delay:
        options = options._replace(due=client.now + delay * SECOND)
    marks: tuple[Mark, ...] | None = None
    if asks_for_copies or broker.context.copies > 1:  # else no topic has copies
        marks = broker.tubes.ask_for_copies(queue, copies if asks_for_copies else 1, context.has_limits)
    number = broker.tubes.put_into(queue, bodies, options, headers)
    context.queues.use(queue, client.now)
    if client.credential is not None:
        client.count_published(len(bodies), sum(map(len, bodies)))
    encode = context.ids.encode
    if len(bodies) == 1:
        replies = b"+" + encode(number, ttl, retry) + b"\r\n"
    else:
        ids = [encode(one, ttl, retry) for one in range(number, number + len(bodies))]
        replies = b"+" + b"\r\n+".join(ids) + b"\r\n"
    # the record of the jobs makes the promise, at the turn's end
    topic = broker.topics[queue]
    usual = topic.marks
    if topic.starting:
        client.wait_for_start(queue)
    if marks is None or marks is usual or not context.has_limits:
        client.reply(replies, usual if marks is None else marks)
    else:
        since = client.put_since if client.put_since >= 0 else client.now
        client.reply_by(replies, marks, *_limit(since, timeout, ttl), len(bodies))


def _limit(now: int, timeout: int, ttl: int) -> tuple[int, bytes]:
    """Return until when (ns) the reply to an ADDJOB waits for copies, and the error then. `timeout`: ms, 0: none; `ttl`: s."""
    life = ttl * SECOND
    if 0 < timeout * MILLISECOND < life:
        return now + timeout * MILLISECOND, COPIES_TOO_LATE
    return now + life, GONE_BEFORE_COPIED


def _check(client: Client, queue: str, wanted: AddJob, copies: int) -> None:
    """Raise Refused if the jobs cannot be added, TooFewCopies if too few nodes can have a copy now."""
    broker = client.broker
    if broker.draining_since:
        alone = copies == 1 or client.context.cluster.size() > 1
        raise Refused(TOO_FEW_NODES + (CANNOT_HOLD if alone else b""))
    if copies > broker.context.copies and not wanted.is_async:
        raise TooFewCopies
    queues = client.context.queues
    if wanted.maxlen is not None and queues.length(queue) >= wanted.maxlen:
        raise Refused(TOO_LONG)
    if queues.pauses(queue)[0]:
        raise Refused(PAUSED)


def get(client: Client, arguments: list[bytes]) -> None:
    """Execute a GETJOB: answer with the jobs that are queued, or wait for one."""
    wanted = getjob(arguments)
    context, worker = client.context, client.worker
    client.wants_counters, worker.takes_headers = wanted.with_counters, wanted.with_headers
    context.queues.watch(worker, map(context.queue, wanted.queues))
    get_again(client, wanted)


def get_plain(client: Client, queue: str, name: bytes) -> bool:
    """Execute a GETJOB of one job, without counters, of one queue. Returns False if there is more to it: see `get_again`.

    `name`: that of the queue. Only for clients of a node without an auth file.
    """
    context, now = client.context, client.now
    taken = context.queues.tubes.reserve_plain(queue, client.worker, now)
    if taken is None:
        return False
    job_id, ttl, retry, body = taken
    context.queues.note_fetched(queue, now)
    client.reply(b"*1\r\n" + _plain(name, context.ids.encode(job_id, ttl, retry), body))
    return True


def _plain(name: bytes, job_id: bytes, body: bytes) -> bytes:
    """Return a job of that queue in the reply to a GETJOB without counters."""
    return b"*3\r\n$%d\r\n%b\r\n$40\r\n%b\r\n$%d\r\n%b\r\n" % (len(name), name, job_id, len(body), body)


def get_again(client: Client, wanted: GetJob) -> None:
    """Execute a GETJOB for which the client's worker watches the queues already."""
    context, worker = client.context, client.worker
    client.broker.tubes.release_due(worker, client.now)
    count = wanted.count if client.credential is None else min(wanted.count, client.room_in_flight())
    is_held = client.broker.agenda.is_held or count <= 0
    taken = [] if is_held else context.queues.fetch(worker, count, client.now)
    client.spend(len(taken) + len(wanted.queues) // 8)
    if taken:
        client.reply(fetched(client, taken))
        client.forget_many_queues()
        if client.credential is not None:
            client.note_reserved()
        return
    made = client.broker.tubes.waiters.queues
    for name in worker.watching:
        if name in made:
            context.queues.use(name, client.now)
    if wanted.nohang:
        client.reply(client.nil_array)
        client.forget_many_queues()
    elif client.broker.draining_since and context.cluster.nodes()[0].is_leaving and not _comes_back(client):
        raise Refused(LEAVING)
    else:
        client.broker.tubes.admit_waiting(worker)
        timeout = min(wanted.timeout, NEVER // MILLISECOND // 2)
        client.wait_for_job(client.now + timeout * MILLISECOND if timeout else NEVER)


def end_waits(context: DisqueContext) -> None:
    """Have all clients that wait for a job connect to another node."""
    for one in context.clients():
        if one.worker.waiting:
            one.count_error(LEAVING)
            one.end_wait(resp.error(LEAVING))


def _comes_back(client: Client) -> bool:
    """Return True if this node leaves and has jobs for a client that would wait: their next owner lends them."""
    context = client.context
    can_lend = any(node.priority is Priority.GOOD for node in context.cluster.nodes()[1:])
    return can_lend and client.broker.agenda.is_held and any(map(context.queues.length, client.worker.watching))


def _count(client: Client, arguments: list[bytes], do: Callable[[QueuedJob], bool]) -> None:
    """Apply a command to each job that is named, here or on other nodes, and answer with the number that it applied to."""
    done, unknown = 0, []
    for job_id in job_ids(arguments):
        found = find(client, job_id)
        if found is None:
            unknown.append(job_id)
        elif do(found):
            done += 1
            client.promise(found[0].topic_name)
    client.spend(len(arguments))
    others = client.context.others
    if others is None or not unknown:
        client.reply(resp.integer(done))
        return

    command = arguments[0].lower()

    def then(more: int | None) -> None:
        _others_did(client, arguments, NO_PERMISSION_REPLY % command if more is None else resp.integer(done + more))

    if others.count(command, unknown, client.rights_elsewhere(need_of(command, arguments).verb), then):
        client.wait_for_others()
    else:
        client.reply(resp.integer(done))


def find(client: Client, job_id: bytes) -> QueuedJob | None:
    """Return the job of that id, and its tube, if this node owns it."""
    message_id = client.context.ids.decode(job_id)
    found = client.context.queues.find(message_id) if message_id is not None else None
    return found if found is not None and client.context.ids.names(job_id, found[1].ttl, found[1].ttr) else None


def acknowledge_one(client: Client, job_id: bytes) -> bool:
    """Execute an ACKJOB of one job if this node owns it. Returns False, and does nothing, if it does not."""
    context = client.context
    message_id = context.ids.decode(job_id)
    found = context.queues.locate(message_id) if message_id is not None else None
    if found is None:
        return False
    tube, ordinal, (message_id, priority, ttr, _, _, ttl, _, state) = found
    if not context.ids.names(job_id, ttl, ttr):
        return False
    tube.finish_row(ordinal, message_id, priority, state)
    client.reply(b":1\r\n", client.promised(tube.topic_name))
    return True


def acknowledge(client: Client, arguments: list[bytes]) -> None:
    """Execute an ACKJOB, FASTACK or DELJOB: the owner of a job knows all of it, so they are the same."""

    def do(found: QueuedJob) -> bool:
        client.context.queues.acknowledge(found)
        return True

    _count(client, arguments, do)


def nack(client: Client, arguments: list[bytes]) -> None:
    """Execute a NACK: queue jobs again, as not done."""
    _count(client, arguments, client.context.queues.return_job)


def enqueue(client: Client, arguments: list[bytes]) -> None:
    """Execute an ENQUEUE: queue jobs that are not queued."""
    _count(client, arguments, client.context.queues.enqueue)


def dequeue(client: Client, arguments: list[bytes]) -> None:
    """Execute a DEQUEUE: take jobs out of their queues."""
    _count(client, arguments, partial(client.context.queues.dequeue, now=client.now))


def working(client: Client, arguments: list[bytes]) -> None:
    """Execute a WORKING: answer with the retry time in s."""
    (job_id,) = job_ids(arguments)
    found = find(client, job_id)
    if found is None:
        _ask_others(client, arguments, resp.error(NO_JOB))
        return
    try:
        retry = client.context.queues.postpone(found, client.now, client.broker.wall)
    except TooLateError:
        raise Refused(TOO_LATE) from None
    client.promise(found[0].topic_name)
    client.reply(resp.integer(retry))


def show(client: Client, arguments: list[bytes]) -> None:
    """Execute a SHOW: answer with all properties of a job."""
    (job_id,) = job_ids(arguments)
    found = find(client, job_id)
    if found is None:
        _ask_others(client, arguments, client.nil)
    else:
        client.reply(described(client, found))


def _ask_others(client: Client, arguments: list[bytes], unknown: bytes) -> None:
    """Have the owner of the job execute the command. `unknown`: the reply if no node knows the job."""

    def then(replies: list[bytes]) -> None:
        known = [reply for reply in replies if reply not in (resp.NIL, resp.error(NO_JOB))]
        _others_did(client, arguments, known[0] if known else unknown)

    command, others = arguments[0].lower(), client.context.others
    rights = client.rights_elsewhere(need_of(command, arguments).verb)
    if others is not None and others.ask(command, arguments[1], rights, then):
        client.wait_for_others()
    else:
        if unknown.startswith(b"-"):
            client.count_error(unknown[1:])
        client.reply(unknown)


def _others_did(client: Client, arguments: list[bytes], reply: bytes) -> None:
    """Pass on the reply of other nodes to a command, and record it."""
    note_answer(client, arguments, reply == NO_PERMISSION_REPLY % arguments[0].lower())
    client.others_answered(reply)


def state_of(job: Job) -> bytes:
    """Return the state of a job in Disque's terms. There is no other one: an acknowledged job is deleted."""
    return b"queued" if job.state is JobState.READY else b"active"


def additional_deliveries(job: Job) -> int:
    """Return the number of times that the job was queued again, after a timeout or because a client asked for it."""
    return job.timeouts + job.kicks


def described(client: Client, found: QueuedJob) -> bytes:
    """Return the reply to SHOW of a job. Raises Reading."""
    tube, job = found
    context = client.context
    owner = resp.words([context.ids.node_id(job.id >> 48)])
    body = tube.body(job) or b""
    waits = job.state in (JobState.RESERVED, JobState.DELAYED)
    left = max(0, job.due - client.now) // MILLISECOND
    wait = resp.integer(left) if waits else client.nil
    fields: Iterable[tuple[bytes, bytes]] = (
        (b"id", resp.bulk(context.ids.of_job(job))),
        (b"queue", resp.bulk(tube.topic_name.encode())),
        (b"state", resp.bulk(state_of(job))),
        (b"repl", resp.integer(job.copies or 1)),
        (b"ttl", resp.integer(max(0, job.expires + -client.broker.wall // SECOND) if job.ttl else 0)),
        (b"ctime", resp.integer(job.created)),
        (b"delay", resp.integer(job.delay)),
        (b"retry", resp.integer(job.ttr)),
        (b"nacks", resp.integer(job.releases)),
        (b"additional-deliveries", resp.integer(additional_deliveries(job))),
        (b"nodes-delivered", owner),
        (b"nodes-confirmed", resp.array([])),
        (b"next-requeue-within", wait),
        (b"next-awake-within", wait),
        (b"body", resp.bulk(body)),
    )
    return resp.array([part for name, value in fields for part in (resp.bulk(name), value)])


def borrowed(client: Client, loan: Loan) -> bytes:
    """Return the reply to a GETJOB that has got a job of another node."""
    job_id = client.context.ids.encode(loan.message_id, loan.ttl, loan.retry)
    content = loan.content if client.worker.takes_headers else loan.body
    return b"*1\r\n" + _fetched(client, loan.queue, job_id, content, loan.nacks, loan.additional_deliveries)


def fetched(client: Client, jobs: list[tuple[str, Job, bytes]]) -> bytes:
    """Return the reply to a GETJOB that has fetched these jobs."""
    encode, has_more = client.context.ids.of_job, client.wants_counters or client.worker.takes_headers
    parts = [b"*%d\r\n" % len(jobs)]
    for queue, job, content in jobs:
        if has_more:
            parts.append(_fetched(client, queue, encode(job), content, job.releases, additional_deliveries(job)))
        else:
            parts.append(_plain(queue.encode(), encode(job), content))
    return b"".join(parts)


def _fetched(client: Client, queue: str, job_id: bytes, content: bytes, nacks: int, more: int) -> bytes:
    """Return a job in the reply to a GETJOB, with what that asked for. `content`: with headers if it did."""
    headers, body = split_headers(content) if client.worker.takes_headers else ((), content)
    parts = [resp.bulk(queue.encode()), resp.bulk(job_id), resp.bulk(body)]
    if client.wants_counters:
        parts += resp.bulk(b"nacks"), resp.integer(nacks), resp.bulk(b"additional-deliveries"), resp.integer(more)
    if client.worker.takes_headers:
        parts += resp.bulk(b"headers"), resp.array([resp.bulk(text.encode()) for pair in headers for text in pair])
    return resp.array(parts)
