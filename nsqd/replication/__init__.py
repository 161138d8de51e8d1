"""What makes nodes a cluster, over their logs and their connections.

* The start: `facts` is what a node must know before anybody tells it, and `facts_file` keeps it on disk. `rejoin` fetches the
  end of its log from a mirror that is longer; `offers` asks other nodes for theirs over `node_http`, and `early` serves this
  node's to others that start at the same time, with what it has adopted (`early_owned`). `mending` replaces damaged bytes, also
  later. If another node has adopted the log, `succession` makes the one that follows. `joining` makes the node's view of the
  cluster, and both sides of copying.
* The run: `port` drives the view by connections and the clock, and `joined` is the node as the rest of the daemon sees it.
  `departure` is what a node that leaves does to its clients and logs.
* Copying: `origin` sends this node's log to its followers (`follower`). `choosing` says who they are, and `in_sync` which of
  them count. `mirrors` keeps the logs of others. `common` says where two copies part, `directory` where mirrors are. `copying`
  is both sides. `claiming` is what claims need of it.
* Taking over: `adoption` serves the logs of other nodes that this one owns now (`adopted_log`), `opening_adopted` is what a
  thread does for it, and `closing` ends with those that owe nothing any more. `log_times` tells followers the time of a log,
  so that due times go on in it. `standstill` holds the deliveries of a node that was stopped. `duplicates` counts what may be
  delivered twice because of that. `deleting` deletes from such logs what was deleted at a node that was cut off.
* Diverged copies: the folder `diverged`.
* Jobs: `job_owners` says who may own a job, and keeps acknowledgements for those that are away. `tube_owners` is the same for
  clients of beanstalkd.

See docs/design/cluster.md.
"""
