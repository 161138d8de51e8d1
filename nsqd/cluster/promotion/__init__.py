"""Promote replicas to logs that this node leads, in addition to its own, until their messages are finished.

* `promotions`: the promoted logs, opened one at a time. Start here. `promoted_log`: the state of one of them.
* `opening`: the steps of the thread that opens a replica as a log and replays it.
* `duplicates`: counts messages that may be delivered twice after a failover.
* `deleting`: applies deletions at a partitioned node to its promoted log.
* `closing`: closes a promoted log without unfinished messages, and removes its copies.
* `succession`: a node that returns after its log was promoted begins another one.
* `diverged`: salvages copies with bytes that the leader's log lacks.
"""
