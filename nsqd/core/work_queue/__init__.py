"""A tube of beanstalkd: its jobs, its workers, and the actions of operators.

Read `tube` first, then `job` (a row of 67 bytes) and `job_table` (which job is in which state) over `job_pages`, `entries` (the
order) and `lifetimes` (which jobs go by themselves).

* `arrivals`: messages of the topic that are still to become jobs; `job_index`: all jobs of the node by client id.
* `worker` and `waiters`: clients with their reservations, and those that wait; `tube_list`: tubes by name as clients see them.
* `actions` and `listing`: what operators do to single jobs, and see of them.
* `loan`: a job that a client of another node gets; `pausable`: the pauses of a tube.
* `state`: what survives a restart.

This package may not import `channel`, `topic`, `distribution`, `broker` or anything else above it in the core.
"""
