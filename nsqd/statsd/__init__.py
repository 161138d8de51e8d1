"""Push the node's figures to a statsd daemon, as NSQ does: `report` makes the lines, purely; `pusher` sends them, in time."""
