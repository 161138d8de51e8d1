"""What operators do to single jobs, in every state, while workers hold them."""

from nsqd.core.limits import Limits
from nsqd.core.work_queue.actions import BURY, DELETE, KICK, RELEASE, Action, act, named
from nsqd.core.work_queue.job import JobState
from nsqd.core.work_queue.tube import Tube
from tests.cases import each
from tests.nsqd.core.node import Node
from tests.nsqd.protocols.beanstalk.wire import Wire, put

IDS = {JobState.READY: 1, JobState.RESERVED: 2, JobState.DELAYED: 3, JobState.BURIED: 4}


def in_every_state(wire: Wire) -> Tube:
    """One job in each: see IDS."""
    wire.ask(put(b"ready", 7) + put(b"reserved", 7) + put(b"delayed", 7, delay=100) + put(b"buried", 7))
    wire.ask(b"reserve-job 2\r\nreserve-job 4\r\nbury 4 7\r\n")
    return wire.node.broker.tubes.tube("default")


def state_of(tube: Tube, job_id: int) -> JobState | None:
    found = named(tube, [job_id])
    return found[0].state if found else None


@each("state", list(JobState))
@each("action, then", [(DELETE, None), (KICK, JobState.READY), (BURY, JobState.BURIED), (RELEASE, JobState.READY)])
def test_every_action_in_every_state(action: Action, then: JobState | None, state: JobState) -> None:
    wire = Wire()
    tube = in_every_state(wire)
    done = act(tube, action, named(tube, [IDS[state]]))
    assert done == (state in action.states)
    for other, job_id in IDS.items():
        assert state_of(tube, job_id) is (then if done and other is state else other)
    for job in tube.jobs:
        assert job.priority == 7
    wire.node.turn()
    wire.node.broker.check()
    wire.node.broker.tubes.check()


def test_what_may_be_done_and_only_to_jobs_of_the_tube() -> None:
    assert set(DELETE.states) == set(JobState)
    assert KICK.states == {JobState.BURIED, JobState.DELAYED}
    assert BURY.states == {JobState.READY, JobState.DELAYED}
    assert RELEASE.states == {JobState.RESERVED}
    wire = Wire(Node(Limits(max_attempts={"": 1})))
    tube = in_every_state(wire)
    wire.ask(b"use other\r\n" + put(b"x"))
    assert named(tube, [5, 77, 10**19]) == []
    assert act(tube, RELEASE, named(tube, [2])) == 1, "though it was given up"
    assert state_of(tube, 2) is JobState.READY


def test_a_tube_is_deleted_with_its_last_job_if_it_has_no_users() -> None:
    wire = Wire()
    wire.ask(b"use q\r\n" + put(b"x") + b"use default\r\n")
    tube = wire.node.broker.tubes.tube("q")
    assert tube is not None
    assert act(tube, KICK, named(tube, [1])) == 0
    assert wire.node.broker.tubes.tube("q") is tube
    assert act(tube, DELETE, named(tube, [1])) == 1
    wire.node.broker.tubes.leave_empty("q")
    assert wire.node.broker.tubes.tube("q") is None
    wire.node.turn()
    wire.node.broker.check()
    wire.node.broker.tubes.check()
