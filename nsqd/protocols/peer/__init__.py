"""What the nodes of a cluster say to each other, without input or output: bytes in, bytes out.

* `frames`: the bytes on a connection, cut into frames whose size is bounded before they are kept.
* `fields`: the fields of those frames whose content is msgpack. `node_identity`: who a node is, as it tells others.
* `stream`: how a log is copied.
* `claims`: who owns which log, and who takes over that of a node that is lost.
* `closed`: which logs nobody owns any more, because they owe nothing. `handover`: who is to own the log of a node that leaves.
* `deleted`: what was deleted from a log at a node that did not own it any more.
* `salvage`: what a copy holds that the owner of its log lacks.
* `configs`: how topics are configured. `jobs`: how jobs are lent, and asked about.
* `handshake`: two nodes prove to each other that they know the cluster's secret. Nothing else is accepted before.

See docs/design/cluster.md.
"""
