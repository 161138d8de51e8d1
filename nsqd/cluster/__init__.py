"""What a node knows of the other nodes of its cluster. Nothing here does input or output, or asks a clock.

* `cluster`: a node's part in its cluster: its connections, whom to dial, what is passed on. Start here. `cut`: silence that
  a rehearsal asks for.
* `part`: what each part of a node's work in the cluster does with frames, connections and time. `facts`: what a node keeps.
* `peer`: one connection to another node, as the reactor sees it. `link`: what is said over it.
* `membership`: who belongs to the cluster, and who is silent.
* `ownership`: who owns which log. `claims`: who takes over the log of a node that is lost. `cases`: what is known of such a
  log; `claimant`: this node claims one; `voter`: it answers the claims of others. `closed`: logs that owe nothing.
  `deletions`: what was deleted here from logs that others own now.
* `disputes`: which words about owners are believed.
* `leaving`: a node that leaves hands its logs over. `topic_configs`: how topics are configured, for adopted logs.
* `lending`: jobs for clients of other nodes, and questions about jobs.
* `salvaged`: what other nodes have salvaged that this node's logs lack.

Of nsqd, this package may import only `protocols` and `core`. See docs/design/cluster.md.
"""
