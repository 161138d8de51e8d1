"""beanstalkd's words for the states of jobs, which the HTTP API uses too, without the rest of the protocol."""

from nsqd.core.work_queue.job import JobState

STATES = {
    JobState.READY: "ready",
    JobState.RESERVED: "reserved",
    JobState.BURIED: "buried",
    JobState.DELAYED: "delayed",
}
