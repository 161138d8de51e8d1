"""A channel of NSQ: its consumers, its messages in each state, and the actions of operators.

Read `channel` first, then `commands` (RDY, FIN, REQ, TOUCH). A message is in one of `backlog` (ready), `inflight` and `buried`,
or deferred (nsqd/core/timing/deferred.py).

* `failures`: which deliveries have failed, so that a message is buried after too many.
* `dispatch`: whose turn it is under RDY; `consumer`: a window, its counts and its sink; `window`: the same over shards.
* `actions` and `listing`: what operators do to single messages, and see of them.
* `dead_letters`: the headers of a message that goes to a dead-letter topic.
* `ordering`: which backlog a channel has, of the next three or the plain one. The three are a `queued` backlog.
* `groups`: the backlog of a channel that delivers messages of a group one at a time.
* `group_limits`: the backlog of a channel that limits what of a group is in flight, or is fair to groups.
* `priorities`: the backlog of a channel that delivers the most urgent messages first.
* `expiry`: messages that are too old to be delivered.
* `retry`: the queue of messages that came back, most of them packed.
* `unfinished`: the messages of an emptied channel, released bit by bit.
* `state`: what survives a restart.

This package may not import `work_queue`, `topic`, `distribution`, `broker` or anything else above it in the core.
"""
