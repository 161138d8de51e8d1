"""What makes nodes a cluster: copies of their logs, and failover when a node is gone. See docs/design/cluster.md.

A log has one leader, the node that writes it. Followers keep replicas of it. When the leader is gone, a follower is elected,
makes a log of its replica, and delivers what is unfinished in it. Each folder is one subject, and imports only those before it:

* `wire`: the bytes between two nodes, and what takes part in their exchange.
* `membership`: what a node knows of the cluster: who is in it, who leads which log. Start at `membership/cluster.py`.
* `replication`: a log is copied from its leader to its followers, and repaired from their replicas.
* `ownership`: who leads each log: elections, votes, transfer, closed logs.
* `promotion`: a replica becomes a log that this node leads, and what diverged is salvaged.
* `remote_jobs`: jobs of this node for clients of other nodes.

The modules beside them drive all of it. `port` has the connections and the clock. `joining` builds a node's part in the
cluster, and `departure` ends it. `joined` is the node as HTTP, Disque and the daemon see it.

What does no input or output, and asks no clock, is the rule; pyproject.toml lists the modules that do.
"""
