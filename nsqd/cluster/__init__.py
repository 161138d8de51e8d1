"""Replication of logs among nodes, and failover when a node is lost. See docs/contributing/design/cluster-protocol.md.

A log has one leader, the node that writes it. Followers keep replicas of it. When the leader is lost, the nodes elect a
follower, which promotes its replica to a log and delivers the unfinished messages. Each folder is one subject, and imports
only those before it:

* `wire`: connections and frames between two nodes.
* `membership`: a node's view of the cluster: its members, and the leader of each log. Start at `membership/cluster.py`.
* `replication`: copies a log from its leader to its followers, and repairs it from their replicas.
* `ownership`: decides which node leads each log: elections, votes, transfer, closed logs.
* `promotion`: opens a replica as a log that this node leads, and salvages diverged copies.
* `remote_jobs`: delivers this node's jobs to clients of other nodes.

The modules of this folder drive them. `port` has the connections and the clock, and `early` is the port before this node has
read its log. `joining` builds a node's part in the cluster, and `departure` ends it. `joined` is the node as HTTP, Disque and
the daemon see it.

Most modules do no input or output, and read no clock; pyproject.toml lists the exceptions.
"""
