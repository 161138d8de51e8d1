"""Diverged copies: replicas and old logs that hold bytes which the log of the present leader lacks.

A copy diverges when its node wrote, or received, the end of a log that is lost at the node which leads the log now. That end
may have been acknowledged, so it is salvaged: the part behind the common point becomes a log of its own, which this node
serves, and the copy goes when every byte of it is elsewhere.

Begin with `salvage`, which asks the leader of the log what it lacks. `arbiter` answers such questions, which `salvage_frames`
carry. `directory` has the copies on disk and makes logs of their ends, and `note` says beside a copy what was made of it.

It imports no HTTP, and no socket. See docs/design/cluster.md#diverged-copies.
"""
