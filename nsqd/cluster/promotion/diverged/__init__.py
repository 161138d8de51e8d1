"""Diverged copies: replicas and old logs that hold bytes which the log of the present leader lacks.

A copy diverges when its node wrote, or received, the end of a log, and the node that leads the log now has lost it. That end
may have been acknowledged, so it is salvaged: the part after the common point becomes a log of its own, which this node
serves, and the copy is removed when every byte of it is elsewhere.

Begin with `salvage`, which asks the leader of the log what it lacks. `arbiter` replies to such requests, which
`salvage_frames` carry. `directory` has the copies on disk and makes logs of their ends; `note` is the marker file of a
salvaged copy.

It imports no HTTP, and no socket. See docs/contributing/design/cluster-protocol.md#diverged-copies.
"""
