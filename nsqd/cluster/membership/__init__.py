"""What one node knows of its cluster, and how it is merged with what the others know.

* `cluster`: the connections that there are, whom to dial and when, and what is passed on. Start here.
* `members`: who belongs to the cluster, and who is silent.
* `leaders`: who leads which log, by the greatest epoch (`leader_frames`). `disputes`: which of these words are believed.
* `topic_configs`: how topics are configured (`config_frames`).
* `closed_frames`: logs that are closed. `deletions`: what was deleted from logs that this node has lost (`deletion_frames`).
* `salvaged`: what other nodes have salvaged that this node's logs lack.
* `facts`: what a node must know at its start; `cluster_json` reads and writes it as JSON, and `facts_file` keeps it on disk.
"""
