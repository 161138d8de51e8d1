"""What a node knows of the other nodes of its cluster. Nothing here does input or output, or asks a clock.

* `membership`: who belongs to the cluster, and who is silent.

Of nsqd, this package may import only `protocols` and `core`. See docs/design/cluster.md.
"""
