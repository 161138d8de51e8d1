"""A replica becomes a log that this node leads, beside its own, until nothing in it is unfinished.

* `promotions`: which logs are promoted, one at a time, and by whom they are served. Start here. `promoted_log`: one of them.
* `opening`: what a thread does for it: the replica becomes a log and is replayed.
* `duplicates`: how many messages may be delivered twice because of it.
* `deleting`: what was deleted at a node that was cut off is deleted there, too.
* `closing`: a promoted log that owes nothing ends, and its copies go.
* `succession`: a node that comes back finds its log promoted elsewhere, and begins another one.
* `diverged`: copies with bytes that the leader's log lacks.
"""
