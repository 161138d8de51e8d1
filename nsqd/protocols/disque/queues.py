"""The commands that show queues, and pause them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from nsqd.core.pauses import MOST_BY
from nsqd.core.queues import QueuedJob
from nsqd.core.timing.pause import Pause
from nsqd.core.work_queue.tube import Tube
from nsqd.core.work_queue.tube_list import OWN
from nsqd.core.work_queue.waiters import Reading
from nsqd.protocols.disque import resp
from nsqd.protocols.disque.arguments import jscan, pause, qpeek, qscan
from nsqd.protocols.disque.jobs import described, state_of
from shared.values import SECOND

if TYPE_CHECKING:
    from nsqd.protocols.disque.arguments import JScan, QScan
    from nsqd.protocols.disque.client import Client

MOST_PEEKED = 1_000  # jobs in a reply
MOST_SCANNED = 1_000  # queues or jobs in a reply, whatever COUNT says, and jobs with bodies
MOST_LOOKED_AT = 10_000  # jobs that one reply passes over
_WORDS = {(False, False): b"none", (True, False): b"in", (False, True): b"out", (True, True): b"all"}
_ORDINAL_BITS = 40  # of a cursor; the number of the tube is above them
_SHARD = 1 << 63  # in a cursor: the tube is one of a promoted log


def length(client: Client, arguments: list[bytes]) -> None:
    """Execute a QLEN: reply with the number of ready jobs, those of promoted logs included."""
    client.reply(resp.integer(client.context.queues.length(client.context.queue(arguments[1]))))


def peek(client: Client, arguments: list[bytes]) -> None:
    """Execute a QPEEK: the jobs that are next, or that came last. After bodies in memory, those on disk are left out."""
    wanted = qpeek(arguments)
    name = client.context.queue(wanted.queue)
    jobs: list[bytes] = []
    for tube, job in client.context.queues.queued(name, wanted.newest_first, min(wanted.count, MOST_PEEKED)):
        try:
            body = tube.body(job)
        except Reading:
            if not jobs:
                raise
            break
        if body is not None:
            jobs.append(resp.words((tube.topic_name.encode(), client.context.ids.of_job(job), body)))
    client.spend(len(jobs))
    client.reply(resp.array(jobs))


def stat(client: Client, arguments: list[bytes]) -> None:
    """Execute a QSTAT: reply with the statistics of a queue, or with nil if this node has none of its jobs."""
    queues, name = client.context.queues, client.context.queue(arguments[1])
    lenders = queues.imports.lenders(name, client.now)
    if not queues.is_known(name) and not lenders:
        client.reply(client.nil_array)
        return
    use, now = queues.uses.get(name), client.now
    fields: Iterable[tuple[bytes, bytes]] = (
        (b"name", resp.bulk(name.encode())),
        (b"len", resp.integer(queues.length(name))),
        (b"age", resp.integer((now - use.since) // SECOND if use else 0)),
        (b"idle", resp.integer((now - use.last) // SECOND if use else 0)),
        (b"blocked", resp.integer(queues.tubes.waiters.count_at(name))),
        (b"import-from", resp.words(map(client.context.ids.node_id, lenders))),
        (b"import-rate", resp.integer(queues.imports.rate(name, now))),
        (b"jobs-in", resp.integer(sum(tube.total for tube in queues.tubes.everywhere(name)))),
        (b"jobs-out", resp.integer(use.fetched if use else 0)),
        (b"pause", resp.bulk(_WORDS[queues.pauses(name)])),
    )
    client.reply(resp.array([part for key, value in fields for part in (resp.bulk(key), value)]))


def set_pause(client: Client, arguments: list[bytes]) -> None:
    """Execute a PAUSE, and answer with the state of the queue."""
    wanted = pause(arguments)
    queues, name = client.context.queues, client.context.queue(wanted.queue)
    if wanted.state != b"state" and (wanted.state != b"none" or queues.is_known(name)):
        client.make_tube(name)
        queues.pause(name, _wanted_pause(client, wanted.state), client.now)
        client.promise(name)
    state = _WORDS[queues.pauses(name)]
    if wanted.bcast and client.context.others is not None:
        client.context.others.request_of_all([b"pause", wanted.queue, state])
    client.reply(resp.status(state))


def _wanted_pause(client: Client, state: bytes) -> Pause | None:
    """Return the pause of a queue that is to be in that state; None: in none."""
    if state == b"none":
        return None
    by = client.name.decode() or client.remote_ip
    at = client.broker.wall // SECOND
    return Pause(by[:MOST_BY], at, 0, out=state in (b"out", b"all"), into=state in (b"in", b"all"))


def scan_queues(client: Client, arguments: list[bytes]) -> None:
    """Execute a QSCAN: a part of the queues, the oldest first; last those that have only jobs of other nodes."""
    wanted = qscan(arguments)
    queues = client.context.queues.tubes.waiters.queues.values()
    made = sorted((tube for tube in queues if is_shown(tube)), key=lambda tube: tube.number)
    behind = [tube for tube in made if tube.number >= wanted.cursor]
    most = len(behind) if wanted.busyloop or wanted.count < 0 else min(wanted.count, MOST_SCANNED)
    names = [tube.topic_name for tube in behind[:most]]
    cursor = behind[most].number if most < len(behind) else 0
    if not cursor:
        imported = client.context.queues.imports.names(client.now)
        names += [name for name in imported if client.context.queues.tubes.tube(name) is None][:MOST_SCANNED]
    found = [name.encode() for name in names if _matches(client, name, wanted)]
    client.spend(len(names) // 8)
    client.reply(resp.array([resp.bulk(b"%d" % cursor), resp.words(found)]))


def is_shown(tube: Tube) -> bool:
    """Return False if a queue is the node's own, in which it keeps acknowledgements: no client can name it."""
    return not tube.topic_name.startswith(OWN)


def _matches(client: Client, name: str, scan: QScan) -> bool:
    queues = client.context.queues
    size = queues.length(name)
    if not (scan.minlen or 0) <= size or (scan.maxlen is not None and size > scan.maxlen):
        return False
    return scan.importrate is None or queues.imports.rate(name, client.now) >= scan.importrate


def scan_jobs(client: Client, arguments: list[bytes]) -> None:
    """Execute a JSCAN: a part of the jobs, by queue and age. BUSYLOOP and COUNT have bounds here."""
    wanted = jscan(arguments)
    most = MOST_SCANNED if wanted.busyloop or wanted.count < 0 else min(wanted.count, MOST_SCANNED)
    found: list[bytes] = []
    cursor = passed = 0
    for place, one in _jobs_from(client, wanted):
        if len(found) >= most or passed >= MOST_LOOKED_AT:
            cursor = place
            break
        passed += 1
        if wanted.states and state_of(one[1]) not in wanted.states:
            continue
        try:
            found.append(_shown(client, one, wanted))
        except Reading:
            if not found:
                raise
            cursor = place
            break
    client.spend(passed // 8)
    client.reply(resp.array([resp.bulk(b"%d" % cursor), resp.array(found)]))


def _shown(client: Client, found: QueuedJob, wanted: JScan) -> bytes:
    """Return the item of a job in a reply to JSCAN. Raises Reading."""
    return resp.status(client.context.ids.of_job(found[1])) if wanted.reply == "id" else described(client, found)


def _jobs_from(client: Client, wanted: JScan) -> Iterator[tuple[int, QueuedJob]]:
    """Yield the jobs from the cursor on, each with the cursor from which on it would come first."""
    waiters = client.context.queues.tubes.waiters
    placed = [(tube.number, tube) for tube in waiters.queues.values()]
    placed += [(_SHARD >> _ORDINAL_BITS | -key, tube) for key, tube in waiters.sharded.items()]
    only = client.context.queue(wanted.queue) if wanted.queue is not None else None
    for place, tube in sorted(placed, key=lambda one: one[0]):
        base, is_before = place << _ORDINAL_BITS, wanted.cursor >= (place + 1) << _ORDINAL_BITS
        if is_before or not is_shown(tube) or only not in (None, tube.topic_name):
            continue
        first = max(0, wanted.cursor - base)
        for ordinal in tube.jobs.ordinals_from(first):
            job = tube.jobs.get(ordinal)
            if job is not None:
                yield base + ordinal, (tube, job)
