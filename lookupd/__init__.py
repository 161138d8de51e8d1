"""nsqlookupd: which nsqd has which topics and channels. All state is in memory.

Read `registry` (the state, pure) over `producers` and `producer_slots`, then `protocol` (one connection's bytes, pure), then
`net` and `http` (the two listeners), then `daemon` and `main`.

* `long_polls`: requests to /lookup that wait for a change of their topic.
* `cluster_nodes`: the last contact with each node of a cluster.
* `tls`: which connections are encrypted. `pending` and `rate_limit`: the limits of connections and commands.
* `metrics`: Prometheus' metrics. `options`: the flags.

This room imports no other room, and neither penstock.client nor penstock.launch. `registry` and `protocol` use no socket or
clock.
"""
