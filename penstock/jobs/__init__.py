"""Clients of jobs, over beanstalkd's protocol: blocking, and for asyncio and trio.

    with Jobs("127.0.0.1:11300", use="pictures", watch=["pictures"]) as jobs:
        jobs.put(b"resize picture 7", delay=10)
        for job in jobs.reserve_each():
            resize(job.body)
            job.delete()

    async with AsyncJobs("127.0.0.1:11300", watch=["pictures"]) as jobs:
        await jobs.run(handler, concurrency=8)

* `client`: Jobs, the blocking client. `aio`: AsyncJobs, the same for asyncio and trio; its `run` is in `runner`. `commands`:
  the methods of both.
* `job`: Job and AsyncJob. `settings`, `errors`: times and limits; what can fail.
* `session`: the pure core that both clients execute, over `calls`: each command, and how to read its reply.
* `holder`, `shared`: for Celery, Dramatiq and Django: a thread that holds jobs for other threads; one client for all of them.
* `retries`: when a failed job is tried again, and when a job at work is touched; pure.

The server may be nsqd, the program beanstalkd of this project, or the original beanstalkd; the extensions of
docs/reference/compatibility-beanstalkd.md raise Unsupported there. This package imports no room and not `shared`.
"""

from penstock.jobs.aio import AsyncJobs
from penstock.jobs.calls import FoundJob
from penstock.jobs.client import Jobs
from penstock.jobs.errors import (
    AnswerLost,
    BadServer,
    BatchDone,
    Buried,
    ClientClosed,
    ConnectionLost,
    DeadlineSoon,
    Draining,
    JobsError,
    NotFound,
    NotIgnored,
    OutOfMemory,
    Refused,
    ReservationLost,
    ServerFailed,
    TooBig,
    Unsupported,
)
from penstock.jobs.job import AsyncJob, Job
from penstock.jobs.retries import Retries
from penstock.jobs.settings import JobsSettings

__all__ = [
    "AnswerLost", "AsyncJob", "AsyncJobs", "BadServer", "BatchDone", "Buried", "ClientClosed", "ConnectionLost", "DeadlineSoon",
    "Draining", "FoundJob", "Job", "Jobs", "JobsError", "JobsSettings", "NotFound", "NotIgnored", "OutOfMemory", "Refused",
    "ReservationLost", "Retries", "ServerFailed", "TooBig", "Unsupported",
]  # fmt: skip
