"""Pushing the node's figures to a statsd daemon, as NSQ does: `report` is what is said, pure; `pusher` says it, in time."""
