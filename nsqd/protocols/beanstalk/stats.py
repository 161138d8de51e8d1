"""Answer the statistics commands: YAML in beanstalkd's exact form, with keys in beanstalkd's order.

See docs/contributing/design/beanstalkd.md#statistics.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nsqd.core.batches.table import BatchState, NamedBatch, totals
from nsqd.core.observation.sums import oldest_of_tube
from nsqd.core.tubes import Tubes
from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.tube import Tube
from nsqd.core.work_queue.tube_list import Users
from nsqd.protocols.beanstalk.commands import quoted, shown
from nsqd.protocols.beanstalk.states import STATES
from shared.values import SECOND

VERSION = "1.13"  # of the beanstalkd whose protocol this is; clients read it as a semantic version
_COUNTED = (
    "put", "peek", "peek-ready", "peek-delayed", "peek-buried", "reserve", "reserve-with-timeout", "delete", "release",
    "use", "watch", "ignore", "bury", "kick", "touch", "stats", "stats-job", "stats-tube", "list-tubes", "list-tube-used",
    "list-tubes-watched", "pause-tube",
)  # fmt: skip
_NOBODY = Users()


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """The values that the process and its connections add to the statistics."""

    max_job_size: int  # bytes
    connections: int
    producers: int
    workers: int
    waiting: int
    total_connections: int
    pid: int
    user_time: float  # s
    system_time: float  # s
    uptime: int  # s
    # oldest and current file, records migrated and written, bytes of a file
    binlog: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    instance: str = ""  # 16 hex digits
    hostname: str = ""
    os: str = ""
    platform: str = ""


def batch_stats(parts: Sequence[NamedBatch]) -> dict[str, object]:
    """Return the counts of a batch, of which these are the parts in several logs; of members by state only if it is done."""
    state, (members, buried) = min(part.state for part in parts), totals(parts)
    found = {"name": quoted(parts[0].name), "state": state.name.lower(), "members": members}
    return found | ({"finished": members - buried, "buried": buried} if state is BatchState.DONE else {})


def dictionary(pairs: Mapping[str, object]) -> bytes:
    """Return the answer that holds key-value pairs."""
    return _answer("".join(f"{key}: {value}\n" for key, value in pairs.items()))


def listing(names: Iterable[str]) -> bytes:
    """Return the answer that holds a list of tubes' names, or of the numbers of jobs."""
    return _answer("".join(f"- {shown(name)}\n" for name in names))


def _answer(lines: str) -> bytes:
    body = b"---\n" + lines.encode()
    return b"OK %d\r\n%s\r\n" % (len(body), body)


def node_stats(tubes: Tubes, figures: ServerFigures, draining: bool) -> dict[str, object]:
    """Return the statistics of `stats`, in beanstalkd's order."""
    oldest, current, migrated, written, largest = figures.binlog
    fields: dict[str, object] = {
        "current-jobs-urgent": tubes.urgent,
        "current-jobs-ready": tubes.count(JobState.READY),
        "current-jobs-reserved": tubes.count(JobState.RESERVED),
        "current-jobs-delayed": tubes.count(JobState.DELAYED),
        "current-jobs-buried": tubes.count(JobState.BURIED),
    }
    fields |= {f"cmd-{command}": tubes.commands[command] for command in _COUNTED}
    return fields | {
        "job-timeouts": tubes.listed.timeouts,
        "total-jobs": tubes.total,
        "max-job-size": figures.max_job_size,
        "current-tubes": len(tubes.listed.names),
        "current-connections": figures.connections,
        "current-producers": figures.producers,
        "current-workers": figures.workers,
        "current-waiting": figures.waiting,
        "total-connections": figures.total_connections,
        "pid": figures.pid,
        "version": quoted(VERSION),
        "rusage-utime": f"{figures.user_time:.6f}",
        "rusage-stime": f"{figures.system_time:.6f}",
        "uptime": figures.uptime,
        "binlog-oldest-index": oldest,
        "binlog-current-index": current,
        "binlog-records-migrated": migrated,
        "binlog-records-written": written,
        "binlog-max-size": largest,
        "draining": "true" if draining else "false",
        "id": figures.instance,
        "hostname": quoted(figures.hostname),
        "os": quoted(figures.os),
        "platform": quoted(figures.platform),
    }


def tube_stats(tubes: Tubes, name: str, tube: Tube | None, now: int, wall: int) -> dict[str, object]:
    """Return the statistics of `stats-tube` for a listed tube; `tube` may be None if it is only used or watched.

    `now` is monotonic ns, `wall` ns since the epoch.
    """
    users, counters = tubes.listed.users.get(name, _NOBODY), tubes.listed.counters[name]
    everywhere = tubes.everywhere(name)
    counts = {state: sum(one.table.counts[state] for one in everywhere) for state in JobState}
    left = max(0, tube.pause_until - now) if tube is not None else 0
    oldest, _ = oldest_of_tube(everywhere)
    return {
        "name": quoted(name),
        "current-jobs-urgent": sum(one.table.urgent for one in everywhere),
        "current-jobs-ready": counts[JobState.READY],
        "current-jobs-reserved": counts[JobState.RESERVED],
        "current-jobs-delayed": counts[JobState.DELAYED],
        "current-jobs-buried": counts[JobState.BURIED],
        "total-jobs": sum(one.total for one in everywhere),
        "current-using": users.using,
        "current-watching": tubes.watching_count(name),
        "current-waiting": tubes.waiters.count_at(name),
        "cmd-delete": counters["delete"],
        "cmd-pause-tube": counters["pause-tube"],
        "pause": tube.pause_asked // SECOND if tube is not None and left else 0,
        "pause-time-left": left // SECOND,
        "oldest-ready-age": max(0, wall - oldest) // SECOND if oldest else 0,  # not in the original
    }


def job_stats(tube: Tube, job: Job, now: int, wall: int) -> dict[str, object]:
    """Return the statistics of `stats-job`; `now` is monotonic ns, `wall` ns since the epoch."""
    left = (job.due - now) / SECOND if job.state in (JobState.RESERVED, JobState.DELAYED) else 0
    return {
        "id": tube.index.client_id(job.id),
        "tube": quoted(tube.topic_name),
        "state": STATES[job.state],
        "pri": job.priority,
        "age": max(0, wall - job.created) // SECOND,
        "delay": job.delay,
        "ttr": job.ttr,
        "time-left": int(left),
        "file": tube.extents.file_number(job.ordinal),
        "reserves": job.reserves,
        "timeouts": job.timeouts,
        "releases": job.releases,
        "buries": job.buries,
        "kicks": job.kicks,
    }
