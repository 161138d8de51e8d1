"""Connections and frames between two nodes. Nothing here but `visit` does input or output, or reads a clock.

* `frames`: the bytes on a connection, cut into frames whose size is bounded before they are kept.
* `handshake`: two nodes prove to each other that they know the cluster's secret, before any other frame is accepted.
* `node_identity`: the identity that a node sends to the others. `fields`: the fields of frames whose content is msgpack.
* `link`: one connection: handshake, heartbeats, members. `peer`: the same as the reactor sees it. Start at `link`.
* `part`: the base of the parts that handle the frames of one subject. A new frame is a line of FrameKind and a part.
* `visit`: a connection over which a node asks what another one has of logs, before it has read its own.
* `cut`: partitions between nodes, for drills and tests.
"""
