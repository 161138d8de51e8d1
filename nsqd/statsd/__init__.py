"""Push the node's metrics to a statsd daemon, as NSQ does.

Read `report` (the lines, purely), then `pusher` (the task that sends them in time).

Of nsqd, this package may import `core`, `protocols` and the options, and none of its sibling packages.
"""
