"""The bytes between two nodes, and who sends and takes them. Nothing here does input or output, or asks a clock.

* `frames`: the bytes on a connection, cut into frames whose size is bounded before they are kept.
* `handshake`: two nodes prove to each other that they know the cluster's secret. Nothing else is accepted before.
* `node_identity`: who a node is, as it tells the others. `fields`: the fields of frames whose content is msgpack.
* `link`: one connection: handshake, heartbeats, members. `peer`: the same as the reactor sees it. Start at `link`.
* `part`: what takes the frames of one subject. A new frame is a line of FrameKind and a part that takes it.
* `cut`: silence between nodes, for drills and tests.
"""
