"""Jobs of this node for clients of other nodes, and the other way round.

* `lending`: which clients wait for jobs of other nodes, and what they get. Start here. `job_frames`: what nodes say of it.
* `lent_jobs`: the same for one node's broker and its protocols, in the reactor's turns.
* `job_owners`: which node has a job, and acknowledgements that wait for one that is away. `tube_owners`: the same for
  clients of beanstalkd.
"""
