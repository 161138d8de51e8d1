"""Copy a log to the followers of its leader, byte for byte, and repair it from their replicas.

* `leader`: the leader's side: it chooses followers and asks each `follower` what it has; `sending` sends it the log.
  `in_sync` has the in-sync ones, `lag` how old the bytes are that one has not confirmed; `waits` reports publishes that wait.
* `replicas`: the follower's side: the replicas of other nodes' logs, each a `replica` with a `manifest` that names its files.
  `past` reads topics back from them, and `replica_to_log` turns one into a log. `directory` has their paths.
* `copying`: both sides. `stream`: the frames between them. `common_point`: where two copies diverge. `log_times`: the time in
  a log.
* At a start, `rejoin` fetches the lost end of this node's log, and `repair` replaces corrupt bytes, also later. `offers` has
  the frames for that: `asking` asks other nodes on visits, `answers` answers theirs.
"""
