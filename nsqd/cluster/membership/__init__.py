"""One node's view of its cluster, and how it is merged with the views of the others.

* `cluster`: the connections, and which updates to forward. Start here. `dials`: which addresses to dial, and when.
* `members`: the members of the cluster, and which of them are suspected. `reports`: which records of others to accept.
* `leaders`: the leader of each log, by the greatest epoch, and closed logs (`leader_frames`). `disputes`: which of these
  updates to accept.
* `topic_configs`: the configurations of topics.
* `deletions`: deletions in logs that this node has lost.
* `salvaged`: the tails that other nodes have salvaged and this node's logs lack.
* `facts`: the facts that a node must know at its start; `cluster_json` is their JSON, and `facts_file` keeps it on disk.
"""
