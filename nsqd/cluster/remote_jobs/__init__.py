"""Deliver jobs of this node to clients of other nodes, and jobs of other nodes to clients of this one.

* `lending`: which clients wait for jobs of other nodes, and the jobs lent to them. Start here. `job_frames`: the frames.
* `lent_jobs`: the same for one node's broker and its protocols, in the reactor's turns.
* `job_owners`: which node has a job, and acknowledgements that wait for an unreachable one; for clients of Disque and of
  beanstalkd.
"""
