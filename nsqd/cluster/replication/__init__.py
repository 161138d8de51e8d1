"""A log is copied to the followers of its leader, byte for byte, and repaired from their replicas.

* `leader`: the leader's side: it sends the log to each `follower`. `choosing` says which nodes follow, `in_sync` which of them
  have everything.
* `replicas`: the follower's side: the replicas of other nodes' logs, each a `replica` with a `manifest` that names its files.
  `replica_disk` gives them the names that they have in the log, `past` reads topics back from them, and `replica_to_log` makes
  a log of one. `directory` is where they are.
* `copying`: both sides. `stream`: the frames between them. `common_point`: where two copies diverge. `log_times`: the time in
  a log.
* At a start, `rejoin` fetches what this node has lost: `offers` asks the others over `node_http`, and `early` (`early_led`)
  serves this node's to others that start. `repair` replaces damaged bytes, also later.
"""
