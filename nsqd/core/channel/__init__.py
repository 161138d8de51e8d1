"""A channel of NSQ: who consumes it, what is in flight, and what operators do to it. Read `channel.py` first."""
