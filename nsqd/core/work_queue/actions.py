"""The actions of operators on single jobs of a tube: delete, kick, bury and release them.

Operators may delete and release jobs that a worker has reserved. The worker is not notified. From then on it gets NOT_FOUND for
the job, as if the time to run were over. The job keeps its priority and its counts.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.tube import Tube


@dataclass(frozen=True, slots=True)
class Action:
    """An action that can be done to a job in one of `states`."""

    done: str  # the past participle, for the reply
    states: frozenset[JobState]
    do: Callable[[Tube, Job], None]


def _release(tube: Tube, job: Job) -> None:
    """Make the job ready at once, even if it has been reserved as often as -max-attempts allows."""
    job.releases += 1
    tube.unreserve(job)


DELETE = Action("deleted", frozenset(JobState), Tube.finish)
KICK = Action("kicked", frozenset((JobState.BURIED, JobState.DELAYED)), Tube.kick)
BURY = Action("buried", frozenset((JobState.READY, JobState.DELAYED)), lambda tube, job: tube.bury(job, job.priority))
RELEASE = Action("released", frozenset((JobState.RESERVED,)), _release)


def act(tube: Tube, action: Action, jobs: Iterable[Job]) -> int:
    """Do the action to those of the jobs that are in one of the action's states. Return how many.

    No job may be given twice. The tube may be empty afterwards: then the caller calls Tubes.leave_empty.
    """
    count = 0
    tube.journal.promise()
    for job in jobs:
        if job.state in action.states:
            action.do(tube, job)
            count += 1
    return count


def named(tube: Tube, numbers: Iterable[int]) -> list[Job]:
    """Return those jobs with these numbers that the tube has."""
    found = filter(None, map(tube.index.find, numbers))
    jobs = [tube.jobs.get(ordinal) for holder, ordinal in found if holder is tube]
    return [job for job in jobs if job is not None]


def behind(tube: Tube, client_id: int) -> int:
    """Return the ordinal after the job that clients name so, even if the job is gone.

    If the tube has shards or is one, jobs come in the order of their numbers: all of a node before those of the next one.
    """
    found, sequence = tube.index.find(client_id), tube.index.sequence(client_id)
    if found is not None and found[0] is tube:
        return found[1] + 1
    first = next(iter(tube.jobs), None) if len(tube.shards) > 1 or tube.key < 0 else None
    if first is not None and first.id >> 48 != client_id >> 48:
        return 0 if first.id > client_id else tube.jobs.end
    return tube.jobs.behind(sequence)
